"""An algorithm is a pure function from weights, memory and an ordered episode to a direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, UsageError
from seqdg.core.settings import Number, Settings
from seqdg.nets import Net

Loss = Callable[[Params], Tensor]


@dataclass(frozen=True)
class Algorithm(Settings):
    """Subclasses are frozen dataclasses whose fields are the settings."""

    optimizer: ClassVar[str] = "momentum"
    needs: ClassVar[int] = 1  # source domains, at least
    needs_all: ClassVar[bool] = False  # every step must meet every source, so that `domains_per_step` is refused
    inert: ClassVar[tuple[str, ...]] = ()  # settings ("beta"), or positions of one ("beta_1"), that need not act
    sums: ClassVar[bool] = False  # its loss adds up the domains where AGG takes their mean, so it wants a smaller rate
    hard_labels: ClassVar[bool] = False  # it reads labels outside the net's criterion, so they cannot be mixed
    needs_classes: ClassVar[bool] = False  # it is about classes, even where it reads no labels: it predicts no numbers
    needs_points: ClassVar[bool] = False  # it acts between the layers of a net (`Net.with_points`)
    together: ClassVar[int] = 0  # transductive: how many rows of one domain `predict` wants at once; 0: any number

    def check(self, net: Net, sources: int) -> None:
        """Raise a UsageError where the algorithm cannot train this net on that many source domains in a step."""
        if net.is_regression and (self.hard_labels or self.needs_classes):
            raise UsageError(
                f"{type(self).__name__} needs classes, and here numbers are predicted: choose another algorithm, such "
                "as agg."
            )
        if sources < self.needs:
            raise UsageError(
                f"{type(self).__name__} needs at least {self.needs} source domains, but there is {sources}: "
                "add a domain or choose another algorithm, such as agg."
            )

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        """Return all that is trained: the net's weights, and extra heads or branches. Copies may share their memory:
        what trains them gives each its own."""
        return params

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        """Return what is carried from step to step, at the start; no optimizer touches it."""
        return {}

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        """Return which algorithm trains for which share of the steps, in order; shares sum to 1, or above it."""
        return ((1.0, self),)

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        """Return the weights and the memory that a stage starts from; called on that stage's algorithm before its first
        step."""
        return params, memory

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no loss: it defines its direction directly.")

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """Return the direction and the loss. A name absent from the direction is left alone: no decay, no momentum."""
        direction, value = grad_and_value(lambda weights: self.loss(net, weights, episode))(params)
        return direction, value

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        """Return the direction, the loss and the new memory. Without a memory, `loss` or `gradient` is enough."""
        direction, value = self.gradient(net, params, episode)
        return direction, value, memory

    def evaluated(self, memory: Params, losses: Tensor) -> Params:
        """Return the memory after an evaluation. losses: (source,) on the sources' validation rows, of the weights as
        they are, not averaged."""
        return memory

    def pace(self, name: str) -> Number:
        """Return by what factor the weights of this name learn faster than the learning rate says."""
        return 1.0

    def deploy(self, params: Params, memory: Params) -> Params:
        """Return the weights that serve an unseen domain."""
        return params

    def statistics(self, net: Net, deployed: Params, x: Tensor) -> Params:
        """Return the BatchNorm statistics of one domain's inputs at the deployed weights, by name."""
        return net.statistics(deployed, x)

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        """Return the logits; the probabilities are their softmax."""
        return net(deployed, x)


@dataclass(frozen=True)
class Chainable(Algorithm):
    """A base that says how a loss over the past is extended by one domain, L(D_d | D_[:d))."""

    # Whether the chain is the base itself whatever the path, as where a penalty is a symmetric function of the domains.
    symmetric: ClassVar[bool] = False

    alone: ClassVar[tuple[str, ...]] = ()  # settings that mean something only outside a `Sequential`

    def check_path(self, net: Net, length: int) -> None:
        """Raise a UsageError where the settings do not fit a path of that many domains."""

    def begin(self, net: Net, episode: Episode) -> Loss:
        """Return the loss on the first domain of the path."""
        return lambda weights: net.loss(weights, episode.minibatch(0))

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        """Return the loss over domains 0..i, from that over 0..i-1: the definition."""
        raise TypeError(f"{type(self).__name__} does not define extend(net, past, episode, i).")

    # Optional fast path, the fold on directions: advance(net, params, (direction, loss), episode, i), which must
    # equal the gradient of what extend defines (where extend stops gradients, as it stops them).
    advance: ClassVar[Callable[..., tuple[Params, Tensor]] | None] = None
    # Or of the whole path at once: along(net, params, episode).
    along: ClassVar[Callable[..., tuple[Params, Tensor]] | None] = None
    # A chain has the base's memory only if the base says what a path makes of it: follow(net, params, memory, episode),
    # which returns what `step` does.
    follow: ClassVar[Callable[..., tuple[Params, Tensor, Params]] | None] = None

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


def check_features(net: Net, kind: str) -> None:
    """Raise a UsageError where the net has no features below its head."""
    if not net.has_features:
        raise UsageError(
            f"{kind} works on the features that enter the head, but this net learns none: "
            "give it a hidden layer below a linear head, or choose another algorithm, such as agg."
        )


@dataclass(frozen=True)
class Algorithm(Settings):
    """A learning algorithm as a pure function. Subclasses are frozen dataclasses whose fields are the settings.

    A subclass defines `loss`, or `gradient` where its direction is the gradient of no loss, or `step` where it
    remembers something from step to step. It owns no optimizer and draws no random numbers: the trainer takes the step,
    and everything random is in the episode. Where `moves` is true, the direction is the new weights themselves.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from seqdg import Algorithm, setting
    >>> @dataclass(frozen=True)
    ... class Worst(Algorithm):
    ...     '''The mean loss, and the largest of a domain (Sagawa et al., 2020).'''
    ...
    ...     weight: float = setting(1.0, least=0.0)
    ...
    ...     def loss(self, net, params, episode):
    ...         losses = net.losses(params, episode)
    ...         return losses.mean() + self.weight * losses.max()
    >>> Worst(weight=0.5)
    Worst(weight=0.5)
    """

    optimizer: ClassVar[str] = "momentum"
    needs: ClassVar[int] = 1  # source domains, at least
    needs_all: ClassVar[bool] = False  # every step must meet every source, so that `domains_per_step` is refused
    inert: ClassVar[tuple[str, ...]] = ()  # settings ("beta"), or positions of one ("beta_1"), that need not act
    sums: ClassVar[bool] = False  # its loss adds up the domains where AGG takes their mean, so it wants a smaller rate
    hard_labels: ClassVar[bool] = False  # it reads labels outside the net's criterion, so they cannot be mixed
    needs_classes: ClassVar[bool] = False  # it is about classes, even where it reads no labels: it predicts no numbers
    needs_features: ClassVar[bool] = False  # it works on what enters the net's head, and trains weights below it
    trains_head: ClassVar[bool] = True  # False for a stage that trains nothing of the head that is deployed
    needs_points: ClassVar[bool] = False  # it acts between the layers of a net (`Net.with_points`)
    stackable: ClassVar[bool] = True  # False: Python decides by numbers, so that each trial takes its step by itself
    moves: ClassVar[bool] = False  # `step` returns new weights in place of a direction, and no optimizer acts on them
    uses: ClassVar[tuple[str, ...]] = ()  # of an episode beside its minibatches: "target", "view", "group"
    together: ClassVar[int] = 0  # transductive: how many rows of one domain `predict` wants at once; 0: any number

    def check(self, net: Net, sources: int) -> None:
        """Raise a UsageError where the algorithm cannot train this net on that many source domains in a step.

        Parameters
        ----------
        net : Net
            The neural network to train.
        sources : int
            How many source domains a step meets.
        """
        if net.is_regression and (self.hard_labels or self.needs_classes):
            raise UsageError(
                f"{type(self).__name__} needs classes, and this is regression: choose another algorithm, such as agg."
            )
        if sources < self.needs:
            raise UsageError(
                f"{type(self).__name__} needs at least {self.needs} source domains, but there is {sources}: "
                "add a domain or choose another algorithm, such as agg."
            )
        if self.needs_features:
            check_features(net, type(self).__name__)

    def choose_optimizer(self, name: str) -> str:
        """Return what optimizes a weight: "sgd", "momentum", "adam" or "adam-l2"; "" where it is the run's optimizer.

        Parameters
        ----------
        name : str
            The name of a weight.

        Returns
        -------
        str
            The name of an optimizer, or "".
        """
        return ""

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        """Return all that is trained: the net's weights, and extra heads or branches.

        Copies may share their memory: what trains them gives each its own.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        params : Params
            The net's first weights, by name.
        sources : int
            The number of source domains.
        generator : torch.Generator
            For the first weights of what is added.

        Returns
        -------
        Params
            The weights to train, by name.
        """
        return params

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        """Return what is carried from step to step, at the start; no optimizer touches it.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        params : Params
            The weights, by name.
        sources : int
            The number of source domains.

        Returns
        -------
        Params
            Tensors by name. Steps change their values, and never their names, shapes or types.
        """
        return {}

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        """Return which algorithm trains for which share of the steps, in order.

        Returns
        -------
        tuple of (float, Algorithm)
            The share and the algorithm of each stage. Shares sum to 1, or above it where stages come on top.
        """
        return ((1.0, self),)

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        """Return the weights and the memory that a stage starts from.

        It is called on the stage's algorithm before its first step.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        params : Params
            The weights, by name.
        memory : Params
            What is carried from step to step, by name.

        Returns
        -------
        tuple of (Params, Params)
            The weights and the memory.
        """
        return params, memory

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        """Return the loss of a step, whose gradient is the direction.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        params : Params
            The weights, by name.
        episode : Episode
            A minibatch per source domain, in the order of the path.

        Returns
        -------
        Tensor
            ()
        """
        raise TypeError(f"{type(self).__name__} has no loss: it defines its direction directly.")

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """Return the direction and the loss.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        params : Params
            The weights, by name.
        episode : Episode
            A minibatch per source domain, in the order of the path.

        Returns
        -------
        tuple of (Params, Tensor)
            The direction by name, and the loss (). A name absent from the direction is left alone: no decay, no
            momentum.
        """
        direction, value = grad_and_value(lambda weights: self.loss(net, weights, episode))(params)
        return direction, value

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        """Return the direction, the loss and the new memory. Without a memory, `loss` or `gradient` is enough.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        params : Params
            The weights, by name.
        memory : Params
            What is carried from step to step, by name.
        episode : Episode
            A minibatch per source domain, in the order of the path.

        Returns
        -------
        tuple of (Params, Tensor, Params)
            The direction by name (the new weights, where `moves` is true), the loss (), and the new memory.
        """
        direction, value = self.gradient(net, params, episode)
        return direction, value, memory

    def evaluated(self, memory: Params, losses: Tensor) -> Params:
        """Return the memory after an evaluation.

        Parameters
        ----------
        memory : Params
            What is carried from step to step, by name.
        losses : Tensor
            (source,) on the sources' validation rows, of the weights as they are, not averaged.

        Returns
        -------
        Params
            The new memory.
        """
        return memory

    def pace(self, name: str) -> Number:
        """Return by what factor the weights of this name learn faster than the learning rate says.

        Parameters
        ----------
        name : str
            The name of a weight.

        Returns
        -------
        float or Tensor
            The factor.
        """
        return 1.0

    def deploy(self, params: Params, memory: Params) -> Params:
        """Return the weights that serve an unseen domain.

        Parameters
        ----------
        params : Params
            The weights, by name.
        memory : Params
            What is carried from step to step, by name.

        Returns
        -------
        Params
            The deployed weights, by name.
        """
        return params

    def statistics(self, net: Net, deployed: Params, x: Tensor) -> Params:
        """Return the BatchNorm statistics of one domain's inputs at the deployed weights.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        deployed : Params
            What `deploy` returned.
        x : Tensor
            (row, *input)

        Returns
        -------
        Params
            The statistics, by name.
        """
        return net.statistics(deployed, x)

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        """Return the logits; the probabilities are their softmax.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        deployed : Params
            What `deploy` returned, with BatchNorm's statistics.
        x : Tensor
            (row, *input), of one domain.

        Returns
        -------
        Tensor
            (row, class), or (row,) for regression.
        """
        return net(deployed, x)


@dataclass(frozen=True)
class Chainable(Algorithm):
    """An algorithm that says how a loss over past domains is extended by one domain, L(D_d | D_[:d)).

    `Sequential` folds it along a path. `extend` is the definition; `advance`, `along` and `follow` are optional.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from seqdg import Chainable, Sequential
    >>> @dataclass(frozen=True)
    ... class Sum(Chainable):
    ...     def extend(self, net, past, episode, i):
    ...         return lambda weights: past(weights) + net.loss(weights, episode.minibatch(i))
    >>> Sequential(Sum())
    Sequential(base=Sum())
    """

    # Whether the chain is the base itself whatever the path, as where a penalty is a symmetric function of the domains.
    symmetric: ClassVar[bool] = False

    alone: ClassVar[tuple[str, ...]] = ()  # settings that mean something only outside a `Sequential`

    def check_path(self, net: Net, length: int) -> None:
        """Raise a UsageError where the settings do not fit a path of that many domains.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        length : int
            The number of domains on the path.
        """

    def begin(self, net: Net, episode: Episode) -> Loss:
        """Return the loss on the first domain of the path.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        episode : Episode
            A minibatch per source domain, in the order of the path.

        Returns
        -------
        callable
            From weights to a loss ().
        """
        return lambda weights: net.loss(weights, episode.minibatch(0))

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        """Return the loss over domains 0..i, from that over 0..i-1: the definition.

        Parameters
        ----------
        net : Net
            The neural network, as a function of its weights.
        past : callable
            From weights to the loss over domains 0..i-1.
        episode : Episode
            A minibatch per source domain, in the order of the path.
        i : int
            The position of the new domain.

        Returns
        -------
        callable
            From weights to a loss ().
        """
        raise TypeError(f"{type(self).__name__} does not define extend(net, past, episode, i).")

    # Optional fast path, the fold on directions: advance(net, params, (direction, loss), episode, i), which must
    # equal the gradient of what extend defines (where extend stops gradients, as it stops them).
    advance: ClassVar[Callable[..., tuple[Params, Tensor]] | None] = None
    # Or of the whole path at once: along(net, params, episode).
    along: ClassVar[Callable[..., tuple[Params, Tensor]] | None] = None
    # A chain has the base's memory only if the base says what a path makes of it: follow(net, params, memory, episode),
    # which returns what `step` does.
    follow: ClassVar[Callable[..., tuple[Params, Tensor, Params]] | None] = None

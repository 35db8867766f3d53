"""What the checks look at: an algorithm, a small net, and episodes and weights drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqdg.base import GROUP, TARGET, VIEW, Episode, Params, UsageError, tree
from seqdg.core import Algorithm, list_layers
from seqdg.nets import Net, Point

INPUTS, CLASSES, BATCH = 4, 3, 6
STEPS = 30  # of a short training, with an evaluation after every second


class Violation(Exception):
    """What breaks the contract, in a sentence that does not name the check."""


def build_nets(with_points: bool = False) -> dict[str, Net]:
    """Build networks in float64, smooth, so that nothing is inert by chance; or one with points between its layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(INPUTS, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES))
        norm = nn.Sequential(nn.Linear(INPUTS, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, CLASSES))
        maps = nn.Sequential(
            nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.Tanh(), Point("after1"),
            nn.Conv2d(3, 4, 2), nn.Tanh(), Point("after2"), nn.Flatten(), nn.Linear(16, CLASSES),
        )  # fmt: skip
    if with_points:
        return {"a convolutional net": Net(maps.double(), "none")}
    return {
        "an MLP": Net(plain.double(), "none"),
        "an MLP with BatchNorm": Net(norm.double(), "recalibrate"),
    }


class Moment(NamedTuple):
    """Where a short training stands."""

    step: int
    params: Params
    memory: Params

    @property
    def is_evaluated(self) -> bool:
        """Whether the last step was followed by an evaluation."""
        return self.step > 0 and self.step % 2 == 0


@dataclass(frozen=True)
class Rows:
    """Rows of one's own to draw minibatches from.

    Parameters
    ----------
    domains : sequence of (Tensor, Tensor)
        x (row, *input) and y (row,), class numbers, of each domain.
    classes : int
        How many classes there are.

    Examples
    --------
    >>> import torch
    >>> from seqdg.testing import Rows
    >>> rows = Rows([(torch.randn(20, 4), torch.arange(20) % 3) for _ in range(3)], classes=3)
    >>> x, y = rows.draw(0, 5, torch.Generator())
    >>> x.shape, y.shape
    (torch.Size([5, 4]), torch.Size([5]))
    """

    domains: Sequence[tuple[Tensor, Tensor]]
    classes: int

    def draw(self, i: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw rows of a domain, whose numbers are in float64.

        Parameters
        ----------
        i : int
            The number of the domain; beyond the last, it starts anew with the first.
        count : int
            How many rows to draw.
        generator : torch.Generator
            What draws them.

        Returns
        -------
        tuple of (Tensor, Tensor)
            x (count, *input) and y (count,).
        """
        x, y = self.domains[i % len(self.domains)]
        rows = torch.randint(len(x), (count,), generator=generator)
        x = x.index_select(0, rows)
        return x.double() if x.is_floating_point() else x, y.index_select(0, rows)


@dataclass(frozen=True)
class Case:
    """One algorithm on one net with so many source domains. rows: of the user's own; None: drawn at random."""

    algorithm: Algorithm
    net: Net
    sources: int
    rows: Rows | None = None

    @property
    def classes(self) -> int:
        return CLASSES if self.rows is None else self.rows.classes

    @property
    def stacks(self) -> bool:
        """Whether trials of it are mapped over."""
        return self.algorithm.stackable and self.net.stackable

    @property
    def stages(self) -> list[Algorithm]:
        """The algorithm of each stage."""
        return [stage for _, stage in self.algorithm.stages()]

    def init_weights(self, seed: int = 0) -> Params:
        """Return the weights that `init` makes of the net's."""
        generator = torch.Generator().manual_seed(seed)
        return self.algorithm.init(self.net, self.net.params(), self.sources, generator)

    def draw_weights(self, seed: int = 0) -> Params:
        """Draw weights away from the start, where branches are equal and regularizers vanish."""
        noise = torch.Generator().manual_seed(seed + 1000)
        return {
            name: w + self._find_reach(w) * torch.randn(w.shape, generator=noise, dtype=w.dtype)
            for name, w in self.init_weights(seed).items()
        }

    def _find_reach(self, w: Tensor) -> float:
        """Say how far from the start weights are drawn: of the user's net, a tenth of their own size."""
        return 0.3 if self.rows is None else 0.1 * (float(w.std(correction=0)) or 0.1)

    def draw_episode(self, seed: int = 0) -> Episode:
        """Draw an episode half-way through the training, with the domains in a random order."""
        g = torch.Generator().manual_seed(seed + 2000)
        shape = (self.sources, BATCH)
        shift = torch.arange(self.sources, dtype=torch.float64).reshape(-1, 1, 1)
        if self.rows is None:
            x = torch.randn((*shape, INPUTS), generator=g, dtype=torch.float64) + 0.2 * shift
            y = torch.randint(CLASSES, shape, generator=g)
        else:
            drawn = [self.rows.draw(i, BATCH, g) for i in range(self.sources)]
            x, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))
        return Episode(
            x=x,
            y=y,
            domain=torch.randperm(self.sources, generator=g),
            progress=torch.rand((), generator=g, dtype=torch.float64) * 0.2 + 0.4,
            key=torch.randint(2**62, (), generator=g),
            rate=torch.rand((), generator=g, dtype=torch.float64) * 0.1 + 0.1,
            extras=self._draw_extras(x, g),
        )

    def _draw_extras(self, x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw what the algorithm uses beside its minibatches; nothing is drawn where it uses none of it."""
        uses = self.algorithm.uses
        extras = {}
        if VIEW in uses:
            extras[VIEW] = x + 0.1 * torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)
        if TARGET in uses:
            extras[TARGET] = x[-1].flip(0) + 0.3
        if GROUP in uses:
            extras[GROUP] = torch.randint(2, x.shape[:2], generator=generator)
        return extras

    def draw_probe(self, seed: int = 0) -> Tensor:
        """Draw inputs (batch, *input) of a domain that no episode holds."""
        if self.rows is not None:
            return self.rows.draw(self.sources, 8, torch.Generator().manual_seed(seed + 3000))[0]
        return torch.randn((8, INPUTS), generator=torch.Generator().manual_seed(seed + 3000), dtype=torch.float64)

    def remember(self, stage: int, params: Params, episode: Episode) -> Params:
        """Return the memory in a stage after one step and one evaluation; where there is none, nothing is computed."""
        part, memory = self.stages[stage], self.algorithm.memory(self.net, params, episode.domains)
        if not memory:
            return memory
        _, memory = part.enter(self.net, params, memory)
        _, _, memory = part.step(self.net, params, memory, episode._replace(progress=0.5 * episode.progress))
        return self.algorithm.evaluated(memory, _make_losses(episode, 0))

    def compute_step(self, stage: int, params: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        """Return direction, loss and new memory of one stage, from a memory that is not the first."""
        return self.take(self.stages[stage], params, self.remember(stage, params, episode), episode)

    def take(self, stage: Algorithm, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        """Return direction, loss and new memory of a step: of new weights, the way that leads to them."""
        direction, loss, kept = stage.step(self.net, params, memory, episode)
        if stage.moves:
            direction = {name: params[name] - w if name in params else w for name, w in direction.items()}
        return direction, loss, kept

    def predict(self, params: Params, memory: Params, x: Tensor) -> Tensor:
        """Return logits of the deployed weights, with the BatchNorm statistics of x."""
        deployed = self.algorithm.deploy(params, memory)
        deployed = {**deployed, **self.algorithm.statistics(self.net, deployed, x)}
        return self.algorithm.predict(self.net, deployed, x)

    def compute_everything(self, params: Params, episode: Episode, x: Tensor) -> dict[str, Tensor]:
        """Return all that training and serving ask of an algorithm, each value by what it is."""
        values, memory = {}, self.algorithm.memory(self.net, params, episode.domains)
        for k, stage in enumerate(self.stages):
            direction, values[f"the loss of stage {k + 1}"], kept = self.compute_step(k, params, episode)
            values |= {f"the direction of stage {k + 1} at '{name}'": d for name, d in direction.items()}
            values |= {f"the memory of stage {k + 1} at '{name}'": m for name, m in kept.items()}
            entered, _ = stage.enter(self.net, params, memory)
            values |= {f"'{name}' as stage {k + 1} begins": w for name, w in entered.items()}
        for name in params:
            pace = torch.as_tensor(self.algorithm.pace(name), dtype=x.dtype, device=x.device)
            values[f"the pace of '{name}'"] = pace
        return values | {"the prediction": self.predict(params, kept, x)}

    def begin_walk(self, params: Params, episode: Episode) -> Moment:
        """Return the start of a short training of the last stage."""
        memory = self.algorithm.memory(self.net, params, episode.domains)
        return Moment(0, *self.stages[-1].enter(self.net, params, memory))

    def walk(self, episode: Episode, moment: Moment) -> Iterator[Moment]:
        """Yield what follows a moment of a short training, step by step; its losses first fall and then rise."""
        stage = self.stages[-1]
        for i in range(moment.step, STEPS):
            _, params, memory = moment
            now = episode._replace(progress=torch.zeros_like(episode.progress) + i / STEPS, key=episode.key + i)
            direction, _, memory = self.take(stage, params, memory, now)
            length = 1.0 if stage.moves else 0.02
            params = {name: w - length * direction[name] if name in direction else w for name, w in params.items()}
            moment = Moment(i + 1, params, memory)
            if moment.is_evaluated:
                moment = moment._replace(memory=self.algorithm.evaluated(memory, _make_losses(episode, i // 2)))
            yield moment


def stack_trials(trials: Sequence[tuple[Params, Episode, Tensor]]) -> tuple[Params, Episode, Tensor]:
    """Stack weights, episodes and inputs of several trials: each tensor gets a first axis of trials."""
    params, episodes, inputs = zip(*trials, strict=True)
    return tree.stack(params), stack_episodes(episodes), torch.stack(inputs)


def stack_episodes(episodes: Sequence[Episode]) -> Episode:
    """Stack the episodes of several trials: each tensor gets a first axis of trials."""
    columns = {name: [getattr(episode, name) for episode in episodes] for name in Episode._fields}
    extras = tree.stack(columns.pop("extras"))
    return Episode(**{name: torch.stack(tensors) for name, tensors in columns.items()}, extras=extras)


def _make_losses(episode: Episode, i: int) -> Tensor:
    """Make the losses (source,) of evaluation number i; the fifth is the best."""
    return episode.x.new_ones(episode.domains) + 0.02 * (i - 4) ** 2


def measure_difference(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> tuple[str, float]:
    """Return where two trees differ most and by how much, relative to the largest entry of the second; infinity where
    names or shapes differ."""
    for name in {**a, **b}:
        if name not in a or name not in b or a[name].shape != b[name].shape:
            return name, float("inf")
    size = max((float(v.abs().max()) for v in b.values()), default=0.0) or 1.0
    apart = {name: float((v - b[name]).abs().max()) / size for name, v in a.items()}
    if not apart:
        return "", 0.0
    name = max(apart, key=lambda n: (apart[n] != apart[n], apart[n]))
    return name, apart[name] if apart[name] == apart[name] else float("inf")


def assert_same(got: Mapping[str, Tensor], want: Mapping[str, Tensor], what: str, tolerance: float = 1e-9) -> None:
    name, apart = measure_difference(got, want)
    if apart > tolerance:
        raise Violation(f"{what}: {name} differs by {apart:.1e} of the largest entry.")


def find_source_count(algorithm: Algorithm, net: Net) -> int:
    """Return the fewest source domains, three or more, that the algorithm takes with its settings."""
    message = ""
    for sources in range(3, 9):
        try:
            algorithm.check(net, sources)
        except UsageError as error:
            message = message or str(error)
        else:
            return sources
    raise Violation(f"it takes no number of source domains from 3 to 8; for 3 it says: {message}")


def format_algorithm(algorithm: Algorithm) -> str:
    """`Sequential(MLDG)`"""
    names = [type(layer).__name__ for layer in list_layers(algorithm)]
    return "(".join(names) + ")" * (len(names) - 1)

"""Wrappers: what can be added to any algorithm. `agg+mixup+ema` is `EMA(Mixup(AGG()))`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.base import Episode, Params, UsageError, tree
from seqdg.core.algorithm import Algorithm
from seqdg.core.settings import Number
from seqdg.nets import Net

ACTED_ON = ("inputs", "loss", "direction", "stages", "net", "weights")  # from the inside out
BASE, OWN = "base.", "own."  # prefixes in a wrapper's memory


@dataclass(frozen=True)
class Around(Algorithm):
    """An algorithm with another one inside, to which it leaves all but the step and the memory."""

    base: Algorithm
    inherited: ClassVar[tuple[str, ...]] = (
        "optimizer", "needs_all", "hard_labels", "needs_classes", "needs_points", "together", "stackable", "moves",
        "uses",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.inherited:
            object.__setattr__(self, name, getattr(self.base, name))

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        return self.base.init(net, params, sources, generator)

    def pace(self, name: str) -> Number:
        return self.base.pace(name)

    def choose_optimizer(self, name: str) -> str:
        return self.base.choose_optimizer(name)

    def statistics(self, net: Net, deployed: Params, x: Tensor) -> Params:
        return self.base.statistics(net, deployed, x)

    def predict(self, net: Net, deployed: Params, x: Tensor) -> Tensor:
        return self.base.predict(net, deployed, x)


@dataclass(frozen=True)
class Wrapper(Around):
    """An algorithm around another one: it delegates everything, and a subclass changes what it is about.

    A subclass overrides `step` for another direction, `deploy` for other weights. Where its direction is the gradient
    of no loss, it says `loss = Algorithm.loss`. In its memory the base's entries begin with `base.`, and its own with
    anything else. `acts_on` decides its position in a chain of names.

    Parameters
    ----------
    base : Algorithm
        The algorithm inside.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import seqdg
    >>> @dataclass(frozen=True)
    ... class Half(seqdg.Wrapper):
    ...     loss = seqdg.Algorithm.loss
    ...
    ...     def step(self, net, params, memory, episode):
    ...         direction, loss, memory = super().step(net, params, memory, episode)
    ...         return seqdg.tree.scale(direction, 0.5), loss, memory
    >>> Half(seqdg.build("agg"))
    Half(base=AGG())
    """

    acts_on: ClassVar[str] = "direction"  # one of ACTED_ON, which is their order in a chain of names
    inherited: ClassVar[tuple[str, ...]] = (*Around.inherited, "needs", "sums")

    def check(self, net: Net, sources: int) -> None:
        self.base.check(net, sources)
        if self.acts_on == "direction" and self.base.moves:
            raise UsageError(
                f"{type(self).__name__} changes a direction, and {type(find_core(self)).__name__} returns new weights: "
                "leave one of them out."
            )

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return tree.with_prefix(self.base.memory(net, params, sources), BASE)

    def stages(self) -> tuple[tuple[float, Algorithm], ...]:
        return tuple((share, replace(self, base=stage)) for share, stage in self.base.stages())

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        params, kept = self.base.enter(net, params, tree.under_prefix(memory, BASE))
        return params, {**memory, **tree.with_prefix(kept, BASE)}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        return self.base.loss(net, params, episode)

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        direction, value, _ = self.step(net, params, self.memory(net, params, episode.domains), episode)
        return direction, value

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = self.base.step(net, params, tree.under_prefix(memory, BASE), episode)
        return direction, value, {**memory, **tree.with_prefix(kept, BASE)}

    def evaluated(self, memory: Params, losses: Tensor) -> Params:
        return {**memory, **tree.with_prefix(self.base.evaluated(tree.under_prefix(memory, BASE), losses), BASE)}

    def deploy(self, params: Params, memory: Params) -> Params:
        return self.base.deploy(params, tree.under_prefix(memory, BASE))


@dataclass(frozen=True)
class Averaging(Wrapper):
    """A wrapper that deploys an average of the weights. It changes no training, so averages of one training share it.

    A subclass says what is remembered (`begin`), how a step adds to it (`observe`), what an evaluation makes of it
    (`judge`) and what is deployed (`average`).

    Parameters
    ----------
    base : Algorithm
        The algorithm whose weights are averaged.

    Examples
    --------
    >>> import seqdg
    >>> isinstance(seqdg.build("agg+ema", decay=0.9), seqdg.Averaging)
    True
    """

    acts_on: ClassVar[str] = "weights"
    needs_evaluations: ClassVar[int] = 0  # at least so many, on validation rows

    def begin(self, params: Params) -> Params:
        """Return what is remembered before the first step of a stage.

        Parameters
        ----------
        params : Params
            The weights, by name.

        Returns
        -------
        Params
            Tensors by name, whose names, shapes and types stay.
        """
        raise NotImplementedError

    def observe(self, seen: Params, params: Params, progress: Tensor) -> Params:
        """Return what is remembered after the step that starts from these weights.

        Parameters
        ----------
        seen : Params
            What is remembered so far.
        params : Params
            The weights before the step.
        progress : Tensor
            (), from 0 to 1 over the training.

        Returns
        -------
        Params
            What is remembered now.
        """
        raise NotImplementedError

    def judge(self, seen: Params, losses: Tensor) -> Params:
        """Return what is remembered after an evaluation.

        Parameters
        ----------
        seen : Params
            What is remembered so far.
        losses : Tensor
            (source,) on the sources' validation rows, of the weights as they are.

        Returns
        -------
        Params
            What is remembered now.
        """
        return seen

    def average(self, seen: Params, params: Params) -> Params:
        """Return the average, with the current weights.

        Parameters
        ----------
        seen : Params
            What is remembered.
        params : Params
            The current weights.

        Returns
        -------
        Params
            The weights to deploy.
        """
        raise NotImplementedError

    def weigh_first(self, steps: int) -> float:
        """Return how much of the average is still the weights before training, after so many steps.

        Parameters
        ----------
        steps : int
            The number of steps.

        Returns
        -------
        float
            From 0 to 1.
        """
        return 0.0

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return {**super().memory(net, params, sources), **tree.with_prefix(self.begin(params), OWN)}

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        params, memory = super().enter(net, params, memory)
        return params, {**memory, **tree.with_prefix(self.begin(params), OWN)}

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = super().step(net, params, memory, episode)
        seen = self.observe(tree.under_prefix(memory, OWN), params, episode.progress)
        return direction, value, {**kept, **tree.with_prefix(seen, OWN)}

    def evaluated(self, memory: Params, losses: Tensor) -> Params:
        seen = self.judge(tree.under_prefix(memory, OWN), losses)
        return {**super().evaluated(memory, losses), **tree.with_prefix(seen, OWN)}

    def deploy(self, params: Params, memory: Params) -> Params:
        return super().deploy(self.average(tree.under_prefix(memory, OWN), params), memory)


@dataclass(frozen=True)
class SharedTraining(Wrapper):
    """One training that is deployed in several ways: as it is, and as each of some averages.

    base: what trains.
    averages: what is deployed beside it; their own bases are not used.
    """

    averages: tuple[Averaging, ...] = ()

    def memory(self, net: Net, params: Params, sources: int) -> Params:
        return {**super().memory(net, params, sources), **self._begin(params)}

    def enter(self, net: Net, params: Params, memory: Params) -> tuple[Params, Params]:
        params, memory = super().enter(net, params, memory)
        return params, {**memory, **self._begin(params)}

    def step(self, net: Net, params: Params, memory: Params, episode: Episode) -> tuple[Params, Tensor, Params]:
        direction, value, kept = super().step(net, params, memory, episode)
        for i, average in enumerate(self.averages):
            seen = average.observe(tree.under_prefix(memory, f"{i}."), params, episode.progress)
            kept |= tree.with_prefix(seen, f"{i}.")
        return direction, value, kept

    def evaluated(self, memory: Params, losses: Tensor) -> Params:
        kept = super().evaluated(memory, losses)
        for i, average in enumerate(self.averages):
            kept |= tree.with_prefix(average.judge(tree.under_prefix(memory, f"{i}."), losses), f"{i}.")
        return kept

    def deploy_as(self, view: int, params: Params, memory: Params) -> Params:
        """Deploy as it is (view 0), or as the average number `view - 1`."""
        if view:
            params = self.averages[view - 1].average(tree.under_prefix(memory, f"{view - 1}."), params)
        return super().deploy(params, memory)

    def _begin(self, params: Params) -> Params:
        parts = (tree.with_prefix(a.begin(params), f"{i}.") for i, a in enumerate(self.averages))
        return {name: value for part in parts for name, value in part.items()}


def list_layers(algorithm: Algorithm) -> tuple[Algorithm, ...]:
    """List an algorithm and those inside it, from the outside in: wrappers, `Sequential`, base."""
    inner = next((v for f in fields(algorithm) if isinstance(v := getattr(algorithm, f.name), Algorithm)), None)
    return (algorithm,) if inner is None else (algorithm, *list_layers(inner))


def find_core(algorithm: Algorithm) -> Algorithm:
    """Return the innermost algorithm, without wrappers and `Sequential`."""
    return list_layers(algorithm)[-1]


def strip_wrappers(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm inside all wrappers, which may be a `Sequential`."""
    return strip_wrappers(algorithm.base) if isinstance(algorithm, Wrapper) else algorithm


def count_needed_evaluations(algorithm: Algorithm) -> int:
    """Count the evaluations on validation rows that an algorithm needs, at least."""
    return max((layer.needs_evaluations for layer in list_layers(algorithm) if isinstance(layer, Averaging)), default=0)


def split_average(algorithm: Algorithm) -> tuple[Algorithm, Averaging | None]:
    """Return what trains, and the average around it where there is one, with an empty base."""
    if not isinstance(algorithm, Averaging):
        return algorithm, None
    return algorithm.base, replace(algorithm, base=Algorithm())

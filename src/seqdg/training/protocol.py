"""How a trial is trained and judged: its splits, its length, its rule of selection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqdg.base import UsageError, added_field, unknown
from seqdg.core import Algorithm
from seqdg.data import SCALINGS, STANDARD, Dataset
from seqdg.training.loss import AUTO, NUMBER_LOSSES
from seqdg.training.optimizers import OPTIMIZERS
from seqdg.training.sampler import make_stream

SPLITS = ("random", "official")
TESTS = ("whole", "split")
PRECISIONS = ("float32", "tf32", "bf16", "float64")
SCHEDULES = ("constant", "cosine", "steps")
PATHS = ("random", "fixed")
REMEMBERED = 512  # splits of a domain, the latest of them


@dataclass(frozen=True)
class Protocol:
    """What a benchmark fixes for every algorithm; an algorithm's own table may set its training fields.

    split: `random` draws each domain's validation rows from the trial's seed, `official` takes the data set's own.
    validation: share of each domain for validation under a random split.
    test: a held-out domain is tested `whole`, or only on the rows that its `split` gives to validation (VLCS).
    """

    split: str = "random"
    validation: float = 0.3
    test: str = "whole"
    steps: int = 1000
    batch: int = 32  # per domain
    evaluations: int = 10  # spread over the last `steps` steps; the last is after the last step
    optimizer: str = "auto"  # the algorithm's own
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-5
    # tf32: of matrix products on a GPU; bf16: of gradients, weights stay float32 and predict in tf32; float64: the same
    # on every machine
    precision: str = "float32"
    # Of the learning rate. cosine: falls to 0; steps: falls by the factor `drop` after every share `drop_every`.
    schedule: str = added_field("constant")
    warmup: float = added_field(0.0)  # share of the steps over which the rate first rises from 0, linearly
    drop_every: float = added_field(0.3)  # share of the steps
    drop: float = added_field(0.1)
    domains_per_step: int = added_field(0)  # how many of the sources a step meets, drawn at random; 0: all
    scaling: str = added_field(STANDARD)  # how a trial scales the numbers of a table that is not scaled yet
    calibrate: bool = added_field(False)  # divide logits by a temperature that fits the sources' validation rows
    members: int = added_field(1)  # how many trainings, from other seeds, predict together (a deep ensemble)
    loss: str = added_field(AUTO)  # of numbers: squared (auto), absolute or huber
    # Of a fixed split, in place of every domain held out in turn: the domains that are trained on, and those that are
    # neither trained on nor tested, but may choose. Empty: the split is not fixed.
    train_domains: tuple[str, ...] = added_field(())
    validation_domains: tuple[str, ...] = added_field(())
    path: str = added_field("random")  # in which order a step visits the domains; fixed: in that of the data set

    def __post_init__(self) -> None:
        for name in ("train_domains", "validation_domains"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a stored description has lists
        for name, allowed in (
            ("split", SPLITS),
            ("test", TESTS),
            ("precision", PRECISIONS),
            ("optimizer", ("auto", *OPTIMIZERS)),
            ("schedule", SCHEDULES),
            ("scaling", SCALINGS),
            ("loss", (AUTO, *NUMBER_LOSSES)),
            ("path", PATHS),
        ):
            if getattr(self, name) not in allowed:
                raise unknown(name, str(getattr(self, name)), allowed)
        for name in ("steps", "batch", "evaluations", "members"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value}, but at least 1 is needed.")
        if not isinstance(self.domains_per_step, int) or self.domains_per_step < 0:
            raise UsageError(
                f"domains_per_step is {self.domains_per_step}, but it must be a number of domains, or 0 for all."
            )
        if not isinstance(self.calibrate, bool):
            raise UsageError(f"calibrate is {self.calibrate!r}, but it must be true or false.")
        for name in ("lr", "momentum", "weight_decay"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise UsageError(f"{name} is {value}, but it must be a finite number of at least 0.")
        if not 0 < self.validation < 1:
            raise UsageError(f"validation is {self.validation}, but it must be a share between 0 and 1.")
        if not 0 <= self.warmup < 1:
            raise UsageError(f"warmup is {self.warmup}, but it must be a share of the steps, from 0 to below 1.")
        if not 0 < self.drop_every <= 1:
            raise UsageError(f"drop_every is {self.drop_every}, but it must be a share of the steps, above 0.")
        if not 0 < self.drop <= 1:
            raise UsageError(f"drop is {self.drop}, but it must be a factor above 0 and at most 1.")

    def replace_fields(self, table: Mapping[str, Any]) -> Protocol:
        """Return the protocol with some fields replaced; an unknown name is an error."""
        names = [f.name for f in fields(self)]
        for name in table:
            if name not in names:
                raise unknown("field of a protocol", name, names)
        return replace(self, **table)

    @property
    def is_fixed(self) -> bool:
        """Whether the split is fixed, so that all test domains are held out at once."""
        return bool(self.train_domains)

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate changes from step to step."""
        return self.schedule != "constant" or self.warmup > 0

    @property
    def schedule_fields(self) -> tuple[object, ...]:
        """All that `scale_rate` depends on, but for the step and the total."""
        return self.steps, self.schedule, self.warmup, self.drop_every, self.drop

    def scale_rate(self, step: int, total: int) -> float:
        """Return what the schedule makes of the learning rate at a step (from 0) of a training of `total` steps.

        Where stages take more than the protocol's steps, what they take in excess, at the start, has a schedule of its
        own: MetaReg's second stage is a whole training.
        """
        extra = max(0, total - self.steps)
        first, length = (0, extra) if step < extra else (extra, total - extra)
        share = (step - first) / length
        if share < self.warmup:
            return (step - first + 1) / (self.warmup * length + 1)
        if self.schedule == "steps":
            return self.drop ** math.floor(share / self.drop_every + 1e-9)
        rest = (share - self.warmup) / (1 - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * rest)) if self.schedule == "cosine" else 1.0

    def count_domains(self, sources: int) -> int:
        """Count the domains that a step meets of so many sources. Where one source less is learned from, for selection
        by leave-one-out, a step that met all meets all that are left."""
        return min(self.domains_per_step, sources) or sources

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and inputs."""
        return torch.float64 if self.precision == "float64" else torch.float32


def choose_optimizer(algorithm: Algorithm, protocol: Protocol) -> str:
    """Name the optimizer: the protocol's, or the algorithm's own where the protocol leaves it open."""
    return algorithm.optimizer if protocol.optimizer == "auto" else protocol.optimizer


def end_stages(algorithm: Algorithm, steps: int) -> list[int]:
    """List after how many steps each stage of the algorithm ends. Where the shares sum above 1, all stages together
    take more than `steps` steps."""
    shares = [share for share, _ in algorithm.stages()]
    if sum(shares) < 1.0 - 1e-9:
        raise UsageError(
            f"The stages of {type(algorithm).__name__} take {sum(shares):g} of the steps, but they must take all of "
            "them: let their shares sum to 1, or above 1 where stages come on top."
        )
    return [round(steps * sum(shares[: i + 1])) for i in range(len(shares))]


def count_steps(algorithm: Algorithm, protocol: Protocol) -> int:
    """Count the steps of a training, all stages together."""
    return end_stages(algorithm, protocol.steps)[-1]


def list_evaluation_steps(algorithm: Algorithm, protocol: Protocol) -> tuple[int, ...]:
    """List after how many steps a training is evaluated: spread over the last `protocol.steps` of them, so that all
    algorithms are evaluated equally often, and none before what comes on top of the protocol's steps is done."""
    count, before = min(protocol.evaluations, protocol.steps), count_steps(algorithm, protocol) - protocol.steps
    return tuple(before + round(protocol.steps * (i + 1) / count) for i in range(count))


class Split(NamedTuple):
    """Row numbers of one trial."""

    train: tuple[Tensor, ...]  # of every source
    validation: tuple[Tensor, ...]  # of every source
    test: tuple[Tensor, ...]  # of every held-out domain
    fifth: tuple[Tensor, ...] = ()  # of the test rows, by which the rule `oracle-split` chooses settings
    outside: tuple[Tensor, ...] | None = None  # of every validation domain; None: the split is not fixed

    @property
    def evaluated(self) -> tuple[Tensor, ...]:
        """All rows that are evaluated: of every source, of every held-out domain, of every validation domain."""
        return (*self.validation, *self.test, *(self.outside or ()))

    @property
    def held_out_at_once(self) -> int | None:
        """How many domains a fixed split tests; None: the split is not fixed."""
        return None if self.outside is None else len(self.test)


def list_sources(dataset: Dataset, held_out: tuple[str, ...], protocol: Protocol | None = None) -> tuple[str, ...]:
    """List the domains that a trial learns from: those of a fixed split, or else all that are not held out."""
    for name in held_out:
        dataset.index(name)
    if protocol is not None and protocol.is_fixed:
        return protocol.train_domains
    return tuple(name for name in dataset.domains if name not in held_out)


def split_rows(dataset: Dataset, protocol: Protocol, held_out: tuple[str, ...], seed: int) -> Split:
    """Say which rows a trial trains, validates and tests on. A domain is split alike whatever is held out."""
    chosen = list_sources(dataset, held_out, protocol)
    whole = protocol.test == "whole"
    needed = chosen if protocol.is_fixed and whole else dataset.domains
    parts = {name: _split_domain(dataset, protocol, name, seed) for name in needed}
    test, outside = (
        tuple(dataset.rows(name) if whole else parts[name][1] for name in names)
        for names in (held_out, protocol.validation_domains)
    )
    return Split(
        train=tuple(parts[name][0] for name in chosen),
        validation=tuple(parts[name][1] for name in chosen),
        test=test,
        fifth=tuple(draw_fifth(rows, name, seed) for rows, name in zip(test, held_out, strict=True)),
        outside=outside if protocol.is_fixed else None,
    )


def draw_fifth(rows: Tensor, domain: str, seed: int) -> Tensor:
    """Draw a fifth of a held-out domain's test rows, the same for every algorithm and all settings of a seed."""
    count = min(max(1, round(0.2 * len(rows))), len(rows) - 1) if len(rows) > 1 else 0
    order = torch.from_numpy(make_stream(seed, "fifth", domain).permutation(len(rows)))
    return rows[order[:count]].sort().values


def _split_domain(dataset: Dataset, protocol: Protocol, domain: str, seed: int) -> tuple[Tensor, Tensor]:
    """Split the rows of one domain, once for all trials that split it alike."""
    fields = protocol.split, protocol.validation, protocol.test, bool(protocol.validation_domains)
    place, known = ("split", domain, seed, fields), dataset.remembered
    if place not in known:
        while len(known) >= REMEMBERED:
            known.pop(next(iter(known)))
        known[place] = _draw_split(dataset, protocol, domain, seed)
    split: tuple[Tensor, Tensor] = known[place]
    return split


def _draw_split(dataset: Dataset, protocol: Protocol, domain: str, seed: int) -> tuple[Tensor, Tensor]:
    """Split the rows of one domain into those for training and those for validation."""
    rows = dataset.rows(domain)
    if protocol.split == "official":
        if dataset.validation is None and protocol.validation_domains and protocol.test == "whole":
            return rows, rows[:0]  # the validation domains choose, and all rows of the sources are trained on
        if dataset.validation is None:
            raise UsageError(f"{dataset.name} has no official split. Choose split = 'random'.")
        validates = dataset.validation[rows]
        return rows[~validates], rows[validates]
    if len(rows) < 2:
        raise UsageError(f"Domain '{domain}' of {dataset.name} has {len(rows)} rows, too few to split.")
    count = min(max(1, round(protocol.validation * len(rows))), len(rows) - 1)
    shuffled = rows[torch.from_numpy(make_stream(seed, "split", domain).permutation(len(rows)))]
    return shuffled[count:].sort().values, shuffled[:count].sort().values

"""A recorded trial, trained again from its description alone and compared with its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seqdg.base.errors import UsageError
from seqdg.bench.executors.context import Context, attempt
from seqdg.bench.trial import Group, Trial
from seqdg.core.registry import list_algorithms
from seqdg.data import Dataset
from seqdg.nets import NetSpec
from seqdg.results.record import DIVERGED, FAILED, Record
from seqdg.results.select import select_outcomes
from seqdg.training.place import net_of
from seqdg.training.protocol import Protocol, split
from seqdg.training.provenance import device_name, versions
from seqdg.training.sampler import stream


@dataclass(frozen=True)
class Comparison:
    """A record beside the same trial, trained again."""

    recorded: Record
    again: Record
    stacked: bool  # trained with the trials that it was trained with
    alike: bool  # the same kind of device and version of torch
    allowed: float  # difference in points; 0: the numbers must be the same

    @property
    def step(self) -> int:
        """That source validation chose in the record: the accuracy there is what tables show of the trial. The last one
        where it chose none."""
        shown = len(self.recorded.held_out) == 1 and self.recorded.status != DIVERGED
        return select_outcomes([self.recorded])[0].step if shown else self.last

    @property
    def last(self) -> int:
        return self.recorded.history[-1].step

    def accuracy(self, record: Record, step: int) -> float | None:
        """On the held-out domain, in percent; none where training diverged."""
        if record.status == DIVERGED:
            return None
        return 100 * next(e.held_out["accuracy"][0] for e in record.history if e.step == step)

    @property
    def difference(self) -> float | None:
        """The largest, at the chosen and the last step; where numbers must be the same, at all of them."""
        steps = [e.step for e in self.recorded.history] if self.allowed == 0 else [self.step, self.last]
        if DIVERGED in (self.recorded.status, self.again.status):
            return None
        pairs = [(self.accuracy(self.recorded, s), self.accuracy(self.again, s)) for s in steps]
        return max(abs(a - b) for a, b in pairs if a is not None and b is not None)

    @property
    def same_weights(self) -> bool:
        return self.recorded.weights == self.again.weights

    @property
    def agrees(self) -> bool:
        if self.difference is None:
            return self.recorded.status == self.again.status
        return self.difference <= self.allowed + 1e-9


def picked(records: Sequence[Record], keys: Sequence[str], sample: int, seed: int = 0) -> list[Record]:
    """Those whose keys begin so; without any, a sample of those that tables show, with one domain held out."""
    finished = [r for r in records if r.status != FAILED]
    if not finished:
        raise UsageError("The run holds no finished trial to train again.")
    if not keys:
        if sample < 1:
            raise UsageError(f"{sample} trials were asked for, but at least 1 is needed.")
        shown = [r for r in finished if len(r.held_out) == 1] or finished
        return [shown[i] for i in sorted(stream(seed, "rerun").permutation(len(shown))[:sample])]
    found: dict[str, Record] = {}
    for key in keys:
        own = [r for r in finished if r.key.startswith(key)]
        if not own:
            raise UsageError(f"No finished trial has a key that begins with '{key}'. `--list` shows them all.")
        if len(own) > 1:
            raise UsageError(f"{len(own)} trials have keys that begin with '{key}'. Give more of it.")
        found[own[0].key] = own[0]
    return list(found.values())


def stack_with(record: Record, records: Sequence[Record]) -> list[Record] | None:
    """The trials of the stack that this one was trained in, in their order; None where not all of them are here.

    The time of a stack is shared out evenly, to the last bit: by it they know each other.
    """
    shared = (record.seconds, record.stacked, record.algorithm)
    own = [r for r in records if (r.seconds, r.stacked, r.algorithm) == shared]
    return own if len(own) == record.stacked else None


def trial_of(record: Record, dataset: Dataset, weights: Any = None, names: Mapping[str, str] | None = None) -> Trial:
    """The trial that the record describes. names: where algorithms that are not registered come from."""
    about = record.description
    if about["data"] != dataset.fingerprint:
        raise UsageError(
            f"The record is of data with fingerprint {about['data'][:12]}, and {dataset.name} here has "
            f"{dataset.fingerprint[:12]}: these are not the same rows. Give --data the ones that it was made on."
        )
    algorithm = (names or {}).get(about["algorithm"], about["algorithm"])
    if ":" not in algorithm and algorithm not in list_algorithms():
        raise UsageError(
            f"{algorithm} is not one of seqdg's algorithms. Say where it is: --algorithms FILE.py:{algorithm}."
        )
    net = dict(about["net"])
    policy, digest = net.pop("batchnorm_policy"), net.pop("weights")
    trial = Trial(
        data=about["data"],
        net=NetSpec(**net, weights=weights),
        batchnorm=policy,
        weights=digest,
        algorithm=algorithm,
        settings=tuple(sorted(about["settings"].items())),
        protocol=Protocol(**about["protocol"]),
        held_out=tuple(about["held_out"]),
        seed=about["seed"],
        sources=len(dataset.domains) - 1,
        size=about["size"],
        augment=about["augment"],
    )
    if trial.key != record.key:
        raise UsageError(f"Trial {record.key} cannot be rebuilt from its description by this version of seqdg.")
    return trial


def rerun(
    records: Sequence[Record],
    wanted: Sequence[Record],
    context: Context,
    alone: bool = False,
    within: float = 1.0,
    names: Mapping[str, str] | None = None,
    tick: Callable[[int], None] = lambda step: None,
) -> Iterator[Comparison]:
    """Trains each again: in its stack where the device and torch are those of the record, so that the number must be
    the same; else alone, so that it must be within so many points, or one row of the test where that is more."""
    dataset, weights = context.dataset(), context.benchmark.net.weights
    _check_weights(trial_of(wanted[0], dataset, weights, names), dataset)
    device = device_name(torch.device(context.device))
    done: dict[str, Record] = {}
    for record in wanted:
        alike = (record.device, record.versions.get("torch")) == (device, versions()["torch"])
        members = stack_with(record, records) if alike and (record.stacked == 1 or not alone) else None
        if record.key not in done or members is None:
            group = Group(tuple(trial_of(r, dataset, weights, names) for r in members or [record]))
            new = attempt(group, context, tick)
            _check_done(new[0])
            done.update({r.key: r for r in new})
        trial = trial_of(record, dataset, weights, names)
        rows = len(split(dataset, trial.protocol, trial.held_out, trial.seed).test[0])
        allowed = 0.0 if members is not None else max(within, 100 / rows)
        yield Comparison(record, done[record.key], members is not None, alike, allowed)


def _check_weights(trial: Trial, dataset: Dataset) -> None:
    found = net_of(trial, dataset).weights_sha256
    if found != trial.weights:
        raise UsageError(
            f"The record's net starts from a weight file with sha256 {str(trial.weights)[:12]}, and here from "
            f"{str(found)[:12]}. Give that file with --weights."
        )


def _check_done(record: Record) -> None:
    if record.status == FAILED:
        last = record.error.strip().splitlines()[-1]
        raise UsageError(f"Training trial {record.key} again failed: {last}")

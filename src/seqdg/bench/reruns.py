"""Train a recorded trial again, from its description alone, and compare it with its record.

Trials of another version, or of the user's own code where that has changed, are refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from seqdg.base import UsageError, choose_device, count_things, hash_own_code, refuse_broken
from seqdg.bench.benchmark import load_benchmark
from seqdg.bench.execution import InProcess
from seqdg.bench.learners.contract import Learner
from seqdg.bench.learners.stack_learner import find_learner, list_learners
from seqdg.bench.task import HARMONIZATIONS, Group, Session, Trial, join_trainings
from seqdg.core import (
    FOREIGN,
    list_algorithms,
    list_origins,
    list_wrappers,
    shorten,
    split_chain,
)
from seqdg.data import Dataset
from seqdg.nets import FOREIGN as FOREIGN_NETS
from seqdg.nets import is_own_net, shorten_net
from seqdg.results import (
    CRITERIA,
    DIVERGED,
    FAILED,
    VERSION,
    Record,
    Store,
    find_usual_criterion_in,
    find_versions,
    has_validation,
    name_commit,
    select_outcomes,
)
from seqdg.training import Saving, list_versions, make_stream, name_device, split_rows

META = "own_code"  # in the store: the hash of each part of a name that is the user's own


@dataclass(frozen=True)
class Repeat:
    """A record beside the same trial, trained again."""

    recorded: Record
    again: Record
    stacked: bool  # trained with the trials that it was trained with
    alike: bool  # the same kind of device and version of torch
    allowed: float  # difference in points; 0: the numbers must be the same

    @property
    def step(self) -> int:
        """The step that source validation chose in the record, whose accuracy tables show; else the last one."""
        chooses = self.recorded.is_tabled and self.recorded.status != DIVERGED and has_validation(self.recorded)
        return select_outcomes([self.recorded])[0].step if chooses else self.last

    @property
    def last(self) -> int:
        return self.recorded.history[-1].step

    @property
    def criterion(self) -> str:
        """What is compared: accuracy, or the RMSE of numbers."""
        return find_usual_criterion_in([self.recorded])

    def accuracy(self, record: Record, step: int) -> float | None:
        """Return the accuracy on the held-out domain in percent, or the mean of several; None where it diverged. Of
        numbers, return the RMSE."""
        if record.status == DIVERGED:
            return None
        values = next(e.held_out[self.criterion] for e in record.history if e.step == step)
        return CRITERIA[self.criterion].factor * (fmean(values) if record.is_tabled else values[0])

    @property
    def difference(self) -> float | None:
        """The largest difference in points, or in percent of the RMSE, at the chosen and the last step; where numbers
        must be the same, at any."""
        steps = [e.step for e in self.recorded.history] if self.allowed == 0 else [self.step, self.last]
        if DIVERGED in (self.recorded.status, self.again.status):
            return None
        pairs = [(self.accuracy(self.recorded, s), self.accuracy(self.again, s)) for s in steps]
        share = CRITERIA[self.criterion].is_of_numbers
        return max(
            abs(a - b) * (100 / max(a, 1e-300) if share else 1) for a, b in pairs if a is not None and b is not None
        )

    @property
    def same_weights(self) -> bool:
        return self.recorded.weights == self.again.weights

    @property
    def agrees(self) -> bool:
        if self.difference is None:
            return self.recorded.status == self.again.status
        return self.difference <= self.allowed + 1e-9


def pick_records(records: Sequence[Record], keys: Sequence[str], sample: int, seed: int = 0) -> list[Record]:
    """Pick the records whose keys begin so; without any, a sample of those of today's version that tables show."""
    finished = [r for r in records if r.status != FAILED and (keys or not r.members)]
    if not finished:
        raise UsageError("The run holds no finished trial to train again.")
    if all(r.is_imported for r in finished):
        raise UsageError("These trials were imported: another program trained them, and seqdg cannot repeat that.")
    if not keys:
        if sample < 1:
            raise UsageError(f"{sample} trials were asked for, but at least 1 is needed.")
        current = [r for r in finished if r.version == VERSION]
        if not current:
            refuse_old(finished)
        tabled = [r for r in current if r.is_tabled] or current
        return [tabled[i] for i in sorted(make_stream(seed, "rerun").permutation(len(tabled))[:sample])]
    picked: dict[str, Record] = {}
    for key in keys:
        matches = [r for r in finished if r.key.startswith(key)]
        if not matches:
            raise UsageError(f"No finished trial has a key that begins with '{key}'. `--list` shows them all.")
        if len(matches) > 1:
            raise UsageError(f"{len(matches)} trials have keys that begin with '{key}'. Give more of it.")
        picked[matches[0].key] = matches[0]
    refuse_old(list(picked.values()))
    return list(picked.values())


def find_group(
    record: Record, records: Sequence[Record], groups: Mapping[str, str], rebuild: Callable[[Record], Trial]
) -> Group | None:
    """Find the trials that were trained together with this one, in their order; None where not all are here.

    groups: by key of a trial, the key of the group that it was trained in.
    """
    name = groups.get(record.key)
    members = [r for r in records if name and groups.get(r.key) == name]
    if len(members) < record.stacked:
        return None
    group = Group(join_trainings([rebuild(r) for r in members]))
    return group if group.key == name else None


def refuse_old(records: Sequence[Record]) -> None:
    """Refuse records of older versions: their trials would give other numbers here. Say which code repeats each."""
    old = [r for r in records if r.version != VERSION]
    if not old:
        return
    versions = " and ".join(map(str, find_versions(old)))
    if len(old) == 1:
        what, how = f"Trial {old[0].key} was", f"{name_commit(old[0])} reproduces it"
    else:
        commits = Counter(map(name_commit, old))
        what, how = f"{len(old)} trials were", ", ".join(f"{c} reproduces {n} of them" for c, n in commits.items())
    raise UsageError(
        f"{what} made by another version of seqdg (description {versions}; today's is {VERSION}), and methods have "
        f"changed since: {how}. Run `seqdg rerun` there."
    )


def describe_foreign(algorithm: str) -> str:
    """Say which part of a name is not registered here, and how to say where it comes from; '' where all are."""
    base, *wrappers = split_chain(algorithm)
    known = [
        (base, (*list_algorithms(), *list_learners())),
        *((w, (*list_wrappers(), *HARMONIZATIONS)) for w in wrappers),
    ]
    for part, names_here in known:
        if ":" not in part and part not in names_here:
            what = "algorithms" if part == base else "wrappers"
            where = "+".join(f"FILE.py:{p}" if p == part else p for p in (base, *wrappers))
            return f"{part} is not one of seqdg's {what}. Say where it is: --algorithms {where}."
    return ""


def read_code(name: str, learner: Learner) -> str:
    """Return the hash of the user's own code behind a name: of an algorithm, its wrappers, or a learner; or ""."""
    return hash_own_code(learner.list_classes(name))


def read_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the hash of the user's own code behind these names, by part: an algorithm or a learner, and each wrapper.
    Parts of this package are left out, and so is code that cannot be read, as in a plain Python prompt."""
    codes: dict[str, str] = {}
    for name in dict.fromkeys(names):
        first, *wrappers = shorten(name).split("+")
        classes = find_learner(name).list_classes(name)  # of a chain, from the outside in
        codes[first] = hash_own_code(classes[len(wrappers) :])
        codes |= {part: hash_own_code([kind]) for part, kind in zip(reversed(wrappers), classes, strict=False)}
    return {part: code for part, code in codes.items() if code}


def read_noted(store: Store) -> dict[str, str]:
    """Return the hashes of the user's own code that a store has."""
    with refuse_broken(f"{store.path} is no store that seqdg wrote", ": use another copy of it."):
        noted: dict[str, str] = json.loads(store.meta(META) or "{}")
        if not isinstance(noted, dict) or not all(isinstance(digest, str) for digest in noted.values()):
            raise ValueError("its hashes of code are none")
    return noted


def check_code(store: Store, directory: Path, trials: Sequence[Trial]) -> None:
    """Note the code of every own algorithm and wrapper that is to be trained, and refuse one that has changed since the
    store got trials of it."""
    codes = read_codes(trial.algorithm for trial in trials)
    refuse_changed(store, directory, codes)
    codes |= _check_net_code(store, directory, trials)
    store.set_meta(META, json.dumps({**read_noted(store), **codes}))


def _check_net_code(store: Store, directory: Path, trials: Sequence[Trial]) -> dict[str, str]:
    """Return the code of the user's own networks that are to be trained, and refuse one that has changed, as
    `check_code` does."""
    noted, codes = read_noted(store), {shorten_net(t.net.name): t.code for t in trials if t.code}
    for name, code in codes.items():
        if noted.get(name, code) != code and store.finished():
            raise UsageError(
                f"The code of {name} has changed since trials of it were stored in {directory}: trials of old and new "
                "code do not belong in one table. Give the new code another name, or give --out another directory."
            )
    return codes


def refuse_changed(store: Store, directory: Path, codes: Mapping[str, str], consequence: str = "") -> None:
    """Refuse code that is not that of its stored trials: those of all chains with such a part count, and those of its
    other names. consequence: why, and what to do; "": a table would show the old trials as the new algorithm's."""
    noted, trials, origins = read_noted(store), store.count_by_algorithm(), list_origins()
    for part, code in codes.items():
        same = [name for name in origins if part in origins and origins[name] == origins[part]]
        for name in same or [part]:  # an algorithm and its sequential form are one class
            count = sum(n for chain, n in trials.items() if name in chain.split("+"))
            if not count or noted.get(name, code) == code:
                continue
            rename = "class another name" if name.startswith(FOREIGN) else "code another name in @register"
            usual = (
                f"trials of old and new code do not belong in one table. Give the new {rename}, to compare the two, or "
                "give --out another directory."
            )
            raise UsageError(
                f"The code of {name} has changed since {count_things(count, 'trial')} of it "
                f"{'was' if count == 1 else 'were'} stored in {directory}: {consequence or usual} Any change of its "
                "file, or of one beside it that it imports, counts, even a comment."
            )


def refuse_changed_code(store: Store, directory: Path, algorithms: Iterable[str], consequence: str) -> None:
    """Refuse what needs the code that stored trials were trained with, where one of these algorithms is the user's own
    and its code has changed."""
    codes = read_codes(name for name in algorithms if not describe_foreign(name))
    refuse_changed(store, directory, codes, consequence)


def rebuild_trial(
    record: Record,
    dataset: Dataset,
    weights: Path | None = None,
    names: Mapping[str, str] | None = None,
    net: str = "",
) -> Trial:
    """Rebuild the trial that a record describes.

    names: where algorithms that are not registered come from.   net: where the user's own net does.
    """
    about = record.description
    if record.is_imported:
        raise UsageError(f"Trial {record.key} was imported: its training was another program's and cannot be repeated.")
    refuse_old([record])
    if record.members:
        raise UsageError(
            f"Trial {record.key} is mixed of {len(record.members)} others ({about['algorithm']}): `seqdg soup` makes "
            "it again from their weights. Name one of them."
        )
    if about["data"] != dataset.fingerprint:
        raise UsageError(
            f"The record is of data with fingerprint {about['data'][:12]}, and {dataset.name} here has "
            f"{dataset.fingerprint[:12]}: these are not the same rows. Give --data the ones that it was made on."
        )
    algorithm = (names or {}).get(about["algorithm"], about["algorithm"])
    if problem := describe_foreign(algorithm):
        raise UsageError(problem)
    net_name = about["net"]["name"]
    if is_own_net(net_name):
        if shorten_net(net) != net_name:
            raise UsageError(
                f"{net_name} is not one of seqdg's networks. Say where it is: "
                f"--net FILE.py:{net_name.rpartition(':')[2]}."
            )
        net_name = net
    trial = Trial.from_description(about, algorithm, len(dataset.domains) - 1, weights, net_name)
    if trial.key != record.key:
        raise UsageError(f"Trial {record.key} cannot be rebuilt from its description by this version of seqdg.")
    return trial


def make_session(
    benchmark: str,
    saving: Saving,
    held_out: Sequence[str],
    data: Path | None = None,
    device: str = "auto",
    weights: Path | None = None,
    allow_partial: bool = False,
    net: str | None = None,
) -> Session:
    """Make a session on the benchmark of recorded trials: a name, or the user's own file."""
    task = load_benchmark(benchmark).with_net(net).with_weights(weights).make_task(data, allow_partial, held_out)
    return Session(task, choose_device(device), saving)


def rerun(
    records: Sequence[Record],
    wanted: Sequence[Record],
    session: Session,
    groups: Mapping[str, str] | None = None,
    alone: bool = False,
    within: float = 1.0,
    names: Mapping[str, str] | None = None,
) -> Iterator[Repeat]:
    """Train each wanted record again.

    It is trained in its group where the device and torch are those of the record, so that the number must be the same;
    else alone, so that it must be within so many points, or one row of the test where that is more.
    """
    task = session.task
    dataset, weights = task.dataset(), task.net.weights

    def rebuild(record: Record) -> Trial:
        return rebuild_trial(record, dataset, weights, names, task.net.name)

    ours = (trial for trial in map(rebuild, wanted) if trial.net.name not in FOREIGN_NETS)
    trial = next(ours, None)
    built = None if trial is None else task.find_net(trial)
    if trial and built and built.code != trial.code:
        raise UsageError(
            f"The code of {shorten_net(trial.net.name)} is not that of the record, and cannot repeat what the old code "
            "gave. Go back to the old code."
        )
    if trial and built and (digest := built.weights_sha256) != trial.weights:
        raise UsageError(
            f"The record's net starts from a weight file with sha256 {str(trial.weights)[:12]}, and here from "
            f"{str(digest)[:12]}. Give that file with --weights."
        )
    device = name_device(torch.device(session.device))
    again: dict[str, Record] = {}
    for record in wanted:
        alike = (record.device, record.versions.get("torch")) == (device, list_versions()["torch"])
        together = alike and (record.stacked == 1 or not alone)
        group, trial = find_group(record, records, groups or {}, rebuild) if together else None, rebuild(record)
        if group is None and alike and record.stacked == 1:
            group = Group((trial,))
        if record.key not in again or group is None:
            for _, new in InProcess()([group or Group((trial,))], session, lambda group, step: None):
                again |= {r.key: r for r in new}
        if again[record.key].status == FAILED:
            reason = again[record.key].error.strip().splitlines()[-1]
            raise UsageError(f"Training trial {record.key} again failed: {reason}")
        test = split_rows(dataset, trial.protocol, trial.held_out, trial.seed).test
        rows = min(map(len, test)) if trial.protocol.is_fixed else len(test[0])
        allowed = 0.0 if group is not None else max(within, 100 / rows)
        yield Repeat(record, again[record.key], group is not None, alike, allowed)

"""Soups and ensembles of trials that a run has finished: one model of several, chosen on source data alone.

A soup is the mean of the weights of candidates that started from the same weights (DiWA: Ramé et al., NeurIPS 2022;
model soups: Wortsman et al., ICML 2022). An ensemble is the mean of the probabilities of trainings with other seeds;
of averaged ones it is EoA (Arpit et al., NeurIPS 2022).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from seqdg.base import Folder, Params, UsageError, has_broken_seal, list_some, save_sealed, unknown
from seqdg.bench.learners.stack_learner import STACK, build_stack, find_learner
from seqdg.bench.reruns import describe_foreign, rebuild_trial, refuse_changed_code
from seqdg.bench.task import Group, Session, collect_by
from seqdg.core import shorten
from seqdg.results import (
    CRITERIA,
    DIVERGED,
    DONE,
    Evaluation,
    Record,
    Store,
    add_command,
    average_finite,
    choose_loss,
    find_usual_criterion_in,
    lock_directory,
    make_key,
    score,
)
from seqdg.training import (
    DomainPredictions,
    Saving,
    Stack,
    hash_weights,
    measure_predictions,
    name_origin,
    pool_outputs,
)

KINDS = {"uniform": "soup", "greedy": "greedy-soup", "ensemble": "ensemble"}  # and what follows an algorithm's name
STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Mixture:
    """A soup or ensemble to make: its kind, and the records of its members, of one algorithm and held-out domain."""

    kind: str
    members: tuple[Record, ...]
    criterion: str = "accuracy"  # of source validation, by which a greedy soup chooses

    @property
    def description(self) -> dict[str, Any]:
        """The description of its first member, with the name of the mixture and the keys of its members."""
        about = self.members[0].description
        soup: dict[str, Any] = {"kind": self.kind, "members": [m.key for m in self.members]}
        if self.kind == "greedy":
            soup["criterion"] = self.criterion
        return {
            **about,
            "algorithm": f"{about['algorithm']}({KINDS[self.kind]})",
            "settings": {"candidates" if self.kind == "greedy" else "members": str(len(self.members))},
            "soup": soup,
        }

    @property
    def key(self) -> str:
        return make_key(self.description)

    @property
    def cautions(self) -> list[str]:
        """Sentences that say where its source validation is too good."""
        splits = {(m.description["protocol"]["split"], m.description["protocol"]["validation"]) for m in self.members}
        if len(splits) == 1 or self.kind == "ensemble":  # whose members are each validated on rows of their own
            return []
        shares = ", ".join(f"{share:g} ({split})" for split, share in sorted(splits))
        return [
            f"Candidates of {self.members[0].algorithm} left different shares of the sources out for validation "
            f"({shares}), so rows that validate the soup have trained some of them: source validation flatters it."
        ]


def list_mixtures(
    records: Sequence[Record],
    kind: str,
    algorithms: Sequence[str] | None = None,
    size: int = 0,
    criterion: str | None = None,
) -> list[Mixture]:
    """List what can be mixed. A soup is of all candidates of a held-out domain and seed, the best on source validation
    first. An ensemble is of the best candidate of each seed, `size` seeds at a time; 0: of all."""
    if kind not in KINDS:
        raise unknown("kind of soup", kind, KINDS)
    criterion = criterion or find_usual_criterion_in(records)
    if criterion not in CRITERIA:
        raise unknown("criterion", criterion, CRITERIA)
    if size < 0 or size == 1:
        raise UsageError(f"An ensemble of {size} is not one: give --members 2 or more, or 0 for all seeds.")
    finished = [r for r in records if r.status == DONE and r.is_tabled and not r.members]
    known = list(dict.fromkeys(r.algorithm for r in finished))
    for name in algorithms or ():
        if name not in known:
            raise unknown("algorithm", name, known, owner="This run")
    chosen = [r for r in finished if r.algorithm in (algorithms or known)]
    if several := [r for r in chosen if r.description["protocol"].get("members", 1) > 1]:
        raise UsageError(f"{_name(several[0])} is an ensemble already, and only single trainings are mixed.")
    parts = collect_by(chosen, lambda r: (r.algorithm, r.held_out, r.seed)).values()
    if kind == "greedy" and (blind := [r for r in chosen if _score_record(r, criterion) == -math.inf]):
        raise UsageError(
            f"A greedy soup is chosen on validation rows of the sources, and {_name(blind[0])} has none: choose --kind "
            "uniform, or a split that leaves some out."
        )
    ranked = [sorted(part, key=lambda r: -_score_record(r, criterion)) for part in parts]
    if kind == "ensemble":
        best = collect_by([part[0] for part in ranked], lambda r: (r.algorithm, r.held_out)).values()
        ranked = [part[i : i + (size or len(part))] for part in best for i in range(0, len(part), size or len(part))]
    mixtures = [Mixture(kind, tuple(part), criterion) for part in ranked if len(part) > 1]
    if not mixtures:
        what, how = ("two seeds", "--trials 6") if kind == "ensemble" else ("two candidates of one seed", "--search 8")
        raise UsageError(
            f"There is nothing to mix: no algorithm {'that was named ' if algorithms else ''}has {what} with the same "
            f"domain held out. `seqdg bench {how} --save-weights` makes them."
        )
    return mixtures


def _score_record(record: Record, criterion: str) -> float:
    """Return how good its last weights, which are the saved ones, are on source validation: more is better."""
    return _score(record.history[-1], criterion)


def _score(evaluation: Evaluation, criterion: str) -> float:
    value = score(average_finite(evaluation.source[criterion]), criterion)
    return value if math.isfinite(value) else -math.inf


@dataclass(frozen=True)
class Mixer:
    """Makes mixtures of trials whose weights lie among the files that a session keeps."""

    session: Session
    files: Folder
    names: Mapping[str, str]  # where algorithms that are not registered come from

    def mix(self, mixture: Mixture) -> Record:
        """Make the model, evaluate it, keep the weights of a soup, and return its record."""
        began, first = time.perf_counter(), mixture.members[0]
        for member in mixture.members:
            if member.description["net"] != first.description["net"] and mixture.kind != "ensemble":
                raise UsageError(  # between weights that start apart lies no good net
                    f"Candidates of {_name(first)} start from different weights (trials {first.key} and {member.key} "
                    "have another net or another weight file), so their mean is no model. Mix runs of one net, each in "
                    "a directory of its own."
                )
        weights = [self._read_weights(member) for member in mixture.members]
        digest = ""
        if mixture.kind == "ensemble":
            evaluation = self._evaluate_ensemble(mixture, weights)
        else:
            evaluation, soup, kept = self._cook(mixture, weights)
            about = {"trial": mixture.key, "description": json.dumps(mixture.description), "kept": json.dumps(kept)}
            self.files.write(f"weights/{mixture.key}.safetensors", save_sealed(soup, about))
            digest = hash_weights(soup)
        losses = evaluation.source[choose_loss(evaluation.source)]
        return Record(
            key=mixture.key,
            description=mixture.description,
            status=DONE if is_finite(evaluation, first.history[-1]) else DIVERGED,
            history=[evaluation],
            losses=[average_finite(losses)],  # it has no steps of its own: on source validation
            seconds=sum(m.seconds for m in mixture.members) + time.perf_counter() - began,
            peak_memory=max(m.peak_memory for m in mixture.members),
            **name_origin(torch.device(self.session.device)),
            weights=digest,
            notes=[*first.notes, *mixture.cautions],
        )

    def _read_weights(self, record: Record) -> Params:
        name = f"weights/{record.key}.safetensors"
        data = self.files.read(name)
        if data is None:
            raise UsageError(
                f"The weights of {_name(record)} (trial {record.key}) were not saved. Run `seqdg bench` with "
                "--save-weights and another --out: trials that are done are not trained again for their weights."
            )
        with suppress(SafetensorError):
            if not has_broken_seal(data):
                return load(data)
        raise UsageError(
            f"{self.files.root / name} is damaged: its bytes have changed since it was written. Fetch it again, or run "
            "`seqdg bench` with --save-weights and another --out."
        )

    def _build_stack(self, record: Record) -> Stack:
        task = self.session.task
        trial = rebuild_trial(record, task.dataset(), task.net.weights, self.names, task.net.name)
        return build_stack(Group((trial,)), task, torch.device(self.session.device))

    def _cook(self, mixture: Mixture, weights: Sequence[Params]) -> tuple[Evaluation, Params, list[str]]:
        """Return the evaluation and the weights of a soup, and the keys of the members that are in it."""
        first = mixture.members[0]
        stack = self._build_stack(first)

        def evaluate(chosen: Sequence[Params]) -> tuple[Evaluation, Params]:
            soup = stack.recalibrate({n: w[None].to(stack.inputs.device) for n, w in mean_weights(chosen).items()})
            split, step = stack.jobs[0].split, first.history[-1].step
            parts = stack.predict_domains(soup)
            evaluation = measure_predictions(parts, len(split.validation), step, split.held_out_at_once)[0]
            return evaluation, {name: w[0].cpu().contiguous() for name, w in soup.items()}

        for member, its in zip(mixture.members, weights, strict=True):
            if {n: w.shape for n, w in its.items()} != {n: w.shape for n, w in weights[0].items()}:
                raise UsageError(
                    f"Candidates of {_name(member)} have weights of other names or shapes (trials {first.key} and "
                    f"{member.key}): give --set the setting that decides the shapes, so that it is not searched, and "
                    "run them again."
                )
        if mixture.kind == "uniform":
            return *evaluate(weights), [m.key for m in mixture.members]
        kept, inside = [first.key], [weights[0]]
        best = evaluate(inside)
        for member, its in zip(mixture.members[1:], weights[1:], strict=True):
            tried = evaluate([*inside, its])
            if _score(tried[0], mixture.criterion) >= _score(best[0], mixture.criterion):
                best, inside = tried, [*inside, its]
                kept.append(member.key)
        return *best, kept

    def _evaluate_ensemble(self, mixture: Mixture, weights: Sequence[Params]) -> Evaluation:
        """Evaluate the mean of the members' probabilities on the held-out rows of the first.

        Validation rows of one seed are training rows of another: on them, take the mean of each member's own values.
        """
        each: list[list[DomainPredictions]] = []
        split = None
        for member, its in zip(mixture.members, weights, strict=True):
            stack = self._build_stack(member)
            split = split or stack.jobs[0].split._replace(validation=())
            test = Stack(stack.net, stack.inputs, [replace(stack.jobs[0], split=split)])
            each.append(test.predict_domains({n: w[None].to(stack.inputs.device) for n, w in its.items()}))
        mean = [
            parts[0]._replace(logits=pool_outputs(torch.cat([p.logits for p in parts]), len(parts)))
            for parts in zip(*each, strict=True)
        ]
        last = [m.history[-1] for m in mixture.members]
        source = {
            name: [fmean(values) for values in zip(*(e.source[name] for e in last), strict=True)]
            for name in last[0].source
        }
        at_once = None if split is None else split.held_out_at_once
        return replace(measure_predictions(mean, 0, max(e.step for e in last), at_once)[0], source=source)


def is_finite(evaluation: Evaluation, of_member: Evaluation) -> bool:
    """Say whether all losses are finite, but where a member that trained well has none: on a domain without rows."""
    mixed, its = (e.list_values(choose_loss(e.source)) for e in (evaluation, of_member))
    return all(math.isfinite(loss) for loss, member in zip(mixed, its, strict=True) if math.isfinite(member))


def mean_weights(members: Sequence[Params]) -> Params:
    """Return the mean of weights, without the BatchNorm statistics, which belong to each member alone."""
    names = [name for name in members[0] if not name.endswith(STATISTICS)]
    return {name: torch.stack([m[name] for m in members]).mean(0) for name in names}


def mix_run(
    directory: Path,
    make_session: Callable[[str, Saving, Sequence[str]], Session],
    kind: str = "uniform",
    algorithms: Sequence[str] | None = None,
    size: int = 0,
    criterion: str | None = None,
    command: str = "",
    on_message: Callable[[str], None] = lambda text: None,
) -> list[Record]:
    """Add the mixtures that a run lacks to its store, and return their records.

    make_session: makes a session from the benchmark's name, what to keep and the held-out domains.
    algorithms: None: all.   size: seeds of an ensemble; 0: all.   criterion: None: accuracy, or the RMSE of numbers.
    command: what the user typed, for the report.
    """
    with closing(Store.open(directory)) as read:
        benchmark = read.benchmark
    if not benchmark:
        raise UsageError(
            f"{directory} does not say of which benchmark it is any more. The `seqdg bench` command that made it sets "
            "the damaged file aside: run it first."
        )
    # A damaged store can only be read, so it is set aside before anything is computed.
    with lock_directory(directory), closing(Store.create(directory, benchmark)) as store:
        names = {shorten(name): name for name in algorithms or ()}
        records = _list_trained(store.records(), names, on_message)
        mixtures = list_mixtures(records, kind, list(names) or None, size, criterion)
        done = store.finished()
        missing = [m for m in mixtures if m.key not in done]
        on_message(f"{len(mixtures)} to mix, {len(mixtures) - len(missing)} of them done.")
        for sentence in dict.fromkeys(s for m in mixtures for s in m.cautions):
            on_message(f"note: {sentence}")
        new: list[Record] = []
        if missing:
            refuse_changed_code(
                store,
                directory,
                [names.get(m.members[0].algorithm, m.members[0].algorithm) for m in missing],
                "their weights need the code that trained them. Go back to it, or train the new code into another "
                "directory.",
            )
            held_out = tuple(dict.fromkeys(d for m in missing for d in m.members[0].held_out))
            files = Folder(directory.resolve())
            mixer = Mixer(make_session(benchmark, Saving(files), held_out), files, names)
            for mixture in missing:
                new.append(mixer.mix(mixture))
                store.add(new[-1:])  # at once: what an interruption or an error leaves is not made again
        if command:
            add_command(store, command, [m.description for m in mixtures])
        return new


def _list_trained(
    records: Sequence[Record], names: Mapping[str, str], on_message: Callable[[str], None]
) -> list[Record]:
    """List the records that have weights: those of algorithms, and not of other learners. Where none was named, leave
    out those that are not registered here, or refuse where there are no others."""
    algorithms = {r.algorithm: names.get(r.algorithm, r.algorithm) for r in records if not r.members}
    foreign = {a: problem for a, name in algorithms.items() if (problem := describe_foreign(name))}
    trained = [a for a, name in algorithms.items() if a not in foreign and find_learner(name) is STACK]
    if names:
        trained += foreign  # to mix one of these is refused
    elif foreign and not trained:
        raise UsageError(next(iter(foreign.values())))
    for name, problem in foreign.items() if not names else ():
        on_message(f"note: {name} is left out. {problem}")
    return [r for r in records if r.algorithm in trained]


def _name(record: Record) -> str:
    """`agg with photo held out and seed 0`"""
    return f"{record.algorithm} with {list_some(record.held_out)} held out and seed {record.seed}"

"""The trials of a study's part: of its search, and with the settings that the search chose."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqdg.base import UsageError
from seqdg.bench.benchmark import Benchmark, Request, load_benchmark
from seqdg.bench.contract import Candidate
from seqdg.bench.task import Task
from seqdg.bench.trial import Trial
from seqdg.core import build, describe_settings
from seqdg.nets import Net, get_published_dropout
from seqdg.results import (
    COSINE,
    COSINE_FOLDER,
    CRITERION,
    DONE,
    FAILED,
    LEADER,
    PLAIN,
    SEARCH,
    InnerTrials,
    Part,
    Record,
    score_candidate,
)

Fold = tuple[str, ...]  # held-out domains
Place = tuple[str, str, str, Fold]  # an algorithm, a schedule, plain or averaged weights, a fold


@dataclass(frozen=True)
class Entry:
    """A trial of a part, and the run directory that its record belongs to."""

    trial: Trial
    folder: str
    draw: int = 0
    view: str = PLAIN  # or the average


class TrialMaker:
    """Makes the trials of a part."""

    def __init__(self, part: Part, benchmark: Benchmark, task: Task) -> None:
        self.part, self.task = part, task
        dataset = task.dataset()
        fixed = benchmark.fix_split(dataset)
        shape = (dataset.shape[0], task.size, task.size) if dataset.is_image and task.size else dataset.shape
        request = Request(
            part.algorithms, part.held_out or None, part.trials, part.steps or None, settings=part.settings,
            search=part.draws, precision=part.precision or None,
        )  # fmt: skip
        choice = fixed.make_choice(request, dataset.domains, shape)
        self.folds, self.seeds = choice.held_out, choice.seeds
        self.candidates: dict[str, list[Candidate]] = {}  # by algorithm
        for candidate in choice.candidates:
            self.candidates.setdefault(candidate.name, []).append(candidate)
        if part.rates:
            self.candidates = {name: _scale(some[0], part.rates) for name, some in self.candidates.items()}
        first = choice.candidates[0]
        trial = task.make_trial(first.name, dict(first.settings), first.protocol, self.folds[0], 0)
        built = task.build_net(trial)
        self.weights, self.net = built.weights_sha256, Net(built.module, task.batchnorm)

    def list_search(self) -> list[Entry]:
        """List the trials of the search: every draw with every fold, on a seed of its own."""
        views = (PLAIN, *self.part.averages)
        return [
            Entry(self._make(_shorten(c, self.part.search_evaluations), schedule, view, fold, self.part.search_seed),
                  SEARCH, draw, view)
            for name in self.part.algorithms
            for schedule in self.part.schedules
            for draw, c in enumerate(self.candidates[name])
            for fold in self.folds
            for view in (views if schedule == "constant" else (PLAIN,))
            if view in (PLAIN, LEADER)
        ]  # fmt: skip

    def choose(self, searched: Sequence[Entry], records: Sequence[Record]) -> dict[Place, Candidate]:
        """Choose a candidate for each algorithm, schedule, view and fold, by the fold's own source validation.

        Another fold's would have rows of this one's held-out domain. Where trials of an algorithm failed, nothing is
        chosen for it.
        """
        by_key = {record.key: record for record in records if record.status != FAILED}
        lacking = {_name_base(e) for e in searched if e.trial.key not in by_key}
        for name in lacking:
            say(f"{self.part.name}: the search of {name} failed, and its trials are left out.")
        scores: dict[Place, dict[int, float]] = {}
        for e in searched:
            if _name_base(e) in lacking:
                continue
            record = by_key[e.trial.key]
            place = _name_base(e), e.trial.protocol.schedule, e.view, e.trial.held_out
            value = score_candidate(record, InnerTrials(()), "source-val", CRITERION) if record.status == DONE else -1.0
            scores.setdefault(place, {})[e.draw] = value
        return {
            place: self.candidates[place[0]][max(by_draw, key=lambda draw: (by_draw[draw], -draw))]
            for place, by_draw in scores.items()
        }

    def list_trials(self, chosen: Mapping[Place, Candidate]) -> list[Entry]:
        """List the trials: plain weights with the settings chosen by plain records, averages with those chosen by
        averaged ones. Seed by seed, so that a part that is cut short has whole seeds."""
        entries, known = [], {place[0] for place in chosen} if self.part.searches else set(self.part.algorithms)
        for seed in self.seeds:
            for name in (name for name in self.part.algorithms if name in known):
                for variant in self.part.variants:
                    for fold in self.folds:
                        schedule = "cosine" if variant == COSINE else "constant"
                        view = variant if variant in self.part.averages else PLAIN
                        first = self.candidates[name][0]
                        best = chosen.get((name, schedule, LEADER if view != PLAIN else PLAIN, fold), first)
                        folder = COSINE_FOLDER if variant == COSINE else "."
                        entries.append(Entry(self._make(best, schedule, view, fold, seed), folder, view=view))
        return entries

    def _make(self, candidate: Candidate, schedule: str, view: str, fold: Fold, seed: int) -> Trial:
        """Make a trial of a candidate under a schedule, with plain or averaged weights."""
        name, settings = candidate.name, dict(candidate.settings)
        if view != PLAIN:
            name = f"{name}+{view}"
            settings = {**describe_settings(build(name)), **settings}
        protocol = replace(candidate.protocol, schedule=schedule)
        return self.task.make_trial(name, settings, protocol, fold, seed, weights=self.weights, net=candidate.net)


def _name_base(entry: Entry) -> str:
    name = entry.trial.algorithm
    return name if entry.view == PLAIN else name.removesuffix(f"+{entry.view}")


def _scale(candidate: Candidate, rates: Sequence[float]) -> list[Candidate]:
    """Return a candidate at multiples of its learning rate."""
    return [replace(candidate, protocol=replace(candidate.protocol, lr=candidate.protocol.lr * m)) for m in rates]


def _shorten(candidate: Candidate, evaluations: int) -> Candidate:
    return replace(candidate, protocol=replace(candidate.protocol, evaluations=evaluations))


def make_benchmark(part: Part, data: Path | None) -> Benchmark:
    """Make the benchmark that a part runs: its own, with what the part says in place of what it says."""
    benchmark = load_benchmark(part.benchmark)
    changes = {
        "evaluations": part.evaluations, "batch": part.batch, "optimizer": part.optimizer, "lr": part.lr,
        "path": part.path, "weight_decay": None if part.weight_decay < 0 else part.weight_decay,
    }  # fmt: skip
    given = {
        name: value for name, value in changes.items() if value not in (None, 0, 0.0, "") or name == "weight_decay"
    }
    if given["weight_decay"] is None:
        del given["weight_decay"]
    net, tables = benchmark.net, dict(benchmark.tables)
    if part.lr or part.optimizer:  # rates and optimizers of algorithms are for the benchmark's own
        dropped = {name for name, value in (("lr", part.lr), ("optimizer", part.optimizer)) if value}
        tables = {a: {k: v for k, v in table.items() if k not in dropped} for a, table in tables.items()}
    tables = {a: {k: v for k, v in table.items() if k not in ("evaluations",)} for a, table in tables.items()}
    if part.net:
        net = replace(net, name=part.net, dropout=get_published_dropout(part.net))
    if part.weights:
        if data is None:
            raise UsageError(f"{part.name} starts from {part.weights}: give the folder that holds it with --data.")
        net = replace(net, weights=data / part.weights)
    return replace(benchmark, protocol=benchmark.protocol.replace_fields(given), net=net, tables=tables)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

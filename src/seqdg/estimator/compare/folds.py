"""Every candidate with every domain held out in turn, from one plan of stacked trials, within a time if there is one.

A *target* says what a choice is for: `(d,)` is the choice that is judged on domain d, which stays unseen; `()` is the
final choice, with all domains known. What is known of a candidate for a target is a score for each source s, more being
better:

    source-val      v_s: on validation rows of s, of the training on all sources
    leave-one-out   h_s: on all rows of s, of a training on the other sources
    both            (v_s + h_s) / 2

For n domains, h_s takes n (n - 1) / 2 trainings without a pair. Where these are too many, the choice is *almost
nested*: h_s is that of the trial with this source alone held out, which is there already. That trial has trained on
the target, so what is chosen for it is not quite what would have been chosen without it.

The number of steps of a training is the one that validates best on its sources. `leave-one-out-stopped` is
`leave-one-out` at one number of steps for all trainings, the one with the best mean of h_s.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seqdg.base import Folder, UsageError, count_things, format_duration
from seqdg.bench import (
    Executor,
    InProcess,
    Learner,
    MemorySink,
    OwnSettings,
    Progress,
    Proposal,
    Search,
    Session,
    Target,
    Trial,
    execute,
    find_learner_of,
    plan_trials,
    remove_checkpoints,
)
from seqdg.core import (
    Algorithm,
    Averaging,
    Settings,
    adapt_to_path,
    describe_settings,
    is_registered,
    shorten,
    split_chain,
)
from seqdg.estimator.compare.comparison import BOTH, ORACLE, SOURCE_VAL, STOPPED, Choice, choose, split_rule
from seqdg.estimator.fitting import make_task
from seqdg.estimator.recipe import DOMAINS_PER_STEP, Recipe, find_scaling, meet_all_where_needed
from seqdg.estimator.user_data import UserData
from seqdg.estimator.weighting import Floats, Fold, Weights, find_weights
from seqdg.results import (
    DONE,
    FAILED,
    FILE,
    Outcome,
    Record,
    RunningGroup,
    RunProgress,
    Store,
    average_finite,
    find_best,
    lock_directory,
    score,
    select_evaluation,
    select_outcomes,
)
from seqdg.training import FOLDER, Saving, list_versions, read_predictions

NAME = "compare"  # of the run, in its store
IDENTITY = "identity"
SERVING = "serving"  # seconds to predict 1,000 rows, by trial, which the records of a store do not hold
CHECKPOINT = 30.0  # seconds between checkpoints of a group that takes longer
COMPARING = 0.6  # of the time; the rest is for fitting the winner on all rows
MOST_ROWS = 20_000  # that a comparison within a time is made on
AGAIN = 1.0  # seconds from one signal to the next, once the time is over
MARGIN = 1.2  # by which a fit to more rows may take longer than in proportion
MOST_ALONE = 20  # domains up to which each is held out by itself
GROUPS = 10  # that more domains are held out in: a training still has nine tenths of them


@dataclass(frozen=True)
class Contender:
    name: str
    algorithm: Settings  # for all domains; of a learner that is no algorithm, its settings alone
    lr: float


@dataclass
class Sweep:
    """Trials that run as they are asked for, each once."""

    user_data: UserData
    recipe: Recipe
    seeds: range
    within: bool  # whether to run what leave-one-out within the sources needs
    executor: Executor = field(default_factory=InProcess)
    on_progress: Callable[[Progress], None] = lambda progress: None
    nested: bool = True  # whether that holds out the target too, in pairs
    order: Sequence[str] = ()  # names of candidates, where they are trained in this order
    tried: dict[Target, list[Contender]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._planned = set[str]()  # keys of trials that were planned; those that the sink has are not run again
        self._asked: dict[str, set[str]] = {}  # keys of the trials that were asked for, by name of the candidate
        self._trials: dict[tuple[Target, Contender], list[Trial]] = {}
        self._scores: dict[tuple[Target, Contender, str], list[float] | None] = {}
        self._said: dict[tuple[Target, Contender, str], NDArray[Any]] = {}  # (seed, row, ...)
        data = self.user_data.dataset
        self.folds = group_domains({d: len(data.rows(d)) for d in data.domains})
        self.task, self.net, _ = make_task(self.user_data, self.recipe, scaled=False)
        self.sink = MemorySink()

    @property
    def domains(self) -> tuple[str, ...]:
        return self.user_data.dataset.domains

    def check(self, candidate: Contender) -> bool:
        """Say whether it can be trained with two domains held out; raise a UsageError where it cannot even with one."""
        folds = list(dict.fromkeys(self.folds.values()))
        for held_out in (0, 1, 2):
            try:
                self.check_target(tuple(fold[0] for fold in folds[:held_out]), candidate)
            except UsageError:
                if held_out < 2:
                    raise
                return False
        return len(folds) > 2

    def check_target(self, held_out: Target, candidate: Contender) -> None:
        """Raise a UsageError where a candidate cannot be trained with these domains held out."""
        trial = self.make_trials(held_out, candidate)[0]
        find_learner_of(trial).check(trial, self.task, self.net)

    def run(self, searches: Mapping[str, Search], targets: Sequence[Target], rule: str) -> None:
        """Run until no search asks for more; tell each how well its proposals did by the rule.

        Where that is cut, candidates of which all was trained that was asked for are among those that were tried.
        """
        while asked := [
            (target, Contender(name, *proposal))
            for name, search in searches.items()
            for target in targets
            for proposal in search.ask(target)
        ]:
            trials = [(c.name, t) for target, c in asked for t in self._list_trials(target, c)]
            for name, trial in trials:
                self._asked.setdefault(name, set()).add(trial.key)
            try:
                self._run_trials([trial for _, trial in trials])
            finally:
                for target, candidate in asked:
                    known = self.tried.setdefault(target, [])
                    known += [candidate] if candidate not in known and self.is_done([candidate.name]) else []
            for target, candidate in asked:
                proposal = Proposal(candidate.algorithm, candidate.lr)
                searches[candidate.name].tell(target, proposal, self.score(target, candidate, rule))

    def is_done(self, names: Sequence[str]) -> bool:
        """Return whether all is trained that was asked for of candidates of these names."""
        return all(name in self._asked and self._asked[name] <= self.sink.records.keys() for name in names)

    def score(self, target: Target, candidate: Contender, rule: str) -> float | None:
        """Score a candidate by what may be known for a target, more being better; None where training diverged."""
        mean = average_finite(self.score_sources(target, candidate, rule) or ())
        return mean if math.isfinite(mean) else None

    def score_sources(self, target: Target, candidate: Contender, rule: str) -> list[float] | None:
        """Score a candidate on every source by the rule, as the mean over seeds; None where training diverged."""
        about = (target, candidate, split_rule(rule)[0])
        if about not in self._scores:
            self._scores[about] = self._score_sources(*about)
        return self._scores[about]

    def _score_sources(self, target: Target, candidate: Contender, base: str) -> list[float] | None:
        criterion = self.recipe.criterion
        chosen = [select_evaluation(record, criterion) for record in self.list_records(target, candidate)]
        known = [[score(value, criterion) for value in e.source[criterion]] for e in chosen if e is not None]
        if len(known) < len(chosen):
            return None
        validated = [fmean(values) for values in zip(*known, strict=True)]
        if base == SOURCE_VAL:
            return validated
        stop = self.find_stop(target, candidate, base)
        values: dict[str, list[float]] = {source: [] for source in self._list_sources(target)}
        for record, source in self._list_inner(target, candidate):
            evaluation = select_evaluation(record, criterion, stop)
            if evaluation is None:
                return None
            values[source].append(score(evaluation.held_out[criterion][record.held_out.index(source)], criterion))
        held_out = [average_finite(each) for each in values.values()]
        return [average_finite(pair) for pair in zip(validated, held_out, strict=True)] if base == BOTH else held_out

    def find_stop(self, target: Target, candidate: Contender, rule: str) -> int | None:
        """Find the number of steps after which held-out sources are served best, where the rule asks for it; None: each
        training stops where it validates best."""
        if split_rule(rule)[0] != STOPPED:
            return None
        inner, criterion = self._list_inner(target, candidate), self.recipe.criterion
        if any(record.status != DONE for record, _ in inner):
            return None
        curves = [[e.held_out[criterion][r.held_out.index(source)] for e in r.history] for r, source in inner]
        best = find_best([average_finite(values) for values in zip(*curves, strict=True)], criterion)
        return None if best is None else inner[0][0].history[best[1]].step

    def choose(self, target: Target, names: Sequence[str], rule: str) -> tuple[Choice | None, list[Contender]]:
        """Choose for a target among all candidates of these names; return them too, from the simplest on."""
        candidates = [c for c in self.tried.get(target, []) if c.name in names]
        candidates.sort(key=lambda c: find_learner_of(self.make_trials((), c)[0]).rank_simplicity(shorten(c.name)))
        scores = [self.score_sources(target, c, rule) for c in candidates]
        return choose(scores, split_rule(rule)[1]), candidates

    def list_records(self, held_out: Target, candidate: Contender) -> list[Record]:
        """List the records of a candidate, one per seed, as of trials that hold out these domains and no others."""
        return [_take_held_out(self.sink.records[t.key], held_out) for t in self.make_trials(held_out, candidate)]

    def choose_members(self, target: Target, names: Sequence[str], rule: str) -> list[Contender]:
        """Choose the settings of each candidate by the rule; leave out those whose training diverged."""
        chosen = ((self.choose(target, [name], rule), name) for name in names)
        return [candidates[choice.index] for (choice, candidates), _ in chosen if choice is not None]

    def weigh(self, target: Target, members: Sequence[Contender]) -> tuple[Weights, list[Contender]] | None:
        """Weigh members by what they say of each source without having seen it; return the weights of those whose
        predictions are all finite, and these; None where there are none."""
        sources = [(self._hold_out(target, source), source) for source in self._list_sources(target)]
        said = {m: [self.predict(held_out, m, source) for held_out, source in sources] for m in members}
        able = [m for m in members if all(np.isfinite(part).all() for part in said[m])]
        if not able:
            return None
        folds = []
        for i, (_, source) in enumerate(sources):
            y, weight = self.take_labels(source)
            folds.append(Fold(y, np.stack([said[m][i] for m in able]), weight))
        return find_weights([m.name for m in able], folds), able

    def predict(self, held_out: Target, candidate: Contender, domain: str, seed: int | None = None) -> Floats:
        """Return what trainings say of a domain that they held out: probabilities (row, class) or numbers (row,), the
        mean over seeds, or of one seed."""
        about = (held_out, candidate, domain)
        if about not in self._said:
            trials = self.make_trials(held_out, candidate)
            self._said[about] = np.stack([self._read_predictions(trial, domain) for trial in trials])
        said = self._said[about]
        return np.asarray(said.mean(0) if seed is None else said[list(self.seeds).index(seed)], np.float64)

    def take_labels(self, domain: str) -> tuple[NDArray[Any], Floats | None]:
        """Return the labels or numbers of a domain's rows, and how much each row counts, if not all the same."""
        data = self.user_data.dataset
        rows = data.rows(domain)
        return data.y[rows].numpy(), None if data.weight is None else data.weight[rows].numpy()

    def _read_predictions(self, trial: Trial, domain: str) -> NDArray[np.float32]:
        files = self.sink.saving.files
        kept = None if files is None else read_predictions(files, trial.key)
        if kept is None:
            raise UsageError(
                f"The predictions of {trial.short_name} for {domain} are missing or damaged: start the comparison anew."
            )
        its = kept["domain"] == trial.held_out.index(domain)
        order = kept["row"][its].argsort()
        told: NDArray[Any] = kept["probability" if "probability" in kept else "prediction"][its][order].numpy()
        return told

    def select_outcomes(self, target: Target, names: Sequence[str], rule: str, label: str = "") -> list[Outcome]:
        """Select what a choice by the rule reaches on a target, for each algorithm and seed. With a label, choose among
        all candidates of the algorithms together."""
        criterion = self.recipe.criterion
        if rule == ORACLE:
            tried = [c for c in self.tried.get(target, []) if c.name in names]
            records = [_relabel(r, label) for c in tried for r in self.list_records(target, c)]
            return select_outcomes(records, rule, criterion)
        outcomes = []
        for together in [names] if label else [[name] for name in names]:
            choice, candidates = self.choose(target, together, rule)
            candidate = candidates[choice.index if choice else 0]
            stop = self.find_stop(target, candidate, rule)
            for record in self.list_records(target, candidate):
                evaluation = select_evaluation(record, criterion, stop) if choice is not None else None
                value, step = (None, 0) if evaluation is None else (evaluation.held_out[criterion][0], evaluation.step)
                labeled = _relabel(record, label)
                outcomes.append(Outcome(labeled.algorithm, target[0], record.seed, value, step, labeled))
        return outcomes

    def _list_inner(self, target: Target, candidate: Contender) -> list[tuple[Record, str]]:
        """List the trainings without the target and one source more, each with that source."""
        return [
            (record, source)
            for source in self._list_sources(target)
            for record in self.list_records(self._hold_out(target, source), candidate)
        ]

    def _list_trials(self, target: Target, candidate: Contender) -> list[Trial]:
        inner = [self._hold_out(target, source) for source in self._list_sources(target)] if self.within else []
        return [trial for held_out in (target, *inner) for trial in self.make_trials(held_out, candidate)]

    def _list_sources(self, target: Target) -> list[str]:
        return [d for d in self.domains if d not in self._expand(target)]

    def _expand(self, held_out: Target) -> Target:
        """Add the domains that are held out together with these; of several folds, in the order of the domains."""
        if all(self.folds[d] == (d,) for d in held_out):
            return held_out
        together = {other for d in held_out for other in self.folds[d]}
        return tuple(d for d in self.domains if d in together)

    def _hold_out(self, target: Target, source: str) -> Target:
        """Add a source to the target, in the order of the domains, so that a pair is one trial in either order. Where
        choices are almost nested, it is the source alone."""
        return tuple(d for d in self.domains if d in (*target, source)) if self.nested else (source,)

    def make_trials(self, held_out: Target, candidate: Contender) -> list[Trial]:
        """Make a trial per seed. Domains of one fold are held out by the same trials."""
        held_out = self._expand(held_out)
        if (held_out, candidate) not in self._trials:
            count = len(self.domains)
            settings = describe_settings(adapt_to_path(candidate.algorithm, count, count - 1))
            protocol = replace(self.recipe.protocol, lr=candidate.lr)
            if DOMAINS_PER_STEP in self.recipe.auto:
                protocol = meet_all_where_needed(protocol, candidate.algorithm)
            if not isinstance(candidate.algorithm, Algorithm):
                scaling = find_scaling(candidate.name, candidate.algorithm)
                protocol = replace(protocol, members=1, calibrate=False, scaling=scaling)  # it is fitted once
            objects: dict[str, Any] = {}  # that no name makes
            if isinstance(candidate.algorithm, OwnSettings):
                objects["estimator"] = candidate.algorithm.estimator
            elif isinstance(candidate.algorithm, Algorithm) and not is_registered(
                shorten(split_chain(candidate.name)[0])
            ):
                objects["algorithm"] = adapt_to_path(candidate.algorithm, count, count - len(held_out))
            self._trials[held_out, candidate] = [
                self.task.make_trial(candidate.name, settings, protocol, held_out, seed, **objects)
                for seed in self.seeds
            ]
        return self._trials[held_out, candidate]

    def _run_trials(self, trials: Sequence[Trial]) -> None:
        """Run trials, each once."""
        new = [t for t in trials if t.key not in self._planned]
        if not new:
            return
        self._planned.update(t.key for t in new)
        position = {name: i for i, name in enumerate(self.domains)}
        # In an order that does not depend on which rules are reported, so that the stacks do not either.
        new.sort(key=lambda t: (len(t.held_out), [position[name] for name in t.held_out]))
        # Also those that are known from before an interruption are planned, so that the stacks are the same.
        plan = plan_trials(self.task, new, self.net, self.recipe.device, self.sink.records)
        if self.order:
            rank = {name: i for i, name in enumerate(self.order)}
            plan = replace(plan, missing=tuple(sorted(plan.missing, key=lambda g: rank[g.trials[0].algorithm])))
        session = Session(self.task, self.recipe.device, self.sink.saving)
        execute(plan, session, self.executor, self.sink, on_progress=self.on_progress)


def group_domains(rows: Mapping[str, int]) -> dict[str, Target]:
    """Return which domains are held out together with each: itself alone, or a group where there are many.

    rows: of each domain. Groups have about as many domains, and as many rows: from the largest domain on, each goes to
    the group with the fewest domains, and of those to the one with the fewest rows.
    """
    if len(rows) <= MOST_ALONE:
        return {d: (d,) for d in rows}
    groups: list[list[str]] = [[] for _ in range(GROUPS)]
    for d in sorted(rows, key=lambda d: -rows[d]):
        min(groups, key=lambda group: (len(group), sum(rows[other] for other in group))).append(d)
    return {d: tuple(other for other in rows if other in group) for group in groups for d in group}


def _take_held_out(record: Record, held_out: Target) -> Record:
    """Return a record with these of its held-out domains alone."""
    if record.held_out == held_out:
        return record
    indices = [record.held_out.index(d) for d in held_out]

    def take(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
        return {criterion: [each[index] for index in indices] for criterion, each in values.items()}

    history = [
        replace(
            e, held_out=take(e.held_out), held_out_fifth=take(e.held_out_fifth), held_out_rest=take(e.held_out_rest)
        )
        for e in record.history
    ]
    return replace(record, description={**record.description, "held_out": list(held_out)}, history=history)


def _relabel(record: Record, label: str) -> Record:
    """Describe all algorithms as one, of which each is a setting; without a label, leave the record as it is."""
    if not label:
        return record
    about = record.description
    settings = {**about["settings"], "algorithm": about["algorithm"]}
    return replace(record, description={**about, "algorithm": label, "settings": settings})


class OutOfTime(BaseException):
    """The time of a comparison is over. No learner catches it, as it is no mistake of the learner's."""


@dataclass
class Budget:
    """So many minutes from now on."""

    minutes: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.minutes < float("inf"):
            raise UsageError(f"minutes is {self.minutes}, but it must be a positive number.")
        self.began = self.clock()

    @property
    def left(self) -> float:
        """Seconds left to compare in."""
        return self.began + COMPARING * 60 * self.minutes - self.clock()

    @property
    def left_in_all(self) -> float:
        """Seconds left until all is fitted."""
        return self.began + 60 * self.minutes - self.clock()

    @property
    def reserve(self) -> float:
        """Seconds that are kept for fitting the winner on all rows."""
        return (1 - COMPARING) * 60 * self.minutes


def list_rounds(learners: Mapping[str, Learner]) -> list[list[str]]:
    """List candidates from the cheapest on, those that share a training together."""
    rounds: dict[str, list[str]] = {}
    for name, learner in learners.items():
        settings = learner.build_settings(name)
        rounds.setdefault("+".join(split_chain(name)[:-1]) if isinstance(settings, Averaging) else name, []).append(
            name
        )
    return sorted(rounds.values(), key=lambda names: min(learners[n].rank_cost(shorten(n)) for n in names))


def run_within(
    budget: Budget,
    sweep: Sweep,
    learners: Mapping[str, Learner],
    searches: Mapping[str, Search],
    targets: Sequence[Target],
    rule: str,
    rows: int,
    on_message: Callable[[str], None] = lambda sentence: None,
) -> dict[str, str]:
    """Run the searches, the cheapest first, until the time has elapsed; return why candidates were left out, by name.

    The first always runs to its end, so that there is a model. rows: that the winner will be fitted to.
    on_message: called with the order in which they are tried.
    """
    rounds, on_progress, begun, stopped = list_rounds(learners), sweep.on_progress, set[str](), False
    first, order = rounds[0], [name for names in rounds for name in names]

    def stop_when_over(*signal_and_frame: Any) -> None:
        nonlocal stopped
        if not stopped and budget.left < 0 and sweep.is_done(first):
            stopped = True
            raise OutOfTime

    def watch(progress: Progress) -> None:
        begun.update(group.algorithm for group in progress.list_running())
        progress.limit = max(0.0, budget.left)
        on_progress(progress)
        stop_when_over()

    on_message(f"Trying, the cheapest first: {', '.join(order)}.")
    sweep.on_progress, sweep.order = watch, order
    with suppress(OutOfTime), _call_at_end(budget, stop_when_over):
        sweep.run({name: searches[name] for name in order}, targets, rule)
    sweep.on_progress = on_progress
    left_out: dict[str, str] = {}
    for names in rounds:
        why = "no time was left" if begun.isdisjoint(names) else "not done in time"
        left_out |= dict.fromkeys([name for name in names if not sweep.is_done([name])], why)
    others = {n: search for n, search in searches.items() if n not in first and n not in left_out}
    return left_out | _list_slow(budget, sweep, others, learners, rows)


@contextmanager
def _call_at_end(budget: Budget, stop: Callable[..., None]) -> Iterator[None]:
    """Call `stop` when the time has elapsed, and then again and again, whatever this thread waits for.

    A signal does so, which only the main thread can take, and Windows has none: there `stop` is called at the next sign
    of life of a training alone.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(budget.left, 0.001), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _list_slow(
    budget: Budget, sweep: Sweep, searches: Mapping[str, Search], learners: Mapping[str, Learner], rows: int
) -> dict[str, str]:
    """List candidates that could not be fitted to all rows in the time that is kept for it."""
    slow = {}
    for name, search in searches.items():
        if rows > len(sweep.user_data.dataset.y) and not learners[name].takes_steps:
            needed = estimate_fit(sweep, Contender(name, *search.first), rows)
            if needed > budget.reserve:
                slow[name] = f"fitting it to all {rows} rows takes {format_duration(needed)}"
    return slow


def estimate_fit(sweep: Sweep, candidate: Contender, rows: int) -> float:
    """Estimate the seconds that fitting a candidate to so many rows takes, from its trainings on all domains."""
    records = sweep.list_records((), candidate)
    steps = find_learner_of(sweep.make_trials((), candidate)[0]).takes_steps  # as many, whatever the rows
    growth = 1.0 if steps else MARGIN * rows / len(sweep.user_data.dataset.y)
    return growth * fmean(record.seconds for record in records)


def note_left_out(left_out: Mapping[str, str]) -> list[str]:
    """Say in sentences which candidates were left out and why; those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} left out: {why}."
        for why, names in by_reason.items()
    ]


def keep_predictions(files: Folder, criterion: str, checkpoint: float = 0.0) -> Saving:
    """Keep the predictions of every training for what it holds out, at the step that validates best."""
    return Saving(files=files, checkpoint=checkpoint, predictions=True, criterion=criterion)


class KeptRecords(MemorySink):
    """A sink in memory whose records also go to a store, group by group. It begins with those that the store has."""

    def __init__(
        self,
        directory: Path,
        identity: str,
        on_message: Callable[[str], None] = lambda sentence: None,
        criterion: str = "",
    ) -> None:
        """Open the directory, or make it. identity: what the records depend on; those of another are removed.

        criterion: by which source validation chooses the step whose predictions are kept.
        """
        super().__init__()
        self._open = ExitStack()
        self._open.enter_context(lock_directory(directory))
        self.store = Store.create(directory, NAME)
        if self.store.meta(IDENTITY) not in (None, identity):  # None: it was killed before it was written
            on_message(f"What was trained in {directory} was of other data, options or code: starting anew.")
            self.store.close()
            _remove_files(directory)
            self.store = Store.create(directory, NAME)
        self._open.callback(self.store.close)
        self.store.set_meta(IDENTITY, identity)
        files = Folder(directory.resolve())
        self.saving = keep_predictions(files, criterion, CHECKPOINT)
        self.serving: dict[str, float] = json.loads(self.store.meta(SERVING) or "{}")
        known = [replace(r, serving=self.serving.get(r.key, 0.0)) for r in self.store.records() if r.status != FAILED]
        told = [r for r in known if not r.held_out or read_predictions(files, r.key) is not None]
        self.records = {r.key: r for r in told}
        remove_checkpoints(files, self.records)
        if self.records:
            on_message(f"Going on from {count_things(len(self.records), 'training')} that {directory} holds.")

    def begin(self, planned: Mapping[str, str]) -> None:
        self.store.begin(planned)

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        self.store.note(run, running)

    def add(self, records: Iterable[Record], group: str = "") -> None:
        records = list(records)
        self.store.add([r for r in records if r.status != FAILED], group)
        self.serving |= {r.key: r.serving for r in records}
        self.store.set_meta(SERVING, json.dumps(self.serving))
        super().add(records, group)

    def close(self) -> None:
        self._open.close()


def remove_kept(directory: Path) -> None:
    """Remove what a comparison kept, and the directory where nothing else is in it."""
    _remove_files(directory)
    (directory / "lock").unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def identify_comparison(user_data: UserData, recipe: Recipe, how: Sequence[Any]) -> str:
    """Return the identity of a comparison: its rows, how they are trained on, and how it was asked for."""
    data, net = user_data.dataset, recipe.net if recipe.net is not None else "by the kind of input"
    rows = [part for part in (data.x, data.y, data.domain, data.validation, data.weight) if part is not None]
    about = [data.domains, data.classes, user_data.input.describe(), recipe.describe(), recipe.device]
    return identify(*rows, *user_data.input.tensors.values(), net, about, list(how), list_versions())


def identify(*parts: Any) -> str:
    """Return the hash of everything that a comparison's numbers depend on: arrays, networks, and values of any kind."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, nn.Module):
            digest.update(identify(repr(part), list(part.state_dict()), *part.state_dict().values()).encode())
        elif isinstance(part, Tensor | np.ndarray):
            array = np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            digest.update(json.dumps(part, default=repr, sort_keys=True).encode())
    return digest.hexdigest()


def _remove_files(directory: Path) -> None:
    for path in (*directory.glob(f"{FILE}*"), directory / FOLDER, directory / "predictions"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

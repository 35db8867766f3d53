"""Every candidate with every domain held out in turn, from one plan of stacked trials.

A *target* says what a choice is for: `(d,)` is the choice that is judged on domain d, which stays unseen; `()` is the
final choice, with all domains known. A choice for a target uses the sources alone: their validation rows in the trial
with the target held out, and how well trials without the target and without one source do on that source.

For n domains the latter are n (n - 1) / 2 pairs. Where these are too many, the choice is *almost nested*: a source's
score is that of the trial with this source alone held out, which is there already. That trial has trained on the
target, so what is chosen for it is not quite what would have been chosen without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from seqdg.base import UsageError
from seqdg.bench import (
    Executor,
    Learner,
    MemorySink,
    OwnSettings,
    Plan,
    Progress,
    Proposal,
    Search,
    Session,
    Target,
    Trial,
    execute,
    find_learner_of,
    plan_trials,
)
from seqdg.core import Algorithm, Settings, adapt_to_path, describe_settings, shorten
from seqdg.data import STANDARD
from seqdg.estimator.auto import meet_all_where_needed
from seqdg.estimator.compare.rules import (
    LEAVE_ONE_OUT,
    ORACLE,
    SOURCE_VAL,
    STOPPED,
    Choice,
    choose,
    split_rule,
)
from seqdg.estimator.fitting import make_task
from seqdg.estimator.recipe import DOMAINS_PER_STEP, Recipe
from seqdg.estimator.user_data import UserData
from seqdg.results import DONE, Outcome, Record, average_finite, find_best, score, select_evaluation, select_outcomes


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
    executor: Executor
    within: bool  # whether to run what leave-one-out within the sources needs
    show: Callable[[Progress], None] = lambda progress: None
    nested: bool = True  # whether that holds out the target too, in pairs
    sink: MemorySink = field(default_factory=MemorySink)
    tried: dict[Target, list[Contender]] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)  # keys of trials; those that the sink has are not run again

    def __post_init__(self) -> None:
        self._trials: dict[tuple[Target, Contender], list[Trial]] = {}
        self._scores: dict[tuple[Target, Contender, str, str], list[float] | None] = {}
        self.task, self.net = make_task(self.user_data, self.recipe, scaled=False)

    @property
    def domains(self) -> tuple[str, ...]:
        return self.user_data.dataset.domains

    def check(self, candidate: Contender) -> bool:
        """Say whether it can be trained with two domains held out; raise a UsageError where it cannot even with one."""
        self._check(candidate, 0)
        self._check(candidate, 1)
        try:
            self._check(candidate, 2)
        except UsageError:
            return False
        return len(self.domains) > 2

    def _check(self, candidate: Contender, held_out: int) -> None:
        """Raise a UsageError where it cannot be trained with so many domains held out."""
        trial = self._make_trials(self.domains[:held_out], candidate)[0]
        find_learner_of(trial).check(trial, self.task, self.net)

    def _find_learner(self, candidate: Contender) -> Learner:
        return find_learner_of(self._make_trials((), candidate)[0])

    def run(self, searches: Mapping[str, Search], targets: Sequence[Target], rule: str, criterion: str) -> None:
        """Run until no search asks for more; tell each how well its proposals did by the rule."""
        while True:
            asked = [
                (target, Contender(name, *proposal))
                for name, search in searches.items()
                for target in targets
                for proposal in search.ask(target)
            ]
            if not asked:
                return
            self.run_trials([t for target, c in asked for t in self._list_trials(target, c)])
            for target, candidate in asked:
                known = self.tried.setdefault(target, [])
                known += [candidate] if candidate not in known else []
                proposal = Proposal(candidate.algorithm, candidate.lr)
                searches[candidate.name].tell(target, proposal, self.score(target, candidate, rule, criterion))

    def train_together(self, candidates: Sequence[Contender], targets: Sequence[Target]) -> None:
        """Train candidates with each of these domains, or pairs of them, held out."""
        self.run_trials([t for target in targets for c in candidates for t in self._make_trials(target, c)])

    def score(self, target: Target, candidate: Contender, rule: str, criterion: str) -> float | None:
        """Score a candidate by what may be known for a target, more being better; None where training diverged."""
        mean = average_finite(self.score_sources(target, candidate, rule, criterion) or ())
        return mean if math.isfinite(mean) else None

    def score_sources(self, target: Target, candidate: Contender, rule: str, criterion: str) -> list[float] | None:
        """Score a candidate on every source by the rule, as the mean over seeds; None where training diverged."""
        place = (target, candidate, split_rule(rule)[0], criterion)
        if place not in self._scores:
            self._scores[place] = self._score_sources(*place)
        return self._scores[place]

    def _score_sources(self, target: Target, candidate: Contender, base: str, criterion: str) -> list[float] | None:
        sources = self._list_sources(target)
        validated = self._score_validation(self.list_records(target, candidate), criterion)
        if base == SOURCE_VAL or validated is None:
            return validated
        stop = self.find_stop(target, candidate, base, criterion)
        held_out = self._score_held_out(self._list_inner(target, candidate), sources, criterion, stop)
        if base in (LEAVE_ONE_OUT, STOPPED) or held_out is None:
            return held_out
        return [average_finite(pair) for pair in zip(validated, held_out, strict=True)]

    def find_stop(self, target: Target, candidate: Contender, rule: str, criterion: str) -> int | None:
        """Find the number of steps after which held-out sources are served best, where the rule asks for it; None: each
        training stops where it validates best."""
        if split_rule(rule)[0] != STOPPED:
            return None
        inner = self._list_inner(target, candidate)
        if any(record.status != DONE for record, _ in inner):
            return None
        curves = [[e.held_out[criterion][r.held_out.index(source)] for e in r.history] for r, source in inner]
        best = find_best([average_finite(values) for values in zip(*curves, strict=True)], criterion)
        return None if best is None else inner[0][0].history[best[1]].step

    def _score_validation(self, records: Sequence[Record], criterion: str) -> list[float] | None:
        """Return for each source the mean over seeds of its score on validation rows."""
        chosen = [select_evaluation(record, criterion) for record in records]
        known = [[score(value, criterion) for value in e.source[criterion]] for e in chosen if e is not None]
        return [fmean(values) for values in zip(*known, strict=True)] if len(known) == len(chosen) else None

    def _score_held_out(
        self, inner: Sequence[tuple[Record, str]], sources: Sequence[str], criterion: str, stop: int | None
    ) -> list[float] | None:
        """Return for each source the mean over seeds of its score in trainings that held it out."""
        values: dict[str, list[float]] = {source: [] for source in sources}
        for record, source in inner:
            evaluation = select_evaluation(record, criterion, stop)
            if evaluation is None:
                return None
            values[source].append(score(evaluation.held_out[criterion][record.held_out.index(source)], criterion))
        return [average_finite(values[source]) for source in sources]

    def choose(
        self, target: Target, names: Sequence[str], rule: str, criterion: str
    ) -> tuple[Choice | None, list[Contender]]:
        """Choose for a target among all candidates of these names; return them too, from the simplest on."""
        candidates = [c for c in self.tried.get(target, []) if c.name in names]
        candidates.sort(key=lambda c: self._find_learner(c).rank_simplicity(shorten(c.name)))
        scores = [self.score_sources(target, c, rule, criterion) for c in candidates]
        return choose(scores, split_rule(rule)[1]), candidates

    def count_trainings(self, candidates: int) -> int:
        """Count the trainings that so many candidates take."""
        n = len(self.domains)
        pairs = n * (n - 1) // 2 if self.within and self.nested else 0
        return candidates * len(self.seeds) * (1 + n + pairs)

    def list_records(self, held_out: Target, candidate: Contender) -> list[Record]:
        """List the records of a candidate, one per seed."""
        return [self.sink.records[t.key] for t in self._make_trials(held_out, candidate)]

    def select_outcomes(
        self, target: Target, names: Sequence[str], rule: str, criterion: str, label: str = ""
    ) -> list[Outcome]:
        """Select what a choice by the rule reaches on a target, for each algorithm and seed. With a label, choose among
        all candidates of the algorithms together."""
        if rule == ORACLE:
            tried = [c for c in self.tried.get(target, []) if c.name in names]
            records = [r for c in tried for r in self.list_records(target, c)]
            return select_outcomes([_relabel(r, label) for r in records] if label else records, rule, criterion)
        if not label:
            return [o for name in names for o in self._select_chosen(target, [name], rule, criterion, "")]
        return self._select_chosen(target, names, rule, criterion, label)

    def _select_chosen(
        self, target: Target, names: Sequence[str], rule: str, criterion: str, label: str
    ) -> list[Outcome]:
        choice, candidates = self.choose(target, names, rule, criterion)
        if not candidates:
            return []
        candidate = candidates[choice.place if choice else 0]
        outcomes, stop = [], self.find_stop(target, candidate, rule, criterion)
        for record in self.list_records(target, candidate):
            evaluation = select_evaluation(record, criterion, stop) if choice is not None else None
            value, step = (None, 0) if evaluation is None else (evaluation.held_out[criterion][0], evaluation.step)
            shown = _relabel(record, label) if label else record
            outcomes.append(Outcome(shown.algorithm, target[0], record.seed, value, step, shown))
        return outcomes

    def _list_inner(self, target: Target, candidate: Contender) -> list[tuple[Record, str]]:
        """List the trainings without the target and one source more, each with that source."""
        return [
            (record, source)
            for source in self._list_sources(target)
            for record in self.list_records(self._hold_out(target, source), candidate)
        ]

    def _list_trials(self, target: Target, candidate: Contender) -> list[Trial]:
        trials = list(self._make_trials(target, candidate))
        if self.within:
            for source in self._list_sources(target):
                trials += self._make_trials(self._hold_out(target, source), candidate)
        return trials

    def _list_sources(self, target: Target) -> list[str]:
        return [d for d in self.domains if d not in target]

    def _hold_out(self, target: Target, source: str) -> Target:
        """Add a source to the target, in the order of the domains, so that a pair is one trial in either order. Where
        choices are almost nested, it is the source alone."""
        return tuple(d for d in self.domains if d in (*target, source)) if self.nested else (source,)

    def _make_trials(self, held_out: Target, candidate: Contender) -> list[Trial]:
        """Make a trial per seed."""
        place = (held_out, candidate)
        if place not in self._trials:
            count = len(self.domains)
            settings = describe_settings(adapt_to_path(candidate.algorithm, count, count - 1))
            protocol = replace(self.recipe.protocol, lr=candidate.lr)
            if DOMAINS_PER_STEP in self.recipe.auto:
                protocol = meet_all_where_needed(protocol, candidate.algorithm)
            if not isinstance(candidate.algorithm, Algorithm):
                protocol = replace(protocol, members=1, calibrate=False, scaling=STANDARD)  # it is fitted once
            estimator = candidate.algorithm.estimator if isinstance(candidate.algorithm, OwnSettings) else None
            self._trials[place] = [
                self.task.make_trial(candidate.name, settings, protocol, held_out, seed, estimator=estimator)
                for seed in self.seeds
            ]
        return self._trials[place]

    def plan(self, asked: Sequence[tuple[Target, Contender]]) -> Plan:
        """Plan what candidates take for targets; nothing runs."""
        trials = [t for target, c in asked for t in self._list_trials(target, c)]
        return plan_trials(self.task, trials, self.net, self.recipe.device, self.sink.records)

    def forget(self, names: Sequence[str]) -> None:
        """Forget candidates of these names, of which not all was trained."""
        for target, tried in self.tried.items():
            self.tried[target] = [c for c in tried if c.name not in names]

    def run_trials(self, trials: Sequence[Trial]) -> None:
        """Run trials, each once."""
        new = [t for t in trials if t.key not in self.planned]
        if not new:
            return
        self.planned.update(t.key for t in new)
        place = {name: i for i, name in enumerate(self.domains)}
        # In an order that does not depend on which rules are reported, so that the stacks do not either.
        new.sort(key=lambda t: (len(t.held_out), [place[name] for name in t.held_out]))
        # Also those that are known from before an interruption are planned, so that the stacks are the same.
        plan = plan_trials(self.task, new, self.net, self.recipe.device, self.sink.records)
        session = Session(self.task, self.recipe.device, self.sink.saving)
        execute(plan, session, self.executor, self.sink, show=self.show)


def _relabel(record: Record, label: str) -> Record:
    """Describe all algorithms as one, of which each is a setting."""
    about = record.description
    settings = {**about["settings"], "algorithm": about["algorithm"]}
    return replace(record, description={**about, "algorithm": label, "settings": settings})

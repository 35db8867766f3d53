"""Every candidate with every domain held out in turn, from one plan of stacked trials.

A *target* says what a choice is for: `(d,)` is the choice that is judged on domain d, which stays unseen; `()` is the
final choice, with all domains known. A choice for a target uses the sources alone: their validation rows in the trial
with the target held out, and how well trials without the target and without one source do on that source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seqdg.base.errors import UsageError
from seqdg.bench.execute import Memory, execute
from seqdg.bench.executors.session import Executor, Session
from seqdg.bench.learner import find_learner
from seqdg.bench.plan import plan_trials
from seqdg.bench.progress import Progress
from seqdg.bench.search import Proposal, Search, Target
from seqdg.bench.trial import Trial
from seqdg.core.algorithm import Settings
from seqdg.core.settings import adapt_to_path, describe_settings
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.task import make_task
from seqdg.estimator.user_data import UserData
from seqdg.results.record import DIVERGED, DONE, Record
from seqdg.results.select import Outcome, score_by_leave_one_out, score_by_validation, select_outcomes

LEAVE_ONE_OUT = "leave-one-out"


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
    memory: Memory = field(default_factory=Memory)
    tried: dict[Target, list[Contender]] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)  # keys of trials; what the memory holds of them is not run again

    def __post_init__(self) -> None:
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
        find_learner(candidate.name).check(trial, self.task, self.net)

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
            self._run([t for target, c in asked for t in self._list_trials(target, c)])
            for target, candidate in asked:
                known = self.tried.setdefault(target, [])
                known += [candidate] if candidate not in known else []
                score = self.score(target, candidate, rule, criterion)
                proposal = Proposal(candidate.algorithm, candidate.lr)
                searches[candidate.name].tell(target, proposal, None if score is None else score[0])

    def score(self, target: Target, candidate: Contender, rule: str, criterion: str) -> tuple[float, int] | None:
        """Score a candidate by what may be known for a target, more being better, and return its best step too; None
        where training diverged."""
        if rule == LEAVE_ONE_OUT:
            return score_by_leave_one_out(self._list_inner(target, candidate), criterion)
        return score_by_validation(self.list_records(target, candidate), criterion)

    def list_records(self, held_out: Target, candidate: Contender) -> list[Record]:
        """List the records of a candidate, one per seed."""
        return [self.memory.records[t.key] for t in self._make_trials(held_out, candidate)]

    def select_outcomes(
        self, target: Target, names: Sequence[str], rule: str, criterion: str, label: str = ""
    ) -> list[Outcome]:
        """Select what a choice by the rule reaches on a target, for each algorithm and seed. With a label, choose among
        all candidates of the algorithms together."""
        records: list[Record] = []
        for candidate in (c for c in self.tried.get(target, []) if c.name in names):
            outer = self.list_records(target, candidate)
            if rule == LEAVE_ONE_OUT:
                if not self.check(candidate):
                    continue
                inner = [record for record, _ in self._list_inner(target, candidate)]
                if any(r.status != DONE for r in inner):
                    outer, inner = [replace(r, status=DIVERGED) for r in outer], []
                outer += inner
            records += [_relabel(r, label) for r in outer] if label else outer
        return select_outcomes(records, rule, criterion)

    def _list_inner(self, target: Target, candidate: Contender) -> list[tuple[Record, str]]:
        """List the trainings without the target and one source more, each with that source."""
        return [
            (record, source)
            for source in self._list_sources(target)
            for record in self.list_records(self._hold_out(target, source), candidate)
        ]

    def _list_trials(self, target: Target, candidate: Contender) -> list[Trial]:
        trials = self._make_trials(target, candidate)
        if self.within and (not target or self.check(candidate)):
            for source in self._list_sources(target):
                trials += self._make_trials(self._hold_out(target, source), candidate)
        return trials

    def _list_sources(self, target: Target) -> list[str]:
        return [d for d in self.domains if d not in target]

    def _hold_out(self, target: Target, source: str) -> Target:
        """Add a source to the target, in the order of the domains, so that a pair is one trial in either order."""
        return tuple(d for d in self.domains if d in (*target, source))

    def _make_trials(self, held_out: Target, candidate: Contender) -> list[Trial]:
        """Make a trial per seed."""
        count = len(self.domains)
        settings = describe_settings(adapt_to_path(candidate.algorithm, count, count - 1))
        protocol = replace(self.recipe.protocol, lr=candidate.lr)
        if not find_learner(candidate.name).takes_steps:
            protocol = replace(protocol, members=1, calibrate=False)  # it is fitted once
        return [self.task.make_trial(candidate.name, settings, protocol, held_out, seed) for seed in self.seeds]

    def _run(self, trials: Sequence[Trial]) -> None:
        new = [t for t in trials if t.key not in self.planned]
        if not new:
            return
        self.planned.update(t.key for t in new)
        place = {name: i for i, name in enumerate(self.domains)}
        # In an order that does not depend on which rules are reported, so that the stacks do not either.
        new.sort(key=lambda t: (len(t.held_out), [place[name] for name in t.held_out]))
        # Also those that are known from before an interruption are planned, so that the stacks are the same.
        plan = plan_trials(self.task, new, self.net, self.recipe.device, self.memory.records)
        session = Session(self.task, self.recipe.device, self.memory.keep)
        execute(plan, session, self.executor, self.memory, show=self.show)


def _relabel(record: Record, label: str) -> Record:
    """Describe all algorithms as one, of which each is a setting."""
    about = record.description
    settings = {**about["settings"], "algorithm": about["algorithm"]}
    return replace(record, description={**about, "algorithm": label, "settings": settings})

"""Every candidate with every domain held out in turn, from one plan of stacked trials.

A *target* is what a choice is made for: `(d,)` stands for choosing, and judging the choice, with domain d unseen; `()`
for the final choice, with all domains known. What may inform a choice for a target are the sources alone: their
validation rows in the trial with the target held out, and how well each source is served by trials that were trained
without it and without the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from seqdg.base.errors import UsageError
from seqdg.bench.benchmark import Benchmark
from seqdg.bench.executors.context import Executor
from seqdg.bench.plan import capacity
from seqdg.bench.progress import Progress
from seqdg.bench.search import Proposal, Search, Target
from seqdg.bench.trial import Group, Trial, group, settings_of
from seqdg.core.algorithm import Algorithm
from seqdg.core.settings import adapt_to_path
from seqdg.estimator.folds import FoldContext
from seqdg.estimator.inputs import ImageInput
from seqdg.estimator.material import Material
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.train import check_net
from seqdg.nets import Net, NetSpec
from seqdg.results.criteria import score
from seqdg.results.record import DIVERGED, DONE, FAILED, Record
from seqdg.results.select import Outcome, average_finite, select_outcomes

LEAVE_ONE_OUT = "leave-one-out"


@dataclass(frozen=True)
class Candidate:
    name: str
    algorithm: Algorithm  # with settings for all domains
    lr: float


@dataclass(frozen=True)
class _Missing:
    missing: tuple[Group, ...]


@dataclass
class Sweep:
    """Runs trials as they are asked for, each once."""

    material: Material
    recipe: Recipe
    seeds: range
    executor: Executor
    within: bool  # whether to run what leave-one-out within the sources needs
    show: Callable[[Progress], None] = lambda progress: None
    records: dict[str, Record] = field(default_factory=dict)  # by key of the trial
    tried: dict[Target, list[Candidate]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        built = self.recipe.built(self.material.input.shape, len(self.material.classes), self.recipe.seed)
        self.policy = self.recipe.policy(built.module)
        self.net = Net(built.module, self.policy)
        check_net(self.net, self.material)
        self.parameters = sum(p.numel() for p in self.net.params().values())
        self.spec = self.recipe.spec(self.material.dataset.is_image) or NetSpec("mlp")  # a net of the user's own
        benchmark = Benchmark("the data", "", "", {}, self.spec, self.policy, self.recipe.protocol, len(self.seeds), ())
        self.context = FoldContext(
            benchmark, None, self.recipe.device, data=self.material.dataset, material=self.material, recipe=self.recipe
        )

    @property
    def domains(self) -> tuple[str, ...]:
        return self.material.dataset.domains

    def check(self, candidate: Candidate) -> bool:
        """Whether it can also be trained with two domains held out; a UsageError where not with one."""
        count = len(self.domains)
        adapt_to_path(candidate.algorithm, count, count).check(self.net, count)
        adapt_to_path(candidate.algorithm, count, count - 1).check(self.net, count - 1)
        try:
            adapt_to_path(candidate.algorithm, count, count - 2).check(self.net, count - 2)
        except UsageError:
            return False
        return count > 2

    def run(self, searches: Mapping[str, Search], targets: Sequence[Target], rule: str, criterion: str) -> None:
        """Until no search has anything more to ask; each hears how well its proposals did by the rule."""
        while True:
            asked = [
                (target, Candidate(name, *proposal))
                for name, search in searches.items()
                for target in targets
                for proposal in search.ask(target)
            ]
            if not asked:
                return
            self._run([t for target, c in asked for t in self._trials(target, c)])
            for target, candidate in asked:
                known = self.tried.setdefault(target, [])
                known += [candidate] if candidate not in known else []
                score = self.score(target, candidate, rule, criterion)
                proposal = Proposal(candidate.algorithm, candidate.lr)
                searches[candidate.name].tell(target, proposal, None if score is None else score[0])

    def score(self, target: Target, candidate: Candidate, rule: str, criterion: str) -> tuple[float, int] | None:
        """How well it does for a target by what may be known, more being better, and after how many steps; None where
        training diverged. By validation every seed has its own best step, and the last seed's is given."""
        if rule == LEAVE_ONE_OUT:
            curve = self._within(target, candidate, criterion)
            best = _best(curve, criterion)
            return None if best is None else (best[0], self.recipe.protocol.evaluation_steps()[best[1]])
        values, step = [], 0
        for record in self.of(target, candidate):
            best = (
                _best([average_finite(e.source[criterion]) for e in record.history], criterion)
                if record.status == DONE
                else None
            )
            if best is None:
                return None
            values.append(best[0])
            step = record.history[best[1]].step
        return fmean(values), step

    def of(self, held_out: Target, candidate: Candidate) -> list[Record]:
        """A record per seed."""
        return [self.records[t.key] for t in self._seeds(held_out, candidate)]

    def outcomes(
        self, target: Target, names: Sequence[str], rule: str, criterion: str, label: str = ""
    ) -> list[Outcome]:
        """What a choice by the rule reaches on a target: for each algorithm and seed, or where there is a label, among
        all candidates of the algorithms together."""
        records: list[Record] = []
        for candidate in (c for c in self.tried.get(target, []) if c.name in names):
            own = self.of(target, candidate)
            if rule == LEAVE_ONE_OUT:
                if not self.check(candidate):
                    continue
                inner = [r for s in self._sources(target) for r in self.of(self._together(target, s), candidate)]
                if any(r.status != DONE for r in inner):
                    own, inner = [replace(r, status=DIVERGED) for r in own], []
                own += inner
            records += [_labelled(r, label) for r in own] if label else own
        return select_outcomes(records, rule, criterion)

    def _within(self, target: Target, candidate: Candidate, criterion: str) -> list[float]:
        """By evaluation, the mean over sources and seeds of the value on a source that was held out too."""
        curves = []
        for source in self._sources(target):
            held_out = self._together(target, source)
            for record in self.of(held_out, candidate):
                if record.status != DONE:
                    return []
                place = record.held_out.index(source)
                curves.append([e.held_out[criterion][place] for e in record.history])
        return [average_finite(values) for values in zip(*curves, strict=True)]

    def _trials(self, target: Target, candidate: Candidate) -> list[Trial]:
        found = self._seeds(target, candidate)
        if self.within and (not target or self.check(candidate)):
            for source in self._sources(target):
                found += self._seeds(self._together(target, source), candidate)
        return found

    def _sources(self, target: Target) -> list[str]:
        return [d for d in self.domains if d not in target]

    def _together(self, target: Target, source: str) -> Target:
        """In the order of the domains, so that a pair is the same trial for both."""
        return tuple(d for d in self.domains if d in (*target, source))

    def _seeds(self, held_out: Target, candidate: Candidate) -> list[Trial]:
        count = len(self.domains)
        shorter = adapt_to_path(candidate.algorithm, count, count - 1)
        image = self.material.input if isinstance(self.material.input, ImageInput) else None
        return [
            Trial(
                data="",
                net=self.spec,
                batchnorm=self.policy,
                weights=None,
                algorithm=candidate.name,
                settings=settings_of(shorter),
                protocol=replace(self.recipe.protocol, lr=candidate.lr),
                held_out=held_out,
                seed=seed,
                sources=count - 1,
                size=image.size if image else 0,
                augment=self.recipe.augment if image else "",
            )
            for seed in self.seeds
        ]

    def _run(self, trials: Sequence[Trial]) -> None:
        new = {t.key: t for t in trials if t.key not in self.records}
        groups = self._grouped(list(new.values()))
        progress = Progress(_Missing(groups), {})

        def tell(which: Group, step: int) -> None:
            progress.at(which, step)
            self.show(progress)

        for done, records in self.executor(groups, self.context, tell):
            failed = next((r for r in records if r.status == FAILED), None)
            if failed is not None:
                raise RuntimeError(f"Training {failed.algorithm} failed.\n{failed.error}")
            self.records.update({r.key: r for r in records})
            progress.done(done)
            self.show(progress)

    def _grouped(self, trials: Sequence[Trial]) -> tuple[Group, ...]:
        """In stacks; where class weights follow from the sources, those of a stack share these."""
        most = capacity(self.parameters, self.material.dataset, self.recipe.device)
        if self.recipe.class_weight is None:
            return group(trials, most)
        outs = dict.fromkeys(t.held_out for t in trials)
        return tuple(g for out in outs for g in group([t for t in trials if t.held_out == out], most))


def _labelled(record: Record, label: str) -> Record:
    """As if all algorithms were one, of which each is a setting."""
    about = record.description
    settings = {**about["settings"], "algorithm": about["algorithm"]}
    return replace(record, description={**about, "algorithm": label, "settings": settings})


def _best(values: Sequence[float], criterion: str) -> tuple[float, int] | None:
    """The largest finite score and its place, the first of those alike."""
    known = [(score(v, criterion), -i) for i, v in enumerate(values) if math.isfinite(v)]
    if not known:
        return None
    value, place = max(known)
    return value, -place

"""Every candidate with every domain held out in turn, from one plan of stacked trials, and the rules of choice.

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

The candidate with the best mean wins. A rule that ends in `-1se` takes the simplest candidate over which the best one's
lead may be chance: with d_s the difference between the best one's score and its own,

    mean(d) <= deviation(d) / sqrt(number of sources)

(one standard error: Breiman et al., Classification and Regression Trees, 1984; here of paired differences, so that easy
and hard domains do not count as noise). One that ends in `-near` takes it only where it is also near: where mean(d) is
at most a point (0.01), or 2 % of an error. Few domains tell little, and what is far behind by their scores is usually
behind. Simple is what has few parts to go wrong, as learners say (`rank_simplicity`): a linear model, then AGG, then
its averages, then other models without a net, then the rest, in the order in which they were named.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from torch import Tensor, nn

from seqdg.base import Folder, UsageError, count_things, unknown
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
from seqdg.core import Algorithm, Settings, adapt_to_path, describe_settings, shorten
from seqdg.data import STANDARD
from seqdg.estimator.fitting import make_task
from seqdg.estimator.recipe import DOMAINS_PER_STEP, Recipe, meet_all_where_needed
from seqdg.estimator.user_data import UserData
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
from seqdg.training import FOLDER, Saving, list_versions

SOURCE_VAL, LEAVE_ONE_OUT, BOTH, ORACLE = "source-val", "leave-one-out", "both", "oracle"
STOPPED = "leave-one-out-stopped"
BASES = (SOURCE_VAL, LEAVE_ONE_OUT, BOTH, STOPPED)
WITHIN_ERROR, NEAR = "-1se", "-near"
RULES = tuple(base + ending for ending in ("", WITHIN_ERROR, NEAR) for base in BASES)
DEFAULT = BOTH + NEAR
POINT, SHARE_OF_ERROR = 0.01, 0.02  # how far behind is near, of shares and of errors
REPORTED = (SOURCE_VAL, LEAVE_ONE_OUT, BOTH, ORACLE)  # beside the one that chooses
MOST_NESTED = 6  # domains up to which pairs of them are held out, unless the user says otherwise
NAME = "compare"  # of the run, in its store
IDENTITY = "identity"
SERVING = "serving"  # seconds to predict 1,000 rows, by trial, which the records of a store do not hold
CHECKPOINT = 30.0  # seconds between checkpoints of a group that takes longer


@dataclass(frozen=True)
class Choice:
    """The index of what was chosen among candidates that begin with the simplest, and why.

    best: the index of the best mean.   gap: by how much the best one's mean exceeds that of the simplest.   error: the
    standard error of this, over so many domains; nan of one.
    """

    index: int
    best: int
    simplest: int
    gap: float
    error: float
    domains: int

    @property
    def exceeds_error(self) -> bool:
        """True where the best one's lead over the simplest is larger than its standard error."""
        return exceeds_error(self.gap, self.error)


def split_rule(rule: str) -> tuple[str, str]:
    """Split a rule into what it looks at and how it leans to the simplest: not (""), `-1se` or `-near`."""
    for ending in (WITHIN_ERROR, NEAR):
        if rule.endswith(ending):
            return rule.removesuffix(ending), ending
    return rule, ""


def looks_at_held_out(rule: str) -> bool:
    """Return whether a rule needs scores on sources that were held out."""
    return split_rule(rule)[0] in (LEAVE_ONE_OUT, BOTH, STOPPED)


def check_rules(select: str, rules: Sequence[str]) -> None:
    """Raise a UsageError for a rule that does not exist or that cannot choose for a domain without labels."""
    if select == ORACLE:
        raise UsageError(f"oracle chooses by the held-out domain, and the next domain has no labels: use {DEFAULT}.")
    for rule, allowed in ((select, RULES), *((rule, (*RULES, ORACLE)) for rule in rules)):
        if rule not in allowed:
            raise unknown("selection rule", str(rule), allowed)


def choose(scores: Sequence[Sequence[float] | None], leaning: str) -> Choice | None:
    """Choose among candidates, from the simplest on, by their scores on each source; None where none has any.

    scores: None for a candidate whose training diverged.   leaning: to the simplest, as `split_rule` returns it.
    """
    means = [math.nan if s is None else average_finite(s) for s in scores]
    known = [i for i, mean in enumerate(means) if math.isfinite(mean)]
    if not known:
        return None
    best = max(known, key=lambda i: (round(means[i], 9), -i))
    gaps = {i: compare_scores(scores[best] or (), scores[i] or ()) for i in known}
    near = POINT if means[best] >= 0 else SHARE_OF_ERROR * -means[best]
    most = {"": -math.inf, WITHIN_ERROR: math.inf, NEAR: near}[leaning]
    chosen = next(i for i in known if i == best or (not exceeds_error(*gaps[i]) and round(gaps[i][0] - most, 9) <= 0))
    sources = sum(map(math.isfinite, scores[best] or ()))
    return Choice(chosen, best, known[0], *gaps[known[0]], sources)


def compare_scores(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the mean paired difference of scores over domains and its standard error; nan of fewer than two."""
    gaps = [a - b for a, b in zip(first, second, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not gaps:
        return math.nan, math.nan
    return fmean(gaps), stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan


def exceeds_error(gap: float, error: float) -> bool:
    """Return whether a gap is larger than its standard error: False where the error is not known."""
    return round(gap, 9) > round(error, 9) if math.isfinite(error) else False


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
    show: Callable[[Progress], None] = lambda progress: None
    nested: bool = True  # whether that holds out the target too, in pairs
    order: Sequence[str] = ()  # names of candidates, where they are trained in this order
    tried: dict[Target, list[Contender]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._planned = set[str]()  # keys of trials that were planned; those that the sink has are not run again
        self._asked: dict[str, set[str]] = {}  # keys of the trials that were asked for, by name of the candidate
        self._trials: dict[tuple[Target, Contender], list[Trial]] = {}
        self._scores: dict[tuple[Target, Contender, str, str], list[float] | None] = {}
        self.task, self.net, _ = make_task(self.user_data, self.recipe, scaled=False)
        self.sink = MemorySink()

    @property
    def domains(self) -> tuple[str, ...]:
        return self.user_data.dataset.domains

    def check(self, candidate: Contender) -> bool:
        """Say whether it can be trained with two domains held out; raise a UsageError where it cannot even with one."""
        for held_out in (0, 1, 2):
            trial = self._make_trials(self.domains[:held_out], candidate)[0]
            try:
                find_learner_of(trial).check(trial, self.task, self.net)
            except UsageError:
                if held_out < 2:
                    raise
                return False
        return len(self.domains) > 2

    def run(self, searches: Mapping[str, Search], targets: Sequence[Target], rule: str, criterion: str) -> None:
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
                searches[candidate.name].tell(target, proposal, self.score(target, candidate, rule, criterion))

    def is_done(self, names: Sequence[str]) -> bool:
        """Return whether all is trained that was asked for of candidates of these names."""
        return all(name in self._asked and self._asked[name] <= self.sink.records.keys() for name in names)

    def train_together(self, candidates: Sequence[Contender], targets: Sequence[Target]) -> None:
        """Train candidates with each of these domains, or pairs of them, held out."""
        self._run_trials([t for target in targets for c in candidates for t in self._make_trials(target, c)])

    def score(self, target: Target, candidate: Contender, rule: str, criterion: str) -> float | None:
        """Score a candidate by what may be known for a target, more being better; None where training diverged."""
        mean = average_finite(self.score_sources(target, candidate, rule, criterion) or ())
        return mean if math.isfinite(mean) else None

    def score_sources(self, target: Target, candidate: Contender, rule: str, criterion: str) -> list[float] | None:
        """Score a candidate on every source by the rule, as the mean over seeds; None where training diverged."""
        about = (target, candidate, split_rule(rule)[0], criterion)
        if about not in self._scores:
            self._scores[about] = self._score_sources(*about)
        return self._scores[about]

    def _score_sources(self, target: Target, candidate: Contender, base: str, criterion: str) -> list[float] | None:
        chosen = [select_evaluation(record, criterion) for record in self.list_records(target, candidate)]
        known = [[score(value, criterion) for value in e.source[criterion]] for e in chosen if e is not None]
        if len(known) < len(chosen):
            return None
        validated = [fmean(values) for values in zip(*known, strict=True)]
        if base == SOURCE_VAL:
            return validated
        stop = self.find_stop(target, candidate, base, criterion)
        values: dict[str, list[float]] = {source: [] for source in self._list_sources(target)}
        for record, source in self._list_inner(target, candidate):
            evaluation = select_evaluation(record, criterion, stop)
            if evaluation is None:
                return None
            values[source].append(score(evaluation.held_out[criterion][record.held_out.index(source)], criterion))
        held_out = [average_finite(each) for each in values.values()]
        return [average_finite(pair) for pair in zip(validated, held_out, strict=True)] if base == BOTH else held_out

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

    def choose(
        self, target: Target, names: Sequence[str], rule: str, criterion: str
    ) -> tuple[Choice | None, list[Contender]]:
        """Choose for a target among all candidates of these names; return them too, from the simplest on."""
        candidates = [c for c in self.tried.get(target, []) if c.name in names]
        candidates.sort(key=lambda c: self._find_learner(c).rank_simplicity(shorten(c.name)))
        scores = [self.score_sources(target, c, rule, criterion) for c in candidates]
        return choose(scores, split_rule(rule)[1]), candidates

    def _find_learner(self, candidate: Contender) -> Learner:
        return find_learner_of(self._make_trials((), candidate)[0])

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
            records = [_relabel(r, label) for c in tried for r in self.list_records(target, c)]
            return select_outcomes(records, rule, criterion)
        outcomes = []
        for together in [names] if label else [[name] for name in names]:
            choice, candidates = self.choose(target, together, rule, criterion)
            candidate = candidates[choice.index if choice else 0]
            stop = self.find_stop(target, candidate, rule, criterion)
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
        return [trial for held_out in (target, *inner) for trial in self._make_trials(held_out, candidate)]

    def _list_sources(self, target: Target) -> list[str]:
        return [d for d in self.domains if d not in target]

    def _hold_out(self, target: Target, source: str) -> Target:
        """Add a source to the target, in the order of the domains, so that a pair is one trial in either order. Where
        choices are almost nested, it is the source alone."""
        return tuple(d for d in self.domains if d in (*target, source)) if self.nested else (source,)

    def _make_trials(self, held_out: Target, candidate: Contender) -> list[Trial]:
        """Make a trial per seed."""
        if (held_out, candidate) not in self._trials:
            count = len(self.domains)
            settings = describe_settings(adapt_to_path(candidate.algorithm, count, count - 1))
            protocol = replace(self.recipe.protocol, lr=candidate.lr)
            if DOMAINS_PER_STEP in self.recipe.auto:
                protocol = meet_all_where_needed(protocol, candidate.algorithm)
            if not isinstance(candidate.algorithm, Algorithm):
                protocol = replace(protocol, members=1, calibrate=False, scaling=STANDARD)  # it is fitted once
            estimator = candidate.algorithm.estimator if isinstance(candidate.algorithm, OwnSettings) else None
            self._trials[held_out, candidate] = [
                self.task.make_trial(candidate.name, settings, protocol, held_out, seed, estimator=estimator)
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
        execute(plan, session, self.executor, self.sink, show=self.show)


def _relabel(record: Record, label: str) -> Record:
    """Describe all algorithms as one, of which each is a setting; without a label, leave the record as it is."""
    if not label:
        return record
    about = record.description
    settings = {**about["settings"], "algorithm": about["algorithm"]}
    return replace(record, description={**about, "algorithm": label, "settings": settings})


class KeptRecords(MemorySink):
    """A sink in memory whose records also go to a store, group by group. It begins with those that the store has."""

    def __init__(self, directory: Path, identity: str, say: Callable[[str], None] = lambda sentence: None) -> None:
        """Open the directory, or make it. identity: what the records depend on; those of another are removed."""
        super().__init__()
        self._open = ExitStack()
        self._open.enter_context(lock_directory(directory))
        if (directory / FILE).exists() and _read_identity(directory) != identity:
            say(f"What was trained in {directory} was of other data, options or code: starting anew.")
            _remove_files(directory)
        self.store = Store.create(directory, NAME)
        self._open.callback(self.store.close)
        self.store.set_meta(IDENTITY, identity)
        files = Folder(directory.resolve())
        self.saving = Saving(files=files, checkpoint=CHECKPOINT)
        self.serving: dict[str, float] = json.loads(self.store.meta(SERVING) or "{}")
        known = [replace(r, serving=self.serving.get(r.key, 0.0)) for r in self.store.records() if r.status != FAILED]
        self.records = {r.key: r for r in known}
        remove_checkpoints(files, self.records)
        if self.records:
            say(f"Going on from {count_things(len(self.records), 'training')} that {directory} holds.")

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
    """Return the hash of everything that a comparison's numbers depend on: arrays, nets, and values of any kind."""
    digest = hashlib.sha256()
    for part in parts:
        for text in _list_bytes(part):
            digest.update(text)
    return digest.hexdigest()


def _list_bytes(part: Any) -> Iterable[bytes]:
    if isinstance(part, Tensor):
        part = part.detach().cpu().numpy()
    if isinstance(part, np.ndarray):
        yield f"{part.dtype}{part.shape}".encode()
        yield np.ascontiguousarray(part).tobytes()
    elif isinstance(part, nn.Module):
        yield repr(part).encode()
        for name, value in part.state_dict().items():
            yield name.encode()
            yield from _list_bytes(value)
    elif hasattr(part, "shape"):  # images in a file
        yield str(part.shape).encode()
        for i in range(len(part)):
            yield from _list_bytes(np.asarray(part[i]))
    else:
        yield json.dumps(part, default=repr, sort_keys=True).encode()


def _read_identity(directory: Path) -> str | None:
    with closing(Store.open(directory)) as store:
        return store.meta(IDENTITY)


def _remove_files(directory: Path) -> None:
    for path in (*directory.glob(f"{FILE}*"), directory / FOLDER):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

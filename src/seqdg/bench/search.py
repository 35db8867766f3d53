"""Settings and learning rates to try: on a grid, drawn at random (from the ranges beside an algorithm's settings and
from multiples of its rate, or as DomainBed's sweeps draw them), or proposed by Optuna.

Numbers are data of a stack, so candidates that differ in numbers alone train together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from seqdg.base import UsageError, check_output, make_file_name, replace_file, restore_fields
from seqdg.bench.learners.contract import DROPOUT, TRAINING
from seqdg.bench.task import Trial
from seqdg.core import (
    Range,
    Settings,
    build,
    collect_rules,
    describe_settings,
    flatten_settings,
    list_alone,
    restore_settings,
    shorten,
    split_chain,
    with_settings,
)
from seqdg.results import (
    DONE,
    FAILED,
    InnerTrials,
    Record,
    find_usual_criterion_in,
    make_directory,
    name_candidate,
    score_candidate,
    select_outcomes,
)
from seqdg.training import Protocol, make_stream

MULTIPLES = (0.1, 2.0)  # of a learning rate, between which others are drawn: well above a good one, rounding decides
RATE = "lr"  # its name among what can be fixed
Target = tuple[str, ...]  # the held-out domain, or none for the final fit


class Proposal(NamedTuple):
    """An algorithm with its settings, or the settings of a learner that is none, and the learning rate."""

    algorithm: Settings
    lr: float


def list_ranges(algorithm: Settings) -> dict[str, Range | tuple[Any, ...]]:
    """List the range to search of every setting that has one and means something."""
    ranges = {name: rule.get("search") for name, (_, rule) in collect_rules(algorithm).items()}
    alone = list_alone(algorithm)
    return {name: where for name, where in ranges.items() if where is not None and name not in alone}


def draw_variants(algorithm: Settings, count: int, seed: int = 0, fixed: Collection[str] = ()) -> tuple[Settings, ...]:
    """Return the algorithm as it is and count - 1 variants, with settings drawn from their ranges, except fixed ones.

    A larger count keeps the first ones. Where nothing can be searched there is only the algorithm as it is.
    """
    if count < 1:
        raise UsageError(f"{count} candidates were asked for, but at least 1 is needed.")
    where = {name: values for name, values in list_ranges(algorithm).items() if name not in fixed}
    if not where:
        return (algorithm,)
    return (algorithm, *(_draw_variant(algorithm, where, make_stream(seed, "search", i)) for i in range(1, count)))


def draw_rates(lr: float, count: int, multiples: tuple[float, float] = MULTIPLES) -> tuple[float, ...]:
    """Return the learning rate as it is and count - 1 others between these multiples of it, uniform on a log scale.

    Every algorithm gets the same multiples. A larger count keeps the first ones.
    """
    low, high = math.log(multiples[0]), math.log(multiples[1])
    drawn = (math.exp(low + (high - low) * float(make_stream(0, "search lr", i).random())) for i in range(1, count))
    return (lr, *(lr * multiple for multiple in drawn))


def draw_proposals(
    first: Proposal,
    count: int,
    seed: int = 0,
    fixed: Collection[str] = (),
    multiples: tuple[float, float] = MULTIPLES,
) -> tuple[Proposal, ...]:
    """Return the first proposal and others with settings and learning rate drawn, except fixed ones.

    Every algorithm gets the same number, unless all that could be searched is fixed.
    """
    settings = draw_variants(first.algorithm, count, seed, fixed)
    if RATE in fixed:
        return tuple(dict.fromkeys(Proposal(algorithm, first.lr) for algorithm in settings))
    drawn = draw_rates(first.lr, count, multiples)
    settings = settings if len(settings) == len(drawn) else settings * len(drawn)
    return tuple(dict.fromkeys(Proposal(*pair) for pair in zip(settings, drawn, strict=True)))


def _draw_variant(algorithm: Settings, where: Mapping[str, Any], generator: np.random.Generator) -> Settings:
    """Draw a value for each setting; one with a value per position gets a new value for each."""
    values = {}
    for name, choices in where.items():
        now = flatten_settings(algorithm)[name]
        drawn = [
            draw_value(choices, value, generator.integers, generator.random)
            for value in _list_positions(name, now).values()
        ]
        values[name] = tuple(drawn) if isinstance(now, tuple) else drawn[0]
    return with_settings(algorithm, values)


def draw_value(
    where: Range | tuple[Any, ...], now: Any, draw_index: Callable[[int], Any], draw_share: Callable[[], Any]
) -> Any:
    """Draw a value from a range or from choices, by what draws a number below another, and a number from 0 to 1."""
    if isinstance(where, tuple):
        return where[int(draw_index(len(where)))]
    low, high = (math.log(where.low), math.log(where.high)) if where.log else (where.low, where.high)
    value = low + (high - low) * float(draw_share())
    value = min(max(math.exp(value), where.low), where.high) if where.log else value
    return round(value) if isinstance(now, int) and not isinstance(now, bool) else value


def make_grid(algorithm: Settings, values: Mapping[str, Any]) -> tuple[Settings, ...]:
    """Make every combination of `{"alpha": [0.1, 0.3], "beta": 1.0}`. A list holds alternatives; a tuple is one value
    with an entry per position."""
    names = list(values)
    lists = [values[name] if isinstance(values[name], list) else [values[name]] for name in names]
    for name, alternatives in zip(names, lists, strict=True):
        if not alternatives:
            raise UsageError(f"The grid gives no value for {name}: give at least one.")
    return tuple(with_settings(algorithm, dict(zip(names, chosen, strict=True))) for chosen in product(*lists))


class Fixed:
    """Proposes the same candidates for every target.

    first: the algorithm as it is.
    """

    def __init__(self, tried: Sequence[Proposal]) -> None:
        self.tried, self._asked = tuple(dict.fromkeys(tried)), set[Target]()
        self.first = self.tried[0]

    def ask(self, target: Target) -> Sequence[Proposal]:
        """Return what to try next; nothing once all is tried."""
        if target in self._asked:
            return ()
        self._asked.add(target)
        return self.tried

    def tell(self, target: Target, tried: Proposal, score: float | None) -> None:
        """Ignore the score."""


class Optuna:
    """Proposes by Optuna's tree-structured Parzen estimator, some candidates at a time. Every target has a study of its
    own: one must not learn from another."""

    TOGETHER = 8

    def __init__(
        self,
        first: Proposal,
        count: int,
        seed: int = 0,
        fixed: Collection[str] = (),
        multiples: tuple[float, float] = MULTIPLES,
    ) -> None:
        self.first, self.total, self.seed = first, count, seed
        self.where = {name: values for name, values in list_ranges(first.algorithm).items() if name not in fixed}
        self.rate = None if RATE in fixed or not first.lr else Range(first.lr * multiples[0], first.lr * multiples[1])
        self._module = _import_optuna()
        self._studies: dict[Target, Any] = {}
        self._asked: dict[Target, int] = {}
        self._running: dict[tuple[Target, Proposal], Any] = {}

    def ask(self, target: Target) -> Sequence[Proposal]:
        """Return what to try next, first the algorithm as it is."""
        if target not in self._studies:
            seed = int(make_stream(self.seed, "optuna", *target).integers(2**31))
            sampler = self._module.samplers.TPESampler(seed=seed, constant_liar=True)
            self._studies[target] = self._module.create_study(direction="maximize", sampler=sampler)
            self._asked[target] = 0
        study, asked = self._studies[target], self._asked[target]
        count = max(0, min(self.TOGETHER, (self.total if self.where or self.rate else 1) - asked))
        self._asked[target] += count
        as_it_is = [self.first] if asked == 0 else []
        return [*as_it_is, *(self._propose(target, study) for _ in range(count - len(as_it_is)))]

    def tell(self, target: Target, tried: Proposal, score: float | None) -> None:
        """Take the score of a proposal, of which more is better; None where training diverged."""
        trial = self._running.pop((target, tried), None)
        if trial is None:  # proposed twice in one round, or the algorithm as it is, which Optuna did not propose
            return
        failed = score is None or not math.isfinite(score)
        state = self._module.trial.TrialState.FAIL if failed else None
        self._studies[target].tell(trial, None if failed else score, state=state)

    def _propose(self, target: Target, study: Any) -> Proposal:
        trial = study.ask(self._make_distributions())
        values: dict[str, Any] = {}
        settings = flatten_settings(self.first.algorithm)
        for name in self.where:
            parts = tuple(trial.params[path] for path in _list_positions(name, settings[name]))
            values[name] = parts if isinstance(settings[name], tuple) else parts[0]
        proposal = Proposal(with_settings(self.first.algorithm, values), trial.params.get(RATE, self.first.lr))
        if (target, proposal) in self._running:
            study.tell(trial, None, state=self._module.trial.TrialState.FAIL)
        else:
            self._running[target, proposal] = trial
        return proposal

    def _make_distributions(self) -> dict[str, Any]:
        """Make a distribution for each number; a setting per position has one for each position."""
        kinds = {} if self.rate is None else {RATE: self._make_distribution(self.rate, self.first.lr)}
        for name, where in self.where.items():
            now = flatten_settings(self.first.algorithm)[name]
            for path, value in _list_positions(name, now).items():
                kinds[path] = self._make_distribution(where, value)
        return kinds

    def _make_distribution(self, where: Range | tuple[Any, ...], now: Any) -> Any:
        kinds = self._module.distributions
        if isinstance(where, tuple):
            return kinds.CategoricalDistribution(where)
        if isinstance(now, int) and not isinstance(now, bool):
            return kinds.IntDistribution(round(where.low), round(where.high), log=where.log)
        return kinds.FloatDistribution(where.low, where.high, log=where.log)


Search = Fixed | Optuna


class TrialSearch:
    """Optuna's search in a benchmark: candidates for each algorithm, choice of held-out domains and seed, each from the
    source validation of those before.

    It proposes the same again where a run goes on, as it is told the same.

    trials: of the algorithms as they are.   fixed: settings that the user gave, by algorithm.
    """

    def __init__(
        self, trials: Sequence[Trial], count: int, fixed: Mapping[str, Collection[str]], multiples: tuple[float, float]
    ) -> None:
        self._first = {(t.algorithm, (*t.held_out, str(t.seed))): t for t in trials}
        self._asked: dict[str, tuple[str, Target, Proposal]] = {}  # by key of the trial
        self._searches: dict[str, Optuna] = {}
        for trial in trials:
            if trial.algorithm not in self._searches:
                algorithm = restore_settings(build(trial.algorithm), dict(trial.settings))
                first = Proposal(algorithm, trial.protocol.lr)
                self._searches[trial.algorithm] = Optuna(
                    first, count, fixed=fixed.get(trial.short_name, ()), multiples=multiples
                )

    def ask(self) -> list[Trial]:
        """Return the trials of the next round; none once all candidates are tried."""
        asked = {}
        for (name, target), first in self._first.items():
            for proposal in self._searches[name].ask(target):
                settings = tuple(sorted(describe_settings(proposal.algorithm).items()))
                trial = replace(first, settings=settings, protocol=replace(first.protocol, lr=proposal.lr))
                asked[trial.key] = trial
                self._asked[trial.key] = name, target, proposal
        return list(asked.values())

    def tell(self, records: Sequence[Record], criterion: str) -> None:
        """Take the scores of what was asked for, from the records of a run."""
        scores = {
            r.key: score_candidate(r, InnerTrials(()), "source-val", criterion) if r.status == DONE else None
            for r in records
            if r.key in self._asked
        }
        for key in [key for key in self._asked if key in scores]:
            name, target, proposal = self._asked.pop(key)
            self._searches[name].tell(target, proposal, scores[key])


def _list_positions(name: str, now: Any) -> dict[str, Any]:
    """Return the value of a setting by its name; those of a setting per position by name and position."""
    return {f"{name}.{i}": value for i, value in enumerate(now)} if isinstance(now, tuple) else {name: now}


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError("Searching with Optuna needs it: pip install 'seqdg[search]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def list_reused(
    searched: Sequence[Trial], records: Sequence[Record], rule: str, seeds: Sequence[int]
) -> tuple[Trial, ...]:
    """List the trials of other seeds, with the settings that the rule chooses for each algorithm and held-out domain.

    searched: the trials of the first seed, all of which have records. Where one failed nothing is chosen yet.
    """
    by_key = {trial.key: trial for trial in searched}
    tried = [r for r in records if r.key in by_key]
    if len(tried) < len(by_key) or any(r.status == FAILED for r in tried):
        return ()
    more = []
    for outcome in select_outcomes(tried, rule):
        best = by_key[outcome.record.key]
        inner = [
            t
            for t in searched
            if len(t.held_out) == 2
            and len(best.held_out) == 1
            and outcome.held_out in t.held_out
            and (t.algorithm, t.settings, t.protocol, t.net) == (best.algorithm, best.settings, best.protocol, best.net)
        ]
        more += [replace(trial, seed=seed) for trial in (best, *inner) for seed in seeds]
    return tuple({trial.key: trial for trial in more}.values())


def choose_settings(records: Sequence[Record], rule: str, criterion: str | None = None) -> dict[str, dict[str, Record]]:
    """Choose one candidate for each held-out domain and algorithm: the best by the rule, in the mean over its seeds.

    Return a record of it, by held-out domain and algorithm. Only candidates with the most seeds are compared; where
    seeds reuse what was chosen on the first, that is the chosen one.
    """
    criterion = criterion or find_usual_criterion_in(records)
    parts: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for r in records:
        if r.is_tabled and r.status != FAILED and not r.members:
            parts.setdefault(("+".join(r.held_out), r.algorithm), {}).setdefault(name_candidate(r), []).append(r)
    if not parts:
        raise UsageError("The run holds no finished trial yet, so no settings are chosen.")
    chosen: dict[str, dict[str, Record]] = {}
    inner = InnerTrials(records)
    for (domain, algorithm), candidates in parts.items():
        most = max(len(tried) for tried in candidates.values())
        scores = {
            name: fmean([score_candidate(r, inner, rule, criterion) for r in tried])
            for name, tried in candidates.items()
            if len(tried) == most and all(r.status == DONE for r in tried)
        }
        known = {name: value for name, value in scores.items() if math.isfinite(value)}
        if known:
            chosen.setdefault(domain, {})[algorithm] = candidates[max(known, key=lambda name: known[name])][0]
    return chosen


def write_settings(
    records: Sequence[Record], folder: Path, rule: str, criterion: str | None = None, force: bool = False
) -> list[Path]:
    """Write a file for each held-out domain, with the settings chosen for it as a benchmark's [algorithms] tables.

    force: replace files that are there.
    """
    if any(r.is_imported for r in records):
        raise UsageError("Some of these trials were imported, and their settings mean nothing to algorithms here.")
    make_directory(folder, "--settings-out")
    paths = []
    chosen = choose_settings(records, rule, criterion)
    drops = any(r.description["net"].get(DROPOUT) for r in records)
    for domain, by_algorithm in chosen.items():
        lines = [
            f"# Chosen by {rule} with {_write(domain)} held out: seqdg bench --held-out ... --settings-from this file"
        ]
        for algorithm, record in by_algorithm.items():
            lines += ["", f"[algorithms.{_write(algorithm)}]  # trial {record.key}"]
            lines += [f"{name} = {_write(value)}" for name, value in _list_values(record, drops).items()]
        path = folder / f"{make_file_name(domain, '+-_.% ')}.toml"
        if path in paths:
            raise UsageError(
                f"Two of the domains {', '.join(chosen)} have {path.name} as their file: rename one, or write the "
                "settings of each from a run of its own."
            )
        check_output(path, force, option="--settings-out")
        with replace_file(path) as file:
            file.write(("\n".join(lines) + "\n").encode())
        paths.append(path)
    return paths


def _list_values(record: Record, drops: bool) -> dict[str, Any]:
    """Return the training fields and the settings of a record, as a benchmark's table has them.

    drops: whether dropout is among them.
    """
    about = record.description
    protocol = Protocol(**restore_fields(Protocol, about["protocol"]))
    training = {f.name: getattr(protocol, f.name) for f in fields(protocol) if f.name in TRAINING}
    try:
        settings = flatten_settings(restore_settings(build(about["algorithm"]), about["settings"]))
        settings = {name: value for name, value in settings.items() if name in about["settings"]}
    except UsageError:  # a learner, or an algorithm of the user's own file
        settings = {name: _read(text) for name, text in about["settings"].items()}
    dropout = {DROPOUT: record.description["net"].get(DROPOUT, 0.0)} if drops else {}
    return {**training, **dropout, **settings}


def _write(value: Any) -> str:
    """Write a value as TOML, which reads JSON's truth values, numbers, texts and lists alike."""
    return json.dumps(value, ensure_ascii=False)


def _read(text: str) -> Any:
    """Read a value from text: a truth value, a number or a word."""
    with suppress(ValueError):
        return json.loads(text)
    return text


# What DomainBed draws -------------------------------------------------------------------------------------------------
#
# Learning rate, weight decay, batch size, dropout and the settings of each algorithm, from the distributions of its
# `hparams_registry`, commit b93c22a. Its numbers of steps are shares of its 5,001 steps here, and its rates of second
# optimizers are factors of the usual rate, 5e-5. What is a number of a method that it lacks is drawn from the method's
# own range.

_STEPS, _USUAL_RATE = 5001, 5e-5
_DROPOUTS = (0.0, 0.1, 0.5)
_WEAK = Range(1 / _STEPS, 10_000 / _STEPS)  # the steps with a weak penalty
_PENALTY = Range(0.1, 1e5)
_SPACES: dict[str, dict[str, Range | tuple[Any, ...]]] = {
    "dann": {"lam": Range(0.01, 100.0)},
    "cdann": {"lam": Range(0.01, 100.0)},
    "rdm": {
        "lam": Range(0.1, 10.0, log=False),
        "spread": Range(0.001, 0.007, log=False),
        "anneal": Range(800 / _STEPS, 2700 / _STEPS, log=False),
        "second_rate": Range(8e-6 / _USUAL_RATE, 2e-5 / _USUAL_RATE, log=False),
    },
    "rsc": {"feature_share": Range(0.0, 0.5, log=False), "row_share": Range(0.0, 0.5, log=False)},
    "sagnet": {"adversary": Range(0.01, 10.0)},
    "irm": {"lam": _PENALTY, "anneal": _WEAK},
    "vrex": {"lam": _PENALTY, "anneal": _WEAK},
    "ib-erm": {"lam": _PENALTY, "anneal": _WEAK},
    "ib-irm": {"lam": _PENALTY, "bottleneck": _PENALTY, "anneal": _WEAK},
    "mixup": {"mix": Range(0.1, 10.0)},
    "group-dro": {"eta": Range(1e-3, 0.1)},
    "mmd": {"gamma": Range(0.1, 10.0)},
    "coral": {"gamma": Range(0.1, 10.0)},
    "causirl": {"gamma": Range(0.1, 10.0)},
    "mldg": {"beta": Range(0.1, 10.0)},
    "mtl": {"ema": (0.5, 0.9, 0.99, 1.0)},
    "sd": {"lam": Range(1e-5, 0.1)},
    "and-mask": {"tau": Range(0.5, 1.0, log=False)},
    "iga": {"penalty": Range(10.0, 1e5)},
    "sand-mask": {"tau": Range(0.0, 1.0, log=False), "k": Range(1e-3, 1e5)},
    "fishr": {
        "lam": Range(10.0, 1e4),
        "keep": Range(0.9, 0.99, log=False),
        "anneal": Range(0.0, 5000 / _STEPS, log=False),
    },
    "cad": {"lam": (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0), "temperature": (0.05, 0.1)},
    "eqrm": {
        "quantile": Range(0.5, 0.99, log=False),
        "burn_in": Range(10**2.5 / _STEPS, 10**3.5 / _STEPS),
        "second_rate": Range(1e-7 / _USUAL_RATE, 1e-5 / _USUAL_RATE),
    },
    "urm": {"adversary": Range(0.0, 0.2, log=False)},
}
_BATCHES = {"arm": (8, 8), "rdm": (70, 100)}  # of pictures for pretrained networks; others: from 2^3 to 2^5.5


class Drawn(NamedTuple):
    """A candidate: its settings, how it is trained, and what dropout drops."""

    algorithm: Settings
    protocol: Protocol
    dropout: float | None


def draw_from_domainbed(
    name: str,
    first: Proposal,
    protocol: Protocol,
    optimizer: str,
    count: int,
    fixed: Collection[str],
    shape: tuple[int, ...],
) -> list[Drawn]:
    """Return the first proposal as it is and count - 1 drawn as DomainBed's sweeps draw them, except what is fixed.

    shape: of one input, which decides between its ranges for small pictures and for those of pretrained networks.
    """
    if count < 1:
        raise UsageError(f"{count} candidates were asked for, but at least 1 is needed.")
    if optimizer not in ("adam", "adam-l2"):
        raise UsageError(
            f"DomainBed's learning rates are for Adam, and {shorten(name)} trains with {optimizer} here: add "
            f"--set {shorten(name)}.optimizer=adam-l2 (its Adam), or search without --search-space domainbed."
        )
    is_small = not (len(shape) == 3 and shape[-1] >= 64)
    drawn = [Drawn(first.algorithm, replace(protocol, lr=first.lr), None)]
    for i in range(1, count):
        stream = make_stream(0, "domainbed", name, i)
        changes = {k: v for k, v in _draw_training(name, is_small, stream).items() if k not in fixed}
        dropout = _DROPOUTS[int(stream.integers(len(_DROPOUTS)))]
        algorithm = _draw_settings(name, first.algorithm, fixed, stream)
        trained = replace(protocol, **{"lr": first.lr, **changes})
        drawn.append(Drawn(algorithm, trained, None if "dropout" in fixed else dropout))
    return drawn


def _draw_training(name: str, is_small: bool, stream: np.random.Generator) -> dict[str, Any]:
    """Draw the fields of the protocol; every candidate draws all, so that fixing one moves no other."""
    rate, decay, size = (float(stream.random()) for _ in range(3))
    if is_small:
        return {"lr": 10 ** (-4.5 + 2 * rate), "weight_decay": 0.0, "batch": int(2 ** (3 + 6 * size))}
    low, high = _BATCHES.get(split_chain(shorten(name))[0], (0, 0))
    batch = low + int((high - low) * size) if low else int(2 ** (3 + 2.5 * size))
    return {"lr": 10 ** (-5 + 1.5 * rate), "weight_decay": 10 ** (-6 + 4 * decay), "batch": batch}


def _draw_settings(name: str, algorithm: Settings, fixed: Collection[str], stream: np.random.Generator) -> Settings:
    spaces = [_SPACES[part] for part in split_chain(shorten(name)) if part in _SPACES]
    theirs = {key: where for space in spaces for key, where in space.items()}
    rules, now = collect_rules(algorithm), flatten_settings(algorithm)
    values = {}
    for key, where in {**list_ranges(algorithm), **theirs}.items():
        example = now[key][0] if isinstance(now[key], tuple) else now[key]
        value = draw_value(where, example, stream.integers, stream.random)
        most = rules[key][1].get("most")
        value = value if most is None or isinstance(where, tuple) else min(value, most)
        if key not in fixed:
            values[key] = (value,) * len(now[key]) if isinstance(now[key], tuple) else value
    return with_settings(algorithm, values)

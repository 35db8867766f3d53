"""The weighted ensemble of what was compared: its weights, what it reaches on each held-out domain, and its members.

What is judged on a domain d is weighed without d: its weights come from trainings that held out d and one source more
(or, where choices are almost nested, that source alone), and they average the predictions of trainings without d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from seqdg.bench import Learner, OwnEstimatorLearner, Target
from seqdg.core import flatten_settings, list_alone
from seqdg.estimator.compare.folds import Contender, Sweep
from seqdg.estimator.model_report import describe_predictions
from seqdg.estimator.recipe import WEIGHTED, Winner
from seqdg.estimator.weighting import Floats, Weights, combine
from seqdg.results import DONE, Evaluation, Outcome, Record
from seqdg.training import measure_rows

Told = dict[int, tuple[Floats | None, list[Record]]]  # by seed


@dataclass(frozen=True)
class Combination:
    """The members for all domains with their weights, and what such ensembles reach on each domain, held out."""

    weights: Weights
    members: tuple[Contender, ...]
    outcomes: tuple[Outcome, ...]
    told: Mapping[str, Mapping[str, Any]]  # of each domain, as `describe_predictions` returns it


def combine_candidates(sweep: Sweep, names: Sequence[str], rule: str) -> Combination | None:
    """Weigh candidates for all domains, and judge the weighing on each; None where all diverged.

    rule: that chooses the settings of each candidate.
    """
    final = sweep.weigh((), sweep.choose_members((), names, rule))
    if final is None:
        return None
    said = {d: predict_together(sweep, (d,), names, rule) for d in sweep.domains}
    outcomes = [o for d, its in said.items() for o in _judge(sweep, (d,), its)]
    told = describe_domains(sweep, {d: [outputs for outputs, _ in its.values()] for d, its in said.items()})
    return Combination(final[0], tuple(final[1]), tuple(outcomes), told)


def predict_together(sweep: Sweep, target: Target, names: Sequence[str], rule: str) -> Told:
    """Return by seed what the ensemble that is weighed without a domain says of it, with the records of its members;
    None where all diverged."""
    team = sweep.weigh(target, sweep.choose_members(target, names, rule))
    if team is None:
        return {seed: (None, []) for seed in sweep.seeds}
    weights, members = team
    told: Told = {}
    for seed in sweep.seeds:
        counting = [i for i, weight in enumerate(weights.shrunk) if weight > 0]
        said = {i: sweep.predict(target, members[i], target[0], seed) for i in counting}
        said = {i: outputs for i, outputs in said.items() if np.isfinite(outputs).all()}  # the others diverged
        records = [r for i in said for r in sweep.list_records(target, members[i]) if r.seed == seed]
        total = sum(weights.shrunk[i] for i in said)
        outputs = None
        if said:
            its = [weights.shrunk[i] / total for i in said]
            outputs = combine(np.stack(list(said.values())), its, [weights.temperatures[i] for i in said])
        told[seed] = outputs, records
    return told


def predict_choice(sweep: Sweep, names: Sequence[str], rule: str) -> dict[str, list[Floats | None]]:
    """Return by domain and seed what the single choice that is made without it says of it; None where all diverged."""
    found: dict[str, list[Floats | None]] = {}
    for d in sweep.domains:
        choice, candidates = sweep.choose((d,), names, rule)
        if choice is None:
            found[d] = []
            continue
        found[d] = [sweep.predict((d,), candidates[choice.index], d, seed) for seed in sweep.seeds]
    return found


def describe_domains(sweep: Sweep, said: Mapping[str, Sequence[Floats | None]]) -> dict[str, dict[str, Any]]:
    """Describe by domain what is said of it; one for which all diverged is left out."""
    found = {}
    for d, each in said.items():
        sound = [outputs for outputs in each if outputs is not None and np.isfinite(outputs).all()]
        if sound:
            found[d] = describe_predictions(*sweep.take_labels(d), sound)
    return found


def _judge(sweep: Sweep, target: Target, said: Told) -> list[Outcome]:
    return [
        _make_outcome(sweep, target, seed, {} if outputs is None else measure(sweep, target[0], outputs), records)
        for seed, (outputs, records) in said.items()
    ]


def measure(sweep: Sweep, domain: str, outputs: Floats) -> dict[str, float]:
    """Measure probabilities (row, class) or numbers (row,) for all rows of a domain, by criterion."""
    y, weight = sweep.take_labels(domain)
    said = torch.from_numpy(outputs[:, None] if outputs.ndim == 1 else np.log(outputs))
    return measure_rows(said, torch.from_numpy(y), None if weight is None else torch.from_numpy(weight))


def _make_outcome(
    sweep: Sweep, target: Target, seed: int, metrics: Mapping[str, float], records: Sequence[Record]
) -> Outcome:
    """Make an outcome like that of a training: its time is that of all members."""
    criterion, (domain,) = sweep.recipe.criterion, target
    unknown = {name: [math.nan] * (len(sweep.domains) - 1) for name in metrics}
    history = [Evaluation(0, unknown, {name: [value] for name, value in metrics.items()})]
    description = {"algorithm": WEIGHTED, "settings": {}, "held_out": [domain], "seed": seed, "protocol": {}}
    record = Record(
        key=f"{WEIGHTED} {domain} {seed}",
        description=description,
        status=DONE,
        history=history,
        seconds=sum(record.seconds for record in records),
        serving=sum(record.serving for record in records),
    )
    return Outcome(WEIGHTED, domain, seed, metrics.get(criterion), 0, record)


def list_winners(combination: Combination, rate: float) -> tuple[Winner, ...]:
    """List the members that have weight as they are fitted on all domains, the heaviest first.

    rate: the learning rate of the estimator.
    """
    each = zip(combination.members, combination.weights.shrunk, combination.weights.temperatures, strict=True)
    winners = [replace(name_winner(m, rate), weight=w, temperature=t) for m, w, t in each if w > 0]
    return tuple(sorted(winners, key=lambda winner: -winner.weight))


def note_weights(combination: Combination) -> list[str]:
    """Say who drops out of the ensemble, and where all weight is on one member."""
    weights, notes = combination.weights, []
    behind = [name for name, part in zip(weights.names, weights.takes_part, strict=True) if not part]
    if behind:
        be = "is" if len(behind) == 1 else "are"
        notes.append(f"{', '.join(behind)} {be} far behind on held-out domains, and not in the ensemble.")
    if len(behind) == len(weights.names) - 1:
        alone = weights.names[weights.takes_part.index(True)]
        notes.append(f"All weight is on {alone}: the ensemble is this one model.")
    return notes


def name_winner(contender: Contender, rate: float | None, stop: int | None = None) -> Winner:
    """Name the settings of a candidate that differ from what an estimator has by itself."""
    alone = list_alone(contender.algorithm)
    settings = {name: value for name, value in flatten_settings(contender.algorithm).items() if name not in alone}
    rate = None if contender.lr == rate else contender.lr
    return Winner(contender.name, settings=settings, lr=rate, stop=stop)


def copy_object(winner: Winner, learner: Learner) -> Winner:
    """Return a winner as it is fitted: where it names an object of the user's own, with a copy of that."""
    if isinstance(learner, OwnEstimatorLearner):
        return Winner(clone(learner.unfitted.estimator), winner.weight, winner.temperature)
    return winner

"""The weights of an ensemble, from out-of-fold predictions: what every member said of domains it had not seen.

A fold holds the rows of one source domain and, for each member, the predictions of a training without that domain.

1. *Calibration.* Probabilities p of a member become  softmax(log max(p, 0.01 / classes) / T)  with a temperature T
   (Guo et al., ICML 2017; with the prior of `fit_temperature`) that fits the folds, each fold counting the same.
   Wherever a fold is judged below, T is fitted without it (without its fifth of the folds, where there are many).
2. *Who takes part.* A member that is far behind drops out: its skill is less than half the best member's, where skill
   is 1 - loss / (loss of a constant prediction), both of all folds, and the constant of a fold is what the others hold:
   their class frequencies (a hundredth of them spread evenly), or their mean. Where no skill is above 0, all take part.
3. *Greedy selection with replacement* (Caruana et al., ICML 2004). Up to 50 times, the member joins that makes the
   loss of the mean smallest; the shortest selection with the smallest loss is kept. The loss is the mean over folds of
   the mean over rows of  -log of the mean probability of the true class,  or of the squared error of the mean number.
4. *Shrinkage.* Half the weights are the greedy ones, half are uniform over all members that take part.

Predictions are averaged as probabilities, or as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.training import calibrate, fit_temperature, floor_log

ROUNDS = 50  # of greedy selection
SHRINKAGE = 0.5  # of the weight is uniform
SKILL = 0.5  # of the best one's, below which a member is far behind
UNKNOWN = 0.01  # of the constant prediction that is spread evenly
GROUPS = 5  # of folds, at most: temperatures are fitted without one of them
MOST_ROWS = 5000  # that a temperature is fitted to, evenly spread
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fold:
    """Rows of one domain, and what every member says of them without having seen the domain."""

    y: NDArray[Any]  # (row,) classes from 0, or numbers
    outputs: Floats  # (member, row, class) probabilities, or (member, row) numbers
    weight: Floats | None = None  # (row,) how much each row counts; None: all the same

    @property
    def share(self) -> Floats:
        """(row,) weights that add up to 1."""
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        return np.asarray(weight / weight.sum())


@dataclass(frozen=True)
class Weights:
    """What each member counts in an ensemble, and the temperature of its probabilities (1 for numbers)."""

    names: tuple[str, ...]
    temperatures: tuple[float, ...]
    greedy: tuple[float, ...]  # adding up to 1
    takes_part: tuple[bool, ...]  # False: far behind

    @property
    def uniform(self) -> tuple[float, ...]:
        return tuple(part / sum(self.takes_part) for part in self.takes_part)

    @property
    def shrunk(self) -> tuple[float, ...]:
        """The weights that count: half greedy, half uniform."""
        pairs = zip(self.greedy, self.uniform, strict=True)
        return tuple((1 - SHRINKAGE) * greedy + SHRINKAGE * uniform for greedy, uniform in pairs)


def find_weights(names: Sequence[str], folds: Sequence[Fold]) -> Weights:
    """Find the weights of members from their out-of-fold predictions."""
    _check_folds(names, folds)
    is_regression = folds[0].outputs.ndim == 2
    told = [_tell(fold, temperatures) for fold, temperatures in zip(folds, _leave_out(folds), strict=True)]
    takes_part = _list_taking_part(folds, told)
    among = np.flatnonzero(takes_part)
    shares = np.concatenate([fold.share for fold in folds]) / len(folds)
    y = np.concatenate([fold.y for fold in folds])
    chosen = select_greedily(np.concatenate(told, axis=1)[among], shares, y if is_regression else None)
    greedy = np.zeros(len(names))
    greedy[among] = chosen
    final = np.ones(len(names)) if is_regression else fit_temperatures(folds)
    return Weights(tuple(names), tuple(final.tolist()), tuple(greedy.tolist()), tuple(takes_part.tolist()))


def combine(outputs: Floats, weights: Sequence[float], temperatures: Sequence[float]) -> Floats:
    """Return the mean of members' calibrated probabilities (row, class), or of their numbers (row,).

    outputs: (member, row, class), or (member, row).
    """
    each = calibrate(outputs, np.asarray(temperatures)) if outputs.ndim == 3 else outputs
    return np.asarray(np.tensordot(np.asarray(weights), each, axes=1))


def select_greedily(told: Floats, shares: Floats, y: Floats | None = None) -> Floats:
    """Select members with replacement; return the share of each in the selection.

    told: (member, row) the probability of the true class, or a number.   shares: (row,) how much each row counts.
    y: (row,) the true numbers; None where probabilities are told.
    """
    total, counts = np.zeros(told.shape[1]), np.zeros(len(told))
    best, least = counts, np.inf
    for size in range(1, ROUNDS + 1):
        means = (total + told) / size
        losses = (-np.log(means) if y is None else (means - y) ** 2) @ shares
        i = int(np.argmin(losses.round(12)))
        total, counts = total + told[i], counts + np.eye(len(told))[i]
        if round(float(losses[i]), 12) < least:
            best, least = counts, round(float(losses[i]), 12)
    return np.asarray(best / best.sum())


def fit_temperatures(folds: Sequence[Fold]) -> Floats:
    """Fit the temperature of every member (member,) to folds that count the same."""
    step = -(-sum(len(fold.y) for fold in folds) // MOST_ROWS)
    parts = [Fold(f.y[::step], f.outputs[:, ::step], None if f.weight is None else f.weight[::step]) for f in folds]
    parts = [part for part in parts if part.weight is None or part.weight.sum() > 0] or list(folds)
    logs = torch.from_numpy(floor_log(np.concatenate([part.outputs for part in parts], axis=1)))
    y = torch.from_numpy(np.concatenate([part.y for part in parts])).expand(len(logs), -1)
    weight = torch.from_numpy(np.concatenate([part.share for part in parts])).expand(len(logs), -1)
    return np.asarray(fit_temperature(logs, y, torch.ones_like(y, dtype=torch.bool), weight).numpy())


def _leave_out(folds: Sequence[Fold]) -> list[Floats]:
    """Return for each fold the temperatures that fit the others; of a single fold its own."""
    if folds[0].outputs.ndim == 2:
        return [np.ones(len(fold.outputs)) for fold in folds]
    groups = np.arange(len(folds)) % GROUPS
    by_group = {g: fit_temperatures([f for f, own in zip(folds, groups, strict=True) if own != g] or folds)
                for g in np.unique(groups)}  # fmt: skip
    return [by_group[g] for g in groups]


def _tell(fold: Fold, temperatures: Floats) -> Floats:
    """Return (member, row) the calibrated probability of the true class, or the number."""
    if fold.outputs.ndim == 2:
        return fold.outputs
    return np.asarray(calibrate(fold.outputs, temperatures)[:, np.arange(len(fold.y)), fold.y])


def _list_taking_part(folds: Sequence[Fold], told: Sequence[Floats]) -> NDArray[np.bool_]:
    """Return (member,) False for members that are far behind."""
    losses, constants = np.zeros(len(told[0])), 0.0
    for i, (fold, its) in enumerate(zip(folds, told, strict=True)):
        others = [f for j, f in enumerate(folds) if j != i] or [fold]
        if fold.outputs.ndim == 2:
            losses += (its - fold.y) ** 2 @ fold.share
            constants += float((fold.y - np.mean([f.y @ f.share for f in others])) ** 2 @ fold.share)
        else:
            classes = fold.outputs.shape[-1]
            shares = np.mean([np.bincount(f.y, f.share, classes) for f in others], axis=0)
            losses += -np.log(its) @ fold.share
            constants += float(-np.log(((1 - UNKNOWN) * shares + UNKNOWN / classes)[fold.y]) @ fold.share)
    skill = 1 - losses / constants if constants > 0 else np.zeros(len(losses))
    return np.asarray(skill >= SKILL * skill.max()) if skill.max() > 0 else np.ones(len(skill), dtype=bool)


def _check_folds(names: Sequence[str], folds: Sequence[Fold]) -> None:
    if not names or not folds:
        raise UsageError("An ensemble needs members and their predictions for at least one held-out domain.")
    kinds = {fold.outputs.shape[2:] for fold in folds}
    if len(kinds) > 1:
        counts = sorted(shape[0] if shape else 0 for shape in kinds)
        raise UsageError(
            f"Out-of-fold predictions are of {' and of '.join(map(str, counts))} classes: members of one ensemble "
            "predict the same classes on every domain."
        )
    for fold in folds:
        if len(fold.outputs) != len(names) or fold.outputs.shape[1] != len(fold.y):
            raise UsageError(
                f"Out-of-fold predictions have shape {list(fold.outputs.shape)} for {len(names)} members and "
                f"{len(fold.y)} rows: give a prediction of every member for every row."
            )
        if not np.isfinite(fold.outputs).all():
            raise UsageError("Out-of-fold predictions are not all finite: leave out members that diverged.")

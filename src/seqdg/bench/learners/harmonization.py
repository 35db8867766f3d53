"""Harmonized learners: the numbers of every domain are brought to one location and scale before a learner sees them.

`logistic+standardize`, `lightgbm+combat`: a name after a `+` harmonizes for any learner that trains no net. The rows of
an unseen domain are harmonized by their own mean and variance, without labels: they are predicted together (it is
transductive). Inputs of one or two values, such as those of categories, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.bench.learners.array_learner import ArrayLearner, Arrays, Packed, Predict
from seqdg.bench.learners.contract import Learner
from seqdg.bench.task import COMBAT, Task, Trial
from seqdg.core import Settings, shorten, split_chain
from seqdg.nets import Net

Floats = NDArray[np.float64]
LEAST = 2  # rows of a domain that have a variance
ROUNDS, CLOSE = 500, 1e-10  # of the fixed point below, and the change at which it stands
INSIDE = "inside."  # begins the names of the arrays of the learner inside
SAME = ("settings", "rules", "needs", "weighs", "draws", "compares_rows", "tells_classes", "predicts_numbers",
        "simplicity", "cost", "scaling", "most_work", "name")  # fmt: skip


@dataclass(frozen=True)
class Harmonization:
    """What the rows of every domain are brought to: mean and deviation of the sources, by column."""

    method: str
    harmonized: NDArray[np.bool_]  # (input,) whether it is
    mean: Floats  # (column harmonized,) of all rows
    deviation: Floats  # (column harmonized,) within domains, pooled

    def __call__(self, rows: Arrays) -> Arrays:
        """Harmonize the rows of one domain (row, input); fewer than LEAST stay as they are."""
        if len(rows) < LEAST:
            return rows
        z = (np.asarray(rows[:, self.harmonized], np.float64) - self.mean) / self.deviation
        location, variance = estimate_by_combat(z) if self.method == COMBAT else measure(z)[1:]
        moved: Arrays = np.array(rows)
        z = (z - location) / np.sqrt(np.where(variance > 0, variance, 1.0))
        moved[:, self.harmonized] = z * self.deviation + self.mean
        return moved


def learn_harmonization(method: str, x: Arrays, domain: Arrays) -> Harmonization:
    """Learn from the rows of the sources (row, input) what every domain is brought to."""
    x = np.asarray(x, np.float64)
    _, mean, _ = measure(x)
    spread, count = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for d in np.unique(domain):
        some, _, variance = measure(x[domain == d])
        spread, count = spread + variance * np.maximum(some - 1, 0), count + some
    deviation = np.sqrt(spread / np.maximum(count, 1))
    many = np.array([len(np.unique(column[~np.isnan(column)])) > 2 for column in x.T], dtype=bool)
    harmonized = many & (deviation > 1e-9 * np.maximum(np.abs(mean), 1e-300))
    return Harmonization(method, harmonized, mean[harmonized], deviation[harmonized])


def measure(x: Floats) -> tuple[Floats, Floats, Floats]:
    """Return how many values of each column are present, their mean, and their unbiased variance; 0 and 1 where none
    or one is."""
    present = ~np.isnan(x)
    count = present.sum(axis=0).astype(np.float64)
    mean = np.where(present, x, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(present, x - mean, 0.0) ** 2).sum(axis=0)
    return count, mean, np.where(count > 1, squares / np.maximum(count - 1, 1), 1.0)


def estimate_by_combat(z: Floats) -> tuple[Floats, Floats]:
    """Estimate location and variance of a domain's columns by empirical Bayes (Johnson, Li and Rabinovic, 2007).

        z_ig ~ N(gamma_g, delta_g^2),  gamma_g ~ N(m, t^2),  delta_g^2 ~ InverseGamma(a, b)

    over the rows i and columns g of the domain; m, t^2, a, b are the moments over its columns. The posterior means

        gamma_g = (n t^2 mean_g + delta_g^2 m) / (n t^2 + delta_g^2)
        delta_g^2 = (b + 1/2 sum over i of (z_ig - gamma_g)^2) / (n/2 + a - 1)

    are iterated until they stand. One column has no others to be shrunk to, and variances that are all the same stay.
    """
    count, mean, variance = measure(z)
    if z.shape[1] < 2:
        return mean, variance
    m, t2 = float(mean.mean()), float(mean.var(ddof=1))
    center, spread = float(variance.mean()), float(variance.var(ddof=1))
    is_shrunk = spread > 1e-12 * center**2
    a, b = ((2 * spread + center**2) / spread, (center * spread + center**3) / spread) if is_shrunk else (0.0, 0.0)
    squares = (np.where(np.isnan(z), 0.0, z - mean) ** 2).sum(axis=0)  # about the mean: those about gamma follow
    location, scale = mean, variance
    for _ in range(ROUNDS):
        weight = count * t2
        new = np.where(weight + scale > 0, (weight * mean + scale * m) / np.maximum(weight + scale, 1e-300), mean)
        about = squares + count * (mean - new) ** 2
        grown = (b + about / 2) / (count / 2 + a - 1) if is_shrunk else variance
        change = max(float(np.abs(new - location).max()), float(np.abs(grown - scale).max()))
        location, scale = new, grown
        if change < CLOSE:
            break
    return location, scale


@dataclass(frozen=True)
class FittedToHarmonized:
    """What a learner fitted to harmonized rows: it predicts the rows of one domain together."""

    harmonize: Harmonization
    predict: Predict
    least: ClassVar[int] = LEAST  # rows of a domain

    def __call__(self, rows: Arrays) -> Arrays:
        return self.predict(self.harmonize(rows))


class Harmonized(ArrayLearner):
    """A learner that is fitted to harmonized rows; all else is as the learner inside says."""

    def __init__(self, inside: ArrayLearner, method: str) -> None:
        self.inside, self.method = inside, method
        for name in SAME:
            setattr(self, name, getattr(inside, name))

    def build_settings(self, name: str, **settings: Any) -> Settings:
        return self.inside.build_settings(name, **settings)

    def list_classes(self, name: str) -> tuple[type, ...]:
        return (type(self), *self.inside.list_classes(name))

    def rank_simplicity(self, name: str) -> tuple[int, int]:
        return self.inside.rank_simplicity(name)

    def check(self, trial: Trial, task: Task, net: Net | None) -> None:
        self.inside.check(replace(trial, algorithm=split_chain(trial.algorithm)[0]), task, net)

    def check_saving(self) -> None:
        self.inside.check_saving()

    def fit(self, x: Arrays, y: Arrays, domain: Arrays, classes: int, seed: int, **settings: Any) -> Predict:
        harmonize, moved = learn_harmonization(self.method, x, domain), np.array(x)
        for d in np.unique(domain):
            moved[domain == d] = harmonize(x[domain == d])
        return FittedToHarmonized(harmonize, self.inside.fit(moved, y, domain, classes, seed, **settings))

    def describe_fit(self, rows: int, **settings: Any) -> list[str]:
        said = "The rows of each domain are harmonized together, an unseen domain's by themselves (transductive)."
        return [*self.inside.describe_fit(rows, **settings), said]

    def pack(self, predict: Predict) -> Packed:
        assert isinstance(predict, FittedToHarmonized)
        packed, how = self.inside.pack(predict.predict), predict.harmonize
        inside = {f"{INSIDE}{name}": array for name, array in packed.arrays.items()}
        own: Mapping[str, Arrays] = {"harmonized": how.harmonized, "mean": how.mean, "deviation": how.deviation}
        return Packed({**own, **inside}, {"inside": dict(packed.values)})

    def unpack(self, packed: Packed) -> Predict:
        arrays = packed.arrays
        harmonize = Harmonization(self.method, arrays["harmonized"], arrays["mean"], arrays["deviation"])
        inside = {name.removeprefix(INSIDE): array for name, array in arrays.items() if name.startswith(INSIDE)}
        return FittedToHarmonized(harmonize, self.inside.unpack(Packed(inside, packed.values["inside"])))


def harmonize(learner: Learner, name: str) -> Learner:
    """Return the learner of a name such as `logistic+combat`. learner: that of its first part."""
    first, *around = split_chain(name)
    if len(around) > 1 or not isinstance(learner, ArrayLearner):
        base_name = shorten(first)
        why = (
            f"after {base_name} only {around[-1]} may follow"
            if isinstance(learner, ArrayLearner)
            else f"{base_name} does"
        )
        raise UsageError(
            f"{shorten(name)}: +{around[-1]} harmonizes rows for one learner that trains no neural network, as in "
            f"logistic+{around[-1]}; {why}."
        )
    return Harmonized(learner, around[0])

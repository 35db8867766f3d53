"""How a new domain differs from those of training: in its columns, one by one, and in how frequent its classes are.

*Columns.* A column is kept as what each training domain has of it: the share that is missing, the mean, and the
distribution F_d, of numbers at deciles of all rows, of categories as shares. The distance of two distributions is the
largest difference of their cumulative ones (Kolmogorov and Smirnov), of categories half the sum of differences (total
variation): 0 where they are alike, 1 where they have nothing in common. A new table is unlike
every training domain where

    min_d distance(new, d) - noise  >  max(LEAST, FARTHER max_d min_{d' != d} distance(d, d'))

with `noise` what chance does to so many rows: it is beyond what training domains are from one another.

*Classes.* Under label shift they are more or less frequent than in training, and look the same within a class. Then
probabilities are off by a factor for each class, which the new domain's own rows tell, without labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.core import Algorithm, Settings, flatten_settings
from seqdg.data import Column, Dataset, Frame
from seqdg.training import WeightedCrossEntropy, make_loss

LEAST = 0.25  # distance below which nothing is said
LEAST_MISSING = 0.1  # of the rows, beyond the shares of training domains
FARTHER = 1.5
FEWEST = 20  # rows of a table that are judged, and of a domain that it is compared with or whose shares are estimated
MOST_COLUMNS, MOST_DOMAINS, MOST_CATEGORIES = 200, 20, 50
CHANCE = 1.36  # of the Kolmogorov-Smirnov distance, at 5 %
ROUNDS, CLOSE = 10_000, 1e-10  # of expectation-maximization, and the change of a share at which it ends
Profile = Mapping[str, Mapping[str, Any]]  # by column; as JSON holds it
Floats = NDArray[np.float64]


def profile_columns(frame: Frame, domain: NDArray[np.int64], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Describe what each domain has of the first columns of numbers and categories. Dates are left out: they go on."""
    counts = {d: int((domain == i).sum()) for i, d in enumerate(names)}
    kept = sorted((d for d in names if counts[d] >= FEWEST), key=lambda d: -counts[d])[:MOST_DOMAINS]
    rows = {d: domain == list(names).index(d) for d in kept} or {"training": np.ones(len(frame), bool)}
    profile: dict[str, dict[str, Any]] = {}
    for name, values in list(zip(frame.names, frame.columns, strict=True))[:MOST_COLUMNS]:
        if values.dtype.kind == "f":
            known = values[np.isfinite(values)]
            edges = np.unique(np.quantile(known, np.linspace(0.05, 0.95, 19))) if len(known) else np.empty(0)
            about: dict[str, Any] = {"edges": edges.tolist()}
        elif values.dtype == object:
            categories, sizes = np.unique([v for v in values if v is not None], return_counts=True)
            about = {"categories": categories[np.argsort(-sizes, kind="stable")][:MOST_CATEGORIES].tolist()}
        else:
            continue
        parts = {d: _count(values[its], about) for d, its in rows.items()}
        profile[name] = {**about, "domains": {d: _summarize(part) for d, part in parts.items()}}
    return profile


class Watch:
    """Compares the rows of a table, as they come, with those of training."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self._counts = profile, dict[str, Floats]()

    def add(self, columns: Mapping[str, Column]) -> None:
        """Count rows: of each column its numbers, nan where one is missing, or its categories, None where."""
        for name, values in columns.items():
            if name in self.profile:
                counts = _count(values, self.profile[name])
                self._counts[name] = self._counts[name] + counts if name in self._counts else counts

    def list_unlike(self) -> list[str]:
        """Say which columns are unlike those of every training domain, and how far."""
        return [
            sentence
            for name, counts in self._counts.items()
            if counts[0] >= FEWEST
            for sentence in _compare(name, self.profile[name], _summarize(counts))
        ]


def _count(values: Column, about: Mapping[str, Any]) -> Floats:
    """Count rows, missing ones, the sum of the others, and how many are up to each edge or of each category."""
    if "edges" in about:
        known = values[np.isfinite(values)]
        each = np.searchsorted(np.sort(known), np.array(about["edges"]), side="right")
        return np.array([len(values), len(values) - len(known), known.sum(), *each], np.float64)
    sizes = dict(zip(*np.unique([v for v in values if v is not None], return_counts=True), strict=True))
    missing = sum(v is None for v in values)
    return np.array([len(values), missing, 0, *(sizes.get(c, 0) for c in about["categories"])], np.float64)


def _summarize(counts: Floats) -> list[float]:
    """Return the rows, the share that is missing, and of the others their mean and distribution."""
    total, missing, known = counts[0], counts[1], max(counts[0] - counts[1], 1)
    return [float(f"{v:.6g}") for v in (total, missing / max(total, 1), *(counts[2:] / known))]


def _compare(name: str, about: Mapping[str, Any], new: Sequence[float]) -> list[str]:
    """Compare a column with that of each training domain, where it is summarized alike."""
    each: Mapping[str, Sequence[float]] = about["domains"]
    sentences = []
    shares = [its[1] for its in each.values()]
    margin = LEAST_MISSING + 2 * math.sqrt(new[1] * (1 - new[1]) / new[0])
    if not min(shares) - margin <= new[1] <= max(shares) + margin:
        sentences.append(
            f"Column '{name}' is missing in {100 * new[1]:.0f} % of the rows, in training domains in "
            f"{_give_range([round(100 * share) for share in shares])} %."
        )
    rows = new[0] * (1 - new[1])
    if rows < FEWEST or not about.get("edges", about.get("categories")):
        return sentences
    distances = {d: _measure(about, new, its) for d, its in each.items()}
    nearest = min(distances, key=distances.__getitem__)
    noise = CHANCE * math.sqrt(1 / rows + 1 / max(each[nearest][0] * (1 - each[nearest][1]), 1))
    others = {d: [_measure(about, its, each[e]) for e in each if e != d] for d, its in each.items()}
    usual = max((min(gaps) for gaps in others.values() if gaps), default=0.0)
    if distances[nearest] - noise <= max(LEAST, FARTHER * usual):
        return sentences
    theirs = _give_range([its[2] for its in each.values()])
    means = f": its mean is {new[2]:.4g}, theirs {theirs}" if "edges" in about else ""
    among = f", and training domains at most {usual:.2f} from the nearest other" if len(each) > 1 else ""
    sentences.append(
        f"Column '{name}' is unlike that of every training domain{means}. The nearest, {nearest}, is "
        f"{distances[nearest]:.2f} away (0 is alike, 1 has nothing in common){among}."
    )
    return sentences


def _measure(about: Mapping[str, Any], one: Sequence[float], other: Sequence[float]) -> float:
    """Measure the distance of two distributions; categories that training did not have count too."""
    gaps = np.array(one[3:]) - np.array(other[3:])
    if "edges" in about:
        return float(np.abs(gaps).max())
    return float(np.abs([*gaps, gaps.sum()]).sum() / 2)


def _give_range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"


# Label shift ----------------------------------------------------------------------------------------------------------


def correct_label_shift(p: Floats, priors: Floats) -> tuple[Floats, Floats]:
    """Correct calibrated probabilities for the shares of classes of the domain that they are of (Saerens, Latinne and
    Decaestecker, 2002).

        p'(c | x) ~ p(c | x) q(c) / priors(c),   q(c) = mean over x of p'(c | x)

    in turn, from q = priors on, until q stands: the maximum of the likelihood of the rows.

    p: (row, class).   priors: (class,) shares of the classes in training.   Return p' and q.
    """
    known = priors > 0  # a class that was never met has no probability to correct
    ratio = np.divide(p, priors, out=np.zeros_like(p), where=known)
    q, corrected = np.where(known, priors, 0.0), p
    for _ in range(ROUNDS):
        corrected = ratio * q
        corrected = corrected / np.maximum(corrected.sum(axis=1, keepdims=True), 1e-300)
        before, q = q, corrected.mean(axis=0)
        if np.abs(q - before).max() < CLOSE:
            break
    return corrected, q


def check_label_shift(priors: Sequence[float] | None, rows: int) -> None:
    """Raise a UsageError where probabilities cannot be corrected. priors: of the model; None for regression."""
    if priors is None:
        raise UsageError("Label shift is corrected in class probabilities, and this is a regression model.")
    if rows < FEWEST:
        raise UsageError(
            f"Label shift is estimated from the rows of the new domain together: give at least {FEWEST} at once, "
            f"and not {rows}, or predict without the correction."
        )


def find_priors(dataset: Dataset, settings: Settings, class_weight: Any) -> list[float]:
    """Find the shares of classes that a model's probabilities are of: those of its training rows as they weigh. A net
    meets all domains alike, and so does a learner that balances them."""
    assert dataset.validation is not None
    y, weight = dataset.y, torch.ones(len(dataset.y), dtype=torch.float64)
    weight = weight if dataset.weight is None else dataset.weight.double().clone()
    each = [dataset.rows(domain) for domain in dataset.domains]
    each = [rows[~dataset.validation[rows]] for rows in each]
    loss = make_loss(class_weight, [y[rows] for rows in each], dataset.classes)
    by_class = loss.weight.double() if isinstance(loss, WeightedCrossEntropy) else torch.ones(len(dataset.classes))
    is_balanced = isinstance(settings, Algorithm) or bool(flatten_settings(settings).get("balance", False))
    shares = torch.zeros(len(dataset.classes), dtype=torch.float64)
    for rows in each:
        counts = torch.bincount(y[rows], weights=weight[rows], minlength=len(shares))
        shares += counts / counts.sum().clamp(min=1e-300) if is_balanced else counts
    shares *= by_class
    return [float(share) for share in shares / shares.sum()]

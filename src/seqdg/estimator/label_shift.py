"""Label shift: classes are more or less frequent in the new domain than in training, and look the same within a class.

Then probabilities are off by a factor for each class, which the new domain's own rows tell, without labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.base import UsageError
from seqdg.core import Algorithm, Settings, flatten_settings
from seqdg.data import Dataset
from seqdg.training import WeightedCrossEntropy, make_loss

Floats = NDArray[np.float64]
FEWEST = 20  # rows of a domain, by which its shares of classes are estimated
ROUNDS, CLOSE = 10_000, 1e-10  # of expectation-maximization, and the change of a share at which it ends


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

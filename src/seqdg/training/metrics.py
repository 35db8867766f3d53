"""Predictions of a stack, of every trial at once: pooled over an ensemble, calibrated and measured.

The metrics come last: one function for each of the `CRITERIA`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from seqdg.results import CRITERIA, LOSSES, Evaluation, choose_loss
from seqdg.training.inputs import Groups
from seqdg.training.splits import Split

BINS = 15
TOP = 5
QUANTILE = 0.1  # of the accuracies of groups
GRAIN = 2.0**20  # weights are multiples of its inverse, so that their sums are exact in any order
DEVIATION = 0.5  # of the prior of log T, of which T is the temperature of softmax(z / T)
LARGEST = 20.0  # T is between 1 / LARGEST and LARGEST
HALVINGS = 40
FLOOR = 0.01  # of all probability: what a prediction is taken to spread over the classes at least


class DomainPredictions(NamedTuple):
    """Predictions of a stack for one domain of each trial, with the labels. Only rows that the mask keeps count."""

    logits: Tensor  # (trial, row, class); (trial, row, 1) of numbers, in the user's units
    y: Tensor  # (trial, row)
    mask: Tensor  # (trial, row) bool
    rows: Tensor | None = None  # (trial, row) their numbers in the data set
    fifth: Tensor | None = None  # (trial, row) bool, of a held-out domain: whether `oracle-split` chooses by the row
    groups: Groups | None = None  # where the data have them
    weight: Tensor | None = None  # (trial, row) how much each row counts; None: all the same


def list_seeds(seed: int, members: int) -> tuple[int, ...]:
    """List the seeds of the members of a trial: those of no two trials overlap, and a member alone has the trial's."""
    return tuple(range(seed * members, (seed + 1) * members))


def pool_outputs(outputs: Tensor, members: int) -> Tensor:
    """Return what the members of each trial, a deep ensemble, say together (trial, row, class): the logarithm of the
    mean of their probabilities (Lakshminarayanan et al., 2017), or the mean of their numbers, where a net gives one
    number per row (regression).

    outputs: (trial x member, row, class); those of one member each are returned as they are.
    """
    if members == 1:
        return outputs
    each = outputs.double().reshape(len(outputs) // members, members, *outputs.shape[1:])
    if outputs.shape[-1] == 1:
        return each.mean(1)
    return each.log_softmax(-1).logsumexp(1) - math.log(members)


def fit_temperature(logits: Tensor, y: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the temperature of every trial (trial,), 1 where no row counts or a logit is not finite.

    Temperature scaling (Guo et al., 2017): probabilities softmax(z / T). T minimizes the log loss summed over the rows
    plus (log T)^2 / (2 d^2): log T has a normal prior of deviation d = 0.5, so that few rows, or rows that are all
    predicted right, do not make a net arbitrarily sure. The most probable class stays the most probable.

    Where rows have weights w, their losses are summed with w * sum(w) / sum(w^2), which add up to the number of rows
    that would say as much (Kish, 1965): a few heavy rows do not outweigh the prior.

    logits: (trial, row, class)   y: (trial, row)   mask: (trial, row) bool, the rows that count
    weight: (trial, row) how much; None: all the same
    """
    if weight is not None:
        mask = mask & (weight > 0)
        weight = torch.where(mask, weight.double(), 0.0)
        weight = weight * (weight.sum(1) / (weight**2).sum(1).clamp(min=1e-300))[:, None]
    z = logits.double().masked_fill(~mask[..., None], 0.0)
    z = z - z.gather(-1, y[..., None])  # of the true class 0: the log loss is logsumexp(z)
    weighed = z if weight is None else z * weight[..., None]
    low = torch.full((len(z),), -math.log(LARGEST), dtype=torch.float64, device=z.device)  # of -log T
    high = -low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        sharper = middle.exp()
        p = (z * sharper[:, None, None]).softmax(-1)
        slope = sharper * (p * weighed).sum((1, 2)) + middle / DEVIATION**2
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    known = mask.any(1) & z.isfinite().all(-1).all(-1)
    return torch.where(known, (-(low + high) / 2).exp(), 1.0)


def as_outputs(predicted: NDArray[Any], is_regression: bool) -> NDArray[np.float64]:
    """Return what a net would give: logarithms of probabilities (row, class), at least 1e-12, or numbers (row, 1)."""
    outputs = np.asarray(predicted, np.float64)
    return outputs.reshape(-1, 1) if is_regression else np.asarray(np.log(np.clip(outputs, 1e-12, 1.0)))


def spread(scores: NDArray[np.float64], labels: NDArray[np.intp], classes: int) -> NDArray[np.float64]:
    """Put the columns of the classes that were met (row, class met) where they belong among all classes."""
    everywhere = np.zeros((len(scores), classes))
    everywhere[:, labels] = scores
    return everywhere


def calibrate(probabilities: NDArray[Any], temperature: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return softmax(log p / T), where no p is below FLOOR / classes.

    temperature: T, or one for each entry of the first axis.
    """
    from scipy.special import softmax  # where it is used: `seqdg list` starts without it

    p = np.asarray(probabilities, np.float64)
    temperature = np.asarray(temperature).reshape(-1, *[1] * (p.ndim - 1)) if np.ndim(temperature) else temperature
    return np.asarray(softmax(floor_log(p) / temperature, axis=-1))


def floor_log(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithms of probabilities (..., class), where none is below FLOOR / classes."""
    return np.asarray(np.log(np.maximum(p, FLOOR / p.shape[-1])))


# ---------------------------------------------------------------------------- measuring


def measure_predictions(
    predictions: Sequence[DomainPredictions],
    sources: int,
    step: int,
    at_once: int | None = None,
    criteria: Collection[str] = (),
) -> list[Evaluation]:
    """Measure the predictions of every trial; the first `sources` domains are sources, the others held out.

    at_once: how many are held out by a fixed split; those after them are validation domains. None: it is not fixed.
    """
    last = len(predictions) if at_once is None else sources + at_once
    held_out, outside = predictions[sources:last], predictions[last:]
    split = [(p, p.fifth) for p in held_out if p.fifth is not None]
    parts = (  # the fields of an Evaluation, in their order
        predictions[:sources],
        held_out,
        [p._replace(mask=p.mask & fifth) for p, fifth in split],
        [p._replace(mask=p.mask & ~fifth) for p, fifth in split],
        outside,
        [] if at_once is None else [_join(domains, 1) for domains in (held_out, outside) if domains],
    )
    measured = _measure([domain for part in parts for domain in part], criteria)
    values, names, trials = iter(measured), list(measured[0]), range(len(predictions[0].y))

    def take(count: int, is_needed: bool) -> list[dict[str, list[float]]]:
        """Return of every trial by criterion a value for each of the next domains."""
        if not count:
            return [{name: [] for name in names} if is_needed else {} for _ in trials]
        domains = list(islice(values, count))
        by_trial = zip(*(zip(*(domain[name] for domain in domains), strict=True) for name in names), strict=True)
        return [dict(zip(names, map(list, each), strict=True)) for each in by_trial]

    taken = [take(len(part), i < 2) for i, part in enumerate(parts)]  # sources and held-out domains are always there
    return [Evaluation(step, *each) for each in zip(*taken, strict=True)]


def list_losses(evaluation: Evaluation) -> list[float]:
    """Return the loss on each source's validation rows: the log-loss, or the mean squared error of numbers."""
    name = choose_loss(evaluation.source)
    return [value if name == "log_loss" else value**2 for value in evaluation.source[name]]


def is_finite(evaluation: Evaluation, split: Split) -> bool:
    """Whether the loss is finite on every domain that has rows to evaluate."""
    losses = evaluation.list_values(choose_loss(evaluation.source))
    return all(math.isfinite(loss) for loss, rows in zip(losses, split.evaluated, strict=True) if len(rows))


def _measure(predictions: Sequence[DomainPredictions], criteria: Collection[str]) -> list[dict[str, list[float]]]:
    """Return of every domain by criterion a value for each trial, over the rows that its mask keeps.

    Domains of about the same length are measured together, and all numbers leave the device at once.
    """
    lengths = [domain.y.shape[1] for domain in predictions]
    order = sorted((k for k, length in enumerate(lengths) if length), key=lambda k: lengths[k]) or [0]
    groups: list[list[int]] = []
    for k in order:
        if groups and lengths[k] <= 1.5 * lengths[groups[-1][0]]:  # at most half as long again as the shortest
            groups[-1].append(k)
        else:
            groups.append([k])
    wanted = {*criteria, *LOSSES} if criteria else ()
    joined = [_join([predictions[k] for k in group], 0) for group in groups]
    measured = [compute_metrics(p.logits, p.y, p.mask, p.groups, p.weight, wanted) for p in joined]
    names, trials = list(measured[0]), len(predictions[0].y)
    together = torch.cat([torch.stack([values[name] for name in names]) for values in measured], 1)
    numbers = together.reshape(len(names), -1, trials).transpose(0, 1).tolist()  # (domain, criterion, trial)
    by_domain = {k: dict(zip(names, values, strict=True)) for k, values in zip(order, numbers, strict=True)}
    nothing = dict.fromkeys(names, [math.nan] * trials)  # is known of a domain without rows
    return [by_domain.get(k, nothing) for k in range(len(predictions))]


def _join(domains: Sequence[DomainPredictions], axis: int) -> DomainPredictions:
    """Return several domains as one: with the rows of all (axis 1), or as one of as many more trials (axis 0), which
    rows that do not count fill up."""
    most = max(domain.y.shape[1] for domain in domains)

    def join(values: Sequence[Tensor]) -> Tensor:
        missing = [(0, 0) * (v.dim() - 2) + (0, most - v.shape[1]) for v in values]
        full = [pad(v, m) if axis == 0 and any(m) else v for v, m in zip(values, missing, strict=True)]
        return torch.cat(full, axis)

    groups = [domain.groups for domain in domains if domain.groups is not None]
    weights = [domain.weight for domain in domains if domain.weight is not None]
    return DomainPredictions(
        logits=join([domain.logits for domain in domains]),
        y=join([domain.y for domain in domains]),
        mask=join([domain.mask for domain in domains]),
        groups=groups[0]._replace(number=join([g.number for g in groups])) if groups else None,
        weight=join(weights) if weights else None,
    )


# ---------------------------------------------------------------------------- metrics


@dataclass(frozen=True)
class Predictions:
    """What networks say of rows, and what is true. Only the rows that the mask keeps count."""

    log_p: Tensor  # (trial, row, class) float64
    y: Tensor  # (trial, row)
    mask: Tensor  # (trial, row) bool
    weight: Tensor  # (trial, row) float64, how much each row counts; 0 where the mask is not
    groups: Groups | None = None

    @cached_property
    def correct(self) -> Tensor:
        """(trial, row) the weight of a row whose most probable class is the true one, 0 of the others."""
        return (self.guess == self.y).double() * self.weight

    @cached_property
    def most_probable(self) -> tuple[Tensor, Tensor]:
        """(trial, row) the log-probability of the most probable class, and which one it is."""
        highest = self.log_p.max(-1)
        return highest.values, highest.indices

    @property
    def guess(self) -> Tensor:
        """(trial, row) the most probable class."""
        return self.most_probable[1]

    @cached_property
    def by_class(self) -> tuple[Tensor, Tensor]:
        """(trial, class) the weight of the rows of each class, and of those of them that are predicted right."""
        classes = self.log_p.shape[-1]
        return self.count(self.y, self.weight, classes), self.count(self.y, self.correct, classes)

    @cached_property
    def group_accuracy(self) -> Tensor:
        """(trial, group) the accuracy on each group that has rows, ascending; infinite for the others."""
        if self.groups is None:
            raise ValueError("These rows have no groups.")
        number, groups = self.groups
        total, hit = self.count(number, self.weight, groups), self.count(number, self.correct, groups)
        return _divide_present(hit, total).sort(1).values

    def count(self, kind: Tensor, weight: Tensor, kinds: int) -> Tensor:
        """Sum the weights (trial, row) of the rows of each kind: (trial, kind). These sums are exact in any order, so
        that a GPU gives the same every time."""
        return weight.new_zeros(len(weight), kinds).scatter_add(1, kind, weight)


@dataclass(frozen=True)
class NumberPredictions:
    """What networks predict for rows, and the truth, in the user's units. Only the rows that the mask keeps count."""

    guess: Tensor  # (trial, row) float64
    y: Tensor  # (trial, row) float64
    mask: Tensor  # (trial, row) bool
    weight: Tensor  # (trial, row) float64, how much each row counts; 0 where the mask is not

    @cached_property
    def total(self) -> Tensor:
        """(trial,) the weight of all rows that count."""
        return self.weight.sum(1)

    @cached_property
    def error(self) -> Tensor:
        """(trial, row) prediction minus truth, 0 in rows that do not count."""
        return torch.where(self.mask, self.guess - self.y, 0.0)

    def center(self, values: Tensor) -> Tensor:
        """(trial, row) values minus their mean over the rows that count, and 0 in the others."""
        mean = (self.weight * torch.where(self.mask, values, 0.0)).sum(1) / self.total
        return torch.where(self.mask, values - mean.unsqueeze(1), 0.0)

    @cached_property
    def spread(self) -> Tensor:
        """(trial,) sum of squares of the truth around its mean; nan where it never varies, but for rounding."""
        centred = self.center(self.y)
        size = torch.where(self.mask, self.y, 0.0).abs().amax(1) if self.y.shape[1] else self.total
        squares = (self.weight * centred**2).sum(1)
        return squares.masked_fill((self.weight * centred.abs()).sum(1) <= 1e-12 * size * self.total, float("nan"))


Metric = Callable[[Any], Tensor]  # of Predictions, or of NumberPredictions: (trial,)
METRICS: dict[str, Metric] = {}  # by criterion


def metric(function: Metric) -> Metric:
    """Let a function give the criterion of its name its value."""
    METRICS[function.__name__] = function
    return function


def compute_metrics(
    logits: Tensor,
    y: Tensor,
    mask: Tensor,
    groups: Groups | None = None,
    weight: Tensor | None = None,
    criteria: Collection[str] = (),
) -> dict[str, Tensor]:
    """Return (trial,) by criterion, over the rows that the mask keeps; of the criteria defined for so many classes, or
    for numbers, where y holds some.

    logits: (trial, row, class)   y: (trial, row)   mask: (trial, row) bool   groups: where the data have them
    weight: (trial, row) how much each row counts; None: all the same. Rows without weight do not count.
    criteria: those to compute; none: all
    """
    if weight is not None:
        mask = mask & (weight > 0)
    weight = mask.double() if weight is None else scale_weights(weight, mask)
    predictions: Predictions | NumberPredictions
    if y.is_floating_point():
        predictions, classes = NumberPredictions(logits.double()[..., 0], y.double(), mask, weight), 0
    else:
        predictions, classes = Predictions(logits.double().log_softmax(-1), y, mask, weight, groups), logits.shape[-1]
    count = 0 if groups is None else groups.total
    return {
        name: function(predictions)
        for name, function in METRICS.items()
        if CRITERIA[name].is_defined(classes, count) and (not criteria or name in criteria)
    }


def measure_rows(outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> dict[str, float]:
    """Return every criterion over rows, by name.

    outputs: (row, class) logits, or (row, 1) numbers   y: (row,)   weight: (row,) how much each row counts
    """
    every = torch.ones(1, len(y), dtype=torch.bool)
    metrics = compute_metrics(outputs[None], y[None], every, weight=None if weight is None else weight[None])
    return {name: float(value) for name, value in metrics.items()}


def scale_weights(weight: Tensor, mask: Tensor) -> Tensor:
    """Bring the weights (trial, row) of the rows that count to 1 on average, in steps of a millionth; 0 of others."""
    kept = torch.where(mask, weight.double(), 0.0)
    mean = kept.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return (kept / torch.where(mean > 0, mean, 1.0) * GRAIN).round() / GRAIN


@metric
def accuracy(p: Predictions) -> Tensor:
    """Share of rows whose most probable class is the true one."""
    return p.correct.sum(1) / p.weight.sum(1)


@metric
def balanced_accuracy(p: Predictions) -> Tensor:
    """Mean of the accuracy on each class, over the classes that occur."""
    total, hit = p.by_class
    present = (total > 0).double()
    return (hit / _avoid_zero(total) * present).sum(1) / present.sum(1)


@metric
def log_loss(p: Predictions) -> Tensor:
    """Mean of -log p of the true class."""
    return -(p.log_p.gather(-1, p.y.unsqueeze(-1)).squeeze(-1) * p.weight).sum(1) / p.weight.sum(1)


@metric
def calibration_error(p: Predictions) -> Tensor:
    """Expected calibration error over 15 equal bins (Guo et al. 2017)."""
    confidence = p.most_probable[0].exp()
    index = (confidence * BINS).long().clamp(0, BINS - 1)
    excess = confidence * p.weight - p.correct
    # In whole numbers, whose sums are the same in any order: a GPU adds in another order every time.
    whole = (excess * 2**40).round().long()
    error = whole.new_zeros(len(whole), BINS).scatter_add(1, index, whole).abs().sum(1).double() / 2**40
    return (error / p.weight.sum(1)).masked_fill(excess.isnan().any(1), float("nan"))


@metric
def auroc(p: Predictions) -> Tensor:
    """Of two classes: the probability that a row of the second has a higher score than one of the first, ties counting
    half; nan where one of them is absent or a score is not a number."""
    score = p.log_p[..., 1].contiguous()
    positive, negative = p.mask & (p.y == 1), p.mask & (p.y == 0)
    others, order = score.masked_fill(~negative, float("inf")).sort(1)  # the negative ones first: none is infinite
    lighter = pad((p.weight * negative).gather(1, order).cumsum(1), (1, 0))  # weight of the first n
    below = sum(lighter.gather(1, torch.searchsorted(others, score, right=ties)) for ties in (False, True))
    pairs = (p.weight * positive).sum(1) * (p.weight * negative).sum(1)
    unknown = (pairs == 0) | (score.isnan() & (positive | negative)).any(1)
    share = (below * p.weight * positive).sum(1) / 2 / _avoid_zero(pairs)
    return share.masked_fill(unknown, float("nan"))


@metric
def macro_f1(p: Predictions) -> Tensor:
    """Mean over the classes that occur of F1, 2 tp / (2 tp + fp + fn), as WILDS computes it (Koh et al., 2021)."""
    total, hit = p.by_class
    guessed = p.count(p.guess, p.weight, p.log_p.shape[-1])
    present = (total > 0).double()
    return (2 * hit / _avoid_zero(total + guessed) * present).sum(1) / present.sum(1)


@metric
def worst_class(p: Predictions) -> Tensor:
    """Accuracy on the class where it is lowest, of the classes that occur."""
    total, hit = p.by_class
    return _set_unknown(_divide_present(hit, total).amin(1))


@metric
def top5(p: Predictions) -> Tensor:
    """Share of rows for which fewer than five classes are more probable than the true one."""
    truth = p.log_p.gather(-1, p.y.unsqueeze(-1))
    known = truth.squeeze(-1) == truth.squeeze(-1)  # a score that is not a number is wrong
    return (((p.log_p > truth).sum(-1) < TOP) & known).double().mul(p.weight).sum(1) / p.weight.sum(1)


@metric
def worst_group(p: Predictions) -> Tensor:
    """Accuracy on the group of rows where it is lowest, of the groups that occur."""
    return _set_unknown(p.group_accuracy[:, 0])


@metric
def group_p10(p: Predictions) -> Tensor:
    """The 10th percentile of the accuracies of the groups that occur, linear between two of them."""
    accuracy = p.group_accuracy
    last = (accuracy.isfinite().sum(1, keepdim=True) - 1).clamp(min=0)
    rank = QUANTILE * last
    low = rank.floor().long()
    below, above = accuracy.gather(1, low), accuracy.gather(1, torch.minimum(low + 1, last))
    return _set_unknown((below + (rank - low) * (above - below)).squeeze(1))


@metric
def rmse(p: NumberPredictions) -> Tensor:
    """Root of the mean of squared errors."""
    return ((p.weight * p.error**2).sum(1) / p.total).sqrt()


@metric
def mae(p: NumberPredictions) -> Tensor:
    """Mean of absolute errors."""
    return (p.weight * p.error.abs()).sum(1) / p.total


@metric
def r2(p: NumberPredictions) -> Tensor:
    """Share of the variance that is explained: 1 - sum of squared errors / sum of squares around the rows' own mean.
    nan where the truth never varies."""
    return 1 - (p.weight * p.error**2).sum(1) / p.spread


@metric
def pearson(p: NumberPredictions) -> Tensor:
    """Correlation of predictions with the truth; 0 where predictions never vary, nan where the truth never does."""
    guess, y = p.center(p.guess), p.center(p.y)
    product = (p.weight * guess**2).sum(1).sqrt() * p.spread.sqrt()
    return (p.weight * guess * y).sum(1) / torch.where(product == 0, 1.0, product)


def _divide_present(hit: Tensor, total: Tensor) -> Tensor:
    """Return the share that is right of each kind; infinite for kinds without rows, so that none of these is worst."""
    return (hit / _avoid_zero(total)).masked_fill(total == 0, float("inf"))


def _avoid_zero(total: Tensor) -> Tensor:
    """Return a weight to divide by: 1 where there is none."""
    return torch.where(total > 0, total, 1.0)


def _set_unknown(worst: Tensor) -> Tensor:
    """Return nan where no kind has rows."""
    return worst.masked_fill(~worst.isfinite(), float("nan"))

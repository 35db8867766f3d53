"""The weights of an ensemble: the mathematics, against literal transcriptions and in limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from seqdg.base import UsageError
from seqdg.estimator.weighting import (
    ROUNDS,
    Fold,
    combine,
    find_weights,
    fit_temperatures,
    select_greedily,
)
from seqdg.training import FLOOR, calibrate

CLASSES = 3


def make_folds(sharpness=(2.0, 1.0, 0.5), sizes=(40, 25, 60), seed=0, weighted=False):
    """Folds of three classes; a member tells the true class the better, the larger its sharpness."""
    draw = np.random.default_rng(seed)
    folds = []
    for size in sizes:
        y = draw.integers(0, CLASSES, size)
        logits = draw.normal(size=(len(sharpness), size, CLASSES))
        logits[:, np.arange(size), y] += np.array(sharpness)[:, None]
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        folds.append(Fold(y, p, draw.uniform(0.1, 3.0, size) if weighted else None))
    return folds


def loss_of(members, folds):
    """The domain-balanced log loss of the mean of some members, with repetition, literally."""
    losses = []
    for fold in folds:
        weight = np.ones(len(fold.y)) if fold.weight is None else fold.weight
        rows = [-math.log(np.mean([fold.outputs[m, i, fold.y[i]] for m in members])) for i in range(len(fold.y))]
        losses.append(np.sum(weight * rows) / weight.sum())
    return np.mean(losses)


@pytest.mark.parametrize("weighted", [False, True])
def test_greedy_selection_is_that_of_caruana(weighted):
    folds = make_folds((1.0, 0.8, 0.6, 0.9), weighted=weighted)
    selected, losses = [], []
    for _ in range(ROUNDS):
        selected.append(min(range(4), key=lambda m: loss_of([*selected, m], folds)))
        losses.append(loss_of(selected, folds))
    best = selected[: int(np.argmin(losses)) + 1]
    told = np.concatenate([f.outputs[:, np.arange(len(f.y)), f.y] for f in folds], axis=1)
    shares = np.concatenate([f.share for f in folds]) / len(folds)
    np.testing.assert_allclose(select_greedily(told, shares), np.bincount(best, minlength=4) / len(best))
    assert len(set(best)) > 1


def test_numbers_are_selected_by_the_squared_error():
    draw = np.random.default_rng(0)
    y = draw.normal(size=200)
    too_high, too_low = y + 1 + 0.1 * draw.normal(size=200), y - 3 + 0.1 * draw.normal(size=200)
    weights = select_greedily(np.stack([too_high, too_low]), np.full(200, 1 / 200), y)
    np.testing.assert_allclose(weights, [0.75, 0.25], atol=0.03)  # where their errors cancel


def test_a_temperature_minimizes_the_balanced_loss_and_its_prior():
    folds = make_folds(weighted=True)
    share = np.concatenate([fold.share for fold in folds])
    effective = share * share.sum() / (share**2).sum()
    for m, found in enumerate(fit_temperatures(folds)):
        told = np.concatenate([np.log(np.maximum(f.outputs[m], FLOOR / CLASSES)) for f in folds])
        y = np.concatenate([f.y for f in folds])

        def objective(log_t, told=told, y=y):
            z = told / math.exp(log_t)
            losses = np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]
            return effective @ losses + log_t**2 / (2 * 0.5**2)

        assert found == pytest.approx(math.exp(minimize_scalar(objective, (-1, 1)).x), rel=1e-4)


def test_calibrated_probabilities_add_up_and_none_is_zero():
    p = np.array([[[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]])
    np.testing.assert_allclose(calibrate(p[:, 1:], 1.0), p[:, 1:])
    sure = calibrate(p, 2.0)
    np.testing.assert_allclose(sure.sum(-1), 1)
    raised = np.sqrt([1.0, FLOOR / 3, FLOOR / 3])
    np.testing.assert_allclose(sure[0, 0], raised / raised.sum())
    np.testing.assert_array_equal(calibrate(np.stack([p[0], p[0]]), np.array([1.0, 2.0]))[1], sure[0])


def test_members_that_say_the_same_are_as_good_as_one():
    (fold, *_) = folds = make_folds((1.0,))
    same = [Fold(f.y, np.repeat(f.outputs, 3, axis=0)) for f in folds]
    weights = find_weights("abc", same)
    assert weights.uniform == pytest.approx([1 / 3] * 3)
    alone = find_weights("a", folds)
    assert alone.shrunk == (1.0,)
    said = combine(np.repeat(fold.outputs, 3, axis=0), weights.shrunk, weights.temperatures)
    np.testing.assert_allclose(said, combine(fold.outputs, alone.shrunk, alone.temperatures))


def test_a_perfect_member_takes_all_where_the_others_say_nothing():
    folds = make_folds((1.0, 0.0, 0.0))
    for fold in folds:
        fold.outputs[0] = np.eye(CLASSES)[fold.y]
        fold.outputs[1:] = 1 / CLASSES
    weights = find_weights(["perfect", "blank", "empty"], folds)
    assert weights.takes_part == (True, False, False)
    assert weights.shrunk == (1.0, 0.0, 0.0)
    assert weights.temperatures[0] < 1


def test_who_is_far_behind_over_all_folds_drops_out():
    folds = make_folds((2.0, 2.0, 2.0, 2.0))
    for i, fold in enumerate(folds):
        fold.outputs[1] = 1 / CLASSES  # nowhere better than guessing
        if i == 0:
            fold.outputs[2] = 1 / CLASSES  # elsewhere as good as the best
    weights = find_weights("abcd", folds)
    assert weights.takes_part == (True, False, True, True)
    assert weights.greedy[1] == 0
    np.testing.assert_allclose(weights.shrunk, 0.5 * np.array(weights.greedy) + 0.5 * np.array([1, 0, 1, 1]) / 3)


def test_who_is_good_on_one_domain_alone_drops_out():
    draw = np.random.default_rng(0)
    folds = []
    for i in range(3):
        y = 3 * draw.normal(size=40)
        folds.append(Fold(y, np.stack([y + draw.normal(size=40), y if i == 0 else y + 5])))
    assert find_weights("ab", folds).takes_part == (True, False)


def test_all_take_part_where_nobody_beats_a_constant():
    draw = np.random.default_rng(0)
    folds = [Fold(draw.normal(size=30), 5 + draw.normal(size=(2, 30))) for _ in range(3)]
    weights = find_weights("ab", folds)
    assert weights.takes_part == (True, True)
    assert weights.temperatures == (1.0, 1.0)


def test_a_fold_counts_the_same_whatever_its_rows():
    """The weights of a fold and of the same one repeated are alike."""
    folds = make_folds(sizes=(30, 30))
    longer = [folds[0], Fold(np.tile(folds[1].y, 3), np.tile(folds[1].outputs, (1, 3, 1)))]
    assert find_weights("abc", longer).greedy == pytest.approx(find_weights("abc", folds).greedy)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: Fold(f.y, f.outputs[..., :2]), "are of 2 and of 3 classes"),
        (lambda f: Fold(f.y, f.outputs[..., 0]), "are of 0 and of 3 classes"),
        (lambda f: Fold(f.y, f.outputs[:1]), "for 3 members and"),
        (lambda f: Fold(f.y[1:], f.outputs), "a prediction of every member for every row"),
        (lambda f: Fold(f.y, f.outputs * np.nan), "not all finite"),
    ],
)
def test_predictions_that_do_not_fit_together_are_refused(change, sentence):
    first, *rest = make_folds()
    with pytest.raises(UsageError, match=sentence):
        find_weights("abc", [change(first), *rest])
    with pytest.raises(UsageError, match="at least one held-out domain"):
        find_weights("abc", [])

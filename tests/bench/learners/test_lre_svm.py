"""LRE-SVM against its objective, its two updates, its limit and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer

from digits import BENCHMARK, TASK
from seqdg.base import UsageError
from seqdg.bench import Draft, find_learner
from seqdg.bench.learners.kernel_methods import LowRankExemplars, LowRankExemplarsLearner, lower_rank
from seqdg.results import DONE


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    y = np.arange(24) % 3
    return draw.normal(size=(24, 3)) + 2 * np.eye(3)[y], y


def write_out(model: LowRankExemplars, w, positive, negative, low) -> float:
    """The objective but for the nuclear norm, as the paper writes it."""
    total = 0.0
    for i in range(len(positive)):
        total += w[i] @ w[i] + model.cost * model.exemplar * np.log(1 + np.exp(-w[i] @ positive[i]))
        for x in negative:
            total += model.cost * np.log(1 + np.exp(w[i] @ x))
        for j in range(len(positive)):
            total += model.tie * (low[i, j] - 1 / (1 + np.exp(-w[i] @ positive[j]))) ** 2
    return float(total)


def test_the_objective_and_its_gradient_are_those_of_the_paper(data):
    x, y = data
    positive, negative, draw = x[y == 0], x[y != 0], np.random.default_rng(1)
    model = LowRankExemplars(cost=0.3, exemplar=4.0, rank=0.7, tie=1.5)
    w, low = draw.normal(size=positive.shape), draw.random((8, 8))
    value, slope = model.measure(w, positive, negative, low)
    assert value == pytest.approx(write_out(model, w, positive, negative, low), rel=1e-12)
    for i, k in ((0, 0), (3, 2), (7, 1)):
        step = np.zeros_like(w)
        step[i, k] = 1e-6
        ends = [write_out(model, w + sign * step, positive, negative, low) for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope[i, k], rel=1e-6, abs=1e-8)


def test_no_other_matrix_does_better_than_the_one_with_lower_singular_values():
    draw = np.random.default_rng(2)
    g = draw.random((6, 6))

    def score(f) -> float:
        return 0.7 * np.linalg.svd(f, compute_uv=False).sum() + 1.5 * ((f - g) ** 2).sum()

    best = lower_rank(g, 0.7 / (2 * 1.5))
    assert np.linalg.matrix_rank(best, tol=1e-9) < np.linalg.matrix_rank(g)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            assert score(best + size * draw.normal(size=g.shape)) > score(best)
    assert np.allclose(lower_rank(g, 0.0), g)


def test_every_round_lowers_the_objective(data):
    x, y = data

    def measure(rounds: int) -> float:
        model = LowRankExemplars(cost=0.3, rank=2.0, tie=4.0, rounds=rounds, scale=2.0, tolerance=1e-7).fit(x, y)
        entering, total = model._enter(x), 0.0
        for c, w in zip(model.classes_, model.weights_, strict=True):
            positive, negative = entering[y == c], entering[y != c]
            g = 1 / (1 + np.exp(-w @ positive.T))
            low = lower_rank(g, 2.0 / (2 * 4.0))
            total += write_out(model, w, positive, negative, low) + 2.0 * np.linalg.norm(low, "nuc")
        return total

    none, one, three = map(measure, (0, 1, 3))
    assert three <= one + 1e-6
    assert one < none - 1e-3


def test_without_the_low_rank_each_exemplar_is_a_logistic_regression_of_its_own(data):
    x, y = data
    model = LowRankExemplars(cost=0.3, exemplar=5.0, rounds=0, scale=2.0, tolerance=1e-9).fit(x, y)
    entering = model._enter(x)
    for c in model.classes_:
        negative = entering[y != c]
        for row, w in zip(entering[y == c], model.weights_[c], strict=True):
            alone = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-8, max_iter=1000)  # |w|^2 is twice |w|^2 / 2
            alone.fit(np.vstack([row, negative]), [1] + [0] * len(negative), [1.5] + [0.3] * len(negative))
            assert np.allclose(alone.coef_[0], w, atol=2e-3)


def test_a_row_gets_the_mean_of_the_largest_answers_of_each_class(data):
    x, y = data
    model = LowRankExemplars(cost=0.3, top=2, rounds=1).fit(x, y)
    new = np.random.default_rng(3).normal(size=(4, 3))
    shares = model.predict_proba(new)
    for row, share in zip(model._enter(new), shares, strict=True):
        p = [[1 / (1 + np.exp(-w @ row)) for w in weights] for weights in model.weights_]
        means = np.array([np.mean(sorted(of)[-2:]) for of in p])
        assert np.allclose(share, means / means.sum(), rtol=1e-10)
    assert np.array_equal(model.predict(new), shares.argmax(1))


def make_trial(**settings: str):
    (candidate,) = find_learner("lre-svm").propose(Draft("lre-svm", BENCHMARK.protocol, settings=settings))
    return TASK.make_trial("lre-svm", dict(candidate.settings), candidate.protocol, ("75",), 0)


def test_it_trains_on_a_benchmark_and_repeats_itself():
    learner, trial = find_learner("lre-svm"), make_trial(most_rows="100", rounds="1", width="0.4")
    first, second = (learner.train_one(trial, TASK)[1] for _ in range(2))
    assert first.status == DONE
    assert first.history == second.history
    assert np.mean(first.history[0].source["accuracy"]) > 0.45
    assert any("100 of 3,33" in note for note in first.notes)


def test_a_class_that_no_source_has_gets_no_probability(data):
    x, y = data
    settings = {**LowRankExemplarsLearner.settings, "most_rows": 20}
    p = LowRankExemplarsLearner().fit(x, np.where(y == 1, 4, y), y, 6, 0, **settings)(x)
    assert np.allclose(p.sum(1), 1)
    assert not p[:, [1, 3, 5]].any()


@pytest.mark.parametrize("width", [0.0, 0.4])
def test_what_it_keeps_answers_as_the_classifiers_do(data, width):
    x, y = data
    learner, settings = LowRankExemplarsLearner(), {**LowRankExemplarsLearner.settings, "width": width}
    predict = learner.fit(x, y, y, 3, 0, **settings)
    enter = FunctionTransformer()
    if width:
        distances = [np.linalg.norm(x[i] - x[j]) for i in range(24) for j in range(i)]
        gamma = 1 / (2 * (width * np.median(distances)) ** 2)
        enter = Nystroem(gamma=gamma, n_components=24, random_state=0)
    model = LowRankExemplars().fit(enter.fit_transform(x), y)
    new = np.random.default_rng(3).normal(size=(7, 3))
    assert np.allclose(predict(new), model.predict_proba(enter.transform(new)), atol=1e-7)
    assert np.array_equal(learner.unpack(learner.pack(predict))(new), predict(new))


def test_the_kernel_tells_apart_what_no_line_does():
    draw = np.random.default_rng(4)
    x = draw.normal(size=(80, 2))
    y = (np.sign(x[:, 0]) == np.sign(x[:, 1])).astype(int)
    settings = {**LowRankExemplarsLearner.settings, "rounds": 1, "top": 40}

    def score(width: float) -> float:
        predict = LowRankExemplarsLearner().fit(x[:60], y[:60], y[:60], 2, 0, **{**settings, "width": width})
        return float((predict(x[60:]).argmax(1) == y[60:]).mean())

    assert score(0.4) > 0.8 > score(0.0)


def test_too_many_rows_images_and_bad_settings_are_refused():
    learner = find_learner("lre-svm")
    with pytest.raises(UsageError, match=r"most_rows is 50000.* must be at most 10000"):
        learner.build_settings("lre-svm", most_rows=50000)
    images = SimpleNamespace(dataset=lambda: SimpleNamespace(is_image=True, shape=(3, 8, 8)), name="pacs")
    with pytest.raises(UsageError, match="lre-svm reads rows of numbers, and pacs holds images"):
        learner.check(make_trial(), images, None)
    with pytest.raises(UsageError, match="top is 0"):
        make_trial(top="0")
    learner.check(make_trial(), TASK, None)

"""DICA against its objective, its two limits, and what it refuses."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from digits import BENCHMARK, TASK
from seqdg.base import UsageError
from seqdg.bench import Draft, Packed, find_learner, list_learners
from seqdg.bench.learners.array_learner import choose_rows
from seqdg.bench.learners.kernel_methods import DICA, DICALearner, measure_variance
from seqdg.results import DONE

Floats = NDArray[np.float64]
EPS, RIDGE = 0.01, 1e-3


@pytest.fixture(scope="module")
def data() -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    draw = np.random.default_rng(0)
    y, domain = np.arange(36) % 3, np.repeat([0, 1, 2], [10, 12, 14])
    return draw.normal(size=(36, 4)) + 2 * np.eye(4)[y] + 1.5 * np.eye(4)[domain + 1], y, domain


def center(kernel: Floats) -> Floats:
    middle = np.eye(len(kernel)) - 1 / len(kernel)
    return middle @ kernel @ middle


def write_out(x, y, domain, gamma: float, weight: float = 1.0, labels: bool = True) -> tuple[Floats, Floats, Floats]:
    """K, and the matrices above and below the fraction, as the paper writes them."""
    n, names = len(x), sorted(set(domain))
    kernel, same, q = np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    rows = {d: int((domain == d).sum()) for d in names}
    for i in range(n):
        for j in range(n):
            kernel[i, j] = np.exp(-gamma * ((x[i] - x[j]) ** 2).sum())
            same[i, j] = y[i] == y[j]
            if domain[i] == domain[j]:
                q[i, j] = (len(names) - 1) / (len(names) ** 2 * rows[domain[i]] ** 2)
            else:
                q[i, j] = -1 / (len(names) ** 2 * rows[domain[i]] * rows[domain[j]])
    k, l = center(kernel), center(same)  # noqa: E741  the paper's name
    s = l @ np.linalg.inv(l + n * EPS * np.eye(n)) if labels else np.eye(n)
    return k, k @ s @ k / n, weight * k @ q @ k + k + RIDGE * np.eye(n)


def test_no_other_components_do_better_by_the_objective(data):
    dica = DICA(components=2, eps=EPS, ridge=RIDGE).fit(*data)
    kernel, above, below = write_out(*data, dica.gamma_)

    def score(b: Floats) -> float:
        return float(np.trace(np.linalg.solve(b.T @ below @ b, b.T @ above @ b)))

    def divide(b: Floats) -> float:
        return float(np.trace(b.T @ above @ b) / np.trace(b.T @ below @ b))

    best, draw = dica.vectors_, np.random.default_rng(1)
    assert score(best) == pytest.approx(dica.eigenvalues_.sum(), rel=1e-9)
    assert divide(best[:, :1]) == pytest.approx(dica.eigenvalues_[0], rel=1e-9)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            other = best + size * np.abs(best).mean() * draw.normal(size=best.shape)
            assert score(other) < score(best)
            assert divide(other[:, :1]) < divide(best[:, :1])
    step = 1e-6 * np.abs(best).mean() * draw.normal(size=best.shape)
    assert abs(score(best + step) - score(best - step)) < 1e-9 * score(best), "it is not stationary"
    assert np.allclose(dica.transform(data[0]), kernel @ best, atol=1e-10)


def test_the_domain_term_is_the_spread_of_the_domains_means(data):
    _, _, domain = data
    z = np.random.default_rng(2).normal(size=(len(domain), 5))
    means = np.stack([z[domain == d].mean(0) for d in range(3)])
    spread = ((means - means.mean(0)) ** 2).sum() / 3
    assert np.trace(z.T @ measure_variance(domain) @ z) == pytest.approx(spread, rel=1e-12)


def test_without_its_domain_term_it_is_coir(data):
    """Kim and Pavlovic: the eigenvectors of L (L + n eps I)^-1 K."""
    x, y, domain = data
    dica = DICA(components=2, weight=0.0, eps=EPS, ridge=1e-11).fit(x, y, domain)
    kernel, _, _ = write_out(x, y, domain, dica.gamma_)
    n = len(x)
    same = center((y[:, None] == y).astype(float))
    coir = same @ np.linalg.inv(same + n * EPS * np.eye(n)) @ kernel
    for value, vector in zip(dica.eigenvalues_, dica.vectors_.T, strict=True):
        assert np.allclose(kernel @ coir @ vector, n * value * kernel @ vector, atol=1e-6 * np.abs(vector).max())
    values = np.sort(np.linalg.eigvals(coir).real)[::-1][:2]
    assert np.allclose(values / n, dica.eigenvalues_, rtol=1e-6)


def test_without_domains_and_labels_it_is_kernel_pca(data):
    x, y, domain = data
    dica = DICA(components=4, weight=0.0, labels=False, ridge=1e-9).fit(x, y, domain)
    pca = KernelPCA(4, kernel="rbf", gamma=dica.gamma_).fit(x)
    new = np.random.default_rng(3).normal(size=(7, 4))
    for ours, theirs in zip(dica.transform(new).T, pca.transform(new).T, strict=True):
        assert abs(ours @ theirs) == pytest.approx(np.linalg.norm(ours) * np.linalg.norm(theirs), rel=1e-8)
    assert np.allclose(dica.eigenvalues_ * len(x), pca.eigenvalues_, rtol=1e-6)


def test_a_heavier_domain_term_brings_the_domains_together(data):
    x, y, domain = data

    def measure(weight: float) -> float:
        z = DICA(weight=weight).fit(x, y, domain).transform(x)
        return float(np.trace(z.T @ measure_variance(domain) @ z) / z.var(0).sum())

    light, usual, heavy = map(measure, (0.0, 10.0, 1000.0))
    assert heavy < usual < light
    assert heavy < 0.1 * light


def test_a_row_is_transformed_alone_as_among_others_and_in_float64(data):
    dica = DICA().fit(*data)
    together = dica.transform(data[0].astype(np.float32))
    assert together.dtype == np.float64
    assert np.allclose(dica.transform(data[0][5:6].astype(np.float32)), together[5:6], atol=1e-12)


def make_trial(held_out: tuple[str, ...] = ("75",), name: str = "dica", **settings: str):
    (candidate,) = find_learner(name).propose(Draft(name, BENCHMARK.protocol, settings=settings))
    return TASK.make_trial(name, dict(candidate.settings), candidate.protocol, held_out, 0)


def test_it_trains_on_a_benchmark_and_repeats_itself():
    assert "dica" in list_learners()
    learner, trial = find_learner("dica"), make_trial(most_rows="250")
    first, second = (learner.train_one(trial, TASK)[1] for _ in range(2))
    assert first.status == DONE
    assert first.history == second.history
    assert np.mean(first.history[0].source["accuracy"]) > 0.6
    assert any("250 of 3,33" in note for note in first.notes)


def test_a_class_that_no_source_has_gets_no_probability(data):
    x, y, domain = data
    settings = {**DICALearner.settings, "most_rows": 20}
    predict = DICALearner().fit(x, np.where(y == 1, 4, y), domain, 6, 0, **settings)
    p = predict(x)
    assert p.shape == (36, 6)
    assert np.allclose(p.sum(1), 1)
    assert not p[:, [1, 3, 5]].any()


@pytest.mark.parametrize("count", [2, 3])
def test_its_probabilities_are_those_of_a_logistic_regression_of_the_standardized_components(data, count):
    x, y, domain = data
    y = y % count
    settings = {**DICALearner.settings, "most_rows": 20, "components": 2}
    predict = DICALearner().fit(x, y, domain, count, 5, **settings)
    rows = choose_rows(y, domain, 20, seed=5)
    dica = DICA(components=2).fit(x[rows], y[rows], domain[rows])
    steps = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(dica.transform(x), y)
    new = np.random.default_rng(3).normal(size=(7, 4))
    assert np.allclose(predict(new), steps.predict_proba(dica.transform(new)), atol=1e-9)


def test_a_packed_model_holds_arrays_and_plain_values_and_predicts_the_same(data):
    learner = DICALearner()
    predict = learner.fit(*data, 3, 0, **DICALearner.settings)
    packed = learner.pack(predict)
    assert set(packed.arrays) == {"rows", "means", "weights", "intercepts", "labels"}
    again = learner.unpack(Packed(packed.arrays, json.loads(json.dumps(packed.values))))
    assert np.array_equal(again(data[0]), predict(data[0]))


def test_one_source_too_many_rows_images_and_bad_settings_are_refused():
    learner, net = find_learner("dica"), None
    domains = TASK.dataset().domains
    with pytest.raises(UsageError, match="dica needs at least 2 source domains to learn from, and there is 1"):
        learner.check(make_trial(held_out=domains[1:]), TASK, net)
    with pytest.raises(UsageError, match=r"most_rows is 50000.* must be at most 10000"):
        learner.build_settings("dica", most_rows=50000)
    images = SimpleNamespace(
        dataset=lambda: SimpleNamespace(is_image=True, shape=(3, 8, 8), domains=domains), name="pacs"
    )
    with pytest.raises(UsageError, match="dica reads rows of numbers, and pacs holds images"):
        learner.check(make_trial(), images, net)
    for setting in ("eps", "ridge", "width"):
        with pytest.raises(UsageError, match=f"{setting} is 0"):
            make_trial(**{setting: "0"})
    learner.check(make_trial(), TASK, net)


def test_rows_are_chosen_from_every_class_of_every_domain_by_the_seed():
    y, domain = np.repeat([0, 0, 1, 1], [60, 30, 29, 1]), np.repeat([0, 1, 0, 1], [60, 30, 29, 1])
    rows = choose_rows(y, domain, 40, seed=0)
    assert len(set(rows)) == 40
    assert 119 in rows, "the only row of its class in its domain"
    assert 18 <= (rows < 60).sum() <= 22
    assert np.array_equal(rows, choose_rows(y, domain, 40, seed=0))
    assert not np.array_equal(rows, choose_rows(y, domain, 40, seed=1))
    assert np.array_equal(choose_rows(y, domain, 120, seed=0), np.arange(120))

"""Learners of harmonized rows: ComBat as published, its limits, and rows of a domain that are predicted together."""

from __future__ import annotations

import json

import numpy as np
import pytest

from seqdg import DomainClassifier, DomainRegressor, UsageError, compare
from seqdg.bench import find_learner
from seqdg.bench.learners.harmonization import Harmonization, learn_harmonization
from seqdg.estimator import export_onnx


def shift(seed: int = 0, rows: int = 40, columns: int = 12):
    """Rows of three domains whose columns have a location and a scale of each domain's own."""
    draw = np.random.default_rng(seed)
    domain = np.repeat([0, 1, 2], [rows, rows // 2, 2 * rows])
    location, scale = draw.normal(0, 2, (3, columns)), draw.gamma(4, 0.25, (3, columns))
    return draw.normal(size=(len(domain), columns)) * scale[domain] + location[domain], domain


def transcribe_combat(x, domain, new):
    """ComBat without covariates, row by row and column by column, as the paper's equations stand; of a new domain."""
    columns = x.shape[1]
    alpha = [np.mean(x[:, g]) for g in range(columns)]
    sigma = []
    for g in range(columns):
        within = [x[i, g] - np.mean(x[domain == domain[i], g]) for i in range(len(x))]
        sigma.append(np.sqrt(sum(e**2 for e in within) / len(x)))
    z = np.array([[(row[g] - alpha[g]) / sigma[g] for g in range(columns)] for row in new])
    n = len(z)
    gamma_hat = [sum(z[:, g]) / n for g in range(columns)]
    delta_hat = [sum((z[:, g] - gamma_hat[g]) ** 2) / (n - 1) for g in range(columns)]
    gamma_bar, tau2 = np.mean(gamma_hat), np.var(gamma_hat, ddof=1)
    v, s2 = np.mean(delta_hat), np.var(delta_hat, ddof=1)
    lam, theta = (v**2 + 2 * s2) / s2, (v**3 + v * s2) / s2  # of the inverse gamma, by the method of moments
    out = np.empty_like(z)
    for g in range(columns):
        gamma, delta2 = gamma_hat[g], delta_hat[g]
        for _ in range(1000):
            gamma = (n * tau2 * gamma_hat[g] + delta2 * gamma_bar) / (n * tau2 + delta2)
            delta2 = (theta + sum((z[:, g] - gamma) ** 2) / 2) / (n / 2 + lam - 1)
        for i in range(n):
            out[i, g] = sigma[g] / np.sqrt(delta2) * (z[i, g] - gamma) + alpha[g]
    return out


def test_combat_is_the_published_one_for_domains_that_were_met_and_for_a_new_one():
    x, domain = shift()
    harmonize = learn_harmonization("combat", x, domain)
    for rows in (x[domain == 1], x[domain == 2], shift(5)[0][:25]):
        expected = transcribe_combat(x, domain, rows)
        assert np.allclose(harmonize(rows), expected, rtol=0, atol=1e-8)
        assert not np.allclose(rows, expected, atol=0.1)


def test_standardized_rows_of_a_domain_have_the_mean_and_deviation_of_the_sources():
    x, domain = shift()
    harmonize = learn_harmonization("standardize", x, domain)
    moved = harmonize(shift(5)[0][:25])
    assert np.allclose(moved.mean(0), x.mean(0))
    within = sum(((x[domain == d] - x[domain == d].mean(0)) ** 2).sum(0) for d in range(3)) / len(x)
    assert np.allclose(moved.std(0, ddof=1), np.sqrt(within))
    again = harmonize(moved)
    assert np.allclose(again, moved), "what is standardized stays"
    assert np.allclose(harmonize(3 * x[:9] - 7), harmonize(x[:9])), "no location and no scale of a domain is left"


@pytest.mark.parametrize("method", ["combat", "standardize"])
def test_rows_without_a_shift_stay_and_one_domain_alone_too(method):
    draw = np.random.default_rng(1)
    same, domain = draw.normal(size=(6000, 8)), np.repeat([0, 1, 2], 2000)
    harmonize = learn_harmonization(method, same, domain)
    moved = harmonize(same[domain == 1])
    off = np.abs(moved - same[domain == 1]).max()
    assert off < 0.4
    alone = learn_harmonization(method, same, np.zeros(6000))
    assert np.allclose(alone(same), same, atol=1e-3), "but for n and n - 1 in a variance"


def test_combat_moves_few_rows_less_than_their_own_moments_do():
    """No column is shifted: shrinkage knows by the others how little its mean and variance say."""
    draw = np.random.default_rng(2)
    same, domain = draw.normal(size=(600, 60)), np.arange(600) % 3
    few = draw.normal(size=(6, 60))
    moved = {m: learn_harmonization(m, same, domain)(few) for m in ("combat", "standardize")}
    assert np.abs(moved["combat"] - few).mean() < 0.5 * np.abs(moved["standardize"] - few).mean()


@pytest.mark.parametrize("method", ["combat", "standardize"])
def test_missing_values_constant_columns_categories_and_single_rows(method):
    x, domain = shift()
    x[:, 3] = domain  # constant within each domain
    x[:, 4] = np.arange(len(x)) % 2  # of two values, as a category is
    x[::7, 5] = np.nan
    x[:, 6] = np.nan
    harmonize = learn_harmonization(method, x, domain)
    assert harmonize.harmonized.tolist() == [True] * 3 + [False, False, True, False] + [True] * 5
    rows = x[domain == 0]
    moved = harmonize(rows)
    assert np.array_equal(np.isnan(moved), np.isnan(rows))
    assert np.array_equal(moved[:, [3, 4]], rows[:, [3, 4]])
    rest = [0, 1, 2, 5, 7, 8, 9, 10, 11]
    assert np.isfinite(moved[:, rest][~np.isnan(rows[:, rest])]).all()
    rows[:, 0] = 2.5  # constant in this domain alone
    assert np.isfinite(harmonize(rows)[:, 0]).all()
    assert np.array_equal(harmonize(rows[:1]), rows[:1], equal_nan=True)
    assert harmonize(rows[:0]).shape == (0, 12)
    single = learn_harmonization(method, x[:, :1], domain)
    assert isinstance(single, Harmonization)
    assert np.allclose(single(rows[:9, 1:2]).std(ddof=1), single.deviation), "one column has none to be shrunk to"


def make_sites(seed: int = 0):
    """Numbers whose location and scale are the scanner's; the class is in what is left."""
    draw = np.random.default_rng(seed)
    domain = np.repeat(["a", "b", "c", "d"], 60)
    scanner = {name: (draw.normal(0, 4, 5), draw.gamma(4, 0.25, 5)) for name in "abcd"}
    z = draw.normal(size=(240, 5))
    x = np.stack([row * scanner[d][1] + scanner[d][0] for row, d in zip(z, domain, strict=True)])
    return x, np.where(z[:, 0] + z[:, 1] > 0, "ill", "well"), domain, z[:, 0] * 3 + 10


def test_they_serve_a_domain_whose_scanner_nothing_was_known_of(tmp_path):
    x, y, domain, _ = make_sites()
    names = ["logistic", "logistic+standardize", "logistic+combat"]
    found = compare(x, y, domain, names, baseline=None, seeds=1, nested=False)
    board = {o.algorithm: [] for o in found.outcomes[found.select]}
    for o in found.outcomes[found.select]:
        board[o.algorithm].append(o.value)
    mean = {name: np.mean(values) for name, values in board.items()}
    assert mean["logistic+standardize"] > mean["logistic"] + 0.15
    assert mean["logistic+combat"] > mean["logistic"] + 0.15
    assert found.winner.algorithm != "logistic"
    board = found.leaderboard().set_index("candidate")["transductive"]
    assert board[names].to_list() == [False, True, True]
    assert board["weighted-ensemble"]
    said = "logistic+standardize, logistic+combat need the rows of an unseen domain together"
    assert any(note.startswith(said) for note in found.notes)
    text = (tmp_path / "m", found.estimator.save(tmp_path / "m"))[0] / "card.md"
    assert "It is transductive: it predicts all rows of one domain at once" in text.read_text()
    assert "are harmonized together, an unseen domain's by themselves (transductive)" in text.read_text()
    records = [o.record.description for o in found.outcomes[found.select]]
    assert {r["algorithm"]: r.get("together") for r in records} == {
        "logistic": None, "logistic+standardize": "all", "logistic+combat": "all",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["logistic+combat", "knn+standardize", "lightgbm+combat"])
def test_a_model_is_saved_loaded_and_predicts_rows_of_a_domain_together(name, tmp_path):
    if name.startswith("lightgbm"):
        pytest.importorskip("lightgbm")
    x, y, domain, _ = make_sites()
    model = DomainClassifier(name).fit(x, y, domains=domain)
    model.save(tmp_path / "model")
    loaded = DomainClassifier.load(tmp_path / "model")
    new = make_sites(1)[0][:60]
    assert np.array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert not np.allclose(model.predict_proba(new)[:9], model.predict_proba(new[:9])), "other rows, other moments"
    assert loaded.get_params()["algorithm"] == name
    with pytest.raises(UsageError, match=r"needs at least 2 of them, and there is 1: give more rows of this domain"):
        model.predict(new[:1])
    with pytest.raises(UsageError, match=r"predicts all rows of one domain at once .it is transductive"):
        export_onnx(model.model_, tmp_path / "m.onnx")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["algorithm"] == name


def test_numbers_are_predicted_too():
    x, _, domain, number = make_sites()
    new, _, other, truth = make_sites(1)
    plain, harmonized = (DomainRegressor(n).fit(x, number, domains=domain) for n in ("ridge", "ridge+combat"))
    error = {m: np.abs(m.predict(new[other == "a"]) - truth[other == "a"]).mean() for m in (plain, harmonized)}
    assert error[harmonized] < 0.5 * error[plain]


def test_names_that_harmonize_nothing_are_refused_in_a_sentence():
    for name, why in {
        "agg+combat": r"\+combat harmonizes rows for one learner that trains no neural .*; agg does",
        "logistic+ema+combat": r"after logistic only combat may follow",
        "logistic+ema": "logistic trains no net to wrap",
        "lgistic+combat": "There is no algorithm 'lgistic'",
    }.items():
        x, y, domain, _ = make_sites()
        with pytest.raises(UsageError, match=why):
            DomainClassifier(name).fit(x, y, domains=domain)
    assert find_learner("svc+combat").check_saving() is None
    assert find_learner("svc+combat").most_work == find_learner("svc").most_work

"""Probabilities corrected for the classes' shares in a new domain: as published, its limits, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from command import seqdg
from seqdg import DomainClassifier, DomainRegressor, UsageError
from seqdg.estimator.shifts import correct_label_shift


def transcribe(p, priors, rounds=3000):
    """Equations (2.5) and (2.6) of Saerens, Latinne and Decaestecker, row by row."""
    rows, classes = p.shape
    q = list(priors)
    for _ in range(rounds):
        after = [
            [
                q[c] / priors[c] * p[k, c] / sum(q[j] / priors[j] * p[k, j] for j in range(classes))
                for c in range(classes)
            ]
            for k in range(rows)
        ]
        q = [sum(after[k][c] for k in range(rows)) / rows for c in range(classes)]
    return np.array(after), np.array(q)


def draw_rows(shares, rows, seed=0):
    """Rows of classes that are normal about other means, and their true probabilities under shares that are equal."""
    draw = np.random.default_rng(seed)
    y = draw.choice(len(shares), rows, p=shares)
    x = draw.normal(size=rows) + 1.5 * y
    likelihood = np.exp(-0.5 * (x[:, None] - 1.5 * np.arange(len(shares))) ** 2)
    return x, y, likelihood / likelihood.sum(1, keepdims=True)


def test_it_is_the_published_one():
    _, _, p = draw_rows([0.6, 0.3, 0.1], 60)
    priors = np.array([0.2, 0.5, 0.3])
    p = p * priors / (p * priors).sum(1, keepdims=True)
    corrected, q = correct_label_shift(p, priors)
    after, shares = transcribe(p, priors)
    assert np.allclose(q, shares, rtol=0, atol=1e-7)
    assert np.allclose(corrected, after, rtol=0, atol=1e-6)


def test_without_a_shift_nothing_changes_and_with_one_the_shares_are_found():
    _, _, p = draw_rows([1 / 3] * 3, 500)
    mean = p.mean(0)
    corrected, q = correct_label_shift(p, mean)
    assert np.allclose(corrected, p, atol=1e-12), "the rows' shares are those of training"
    assert np.allclose(q, mean, atol=1e-12)
    _, y, p = draw_rows([0.8, 0.15, 0.05], 20_000)
    corrected, q = correct_label_shift(p, np.full(3, 1 / 3))
    assert np.allclose(q, [0.8, 0.15, 0.05], atol=0.02)
    assert (corrected.argmax(1) == y).mean() > (p.argmax(1) == y).mean() + 0.05


def test_a_class_that_was_never_met_stays_without_probability():
    p = np.array([[0.7, 0.3, 1e-12]] * 30)
    corrected, q = correct_label_shift(p, np.array([0.5, 0.5, 0.0]))
    assert np.isfinite(corrected).all()
    assert q[2] == 0
    assert np.allclose(corrected.sum(1), 1)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model of two classes that are equally frequent, and a new site where one in ten is ill."""
    draw = np.random.default_rng(0)
    ill = np.repeat([0, 1], 300)
    X = draw.normal(size=(600, 2)) + 1.5 * ill[:, None]
    model = DomainClassifier("logistic").fit(X, np.where(ill, "ill", "well"), domains=np.arange(600) % 3)
    truth = np.repeat(["well", "ill"], [450, 50])
    new = draw.normal(size=(500, 2)) + 1.5 * (truth == "ill")[:, None]
    path = tmp_path_factory.mktemp("shift")
    model.save(path / "model")
    return model, new, truth, path


def test_a_new_site_with_fewer_ill_is_served_better(fitted):
    model, new, truth, path = fitted
    assert model.model_.facts["priors"] == pytest.approx([0.5, 0.5], abs=0.01)
    p, shares = model.predict_label_shift(new)
    assert shares == pytest.approx([0.1, 0.9], abs=0.04)
    assert (model.classes_[p.argmax(1)] == truth).mean() > (model.predict(new) == truth).mean()
    assert DomainClassifier.load(path / "model").predict_label_shift(new)[1] == pytest.approx(shares)
    with pytest.raises(UsageError, match="give at least 20 at once, and not 5, or predict without"):
        model.predict_label_shift(new[:5])


def test_the_shares_of_training_are_those_that_the_model_has_met():
    draw = np.random.default_rng(1)
    domain = np.repeat([0, 1], [100, 900])
    y = np.r_[np.arange(100) % 2, (np.arange(900) % 10 == 0)].astype(int)  # half of the small one, a tenth of the large
    X = draw.normal(size=(1000, 2)) + y[:, None]
    steps = {"steps": 20, "members": 1, "device": "cpu"}

    def share(name, weight=None, **options):
        model = DomainClassifier(name, **options).fit(X, y, domains=domain, sample_weight=weight)
        return model.model_.facts["priors"][1]

    assert share("logistic") == pytest.approx(0.14, abs=0.01)
    assert share("logistic", settings={"balance": True}) == pytest.approx(0.3, abs=0.01)
    assert share("agg", **steps) == pytest.approx(0.3, abs=0.01), "minibatches of equal size from every domain"
    assert share("agg", class_weight="balanced", **steps) == pytest.approx(0.5, abs=0.01)
    assert share("logistic", weight=np.where(y, 6.0, 1.0)) == pytest.approx(6 * 0.14 / (6 * 0.14 + 0.86), abs=0.02)


def test_the_command_corrects_a_table_and_refuses_numbers(fitted):
    _, new, _, path = fitted
    np.savetxt(path / "new.csv", new, delimiter=",", header="a,b", comments="")
    np.savetxt(path / "few.csv", new[:5], delimiter=",", header="a,b", comments="")
    plain = seqdg("predict", path / "model", path / "new.csv", "--out", path / "plain.csv")
    shifted = seqdg("predict", path / "model", path / "new.csv", "--out", path / "shift.csv", "--label-shift")
    assert (plain.returncode, shifted.returncode) == (0, 0), shifted.stderr
    assert "Shares of the classes" not in plain.stderr
    assert "Shares of the classes, in training and estimated for this table: ill 50." in shifted.stderr
    p = np.loadtxt(path / "shift.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    assert p[:, 0].mean() == pytest.approx(0.1, abs=0.04)
    few = seqdg("predict", path / "model", path / "few.csv", "--out", path / "few-out.csv", "--label-shift")
    assert few.returncode == 2
    assert "give at least 20 at once, and not 5" in few.stderr
    assert not (path / "few-out.csv").exists()
    DomainRegressor("ridge").fit(new, new[:, 0] + 0.5, domains=np.arange(500) % 3).save(path / "numbers")
    refused = seqdg("predict", path / "numbers", path / "new.csv", "--out", path / "n.csv", "--label-shift")
    assert refused.returncode == 2
    assert "corrected in class probabilities, and this is a regression model" in refused.stderr

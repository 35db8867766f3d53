"""`DomainRegressor`: from a table to numbers, saved, loaded, exported."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import seqdg
from seqdg import DomainClassifier, DomainRegressor, UsageError
from seqdg.estimator import export_onnx, read_description, render_card
from seqdg.estimator.onnx_export import make_feed

QUICK = {"steps": 30, "hidden": (8,), "device": "cpu"}

# Minibatches are drawn at random: a weight is a repeated row on average, or where a step sees all rows.
EXEMPT = {f"check_sample_weight_equivalence_on_{kind}_data": "minibatches" for kind in ("dense", "sparse")}


@pytest.fixture(scope="module")
def pressures(hospitals):
    """A table, with the blood pressure to predict."""
    x, _, domains = hospitals
    return (
        x.drop(columns="pressure"),
        100 + 0.4 * x["age"].fillna(50.0).to_numpy() + 3 * x["visits"].to_numpy(),
        domains,
    )


@pytest.fixture(scope="module")
def regressor(pressures):
    x, y, domains = pressures
    return DomainRegressor("agg", **{**QUICK, "steps": 300}).fit(x, y, domains=domains)


@pytest.mark.slow
def test_scikit_learns_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DomainRegressor("agg", steps=40, hidden=(), lr=0.1, device="cpu")
        check_estimator(model, expected_failed_checks=EXEMPT, on_fail="raise", on_skip=None)


def test_predictions_are_in_the_units_of_the_target(regressor, pressures):
    x, y, _ = pressures
    said = regressor.predict(x)
    assert said.shape == y.shape
    assert regressor.score(x, y) > 0.9
    assert abs(said.mean() - y.mean()) < y.std() / 3
    assert set(regressor.validation_["east"]) == {"rmse", "mae", "r2", "pearson"}
    assert not hasattr(regressor, "classes_")
    assert not hasattr(regressor, "predict_proba")


def test_a_saved_model_predicts_the_same(regressor, pressures, tmp_path):
    x, _, _ = pressures
    regressor.save(tmp_path / "m")
    loaded = DomainRegressor.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(loaded.predict(x), regressor.predict(x))
    assert loaded.loss == "squared"
    card = render_card(read_description(tmp_path / "m"))
    assert "It predicts a number from" in card
    assert "| domain | rows | mean | deviation |" in card
    assert "The loss is squared" in card
    with pytest.raises(UsageError, match=r"predicts numbers: load it with DomainRegressor.load"):
        DomainClassifier.load(tmp_path / "m")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["agg", "ensemble"])
def test_an_onnx_file_gives_the_same_numbers(pressures, tmp_path, algorithm):
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX files are run by onnxruntime.")
    x, y, domains = pressures
    model = DomainRegressor(algorithm, **QUICK, members=2).fit(x, y, domains=domains)
    export_onnx(model.model_, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert [out.name for out in session.get_outputs()] == ["prediction"]
    said = session.run(None, make_feed(model.model_, x))[0]
    np.testing.assert_allclose(said, model.predict(x), rtol=1e-6)


def test_a_net_of_ones_own_gives_one_number_per_row(pressures, tmp_path):
    _, y, domains = pressures
    x = np.random.default_rng(0).standard_normal((len(y), 3, 2))
    good = nn.Sequential(nn.Flatten(), nn.Linear(6, 1))
    model = DomainRegressor("agg", net=good, **QUICK).fit(x, y, domains=domains)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(DomainRegressor.load(tmp_path / "m", net=good).predict(x), model.predict(x))
    with pytest.raises(UsageError, match=r"load it with DomainRegressor.load\(path, net"):
        DomainRegressor.load(tmp_path / "m")
    with pytest.raises(UsageError, match=r"The net gives \[2, 2\] for 2 rows, but it must give a tensor \[2, 1\]"):
        DomainRegressor(net=nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), **QUICK).fit(x, y, domains=domains)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"criterion": "accuracy"}, "accuracy is for classification, and this is regression: choose one of rmse, mae"),
        ({"loss": "hinge"}, "There is no loss 'hinge'"),
        ({"algorithm": "rsc"}, "RSC needs classes, and this is regression"),
        ({"algorithm": "logistic"}, "logistic is a classifier"),
    ],
)
def test_what_is_of_classes_is_refused_before_training(pressures, parameters, sentence):
    x, y, domains = pressures
    with pytest.raises(UsageError, match=sentence):
        DomainRegressor(**{**QUICK, **parameters}).fit(x, y, domains=domains)


def test_a_criterion_of_numbers_is_refused_for_classes(hospitals):
    x, y, domains = hospitals
    with pytest.raises(UsageError, match="rmse is for regression, and this is classification"):
        DomainClassifier(criterion="rmse", **QUICK).fit(x, y, domains=domains)


@pytest.mark.parametrize("name", ["ridge", "hist-gradient-boosting"])
def test_classic_learners_predict_numbers_too(pressures, tmp_path, name):
    x, y, domains = pressures
    model = DomainRegressor(name, device="cpu").fit(x, y, domains=domains)
    assert model.score(x, y) > 0.9
    pytest.importorskip("skops", reason="Models of scikit-learn are saved by skops.")
    model.save(tmp_path / "m")
    np.testing.assert_allclose(DomainRegressor.load(tmp_path / "m").predict(x), model.predict(x))


@pytest.mark.slow
def test_a_comparison_chooses_among_algorithms_by_rmse(pressures):
    x, y, domains = pressures
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = seqdg.compare(
            x,
            y,
            domains,
            ["agg", "ridge"],
            estimator=DomainRegressor(**QUICK),
            seeds=1,
            rules=("source-val",),
            ensemble=False,
        )
    assert found.criterion == "rmse"
    assert isinstance(found.estimator, DomainRegressor)
    assert found.winner.algorithm == "ridge"  # 30 steps are too few for the net
    assert found.expected == pytest.approx(np.mean([found.scores()["chosen"][d] for d in found.domains]))
    assert "on the next domain" in found.sentence


def test_a_comparison_of_numbers_with_fractions_is_one_of_regressors(pressures):
    x, y, domains = pressures
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = seqdg.compare(x, y, domains, ["ridge"], baseline=None, seeds=1, rules=("source-val",), refit=False)
    assert found.criterion == "rmse"


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-5, 1e-12])
def test_small_units_change_neither_the_model_nor_what_can_be_read(pressures, size, tmp_path):
    x, y, domains = pressures
    usual, small = (DomainRegressor("agg", **{**QUICK, "steps": 100}).fit(x, f * y, domains=domains) for f in (1, size))
    assert small.score(x, size * y) == pytest.approx(usual.score(x, y), abs=1e-6)
    found = seqdg.compare(x, size * y, domains, ["ridge"], estimator=DomainRegressor(**QUICK), seeds=1, baseline=None)
    assert found.expected is not None
    digits = f"{found.expected:.{2 - int(np.floor(np.log10(found.expected)))}f}"
    assert f"on the next domain: {digits}" in found.sentence
    scores = str(found).splitlines()[2].split()[2:]
    found.estimator.save(tmp_path / "m")
    card = (
        render_card(read_description(tmp_path / "m")).rpartition("| domain | Root mean squared error |")[2].splitlines()
    )
    errors = [line.split("|")[2] for line in card[2:] if line.startswith("|")]
    assert len(errors) == len(scores) == len(set(domains)) + 2  # the domains, their average and the worst
    assert all(float(e) > 0 for e in (*scores, *errors))


def test_domains_without_a_score_are_not_counted_in_the_expectation(pressures):
    x, y, domains = pressures
    constant = np.where(domains == sorted(set(domains))[0], y.mean(), y)
    found = seqdg.compare(
        x, constant, domains, ["ridge"], estimator=DomainRegressor(**QUICK), seeds=1, baseline=None, criterion="r2"
    )
    assert f"from {len(set(domains)) - 1} domains" in found.sentence

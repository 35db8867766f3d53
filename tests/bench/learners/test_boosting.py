"""LightGBM, XGBoost and CatBoost: the packages' own models, with missing values, saved in the packages' formats."""

from __future__ import annotations

import importlib.util
import pickle
import sys

import numpy as np
import pytest
import torch

from seqdg import DomainClassifier, DomainRegressor, UsageError, compare
from seqdg.bench import Packed, find_learner
from seqdg.bench.learners.boosting import TREES
from seqdg.data import learn_scaling
from seqdg.estimator import export_onnx

NAMES = ("lightgbm", "xgboost", "catboost")
FEW = {"rounds": 30}
missing = [name for name in NAMES if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


def make_rows(seed: int = 0, rows: int = 300):
    """Rows of three domains; where the third number is missing says which of two classes it is."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    x[(y == 1) & (draw.random(rows) < 0.5), 3] = np.nan
    return x, y + (x[:, 2] > 0.8), np.arange(rows) % 3


def fit(name: str, x, y, domain, classes: int, seed: int = 0, weight=None, **changes):
    learner = find_learner(name)
    return learner.fit(x, y, domain, classes, seed, weight=weight, **{**learner.settings, **FEW, **changes})


@pytest.mark.parametrize("name", NAMES)
def test_they_tell_classes_apart_and_predict_numbers(name):
    (x, y, domain), (new, truth, _) = make_rows(), make_rows(1)
    p = fit(name, x, y, domain, 4)(new)
    assert (p.argmax(1) == truth).mean() > 0.8
    assert np.allclose(p.sum(1), 1)
    assert np.array_equal(p[:, 3], np.zeros(300)), "no row is of the last class"
    assert np.allclose(fit(name, x, y, domain, 4)(new[5:6]), p[5:6], atol=1e-12)
    number = x[:, 0] + x[:, 1]
    said = fit(name, x, 1e12 * number + 1e13, domain, 0)(new)
    assert said.shape == (300,)
    assert np.corrcoef(said, new[:, 0] + new[:, 1])[0, 1] > 0.9
    assert abs(said.mean() - 1e13) < 1e12
    assert fit(name, x, y, domain, 4)(new[:0]).shape == (0, 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_seed_gives_the_same_bytes_and_these_the_same_predictions(name, classes):
    x, y, domain = make_rows()
    target = x[:, 0].astype(np.float64) if not classes else np.minimum(y, classes - 1)
    learner = find_learner(name)
    one, other = (fit(name, x, target, domain, classes) for _ in range(2))
    packed, again = learner.pack(one), learner.pack(other)
    assert packed.values == again.values
    assert packed.arrays[TREES].tobytes() == again.arrays[TREES].tobytes()
    new = make_rows(1)[0]
    assert np.array_equal(learner.unpack(packed)(new), one(new))


def test_they_are_those_of_the_packages_with_these_settings():
    import catboost
    import lightgbm
    import xgboost

    x, y, domain = make_rows()
    own = lightgbm.LGBMClassifier(n_estimators=30, n_jobs=1, verbosity=-1).fit(x.astype(np.float64), y)
    theirs = own.booster_.predict(x)
    assert np.allclose(fit("lightgbm", x, y, domain, 3)(x), theirs, atol=1e-6)
    boosted = xgboost.XGBClassifier(n_estimators=30, n_jobs=1).fit(x, y)
    assert np.allclose(fit("xgboost", x, y, domain, 3)(x), boosted.predict_proba(x), atol=1e-6)
    symmetric = catboost.CatBoostClassifier(
        iterations=30, learning_rate=0.1, random_seed=0, thread_count=1, allow_writing_files=False, silent=True
    ).fit(x, y)
    assert np.allclose(fit("catboost", x, y, domain, 3)(x), symmetric.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_value_reaches_them_as_one(name):
    (x, y, domain), new = make_rows(), make_rows(1)[0]
    alone = np.full_like(x, 0.0)
    alone[:, 3], fresh = np.where(np.isnan(x[:, 3]), np.nan, 0.0), np.full_like(new, 0.0)
    fresh[:, 3] = np.where(np.isnan(new[:, 3]), np.nan, 0.0)
    p = fit(name, alone, (y > 0).astype(np.int64), domain, 2)(fresh)
    assert p[np.isnan(fresh[:, 3]), 1].min() > 0.9, "only a row of the second class lacks the number"
    assert p[~np.isnan(fresh[:, 3]), 1].max() < 0.9
    model = DomainClassifier(name, settings=FEW).fit(x, y, domains=domain)
    assert np.isnan(model.model_.input.read(model._read_input(new))[0].numpy()).any()


def test_numbers_with_missing_values_are_scaled_alike_and_a_net_refuses_them():
    x = torch.tensor([[1.0, torch.nan], [3.0, torch.nan], [torch.nan, torch.nan], [2.0, torch.nan]])
    standard, with_missing = (learn_scaling(x, kind)(x) for kind in ("standard", "open"))
    assert torch.isnan(with_missing[2, 0])
    there = torch.tensor([0, 1, 3])
    assert torch.equal(with_missing[there], standard[there])
    assert torch.equal(with_missing[:, 1], torch.zeros(4).double()), "a column that is empty everywhere says nothing"
    rows, y, domain = make_rows()
    with pytest.raises(UsageError, match="There is no scaling 'open'"):
        DomainClassifier("agg", scaling="open").fit(rows, y, domains=domain)


@pytest.mark.parametrize("name", NAMES)
def test_rows_weigh_as_they_are_told_to(name):
    x, y, domain = make_rows()
    y = np.minimum(y, 1)
    heavy = np.where(y == 1, 20.0, 1.0)
    plain = fit(name, x, y, domain, 2, rounds=5)(x)[:, 1].mean()
    assert fit(name, x, y, domain, 2, weight=heavy, rounds=5)(x)[:, 1].mean() > plain + 0.05
    number = np.where(domain == 0, 1.0, 0.0)  # noise to the inputs: a domain's share is all there is to learn
    repeated = np.concatenate([np.arange(300), *[np.flatnonzero(domain == 0)] * 8])
    some = {"rounds": 3, "rate": 0.01}
    pooled = fit(name, x[repeated], number[repeated], domain[repeated], 0, **some)(x).mean()
    even = fit(name, x[repeated], number[repeated], domain[repeated], 0, balance=True, **some)(x).mean()
    assert pooled > 0.75
    assert abs(even - 1 / 3) < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_one_class_and_columns_that_say_nothing_are_no_error(name):
    x, _, domain = make_rows()
    alone = fit(name, x, np.full(300, 2), domain, 4)
    assert np.array_equal(alone(x), np.tile([0.0, 0, 1, 0], (300, 1)))
    learner = find_learner(name)
    assert np.array_equal(learner.unpack(learner.pack(alone))(x), alone(x))
    if name != "catboost":  # which refuses rows that are all alike, in its own words
        same = fit(name, np.zeros_like(x), np.arange(300) % 2, domain, 2)(x)
        assert np.allclose(same, 0.5, atol=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_a_table_is_saved_loaded_and_found_changed(name, tmp_path):
    pd = pytest.importorskip("pandas")
    x, y, domain = make_rows()
    table = pd.DataFrame(x, columns=list("abcd")).assign(kind=np.where(y > 0, "red", "green"))
    table.loc[::7, "kind"] = None
    number = 3 * x[:, 0].astype(np.float64)
    for model, target in ((DomainClassifier(name, settings=FEW), y), (DomainRegressor(name, settings=FEW), number)):
        model.fit(table, target, domains=domain)
        model.save(tmp_path / "model")
        loaded = type(model).load(tmp_path / "model")
        assert np.array_equal(loaded.predict(table), model.predict(table))
        assert {p.name for p in (tmp_path / "model").iterdir()} == {"model.json", "model.safetensors", "card.md"}
        with pytest.raises(UsageError, match=f"{name} trains no neural network, and only networks and"):
            export_onnx(model.model_, tmp_path / "model.onnx")
    weights = tmp_path / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UsageError, match="was changed after the model was saved"):
        DomainRegressor.load(tmp_path / "model")


def test_they_are_compared_by_name_and_class_weights_reach_them():
    x, y, domain = make_rows()
    settings = dict.fromkeys(NAMES, FEW)
    found = compare(x, np.minimum(y, 1), domain, list(NAMES), settings, baseline=None, seeds=1, nested=False)
    assert set(found.algorithms) == set(NAMES)
    assert found.estimator.predict(x).shape == (300,)
    heavy = DomainClassifier("lightgbm", settings=FEW, class_weight={0: 1.0, 1: 30.0, 2: 1.0})
    plain = DomainClassifier("lightgbm", settings=FEW).fit(x, y, domains=domain)
    assert heavy.fit(x, y, domains=domain).predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean()


def test_a_package_that_is_not_installed_is_named_before_anything_trains(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)  # as if it were not installed
    x, y, d = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2, np.arange(60) % 3
    said = r"^lightgbm is not installed: pip install 'seqdg\[boosting\]'\.$"
    with pytest.raises(UsageError, match=said):
        DomainClassifier("lightgbm").fit(x, y, domains=d)
    with pytest.raises(UsageError, match=said):
        compare(x, y, d, ["lightgbm"], baseline=None)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_model_of_the_package_is_refused_in_a_sentence(name):
    content = pickle.dumps({"trees": list(range(100))})
    packed = Packed({TREES: np.frombuffer(content, np.uint8), "labels": np.arange(2)}, {"classes": 2})
    with pytest.raises(UsageError, match=f"{name} cannot read the trees of the model \\("):
        find_learner(name).unpack(packed)

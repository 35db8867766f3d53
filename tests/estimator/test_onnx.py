"""The ONNX form gives what the model gives, preprocessing included, for any number of rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from torch import nn

import seqdg
from command import seqdg as command
from seqdg.estimator.onnx_export import describe_signature, export_onnx, make_feed
from seqdg.estimator.recipe import WeightedEnsemble, Winner
from toys import mark_all

onnxruntime = pytest.importorskip("onnxruntime")


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.slow
def test_numbers_far_from_0_that_differ_little_are_exported_in_double_precision(tmp_path):
    draw = np.random.default_rng(0)
    x, domains = draw.normal(size=(160, 2)), np.repeat(["a", "b", "c", "d"], 40)
    model = seqdg.DomainRegressor("agg", steps=30, members=1, device="cpu").fit(x, 1e4 + 3 * x[:, 0], domains=domains)
    assert export_onnx(model.model_, tmp_path / "m.onnx") <= 1e-9


@pytest.mark.slow
def test_a_table_with_missing_values_and_strange_words_gives_the_same_probabilities(fitted, hospitals, tmp_path):
    x, _, _ = hospitals
    gap = export_onnx(fitted.model_, tmp_path / "m.onnx")
    assert gap <= 1e-5
    odd = x.copy()
    odd.loc[3, "smoker"] = "sometimes"
    odd.loc[4, "taken"] = 1e300
    run = session(tmp_path / "m.onnx")
    with pytest.warns(UserWarning, match="sometimes"):
        own = fitted.predict_proba(odd)
    feed = make_feed(fitted.model_, odd)
    np.testing.assert_allclose(run.run(["probabilities"], feed)[0], own, atol=1e-5)
    # As a service would feed it, from the metadata alone.
    about = json.loads(run.get_modelmeta().custom_metadata_map["seqdg"])
    by_hand = {
        "numbers": odd[about["input"]["numeric"]].to_numpy(np.float64),
        "categories": odd[[name for name, _ in about["input"]["vocabulary"]]].fillna("").to_numpy(object),
    }
    np.testing.assert_allclose(run.run(["probabilities"], by_hand)[0], own, atol=1e-5)
    assert about["classes"] == ["healthy", "ill"]


@pytest.mark.slow
def test_dates_enter_as_their_parts(tmp_path):
    x = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=40, freq="50h"), "w": ["u", "v"] * 20})
    model = seqdg.DomainClassifier(steps=5, hidden=(8,)).fit(x, np.arange(40) % 2, domains=np.arange(40) // 20)
    export_onnx(model.model_, tmp_path / "m.onnx")
    feed = make_feed(model.model_, x)
    assert feed["numbers"][0].tolist() == [2020, 1, 1, 2, 0]
    found = session(tmp_path / "m.onnx").run(["probabilities"], feed)[0]
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)
    model.save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(x.astype({"when": str})), model.predict_proba(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    ["ensemble", "fo-s-mldg+mixup+ema", "undo-bias+sma", *mark_all(["agg", "undo-bias"], pytest.mark.soak)],
)
def test_a_matrix_of_numbers_under_any_algorithm(algorithm, tmp_path):
    draw = np.random.default_rng(2)
    x, y, domains = draw.standard_normal((60, 4)), np.arange(60) % 3, np.arange(60) // 20
    model = seqdg.DomainClassifier(algorithm, steps=5, hidden=(8,)).fit(x, y, domains=domains)
    export_onnx(model.model_, tmp_path / "m.onnx")
    found = session(tmp_path / "m.onnx").run(["probabilities"], {"numbers": x})[0]
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True])
def test_images_enter_as_bytes(frozen, tmp_path):
    draw = np.random.default_rng(3)
    x, y = draw.integers(0, 256, (24, 3, 12, 12), dtype=np.uint8), np.arange(24) % 2
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 2))
    own[:2].requires_grad_(not frozen)
    model = seqdg.DomainClassifier("fo-s-mldg", net=own, steps=4, batch=4).fit(x, y, domains=np.arange(24) // 12)
    export_onnx(model.model_, tmp_path / "m.onnx")
    found = session(tmp_path / "m.onnx").run(["probabilities"], {"images": x})[0]
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)


@pytest.mark.slow
def test_where_not_all_columns_are_named_it_is_said_where_they_are(fitted, tmp_path):
    assert "metadata" not in describe_signature(fitted.model_)
    draw = np.random.default_rng(0)
    wide = seqdg.DomainClassifier("agg", steps=2, hidden=(2,), device="cpu")
    wide.fit(draw.normal(size=(40, 9)), np.tile([0, 1], 20), domains=np.repeat(["a", "b"], 20))
    assert "and 1 more (all names, in order, are in its metadata, under seqdg)" in describe_signature(wide.model_)
    export_onnx(wide.model_, tmp_path / "m.onnx")
    about = session(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map["seqdg"]
    assert json.loads(about)["input"]["numeric"] == [f"x{i}" for i in range(9)]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["agg", "logistic"])
def test_numbers_that_stand_for_a_missing_value_do_so_in_the_file_too(algorithm, tmp_path):
    draw = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60, freq="h").strftime("%Y-%m-%d %H:%M")
    x = pd.DataFrame({"age": draw.normal(50, 9, 60), "marker": draw.normal(size=60), "day": days})
    x.loc[::5, "age"], x.loc[::7, "marker"] = -999, 0
    x.assign(site=list("abc") * 20, ill=np.where(x["marker"] > 0, "yes", "no")).to_csv(tmp_path / "t.csv", index=False)
    options = ["--label", "ill", "--domain", "site", "--na", "-999,0", "--algorithm", algorithm, "--no-estimate"]
    assert command("fit", tmp_path / "t.csv", *options, "--steps", 20, "--out", tmp_path / "m").returncode == 0
    model = seqdg.DomainClassifier.load(tmp_path / "m")
    export_onnx(model.model_, tmp_path / "m.onnx")
    hours = np.arange(60) % 24  # an hour of 0 is none, though a marker of 0 is a gap
    date = np.stack([np.full(60, 2024), np.ones(60), 1 + np.arange(60) // 24, np.arange(60) // 24, hours], axis=1)
    numbers = np.concatenate([x[["age", "marker"]].to_numpy(), date], axis=1)
    (found,) = session(tmp_path / "m.onnx").run(["probabilities"], {"numbers": numbers})
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [seqdg.DomainClassifier, seqdg.DomainRegressor])
def test_an_ensemble_is_one_graph_of_all_its_members(kind, hospitals, tmp_path):
    x, y, domains = hospitals
    linear = "logistic" if kind is seqdg.DomainClassifier else "ridge"
    names = (linear, "hist-gradient-boosting", "random-forest", "svc", "knn", "agg")
    weights, temperatures = (0.3, 0.2, 0.1, 0.1, 0.1, 0.2), (0.8, 2.0, 1.3, 1.0, 0.9, 1.1)
    members = tuple(Winner(*its) for its in zip(names, weights, temperatures, strict=True))
    target = y if kind is seqdg.DomainClassifier else 100 + 3 * (y == "ill") + x["visits"].to_numpy()
    model = kind(WeightedEnsemble(members), steps=20, members=2, device="cpu").fit(x, target, domains=domains)
    assert export_onnx(model.model_, tmp_path / "m.onnx") <= 1e-5
    own = model.predict_proba(x) if kind is seqdg.DomainClassifier else model.predict(x)
    told = session(tmp_path / "m.onnx").run(None, make_feed(model.model_, x))[-1]
    np.testing.assert_allclose(told, own, rtol=1e-5, atol=1e-5)


def test_an_ensemble_with_a_member_that_is_no_graph_is_refused_with_its_name(hospitals, tmp_path):
    pytest.importorskip("lightgbm")
    x, y, domains = hospitals
    members = (Winner("logistic", 0.5), Winner("lightgbm", 0.5, settings={"rounds": 3}))
    model = seqdg.DomainClassifier(WeightedEnsemble(members)).fit(x, y, domains=domains)
    with pytest.raises(seqdg.UsageError, match=r"one graph of all its members\. lightgbm trains no .*--single"):
        export_onnx(model.model_, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()

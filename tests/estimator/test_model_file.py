"""A model as a directory: what comes back is what was saved, and what was damaged is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn

import seqdg
from seqdg.base import UsageError
from seqdg.estimator import read_description, read_model


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_loaded_model_predicts_as_the_saved_one(fitted, hospitals, saved):
    x, _, _ = hospitals
    loaded = seqdg.DomainClassifier.load(saved)
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    np.testing.assert_array_equal(loaded.predict(x), fitted.predict(x))
    assert loaded.classes_.tolist() == ["healthy", "ill"]
    assert loaded.domains_.tolist() == ["east", "north", "south", "west"]
    assert loaded.feature_names_in_.tolist() == list(x.columns)
    assert loaded.get_params()["hidden"] == (16, 8)
    assert loaded.get_params()["settings"] == {"alpha": 0.1, "beta": 1.0}


def test_what_was_loaded_can_be_saved_again_and_fitted_again(fitted, hospitals, saved, tmp_path):
    x, y, domains = hospitals
    loaded = seqdg.DomainClassifier.load(saved)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()
    again = loaded.fit(x, y, domains=domains)
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


@pytest.mark.parametrize("labels", [[3, 7], [True, False], ["a", "b"], [0.0, 2.0]])
def test_labels_of_any_kind_come_back_as_they_were(labels, tmp_path):
    x = np.arange(20.0).reshape(10, 2)
    y = np.array([labels[i % 2] for i in range(10)])
    model = seqdg.DomainClassifier(steps=2, hidden=()).fit(x, y, domains=[0, 0, 1, 1, 2] * 2)
    model.save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m")
    assert loaded.predict(x).dtype == model.predict(x).dtype
    assert loaded.predict(x).tolist() == model.predict(x).tolist()


def test_nothing_in_the_directory_is_a_pickle(saved):
    assert sorted(p.name for p in saved.iterdir()) == ["card.md", "model.json", "model.safetensors"]
    for path in saved.iterdir():
        assert b"\x80\x04" not in path.read_bytes()[:2]
    json.loads((saved / "model.json").read_text())


def damaged(path, change):
    change(path)
    return path


def flip(path):
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (path / "model.safetensors").write_bytes(bytes(content))


def reword(path):
    text = (path / "model.json").read_text()
    (path / "model.json").write_text(text.replace('"healthy"', '"dead"'))


def change_schema(path):
    text = json.loads((path / "model.json").read_text())
    (path / "model.json").write_text(json.dumps({**text, "schema": 99}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: (p / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda p: (p / "model.json").unlink(), "has no model.json"),
        (lambda p: shutil.rmtree(p), "There is no model directory"),
        (lambda p: (p / "model.json").write_text((p / "model.json").read_text()[:-40]), "cannot be read"),
        (lambda p: (p / "model.json").write_text("[]"), "does not describe a model of seqdg"),
        (lambda p: (p / "model.safetensors").write_bytes(b"\0" * 9), "not a whole safetensors file"),
        (flip, "model.safetensors was changed after the model was saved"),
        (reword, "model.json was changed after the model was saved"),
        (change_schema, "was written by another version of seqdg"),
    ],
)
def test_a_model_that_is_cut_short_or_changed_or_of_another_version_is_refused(saved, change, sentence):
    change(saved)
    with pytest.raises(UsageError, match=sentence):
        read_model(saved)


def test_a_directory_that_holds_something_else_is_left_alone(fitted, tmp_path):
    (tmp_path / "precious.txt").write_text("keep")
    with pytest.raises(UsageError, match="holds no model"):
        fitted.save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "keep"
    with pytest.raises(UsageError, match="holds no model"):
        fitted.save(tmp_path / "precious.txt")


def test_a_model_is_replaced_by_a_newer_one(fitted, saved):
    fitted.save(saved)
    assert sorted(p.name for p in saved.parent.iterdir()) == ["model"]
    read_description(saved)


def test_a_net_of_one_s_own_is_needed_again_to_load(tmp_path):
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal((40, 3)), np.arange(40) % 2
    own = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model = seqdg.DomainClassifier("agg", net=own, steps=5).fit(x, y, domains=[0] * 40)
    model.save(tmp_path / "m")
    with pytest.raises(UsageError, match=r"a module of the user's own \(torch.nn.modules.container.Sequential\)"):
        seqdg.DomainClassifier.load(tmp_path / "m")
    fresh = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    loaded = seqdg.DomainClassifier.load(tmp_path / "m", net=fresh)
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    with pytest.raises(UsageError, match="not the one that the model was trained with"):
        seqdg.DomainClassifier.load(tmp_path / "m", net=nn.Linear(3, 2))
    deeper = nn.Sequential(*fresh, nn.ReLU(), nn.Linear(2, 2))
    with pytest.raises(UsageError, match="not the one that the model was trained with: its weights do not fit"):
        seqdg.DomainClassifier.load(tmp_path / "m", net=deeper)


def test_an_ensemble_that_predicts_in_its_own_way_loads_too(hospitals, tmp_path):
    x, y, domains = hospitals
    model = seqdg.DomainClassifier("ensemble", steps=10, hidden=(8,)).fit(x, y, domains=domains)
    model.save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))


def test_the_card_tells_what_the_model_was_trained_on(saved):
    card = (saved / "card.md").read_text()
    assert "| east |" in card
    assert (
        "Columns: age (numbers, 32 missing), pressure (numbers), taken (numbers), smoker (3 categories, 25 missing)"
        in card
    )
    assert "fo-s-mldg (alpha = 0.1, beta = 1.0)" in card
    assert "No estimate was made" in card
    assert torch.__version__ in card

"""`seqdg fit` and `predict` for regression."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import Done, seqdg

QUICK = ["--algorithm", "agg", "--steps", "150", "--hidden", "8", "--seeds", "1", "--no-estimate", "--device", "cpu"]


def make_flats(rows: int = 90, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    area, floor, town = draw.uniform(20, 120, rows), draw.integers(0, 9, rows), draw.integers(0, 3, rows)
    rent = np.round(200 + 9 * area + 5 * floor + 40 * town + draw.normal(0, 10, rows), 2)
    frame = pd.DataFrame({"area": area.round(1), "floor": floor, "town": np.array(["Ulm", "Bonn", "Jena"])[town]})
    return frame.assign(rent=rent, year=1900 + np.arange(rows))


def fit(frame: pd.DataFrame, folder: Path, *more: object, label: str = "rent") -> Done:
    frame.to_csv(folder / "t.csv", index=False)
    return seqdg("fit", folder / "t.csv", "--label", label, "--domain", "town", *QUICK, "--out", folder / "m", *more)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("flats")
    done = fit(make_flats(), folder)
    assert done.returncode == 0, done.stderr
    return folder / "m", done


def test_a_target_with_fractions_is_a_number_and_that_is_said(model):
    folder, done = model
    assert "note: 'rent' holds numbers with fractions, so this is regression; --task class" in done.stderr
    shown = seqdg("show", folder)
    assert "It predicts 'rent' from" in shown.stdout
    assert json.loads(seqdg("show", folder, "--json").stdout)["classes"]["values"] == []


def test_predictions_are_a_column_of_numbers_with_their_error(model, tmp_path):
    new = make_flats(30, seed=1)
    new.to_csv(tmp_path / "new.csv", index=False)
    done = seqdg("predict", model[0], tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--id", "town")
    assert done.returncode == 0, done.stderr
    said = pd.read_csv(tmp_path / "p.csv")
    assert list(said.columns) == ["town", "prediction"]
    error = said["prediction"] - new["rent"]
    rmse = np.sqrt((error**2).mean())
    r2 = 1 - (error**2).sum() / ((new["rent"] - new["rent"].mean()) ** 2).sum()
    assert f"On 30 rows with a number: RMSE {rmse:.4g}, MAE" in done.stdout
    assert f"R² {r2:.3f}" in done.stdout
    mean = make_flats()["rent"].mean()
    rmse = np.sqrt(((new["rent"] - mean) ** 2).mean())
    assert f"Always predicting {mean:.4g}, the mean in training: RMSE {rmse:.4g}" in done.stdout
    assert r2 > 0.8


def test_rows_without_a_number_are_predicted_and_left_out_of_the_error(model, tmp_path):
    new = make_flats(30, seed=1).astype({"rent": object})
    new.loc[0, "rent"], new.loc[1, "rent"] = None, "cheap"
    new.to_csv(tmp_path / "new.csv", index=False)
    done = seqdg("predict", model[0], tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    assert "On 28 rows with a number" in done.stdout
    assert "note: 1 row has text in place of a target (cheap)" in done.stderr
    assert len(pd.read_csv(tmp_path / "p.csv")) == 30


@pytest.mark.slow
def test_a_model_of_numbers_is_exported(model, tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX files are checked by onnxruntime.")
    done = seqdg("export", model[0], "--onnx", tmp_path / "m.onnx")
    assert done.returncode == 0, done.stderr
    assert "gives prediction (row,)" in done.stdout


def test_many_whole_numbers_are_asked_about_and_either_answer_is_followed(tmp_path):
    said = fit(make_flats(), tmp_path, label="year")
    assert said.returncode == 2
    assert "Column 'year' has 90 different whole numbers in 90 rows: say --task number" in said.stderr
    assert "or name another column with --label if it is an identifier of rows." in said.stderr
    twice = pd.concat([make_flats(), make_flats()])
    assert "or --task class if each names a class." in fit(twice, tmp_path, label="year").stderr
    done = fit(make_flats(), tmp_path, "--task", "number", label="year")
    assert done.returncode == 0, done.stderr
    assert "holds numbers with fractions" not in done.stderr
    assert json.loads((tmp_path / "m/model.json").read_text())["classes"]["values"] == []
    done = fit(make_flats(), tmp_path, "--task", "class", "--force", "--steps", "2", label="floor")
    assert done.returncode == 0, done.stderr
    assert len(json.loads((tmp_path / "m/model.json").read_text())["classes"]["values"]) == 9


def test_few_numbers_are_classes_unless_they_are_called_numbers(tmp_path):
    done = fit(make_flats(), tmp_path, "--task", "number", "--loss", "huber", "--steps", "5", label="floor")
    assert done.returncode == 0, done.stderr
    assert "The loss is huber" in seqdg("show", tmp_path / "m").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--class-weight", "balanced"], "--class-weight weighs classes, and this is regression"),
        (["--criterion", "accuracy"], "accuracy is for classification, and this is regression"),
        (["--loss", "hinge"], "There is no loss 'hinge'"),
        (["--label", "floor", "--loss", "huber"], "--loss huber is a loss of numbers"),
        (["--task", "sum"], "There is no task 'sum'. Choose from: class, number"),
    ],
)
def test_options_of_the_other_task_are_refused(tmp_path, words, sentence):
    done = fit(make_flats(), tmp_path, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_number_that_is_missing_or_a_word_is_refused(tmp_path):
    frame = make_flats().astype({"rent": object})
    frame.loc[3, "rent"] = None
    assert "Column 'rent' has no number in 1 row (line 5)" in fit(frame, tmp_path).stderr
    frame.loc[3, "rent"] = "unknown"
    said = fit(frame, tmp_path, "--task", "number").stderr
    assert "Column 'rent' does not hold numbers alone" in said


def test_regression_and_classification_are_the_tasks_too(tmp_path):
    make_flats().assign(rent=range(len(make_flats()))).to_csv(tmp_path / "t.csv", index=False)
    words = ["check", tmp_path / "t.csv", "--label", "rent", "--domain", "town", "--task"]
    assert "a regression target, from 0" in seqdg(*words, "regression").stdout
    assert "say --task number" not in seqdg(*words, "classification").stderr
    assert "There is no task 'regresion'. Choose from: class, number." in seqdg(*words, "regresion").stderr


def test_a_table_is_checked_with_where_its_numbers_lie(tmp_path):
    make_flats().to_csv(tmp_path / "t.csv", index=False)
    done = seqdg("check", tmp_path / "t.csv", "--label", "rent", "--domain", "town")
    assert done.returncode == 0, done.stderr
    assert "a regression target, from" in done.stdout
    assert "Jena: " in done.stdout

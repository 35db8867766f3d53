"""`--weight COLUMN`: how much each row counts, as the user gives it; and options of tables in every command of them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

QUICK = ("--algorithm", "logistic", "--seeds", 1, "--device", "cpu")
ROLES = ("--label", "y", "--domain", "site")


@pytest.fixture
def table(tmp_path):
    """Of ten rows, three say that the class is the sign of a column, and weigh more than the others, which deny it."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal(150)
    x += np.sign(x)
    trusted = np.arange(150) % 10 < 3
    frame = pd.DataFrame(
        {"number": [f"p{i}" for i in range(150)], "x": x.round(3).astype(object), "z": draw.integers(0, 3, 150)}
    )
    frame["trust"] = np.where(trusted, 30, 1)
    frame["y"] = np.where(np.where(trusted, x > 0, x < 0), "ill", "well")
    frame["site"] = np.repeat(["a", "b", "c"], 50)
    frame.loc[5::20, "x"] = "unread"
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.mark.slow
def test_every_command_of_tables_reads_them_as_fit_does_and_follows_the_heavy_rows(seqdg, table, tmp_path):
    more = ("--id", "number", "--types", "z=words", "--na", "unread", "--weight", "trust")
    done = seqdg("fit", table, *ROLES, *more, *QUICK, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "note: Rows count by their weights" in done.stderr
    facts = json.loads(seqdg("show", tmp_path / "m", "--json").stdout)
    assert facts["input"]["columns"] == ["x", "z"]
    assert facts["facts"]["weight"] == "trust"
    assert facts["facts"]["estimate"]["expected"] > 0.85  # 3 of 10 rows, but 90 of 97 parts of the weight
    measured = seqdg("importance", tmp_path / "m", table, "--repeats", 2, "--device", "cpu")
    assert measured.returncode == 0, measured.stderr
    assert "trust" not in measured.stdout
    assert float(measured.stdout.partition("trained on, ")[2].split()[0]) > 0.85
    curve = seqdg("learning-curve", table, *ROLES, *more, "--algorithm", "logistic", "--workers", 0, "--device", "cpu")
    assert curve.returncode == 0, curve.stderr
    assert float(curve.stdout.splitlines()[3].split()[2]) > 85
    checked = seqdg("check", table, *ROLES, *more[2:], "--ignore", "number")
    assert checked.returncode == 0, checked.stderr
    assert "trust" not in checked.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trust": -1}, "is empty or below 0 in 150 rows"),
        ({"trust": 0}, "'trust', is 0 in every row"),
        ({"trust": "much"}, "does not hold numbers alone, for example 'much'"),
        ({"trust": ""}, "'trust', "),
        ({"trust": [1] * 149 + [None]}, "is empty or below 0 in 1 row (line 151)"),
        ({"trust": [0] * 50 + [1] * 100}, "Every row of a has weight zero"),
    ],
)
def test_weights_that_cannot_be_are_refused_in_a_sentence(seqdg, table, tmp_path, change, words):
    pd.read_csv(table).assign(x=1.0, **change).to_csv(table, index=False)
    done = seqdg("fit", table, *ROLES, "--ignore", "number", "--weight", "trust", *QUICK, "--out", tmp_path / "m")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_column_has_one_part(seqdg, table, tmp_path):
    for more, words in (
        (("--weight", "y"), "'y' is the column of weights, and has another part too"),
        (("--weight", "trust", "--ignore", "trust"), "'trust' is the column of weights, and has another part too"),
        (("--weight", "Trust"), "t.csv has no column 'Trust'. Did you mean 'trust'?"),
        (("--weight", "trust", "--types", "trust=words"), "'trust' is given as --weight"),
    ):
        done = seqdg("fit", table, *ROLES, "--na", "unread", *more, *QUICK, "--out", tmp_path / "m")
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_the_score_of_predictions_is_weighted_as_that_of_the_card_is(seqdg, table, tmp_path):
    more = ("--id", "number", "--na", "unread", "--weight", "trust", "--no-estimate")
    assert seqdg("fit", table, *ROLES, *more, *QUICK, "--out", tmp_path / "m").returncode == 0
    frame = pd.read_csv(table)

    def predict(**change):
        frame.assign(**change).to_csv(tmp_path / "new.csv", index=False)
        done = seqdg("predict", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--force")
        assert done.returncode == 0, done.stderr
        return done

    said = predict()
    right = (pd.read_csv(tmp_path / "p.csv")["label"] == frame["y"]).to_numpy()
    assert right.mean() < 0.5, "most rows deny what the heavy ones say"
    first, second = said.stdout.splitlines()
    assert first == f"Accuracy on 150 labelled rows, weighted by 'trust': {scored(right, frame['trust']):.1f} %"
    constant = second.split("'")[1]
    always = scored((frame["y"].astype(str) == constant).to_numpy(), frame["trust"])
    assert second == f"Always predicting '{constant}', the majority class in training: {always:.1f} %"
    doubtful = frame["trust"].where(frame.index > 2, -1.0)
    said = predict(trust=doubtful)
    assert "note: 'trust' holds no weight of at least 0 in 3 rows: left out of the score." in said.stderr
    assert f"147 labelled rows, weighted by 'trust': {scored(right, doubtful.clip(0)):.1f} %\n" in said.stdout
    said = predict(trust=0)
    assert (said.stdout, "'trust' is 0 in every row with a label" in said.stderr) == ("", True)
    frame = frame.drop(columns="trust")
    said = predict()
    assert "new.csv has no column 'trust', by which rows counted in training: all count the same." in said.stderr
    assert said.stdout.startswith(f"Accuracy on 150 labelled rows: {100 * right.mean():.1f} %\n")
    frame = frame.drop(columns="y")
    assert "trust" not in predict().stderr, "without labels there is no score to weigh"


def test_errors_of_predicted_numbers_are_weighted_too(seqdg, table, tmp_path):
    frame = pd.read_csv(table).drop(columns=["number", "x", "y"]).assign(size=np.random.default_rng(1).normal(size=150))
    frame.to_csv(table, index=False)
    roles = ("--label", "size", "--domain", "site", "--weight", "trust")
    ridge = ("--algorithm", "ridge", "--no-estimate", "--device", "cpu")
    assert seqdg("fit", table, *roles, *ridge, "--out", tmp_path / "m").returncode == 0
    done = seqdg("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv")
    error = (pd.read_csv(tmp_path / "p.csv")["prediction"] - frame["size"]) ** 2
    rmse = np.sqrt(np.average(error, weights=frame["trust"]))
    assert done.stdout.startswith(f"On 150 rows with a number, weighted by 'trust': RMSE {rmse:.4g}, ")


def scored(right, weight):
    return 100 * np.average(right, weights=weight)

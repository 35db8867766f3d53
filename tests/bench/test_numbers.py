"""Benchmarks whose target is a number: files, tables, reports, packed runs."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from command import seqdg
from seqdg import Results, UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset

TOML = """
title = "Rents"
[data]
format = "table"
path = "rents.csv"
domain_column = "town"
label_column = "rent"
target = "number"
scale = true
[net]
name = "mlp"
hidden = [8]
[protocol]
trials = 2
steps = 60
batch = 8
evaluations = 3
optimizer = "adam"
lr = 0.03
algorithms = ["agg", "agg+ema", "ridge"]
"""


def write_rents(folder, gap=False):
    draw = np.random.default_rng(0)
    with (folder / "rents.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["area", "floor", "town", "rent"])
        for i in range(120):
            area, floor, town = draw.uniform(20, 120), draw.integers(0, 9), ("Ulm", "Bonn", "Jena")[i % 3]
            rent = 200 + 9 * area + 5 * floor + 30 * (i % 3) + draw.normal(0, 10)
            out.writerow([f"{area:.1f}", floor, town, "" if gap and i == 4 else f"{rent:.2f}"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rents")
    write_rents(folder)
    (folder / "rents.toml").write_text(TOML)
    words = [
        "bench",
        folder / "rents.toml",
        "--data",
        folder,
        "--out",
        folder / "run",
        "--device",
        "cpu",
        "--workers",
        0,
    ]
    done = seqdg(*words, "--save-predictions", "--save-weights")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_the_table_of_a_run_shows_the_rmse_lower_is_better(run):
    folder, printed = run
    assert "Root mean squared error" in printed
    results = Results.open(folder / "run")
    found = {(c.algorithm, c.held_out): c.mean for c in results.table().sheet.cells}
    assert found["ridge", "Ulm"] < found["agg", "Ulm"]
    frame = results.frame(select="source-val")
    assert frame["rmse"].between(1, 1000).all()
    assert "accuracy" not in frame
    for criterion, title in (("r2", "R²"), ("mae", "Mean absolute error"), ("pearson", "Pearson")):
        done = seqdg("table", folder / "run", "--criterion", criterion)
        assert title in done.stdout, done.stderr
    r2 = {(c.algorithm, c.held_out): c.mean for c in results.table(criterion="r2").sheet.cells}
    assert 0.9 < r2["ridge", "average"] <= 1
    tests = results.compare(baseline="ridge")
    assert "worse than ridge" in str(tests) or "not distinguishable" in str(tests)
    results.close()


def test_a_criterion_of_classes_is_refused_with_those_of_numbers(run):
    done = seqdg("table", run[0] / "run", "--criterion", "accuracy")
    assert done.returncode == 2
    assert "for regression, one of: rmse, mae, r2, pearson" in done.stderr


def test_a_report_and_a_packed_run_show_the_same(run, tmp_path):
    folder, _ = run
    done = seqdg("report", folder / "run")
    assert done.returncode == 0, done.stderr
    page = (folder / "run/report.html").read_text()
    assert "Root mean squared error" in page
    assert "Cost against error" in page
    done = seqdg("pack", folder / "run", "--out", tmp_path / "run.seqdg")
    assert done.returncode == 0, done.stderr
    again = seqdg("table", tmp_path / "run.seqdg")
    assert again.stdout.splitlines()[:6] == seqdg("table", folder / "run").stdout.splitlines()[:6]
    assert "Root mean squared error" in again.stdout


def test_trials_come_out_again(run):
    done = seqdg("rerun", run[0] / "run", "--data", run[0], "--benchmark", run[0] / "rents.toml", "--sample", 1)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_predictions_of_held_out_rows_are_numbers(run, tmp_path):
    done = seqdg("predictions", run[0] / "run", "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    known = [r for r in rows if r["algorithm"] == "ridge"]
    errors = [float(r["label"]) - float(r["predicted"]) for r in known if r["domain"] == "Ulm" and r["seed"] == "0"]
    results = Results.open(run[0] / "run")
    record = next(r for r in results.records() if (r.algorithm, r.held_out, r.seed) == ("ridge", ("Ulm",), 0))
    results.close()
    rmse = float(np.sqrt(np.mean(np.square(errors))))
    assert rmse == pytest.approx(record.history[-1].held_out["rmse"][0])


def test_an_ensemble_of_seeds_averages_numbers(run):
    words = ["soup", run[0] / "run", "--kind", "ensemble", "--algorithms", "agg", "--data", run[0], "--device", "cpu"]
    done = seqdg(*words, "--benchmark", run[0] / "rents.toml")
    assert done.returncode == 0, (done.stdout, done.stderr)
    results = Results.open(run[0] / "run")
    mixed = [r for r in results.records() if r.members]
    results.close()
    assert len(mixed) == 3
    assert all(0 < r.history[-1].held_out["rmse"][0] < 500 for r in mixed)


def test_algorithms_that_need_classes_are_refused_before_training(run):
    folder, _ = run
    words = ["bench", folder / "rents.toml", "--data", folder, "--out", folder / "other", "--device", "cpu"]
    for name, sentence in (("ccsa", "CCSA needs classes"), ("logistic", "logistic is a classifier")):
        done = seqdg(*words, "--algorithms", name)
        assert done.returncode == 2
        assert sentence in done.stderr
    done = seqdg(*words, "--algorithms", "agg", "--set", "agg.loss=hinge")
    assert done.returncode == 2
    assert "There is no loss 'hinge'" in done.stderr


def test_a_row_without_a_number_is_a_problem_or_left_out(tmp_path):
    write_rents(tmp_path, gap=True)
    table = {
        "format": "table",
        "path": "rents.csv",
        "domain_column": "town",
        "label_column": "rent",
        "target": "number",
    }
    check = check_dataset(DataSpec.from_table("rents", table), tmp_path)
    assert "The column 'rent' has 1 empty cell" in check.problems[0]
    data = load_dataset(DataSpec.from_table("rents", {**table, "drop_other_labels": True}), tmp_path)
    assert len(data.y) == 119
    assert data.is_regression
    assert (data.classes, data.outputs) == ((), 1)


def test_feature_files_hold_numbers_to_predict(tmp_path):
    draw = np.random.default_rng(1)
    arrays = {f"{d}_{k}": draw.standard_normal((20, 3) if k == "x" else 20) for d in "ab" for k in "xy"}
    np.savez(tmp_path / "f.npz", **arrays)
    table = {"format": "features", "path": "f.npz", "target": "number"}
    data = load_dataset(DataSpec.from_table("f", table), tmp_path)
    assert data.is_regression
    np.testing.assert_array_equal(data.y[data.rows("b")].numpy(), arrays["b_y"])
    check = check_dataset(DataSpec.from_table("f", table), tmp_path)
    assert "2 domains, a regression target, inputs 3" in check.format()
    arrays["a_y"][3] = np.nan
    np.savez(tmp_path / "f.npz", **arrays)
    problems = check_dataset(DataSpec.from_table("f", table), tmp_path).problems
    assert "a has no target in 1 row (from 0: 3)" in problems[0]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"target": "price"}, "There is no target 'price'"),
        ({"target": "number", "classes": ["a", "b"]}, "classes is of classes, and target = 'number' has none"),
        ({"target": "number", "cuts": [1.0]}, "cuts is of classes"),
        ({"target": "number", "format": "images"}, "regression works on tables and features"),
    ],
)
def test_what_a_number_has_not_is_refused(more, sentence):
    with pytest.raises(UsageError, match=sentence):
        DataSpec.from_table("x", more)


def test_the_stored_description_leaves_the_loss_out_while_it_is_the_usual_one(run):
    results = Results.open(run[0] / "run")
    assert all("loss" not in json.dumps(r.description["protocol"]) for r in results.records())
    results.close()

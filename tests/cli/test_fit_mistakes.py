"""What goes wrong between a table and its predictions is one sentence, before anything is trained or overwritten."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from command import seqdg
from seqdg.base import UsageError

BRIEF = ["--steps", "5", "--hidden", "4", "--trials", "1", "--workers", "0"]
QUICK = [*BRIEF, "--algorithms", "fo-s-mldg+ema", "--no-estimate"]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    draw = np.random.default_rng(0)
    ill = draw.integers(0, 2, 60)
    columns = {"age": draw.normal(50, 9, 60) + ill, "marker": draw.normal(size=60) + ill, "site": list("abc") * 20}
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    pd.DataFrame(columns).assign(ill=np.where(ill, "yes", "no")).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(table, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("models") / "model"
    done = seqdg("fit", table, "--label", "ill", "--domain", "site", *QUICK, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def refused(*words: object, cwd: Path | None = None) -> str:
    done = seqdg(*words, cwd=cwd)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("seqdg: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_predictions_do_not_overwrite_the_table_that_they_are_made_of(model, table, tmp_path):
    mine = tmp_path / "mine.csv"
    mine.write_bytes(table.read_bytes())
    (tmp_path / "link.csv").symlink_to(mine)
    for out in (mine, tmp_path / "link.csv"):
        assert "--out is the table to predict itself" in refused("predict", model, mine, "--out", out)
        assert mine.read_bytes() == table.read_bytes()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--single"], "--single keeps one of several candidates, and --algorithms names one: leave it out."),
        (["--trials", "-1"], "--trials is -1, but at least 1 is needed."),
        (["--seeds", "0"], "--trials is 0, but at least 1 is needed."),
        (["--search", "5"], "--search makes candidates to choose from: add --choose"),
        (["--select", "leave-one-out"], "--select says how to choose: add --choose"),
        (["--class-weight", "even"], "There is no class weight 'even'. Choose from: balanced"),
        (["--set", "fo-s-mldg.alfa=1"], "fo-s-mldg+ema has no setting 'alfa'. Did you mean 'alpha'?"),
        (["--set", "fo-s-mldg.lr=quick"], "lr of fo-s-mldg+ema is 'quick', but it must be a number"),
        (["--domain", "ill"], "'ill' is the column of labels and of domains"),
        (["--label", "marker", "--task", "price"], "There is no task 'price'. Choose from: class, number"),
    ],
)
def test_options_that_would_do_nothing_or_nonsense_are_refused(table, tmp_path, words, sentence):
    default = ["fit", table, "--label", "ill", "--domain", "site", *QUICK, "--out", tmp_path / "m"]
    assert sentence in refused(*default, *words)
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_learning_rate_can_be_set_as_in_a_comparison(table, tmp_path):
    words = ["fit", table, "--label", "ill", "--domain", "site", "--set", "fo-s-mldg.lr=0.5"]
    for extra in (QUICK, [*QUICK, "--estimate"], [*BRIEF, "--choose", "--single", "--algorithms", "fo-s-mldg"]):
        done = seqdg(*words, *extra, "--out", tmp_path / "m", "--force")
        assert done.returncode == 0, done.stderr
        chosen_agg = "trained by agg" in seqdg("show", tmp_path / "m").stdout
        assert chosen_agg or "learning rate 0.5," in seqdg("show", tmp_path / "m").stdout


def test_several_algorithms_are_compared_with_the_baseline_and_erm_is_another_name_of_it(table, tmp_path):
    words = ["fit", table, "--target", "ill", "--domain", "site", *BRIEF, "--out", tmp_path / "m"]
    done = seqdg(*words, "--candidates", "erm,logistic", "--set", "erm.lr=0.01")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].startswith("agg ") or lines[3].startswith("agg ")
    assert "erm" not in done.stdout + done.stderr


def test_where_the_model_cannot_be_written_is_said_before_it_is_trained(table, tmp_path):
    words = ["fit", table, "--label", "ill", "--domain", "site", *QUICK, "--out"]
    taken = tmp_path / "taken.txt"
    taken.write_text("mine")
    assert "is there already and holds no model" in refused(*words, taken)
    assert taken.read_text() == "mine"
    assert f"{taken} is a file" in " ".join(refused(*words, taken / "model").split())


def test_a_mistake_that_stops_the_fit_is_said_once(table, tmp_path):
    one = tmp_path / "one.csv"
    pd.read_csv(table).assign(ill="yes").to_csv(one, index=False)
    words = ["fit", one, "--label", "ill", "--domain", "site", *QUICK[:-1], "--out", tmp_path / "m"]
    assert "There is only one class, yes" in refused(*words)


def test_a_folder_without_the_layout_is_one_sentence(model, tmp_path):
    for name in ("flat/0.png", "north/ill/0.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    for folder in (tmp_path / "flat", tmp_path / "north", model):
        assert "expected <domain>/<class>/<picture>" in refused("fit", folder, "--net", "mlp", "--out", tmp_path / "m")


def test_a_picture_that_cannot_be_read_is_named_without_the_decoders_addresses(model, table, tmp_path):
    folder = tmp_path / "pictures"
    for domain in "ab":
        for label in ("x", "y"):
            (folder / domain / label).mkdir(parents=True)
            for i in range(4):
                Image.fromarray(np.full((8, 8, 3), 9 * i, np.uint8)).save(folder / domain / label / f"{i}.png")
    done = seqdg("fit", folder, "--net", "mlp", *QUICK, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "--label is for tables" in refused("fit", folder, "--label", "x", "--out", tmp_path / "other")
    (folder / "a/x/0.png").write_text("no picture")
    said = refused("predict", tmp_path / "m", folder, "--out", tmp_path / "p.csv")
    assert "'a/x/0.png' cannot be decoded as an image (cannot identify image file)." in said


def test_semicolons_between_columns_are_recognized_and_said(model, table, tmp_path):
    european = tmp_path / "european.csv"
    european.write_text(table.read_text().replace(",", ";").replace(".", ","))
    for path, out in ((table, "p.csv"), (european, "q.csv")):
        done = seqdg("predict", model, path, "--out", tmp_path / out)
        assert done.returncode == 0, done.stderr
    assert "note: european.csv has semicolons between its columns and has decimal commas." in done.stderr
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()


@pytest.mark.parametrize("command", ["fit", "learning-curve", "check"])
def test_an_identifier_as_label_is_refused_before_anything_is_trained(table, tmp_path, command):
    mine = tmp_path / "mine.csv"
    pd.read_csv(table).assign(patient=[f"P{i}" for i in range(60)]).to_csv(mine, index=False)
    out = [] if command == "check" else ["--out", tmp_path / "m"]
    said = refused(command, mine, "--label", "patient", "--domain", "site", *out)
    assert "Column 'patient' has 60 different labels in 60 rows, each of them in a single row" in said
    assert said.endswith("Is it an identifier of rows? Name another column with --label.\n")
    assert not (tmp_path / "m").exists()


def test_numbers_that_hardly_repeat_are_no_classes(table, tmp_path):
    mine = tmp_path / "mine.csv"
    pd.read_csv(table).assign(day=[*range(50), *range(10)]).to_csv(mine, index=False)
    words = ["fit", mine, "--label", "day", "--domain", "site", *QUICK, "--out", tmp_path / "m"]
    said = refused(*words, "--task", "class")
    assert "Column 'day' has 50 different labels in 60 rows, 40 of them in a single row" in said
    assert "or predict the number with --task number." in said
    assert seqdg(*words, "--task", "number").returncode == 0


def test_a_warning_of_a_library_is_one_note_without_a_path(table, monkeypatch):
    def read(*args, **kwargs):
        for _ in range(2):
            warnings.warn("The file is\n  old.", UserWarning, stacklevel=1)
        raise UsageError("Enough.")

    monkeypatch.setattr("seqdg.data.load.open_table", read)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = seqdg("check", table)
    assert done.stderr == "note: The file is old.\nseqdg: Enough.\n"

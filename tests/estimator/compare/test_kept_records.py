"""A comparison that is interrupted: what was trained is kept, and the same call goes on to the same bits."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import seqdg
from command import seqdg as command
from seqdg.base import UsageError, count_things
from seqdg.estimator.compare import remove_kept
from seqdg.estimator.compare.folds import identify
from seqdg.results import Store

ROOT = Path(seqdg.__file__).parents[1]


def compared(hospitals, runs=None, stop_after=None, says=None, **how):
    """Compare two algorithms; stop after so many groups."""
    finished = set()

    def on_progress(progress):
        finished.add(progress.trials_done)
        if stop_after is not None and len(finished) > stop_after:
            raise KeyboardInterrupt

    model = seqdg.DomainClassifier(steps=12, hidden=(4,), evaluations=2, device="cpu", **how.pop("model", {}))
    names = how.pop("names", ["agg", "coral"])
    said = [] if says is None else says
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return seqdg.compare(
            *hospitals,
            names,
            estimator=model,
            seeds=1,
            runs=runs,
            on_message=said.append,
            on_progress=on_progress,
            **{"ensemble": False, **how},
        )


def count_kept(directory):
    return len(Store.open(directory).finished())


def list_weights(found):
    return {name: p.tolist() for name, p in found.estimator.model_.params.items()}


def read_models(directory):
    """The weights of every member of an ensemble, by file."""
    models = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.safetensors")}
    assert models
    return models


@pytest.fixture(scope="module")
def whole(hospitals):
    return compared(hospitals)


def test_an_interrupted_comparison_goes_on_to_the_same_choice_and_bits(hospitals, whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        compared(hospitals, tmp_path, stop_after=1)
    kept = count_kept(tmp_path)
    assert kept > 0
    says = []
    found = compared(hospitals, tmp_path, says=says)
    assert says == [f"Going on from {count_things(kept, 'training')} that {tmp_path} holds."]
    assert kept < count_kept(tmp_path)
    assert str(found) == str(whole)
    assert list_weights(found) == list_weights(whole)
    trained = []
    again = compared(hospitals, tmp_path, says=trained)  # now nothing is left to train
    assert str(again) == str(whole)
    seconds = [list(c.leaderboard()["predict_seconds"])[:-1] for c in (found, again)]  # the last is the constant
    assert min(seconds[0]) > 0
    assert seconds[0] == seconds[1]


@pytest.mark.parametrize("change", ["rows", "labels", "options", "names", "code"])
def test_other_data_options_or_code_start_anew_with_a_word(hospitals, tmp_path, change, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        compared(hospitals, tmp_path, stop_after=1)
    x, y, domains = hospitals
    how = {"model": {"lr": 0.01}} if change == "options" else {"names": ["dann"]} if change == "names" else {}
    x = x.assign(age=x["age"] + 1e-3) if change == "rows" else x
    if change == "labels":
        y = y.copy()
        y[[0, 1]] = y[[1, 0]] if y[0] != y[1] else np.array(["healthy", "ill"])
    if change == "code":
        monkeypatch.setattr(
            "seqdg.estimator.compare.comparing.read_code", lambda name, learner: f"class {learner}: ..."
        )
    says = []
    with pytest.raises(KeyboardInterrupt):
        compared((x, y, domains), tmp_path, stop_after=1, says=says, **how)
    assert says == [f"What was trained in {tmp_path} was of other data, options or code: starting anew."]


@pytest.mark.parametrize("how_far", ["file", "tables"])
def test_one_that_is_killed_while_it_makes_its_store_goes_on_without_a_word(hospitals, whole, tmp_path, how_far):
    if how_far == "file":
        (tmp_path / "results.sqlite").touch()
    else:
        Store.create(tmp_path, "compare").close()
    says = []
    assert str(compared(hospitals, tmp_path, says=says)) == str(whole)
    assert not says


def test_a_run_of_a_benchmark_is_never_taken_for_a_comparison(hospitals, tmp_path):
    Store.create(tmp_path, "rotated-mnist").close()
    with pytest.raises(UsageError, match="holds a run of 'rotated-mnist'"):
        compared(hospitals, tmp_path)
    assert Store.open(tmp_path).benchmark == "rotated-mnist"


def test_two_comparisons_cannot_share_a_directory_at_once(hospitals, tmp_path):
    from seqdg.results import lock_directory

    with lock_directory(tmp_path), pytest.raises(UsageError, match="Another run is writing"):
        compared(hospitals, tmp_path)


def test_an_identity_notices_every_kind_of_change():
    a = torch.arange(6.0)
    net = torch.nn.Linear(2, 2)
    first = identify(a, net, {"lr": 0.1}, ("x", None))
    assert first == identify(a.clone(), net, {"lr": 0.1}, ("x", None))
    other = torch.nn.Linear(2, 2)
    for parts in (
        (a.reshape(2, 3), net, {"lr": 0.1}, ("x", None)),
        (a.double(), net, {"lr": 0.1}, ("x", None)),
        (a, other, {"lr": 0.1}, ("x", None)),
        (a, net, {"lr": 0.2}, ("x", None)),
        (a, net, {"lr": 0.1}, ("x", 0)),
    ):
        assert identify(*parts) != first


def test_removing_what_was_kept_leaves_other_files(tmp_path):
    remove_kept(tmp_path / "absent")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    (tmp_path / "runs" / "results.sqlite").write_text("")
    remove_kept(tmp_path / "runs")
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["notes.txt"]


INTERRUPTED = """
import os, signal
from seqdg.cli import main
from seqdg.estimator.compare.folds import KeptRecords

def add(kept, *words):
    keep(kept, *words)
    os.kill(os.getpid(), signal.SIGINT)  # from outside it might come when all is done

keep, KeptRecords.add = KeptRecords.add, add
main()
"""


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_trained_and_the_same_command_goes_on_to_the_same_bits(hospitals, tmp_path):
    x, y, domains = hospitals
    table = x.assign(ill=y, site=domains)
    table[table["site"] != "west"].to_csv(tmp_path / "table.csv", index=False)
    words = [
        "fit", "table.csv", "--label", "ill", "--domain", "site", "--choose", "--candidates", "agg,coral",
        "--steps", "20", "--hidden", "4", "--seeds", "1", "--workers", "0", "--device", "cpu", "--out",
    ]  # fmt: skip
    environment, partial = {**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path / "model.partial"
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words, "model"],
        cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, timeout=240, check=False,
    )  # fmt: skip
    err = process.stderr
    assert process.returncode == 130, err
    kept = count_kept(partial)
    assert kept > 0
    assert f"{count_things(kept, 'training')} stored in model.partial. To go on: seqdg fit table.csv" in err
    done = command(*words, "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Going on from" in done.stderr
    assert not partial.exists()
    assert command(*words, "other", cwd=tmp_path).returncode == 0
    assert read_models(tmp_path / "model") == read_models(tmp_path / "other")


def test_ctrl_c_while_the_model_is_written_says_how_to_go_on(hospitals, tmp_path, monkeypatch):
    def interrupt(*words):
        raise KeyboardInterrupt

    x, y, domains = hospitals
    x.assign(ill=y, site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["fit", "table.csv", "--label", "ill", "--domain", "site", "--algorithm", "agg", "--steps", 5, "--seeds", 1]
    words += ["--device", "cpu", "--out", "model"]
    with monkeypatch.context() as patch:
        patch.setattr(seqdg.DomainClassifier, "save", interrupt)
        stopped = command(*words, cwd=tmp_path)
    assert stopped.returncode == 130
    kept = count_things(count_kept(tmp_path / "model.partial"), "training")
    assert f"{kept} stored in model.partial. To go on: seqdg fit table.csv" in stopped.stderr
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Going on from {kept} that model.partial holds." in done.stderr


def test_runs_are_kept_where_the_user_says(hospitals, tmp_path):
    x, y, domains = hospitals
    x.assign(ill=y, site=domains).to_csv(tmp_path / "table.csv", index=False)
    words = ["fit", "table.csv", "--label", "ill", "--domain", "site", "--algorithm", "agg", "--steps", 5, "--seeds", 1]
    done = command(*words, "--device", "cpu", "--runs", "kept", "--out", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert count_kept(tmp_path / "kept") > 0
    assert not (tmp_path / "model.partial").exists()


@pytest.mark.ray
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: `pip install 'seqdg[ray]'` installs it."
)
def test_on_ray_the_model_is_the_one_that_this_process_makes(hospitals, tmp_path):
    x, y, domains = hospitals
    table = x.assign(ill=y, site=domains)
    table[table["site"] != "west"].to_csv(tmp_path / "table.csv", index=False)
    words = ["fit", "table.csv", "--label", "ill", "--domain", "site", "--choose", "--candidates", "agg,coral"]
    words += ["--steps", "20", "--seeds", "1", "--device", "cpu", "--out"]
    code, environment = "from seqdg.cli import main; main()", {**os.environ, "PYTHONPATH": str(ROOT)}
    on_ray = subprocess.run(
        [sys.executable, "-c", code, *words, "ray", "--executor", "ray", "--workers", "1"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert on_ray.returncode == 0, on_ray.stderr
    here = command(*words, "here", "--workers", 0, cwd=tmp_path)
    assert here.stdout == on_ray.stdout
    assert read_models(tmp_path / "ray") == read_models(tmp_path / "here")

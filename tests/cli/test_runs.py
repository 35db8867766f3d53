"""Runs that fail, meet one another, or meet what they cannot use; and what is told of them."""

from __future__ import annotations

import hashlib
import json

import pytest
from safetensors import safe_open

from command import Done
from seqdg.base import messages
from seqdg.bench import Progress, execution
from seqdg.bench.learners import stack_learner
from seqdg.cli.bench_commands import format_status
from seqdg.results import FILE, RunningGroup, Status, Store, lock_directory

QUICK = ["bench", "--algorithms", "agg", "--trials", "2", "--steps", "6", "--held-out", "0,75"]


def refused(done: Done, sentence: str) -> None:
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_a_failed_trial_is_counted_and_the_others_make_their_table(tmp_path, seqdg, mistaken):
    words = [*QUICK[:2], f"{mistaken},agg", *QUICK[3:], "--workers", 0, "--out", tmp_path / "run"]
    for _ in range(2):
        done = seqdg(*words)
        assert done.returncode == 1
        assert "4 trials failed (ArithmeticError: two and two is five)" in done.stderr
        assert "4 to run" in done.stderr or "8 to run" in done.stderr
        assert done.stdout.splitlines()[0].split() == ["held", "out", "agg"]
    told = seqdg("status", tmp_path / "run", "--errors").stdout
    assert "failed        4" in told
    assert "The last failure: ArithmeticError: two and two is five" in told
    assert told.count("Traceback (most recent call last)") == 4
    assert "does what is left" in told


def test_status_counts_and_speaks_to_programs(tmp_path, seqdg):
    run = tmp_path / "run"
    seqdg(*QUICK, "--out", run)
    assert "done          4" in seqdg("status", run).stdout
    found = json.loads(seqdg("status", run, "--json").stdout)
    assert found["planned"] == found["done"] == 4
    assert found["running"] == found["left"] == found["failed"] == found["diverged"] == 0
    assert found["active"] is False
    refused(seqdg("status", tmp_path / "elsewhere"), "There are no results in")
    refused(seqdg("status", tmp_path), f"Give a run in it: {run}.")


def test_status_says_how_far_a_single_trial_is_through_all_of_its_stages():
    group = RunningGroup("group", "metareg", trials=1, step=700, steps=1200)
    now = Status("digits", 1, 0, 0, 0, 1, 0, 1, True, None, (group,), "")
    told = format_status(now).splitlines()
    assert told[0] == "digits: 1 trial, running"
    assert told[6:] == [
        "  under way: 1 trial of metareg, step 700 of 1200",
        "  and 1 other trial: of earlier runs with other choices, or mixed by `seqdg soup`",
    ]


def test_the_plan_is_told_beforehand_with_its_time(tmp_path, seqdg, monkeypatch):
    monkeypatch.setattr(stack_learner, "_time_stage", lambda *words: 5.0)  # a step of all four trials
    told = seqdg(*QUICK, "--out", tmp_path).stderr
    assert "4 trials, 0 of them done; 4 to run in 1 group, about 30 s with 1 worker." in told


def test_a_second_run_on_a_directory_is_refused_while_the_first_goes_on(tmp_path, seqdg):
    with lock_directory(tmp_path):
        refused(seqdg(*QUICK, "--out", tmp_path), f"Another run is writing to {tmp_path}.")
    assert seqdg(*QUICK, "--out", tmp_path).returncode == 0


def test_a_directory_in_an_older_format_is_refused(tmp_path, seqdg):
    store = Store.create(tmp_path, "rotated-mnist")
    store.set_meta("schema", "1")
    store.close()
    for words in ([*QUICK, "--out", tmp_path], ["status", tmp_path], ["table", tmp_path]):
        refused(seqdg(*words), "was written in format 1, and this version of seqdg reads format")


@pytest.mark.filterwarnings("always:.*damaged:UserWarning")
def test_a_damaged_store_is_read_as_far_as_it_is_whole_and_bench_goes_on_from_there(tmp_path, seqdg):
    table = seqdg(*QUICK, "--out", tmp_path).stdout
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-4096:] = b"\xff" * 4096
    (tmp_path / FILE).write_bytes(data)
    for words in (["table", tmp_path], ["status", tmp_path]):
        done = seqdg(*words)
        assert done.returncode == 0
        assert f"note: {tmp_path / FILE} is damaged (" in done.stderr
    again = seqdg(*QUICK, "--out", tmp_path)
    assert again.returncode == 0
    assert f"note: {tmp_path / FILE} was damaged (" in again.stderr
    assert f"): it is now {FILE}.damaged-1, and " in again.stderr
    assert again.stdout == table
    assert "damaged" not in seqdg("table", tmp_path).stderr


def test_deployed_weights_are_kept_where_asked_for_and_hash_to_what_the_record_says(tmp_path, seqdg):
    assert seqdg(*QUICK, "--out", tmp_path).returncode == 0
    assert not (tmp_path / "weights").exists()
    told = seqdg(*QUICK[:2], "agg,fo-s-mldg", *QUICK[3:], "--save-weights", "--out", tmp_path).stderr
    assert "Of 4 trials that were done before, no weights were kept." in told
    records = [r for r in Store.open(tmp_path).records() if r.algorithm == "fo-s-mldg"]
    assert len(records) == len(list((tmp_path / "weights").iterdir())) == 4
    for record in records:
        digest = hashlib.sha256()
        with safe_open(tmp_path / "weights" / f"{record.key}.safetensors", "numpy") as file:
            assert json.loads(file.metadata()["description"]) == record.description
            for name in sorted(file.keys()):
                digest.update(name.encode())
                digest.update(file.get_tensor(name).tobytes())
        assert digest.hexdigest() == record.weights


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--workers", "-1"], "-1 workers were asked for."),
        (["--executor", "cloud"], "There is no executor 'cloud'."),
        (["--gpus-per-worker", "3"], "A worker was to have 3 GPUs, but a trial trains on one."),
        (["--device", "cpu", "--gpus-per-worker", "0.5"], "Part of a GPU was asked for, and the device is the CPU."),
        (["--address", "auto"], "--address is that of a Ray cluster."),
        (["--checkpoint", "-1"], "--checkpoint is -1 seconds."),
        (["--checkpoint", "nan"], "--checkpoint is nan seconds."),
    ],
)
def test_bad_choices_of_how_to_run_are_one_sentence(tmp_path, seqdg, words, sentence):
    refused(seqdg(*QUICK, *words, "--out", tmp_path), sentence)


def test_where_there_is_no_terminal_lines_say_how_far_the_run_is(tmp_path, seqdg, monkeypatch):
    monkeypatch.setattr(messages, "EVERY", 0.0)
    monkeypatch.setattr(messages, "SELDOM", 0.0)
    lines = seqdg(*QUICK, "--out", tmp_path).stderr.splitlines()
    assert "rotated-mnist: 100 %, 4 of 4 trials" in lines
    assert any(line.startswith("rotated-mnist: ") and "0 of 4 trials" in line for line in lines)


def test_when_all_is_done_no_time_is_left(monkeypatch, capsys):
    monkeypatch.setattr(messages, "EVERY", 0.0)
    monkeypatch.setattr(messages, "SELDOM", 0.0)
    progress = Progress((), {})
    progress.started -= 100
    with execution.show_progress("digits") as on_progress:
        on_progress(progress)
    assert capsys.readouterr().err == "digits: 100 %, 0 of 0 trials\n"

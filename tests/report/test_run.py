"""`seqdg.run`: a comparison from Python, which is that of the command line."""

from __future__ import annotations

import inspect
import json

import pytest
import typer.main

import seqdg
from command import seqdg as command
from seqdg.bench import run
from seqdg.cli import app

QUICK = {"held_out": ["0", "75"], "trials": 2, "steps": 12, "device": "cpu"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "mine"


@pytest.fixture(scope="module")
def results(directory):
    return seqdg.run("rotated-mnist", ["agg", "fo-s-mldg"], out=directory, progress=False, **QUICK)


def test_it_returns_what_was_asked_for(results):
    assert isinstance(results, seqdg.Results)
    assert [(r.algorithm, r.held_out, r.seed) for r in results.records()] == [
        (name, (domain,), seed) for name in ("agg", "fo-s-mldg") for domain in ("0", "75") for seed in (0, 1)
    ]
    assert not results.failures()
    assert len(results.frame(select="source-val")) == 8
    assert "fo-s-mldg" in str(results.table(baseline="agg"))
    assert "<table" in results._repr_html_()


def test_the_command_line_gives_the_same_table(results, directory, tmp_path):
    words = ["--algorithms", "agg,fo-s-mldg", "--held-out", "0,75", "--trials", 2, "--steps", 12, "--workers", 0]
    done = command("bench", *words, "--out", tmp_path)
    assert done.stdout == f"{results.table()}\n"
    again = command("bench", *words, "--out", directory)
    assert "8 trials, 8 of them done" in again.stderr
    assert again.stdout == done.stdout


def test_the_same_call_does_only_what_is_missing_and_shows_only_what_it_asks_for(results, directory, capsys):
    more = seqdg.run("rotated-mnist", ["agg"], out=directory, **{**QUICK, "trials": 3})
    assert "6 trials, 4 of them done; 2 to run" in capsys.readouterr().err
    assert [r.seed for r in more.records()] == [0, 1, 2] * 2
    assert len(seqdg.Results.open(directory).records()) == 10


def test_settings_are_given_by_name_or_as_text(tmp_path):
    how = {**QUICK, "held_out": ["0"], "trials": 1, "progress": False, "out": tmp_path}
    names = ["fo-s-mldg"]
    by_name = seqdg.run(
        "rotated-mnist", names, settings={"fo-s-mldg": {"alpha": [0.1, 0.2, 0.3, 0.4], "lr": 0.05}}, **how
    )
    as_text = seqdg.run(
        "rotated-mnist", names, settings=["fo-s-mldg.alpha=0.1,0.2,0.3,0.4", "fo-s-mldg.lr=0.05"], **how
    )
    assert [r.key for r in by_name.records()] == [r.key for r in as_text.records()]
    assert by_name.records()[0].description["settings"]["alpha"] == "0.1,0.2,0.3,0.4"
    commands = [c["command"] for c in json.loads(seqdg.Results.open(tmp_path)._source.meta("commands"))]
    assert commands == [
        "seqdg bench rotated-mnist --algorithms fo-s-mldg --held-out 0 --trials 1 --steps 12 "
        "--set fo-s-mldg.alpha=0.1,0.2,0.3,0.4 --set fo-s-mldg.lr=0.05"
    ]


def test_a_failed_trial_is_a_warning_that_says_where_to_look(tmp_path, mistaken):
    with pytest.warns(UserWarning, match=r"2 trials failed \(ArithmeticError: two and two is five\), of mistaken"):
        results = seqdg.run("rotated-mnist", [mistaken], out=tmp_path, progress=False, **{**QUICK, "trials": 1})
    assert len(results.failures()) == 2
    seqdg.run("rotated-mnist", ["agg"], out=tmp_path, progress=False, **{**QUICK, "trials": 1})
    assert repr(results).endswith("2 failed>")
    assert "2 failed" in results._repr_html_()


def test_a_bad_request_is_a_sentence_before_anything_runs(tmp_path):
    with pytest.raises(seqdg.UsageError, match="no selection rule 'best'"):
        seqdg.run("rotated-mnist", select="best", out=tmp_path)
    with pytest.raises(seqdg.UsageError, match="There is no benchmark 'rotated-mnits'"):
        seqdg.run("rotated-mnits", out=tmp_path)
    with pytest.raises(seqdg.UsageError, match=r"algorithms is 'agg', but it must be a list of names"):
        seqdg.run("rotated-mnist", "agg", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_option_of_the_command_is_an_argument():
    options = {option.name for option in typer.main.get_command(app).commands["bench"].params}
    assert options - {"dry_run"} <= set(inspect.signature(run).parameters)  # `--dry-run` runs nothing


def test_settings_that_name_no_algorithm_are_told_how_to(tmp_path):
    with pytest.raises(
        seqdg.UsageError, match=r"settings has 0\.1 for 'agg\.lr', but .*such as \{'agg': \{'lr': 0\.1\}\}"
    ):
        seqdg.run("rotated-mnist", ["agg"], settings={"agg.lr": 0.1}, out=tmp_path)

"""The command line as a whole: `seqdg --version`, as a module, options that are repeated."""

from __future__ import annotations

import runpy
import sys

import pytest
import typer.main

from command import seqdg
from seqdg.base import VERSION
from seqdg.cli import LISTS, app


def test_the_version_is_told_and_nothing_else():
    done = seqdg("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"seqdg {VERSION}\n", "")


def test_the_help_names_it():
    assert "--version" in seqdg("--help").stdout


def test_the_module_is_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["seqdg", "--version"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("seqdg", run_name="__main__")
    assert not stop.value.code
    assert capsys.readouterr().out == f"seqdg {VERSION}\n"


def test_the_name_of_the_program_alone_shows_the_commands():
    done = seqdg()
    said = done.stdout + done.stderr  # where, and with which exit code, is up to typer
    assert "Usage" in said
    assert "learning-curve" in said
    assert "Start with `seqdg fit`" in said
    assert said.index("check") < said.index("bench")  # your own data first


def test_a_list_that_is_given_twice_is_refused_as_the_first_one_would_be_lost(tmp_path):
    for words in (["--held-out", "0", "--held-out", "15"], ["--held-out=0", "--held-out=15"]):
        done = seqdg("bench", "--algorithms", "agg", *words, "--out", tmp_path / "run")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "seqdg: --held-out is given 2 times. Give it once, with commas: --held-out A,B.\n"


def test_every_option_that_takes_a_list_is_known_as_one():
    params = [param for command in typer.main.get_command(app).commands.values() for param in command.params]
    params = [p for p in params if "," in (p.metavar or "") and "|" not in p.metavar and not p.multiple]
    lists = {option for p in params for option in p.opts if option.startswith("--")}
    assert sorted(lists) == sorted(LISTS)

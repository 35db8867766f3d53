"""`seqdg --version`, and the command line as a module."""

from __future__ import annotations

import runpy
import sys

import pytest

from command import seqdg
from seqdg.base.version import VERSION


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
    assert "Start with `seqdg bench`" in said

"""The options of a command are made of its signature, and explained by docstrings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main

from command import seqdg
from seqdg.cli import app
from seqdg.cli.options import TableOptions, read_parameters, takes

COMMANDS: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_explained(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert parameter.help, f"{name} does not explain {parameter.name}"


def test_a_docstring_is_read_down_to_its_parameters() -> None:
    def command(file: Path, /, out: Path, quick: bool = False) -> None:
        """Do it.

        Parameters
        ----------
        file : FILE
            What to read,
            and from where.
        quick
            At once.
        """

    assert read_parameters(command) == (
        "Do it.\n",
        {"file": ("FILE", "What to read, and from where."), "quick": ("", "At once.")},
    )


def test_a_command_gets_its_arguments_by_position_and_its_options_in_their_groups() -> None:
    got: list[Any] = []

    def command(file: Path, /, table: TableOptions, seed: int = 0) -> None:
        """Note what came."""
        got.extend([file, table, seed])

    takes(command)(file=Path("t.csv"), seed=3, **vars(TableOptions(label="ill")))
    assert got == [Path("t.csv"), TableOptions(label="ill"), 3]


@pytest.mark.parametrize("option", ["--held-out", "--id", "--na"])
def test_a_list_that_is_given_twice_is_refused(option: str) -> None:
    done = seqdg("fit", "t.csv", option, "a", option, "b")
    assert done.returncode == 2
    assert done.stderr == f"seqdg: {option} is given 2 times. Give it once, with commas: {option} A,B.\n"

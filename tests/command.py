"""The command line, run in this process, as starting one takes longer than most commands."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main

from seqdg.cli import main

typer.main.get_command = functools.cache(typer.main.get_command)  # it takes longer to build than most commands to run


class Done(NamedTuple):
    """What a command left, by the names that `subprocess` has for it."""

    returncode: int
    stdout: str
    stderr: str


def seqdg(*words: object, cwd: Path | None = None) -> Done:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd or Path.cwd())
        patch.setattr(sys, "argv", ["seqdg", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
    return Done(int(stop.value.code or 0), out.buffer.getvalue().decode(), err.getvalue())

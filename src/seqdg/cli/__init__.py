"""The command line, its commands grouped by what they work on. Heavy packages are imported when a command runs."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from seqdg import base
from seqdg.cli.bench_commands import analyze, bench, merge, rerun, soup, status, study
from seqdg.cli.fit_commands import export, features, fit, importance, learning_curve, predict, show
from seqdg.cli.options import LISTS, takes
from seqdg.cli.results_commands import check, import_domainbed, list_names, pack, predictions, report, table
from seqdg.cli.terminal import print_warnings_as_notes

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Domain generalization by sequential learning: train on the domains you have, work on one you never saw.",
    epilog="Start with `seqdg bench`: it compares six algorithms on bundled data and prints the table.",
)
RUN_CODE = (bench, study, rerun, soup, analyze, check, features)  # which files that they read may name
for command in (
    bench, study, table, report, status, merge, pack, rerun, soup, predictions, analyze, import_domainbed, list_names,
    check, fit, features, predict, export, show, importance, learning_curve,
):  # in the order of the help  # fmt: skip
    app.command("list" if command is list_names else None)(takes(command, command in RUN_CODE))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seqdg {base.VERSION}")
        raise typer.Exit


@app.callback()
def _read_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


def complete_words(words: list[str]) -> list[str]:
    """Return the words of a command with the value of an option that may stand alone: `--save-weights last`."""
    complete: list[str] = []
    for word, after in zip(words, [*words, ""][1:], strict=True):
        lacks_value = word == "--save-weights" and after not in ("last", "chosen")
        complete += [word, "last"] if lacks_value else [word]
    return complete


def check_repeated(words: list[str]) -> None:
    """Raise a UsageError where an option that takes a list is given twice: the first list would be lost."""
    names = [word.partition("=")[0] for word in words]
    for option in sorted(LISTS):
        if names.count(option) > 1:
            times = names.count(option)
            raise base.UsageError(f"{option} is given {times} times. Give it once, with commas: {option} A,B.")


ROOM, FOLDER, FILES = "Make room", "Choose another folder", "Allow more of them (ulimit -n 1024)"
LIMITS = {errno.ENOSPC: ROOM, errno.EDQUOT: ROOM, errno.EROFS: FOLDER, errno.EMFILE: FILES, errno.ENFILE: FILES}


def main() -> None:
    """Run a command. Bad input, and what the machine refuses, give one sentence on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text, and not every locale has every sign
            stream.reconfigure(errors="backslashreplace")
    try:
        check_repeated(sys.argv[1:])
        with base.heed_interrupts_once(), print_warnings_as_notes():
            app(args=complete_words(sys.argv[1:]))
    except base.UsageError as error:
        _refuse(str(error))
    except UnicodeEncodeError as error:
        _refuse(f"{error.object[:80]!r} is not in UTF-8: rename the file or folder, or set LC_ALL=C.UTF-8.")
    except BaseException as error:  # where a writer does not say more; what is written in Rust panics
        name = getattr(error, "filename", None)
        if cause := next((number for number in LIMITS if os.strerror(number) in str(error)), None):
            where = f" ({name})" if name else ""
            _refuse(f"{os.strerror(cause)}{where}. {LIMITS[cause]}, and run the command again: what is stored stays.")
        if not isinstance(error, OSError) or error.errno is None:
            raise
        _refuse(
            f"{name or 'A file'} cannot be read or written: {error.strerror}. Check the path and your rights to it."
        )


def _refuse(sentence: str) -> NoReturn:
    print(f"seqdg: {base.make_printable(sentence)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # standard output is full: what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(2) from None

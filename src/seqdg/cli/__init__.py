"""The command line, its commands grouped by what they work on. Heavy packages are imported when a command runs."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from seqdg import base
from seqdg.cli.bench_commands import analyze, bench, rerun, soup, status, study
from seqdg.cli.fit_commands import export, fit, importance, learning_curve, predict, show
from seqdg.cli.options import LISTS, takes
from seqdg.cli.results_commands import check, import_domainbed, list_names, pack, predictions, report, table
from seqdg.cli.terminal import print_warnings_as_notes

CURE = "Check that the path is right, and that you may read and write there."
CURES = {  # by what the system says
    errno.ENOSPC: "Make room on the disk, or write to another one.",
    errno.EDQUOT: "Make room on the disk, or write to another one.",
    errno.EMFILE: "Raise the number of files that may be open, such as by `ulimit -n 1024`.",
    errno.ENFILE: "Close programs that keep files open.",
}
app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Domain generalization by sequential learning: train on the domains you have, work on one you never saw.",
    epilog="Start with `seqdg bench`: it compares six algorithms on bundled data and prints the table.",
)
for command in (
    bench, study, table, report, status, pack, rerun, soup, predictions, analyze, import_domainbed, list_names,
    check, fit, predict, export, show, importance, learning_curve,
):  # in the order of the help  # fmt: skip
    app.command("list" if command is list_names else None)(takes(command))


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


def main() -> None:
    """Run a command. Bad input gives one sentence on stderr and exit code 2, as does what the system refuses."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names that are no text, and ± where the locale knows only ASCII
            stream.reconfigure(errors="backslashreplace")
    try:
        check_repeated(sys.argv[1:])
        with base.heed_interrupts_once(), print_warnings_as_notes():
            app(args=complete_words(sys.argv[1:]))
    except base.UsageError as error:
        _end(str(error))
    except UnicodeEncodeError as error:
        _end(f"{error.object[:80]!r} is not in UTF-8: rename the file or folder, or set LC_ALL=C.UTF-8.")
    except OSError as error:
        if error.errno is None:
            raise
        _end(
            f"{error.filename or 'A file'} cannot be read or written: {error.strerror}. {CURES.get(error.errno, CURE)}"
        )


def _end(sentence: str) -> NoReturn:
    print(f"seqdg: {base.make_printable(sentence)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # standard output is full: what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(2) from None

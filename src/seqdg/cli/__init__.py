"""The command line, its commands grouped by what they work on. Heavy packages are imported when a command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from seqdg.cli.bench_commands import bench, rerun, soup, status, study
from seqdg.cli.fit_commands import fit, learning_curve
from seqdg.cli.list_commands import check, list_names
from seqdg.cli.model_commands import export, importance, predict, show
from seqdg.cli.results_commands import analyze, import_domainbed, pack, predictions, report, table
from seqdg.cli.salvage import salvage

LISTS = (  # options whose value is a list with commas
    "--algorithms", "--candidates", "--columns", "--criteria", "--domains", "--held-out", "--id", "--ignore", "--na",
    "--parts", "--types",
)  # fmt: skip
app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Domain generalization by sequential learning: train on the domains you have, work on one you never saw.",
    epilog="Start with `seqdg bench`: it compares six algorithms on bundled data and prints the table.",
)
for command in (
    bench, study, table, report, status, pack, rerun, salvage, soup, predictions, analyze, import_domainbed, list_names,
    check, fit, predict, export, show, importance, learning_curve,
):  # in the order of the help  # fmt: skip
    app.command("list" if command is list_names else None)(command)


def _show_version(wanted: bool) -> None:
    from seqdg.base import VERSION

    if wanted:
        typer.echo(f"seqdg {VERSION}")
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
    pairs = zip(words, [*words, ""][1:], strict=True)
    return [w for word, after in pairs for w in ([word, "last"] if _lacks_value(word, after) else [word])]


def _lacks_value(word: str, after: str) -> bool:
    return word == "--save-weights" and after not in ("last", "chosen")


def check_repeated(words: list[str]) -> None:
    """Raise a UsageError where an option that takes a list is given twice: the first list would be lost."""
    from seqdg.base import UsageError

    names = [word.partition("=")[0] for word in words]
    for option in LISTS:
        if names.count(option) > 1:
            raise UsageError(f"{option} is given {names.count(option)} times. Give it once, with commas: {option} A,B.")


def main() -> None:
    """Run a command. Bad input gives one sentence on stderr and exit code 2."""
    from seqdg.base import UsageError, heed_interrupts_once, make_printable
    from seqdg.cli.terminal import print_warnings_as_notes

    try:
        check_repeated(sys.argv[1:])
        with heed_interrupts_once(), print_warnings_as_notes():
            app(args=complete_words(sys.argv[1:]))
    except UsageError as error:
        print(f"seqdg: {make_printable(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None

"""The command line, its commands grouped by what they work on. Heavy packages are imported when a command runs."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from seqdg import base
from seqdg.cli.bench_commands import analyze, bench, merge, rerun, soup, status, study
from seqdg.cli.fit_commands import export, features, fit, importance, learning_curve, predict
from seqdg.cli.options import LISTS, NotANumber, takes, use_known_names
from seqdg.cli.results_commands import (
    check,
    fetch,
    import_domainbed,
    list_names,
    pack,
    predictions,
    read_catalog,
    report,
    show,
    table,
)
from seqdg.cli.terminal import print_warnings_as_notes

GROUPS: dict[str, dict[str, Callable[..., None]]] = {  # in the order of the help
    "Your own data": {
        "check": check, "fit": fit, "predict": predict, "show": show, "export": export, "importance": importance,
        "learning-curve": learning_curve, "features": features,
    },
    "Compare algorithms": {
        "bench": bench, "list": list_names, "data": fetch, "status": status, "merge": merge, "rerun": rerun,
        "soup": soup,
    },
    "Results": {
        "table": table, "report": report, "predictions": predictions, "pack": pack,
        "import-domainbed": import_domainbed,
    },
    "The paper": {"analyze": analyze, "study": study},
}  # fmt: skip
# Which files that they read may name.
RUN_CODE = (bench, study, rerun, soup, analyze, check, features, predict, export, importance, report)
MEANT = {  # what newcomers type for a command
    "train": "`seqdg fit` trains a model on your own data; `seqdg bench` compares algorithms on a benchmark.",
    "compare": "`seqdg bench` compares algorithms on a benchmark; `seqdg fit` compares them on your own data.",
    "run": "`seqdg bench` runs a benchmark; `seqdg fit` trains a model on your own data.",
    "test": "`seqdg predict` tests a model on a table with labels; `seqdg bench` tests algorithms.",
    "evaluate": "`seqdg predict` tests a model on a table with labels; `seqdg bench` tests algorithms.",
    "regression": "`seqdg fit --task number` predicts a number.",
    "download": "`seqdg data NAME` says what a known data set needs, and gets it where that is allowed.",
    "help": "`seqdg --help` lists the commands, and `seqdg COMMAND --help` explains one.",
    "version": "`seqdg --version` shows it.",
}
ClickError: Any = typer.BadParameter.__mro__[1]  # what click, or the copy of it that typer has, raises for bad words


class Command(typer.core.TyperCommand):
    """A command whose options have synonyms, and whose mistakes are one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # for the completion of the shell
            return super().parse_args(ctx, args)
        names = {name for parameter in self.params for name in parameter.opts}
        words = complete_words(use_known_names(args, names))
        check_repeated(words)
        try:
            return super().parse_args(ctx, words)
        except ClickError as error:
            raise base.UsageError(_explain(error, ctx.command_path, sorted(names))) from None


class Commands(typer.core.TyperGroup):
    """The commands, listed by what they work on."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                titles = [
                    (name.ljust(width), (self.commands[name].help or "").partition(".\n")[0]) for name in commands
                ]
                formatter.write_dl([(name, title.rstrip(".")) for name, title in titles])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_empty = not args
        try:
            return super().parse_args(ctx, args)
        except ClickError as error:
            if is_empty:  # which shows the help
                raise
            raise base.UsageError(_explain(error, "seqdg", ["--help", "--version"])) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            if args[0] in MEANT:
                raise base.UsageError(f"There is no command '{args[0]}'. {MEANT[args[0]]}")
            if args[0] in {entry["name"] for entry in read_catalog()["algorithms"]}:
                raise base.UsageError(
                    f"'{args[0]}' is an algorithm, not a command. `seqdg bench --algorithms {args[0]}` compares it on "
                    f"a benchmark, and `seqdg fit --algorithms {args[0]}` trains it on your own data."
                )
            raise base.unknown("command", args[0], list(self.commands))
        return super().resolve_command(ctx, args)


def _explain(error: Any, command: str, names: list[str]) -> str:
    """Say in a sentence what is wrong with the words of a command."""
    see = f"`{command} --help` lists its options."
    if isinstance(error, NotANumber):
        return error.message
    if hasattr(error, "possibilities"):  # an option that there is not
        near = base.find_similar(error.option_name, names)
        hint = f"Did you mean {near}? " if near is not None else ""
        return f"`{command}` has no option {error.option_name}. {hint}{see}"
    if hasattr(error, "param_type"):  # what is missing
        name = next((o for o in error.param.opts if o.startswith("--")), error.param.metavar)
        return f"`{command}` needs {name}: {error.param.help[0].lower()}{error.param.help[1:]}"
    return f"{error.format_message().rstrip('.')}. {see}"


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Domain generalization: train on the domains that you have, and work on one that you have never seen.",
    epilog="Start with `seqdg fit` on your own data, or with `seqdg bench`: it compares eight algorithms on bundled "
    "data and prints the table. "
    "`seqdg COMMAND -h` explains a command.",
)
for command_name, command in (pair for commands in GROUPS.values() for pair in commands.items()):
    app.command(command_name, cls=Command)(takes(command, command in RUN_CODE))


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
        with base.heed_interrupts_once(), print_warnings_as_notes():
            app(prog_name="seqdg")  # also where it is called as `python -m seqdg`
    except base.UsageError as error:
        _refuse(*error.lines)
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


def _refuse(*lines: str) -> NoReturn:
    print("seqdg:", "\n".join(map(base.make_printable, lines)), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # standard output is full: what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(2) from None

"""What people read: mistakes in the user's input, lists and counts as they read in a sentence, and how far a long
loop is."""

from __future__ import annotations

import difflib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

EVERY = 10.0  # seconds between plain lines of progress, at first
SELDOM = 0.05  # of the time so far lies between them later: a run of hours says less
MOST_NAMES, LONGEST_NAME = 100, 200  # that a sentence lists, and how much of each
# What others call an algorithm, or a recipe of several parts; it is recorded under ours. ERM++ (Teterwak et al., WACV
# 2025): a warm start of the head on the pretrained features, and the average of the weights.
OTHER_NAMES = {"erm": "agg", "erm++": "agg+lp+sma"}


class UsageError(ValueError):
    """A mistake in the input. The command line prints the message alone and exits with code 2.

    Examples
    --------
    >>> import seqdg
    >>> try:
    ...     seqdg.build("agg+emma")
    ... except seqdg.UsageError as error:
    ...     print(str(error).partition("?")[0])
    There is no wrapper 'emma'. Did you mean 'ema'
    """

    def __init__(self, sentence: str, items: Sequence[str] = ()) -> None:
        """items: a list below the sentence, one on each line."""
        super().__init__("\n".join((sentence, *(f"- {item}" for item in items))))
        self.lines = (sentence, *(f"- {item}" for item in items))


def unknown(kind: str, name: str, allowed: Iterable[str], owner: str = "") -> UsageError:
    """Return the error for a name that is not allowed: `There is no algorithm 'mlgd'. Did you mean 'mldg'? ...`

    owner: what has the names, at the start of a sentence: `agg has no setting 'rate'. Choose from: lr, steps.`
    """
    names = list(allowed)
    near = find_similar(name, names)
    start = f"{owner} has no {kind} '{name}'." if owner else f"There is no {kind} '{name}'."
    hint = f" Did you mean '{near}'?" if near is not None else ""
    return UsageError(f"{start}{hint} {f'Choose from: {list_some(names, MOST_NAMES)}' if names else 'It has none'}.")


@contextmanager
def refuse_broken(start: str, end: str = ".") -> Iterator[None]:
    """Raise a UsageError, `START (reason)END`, where the block raises anything: parsers of others have errors of their
    own for what no sound file holds."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{start} ({state_reason(error)}){end}") from error


def state_reason(error: BaseException) -> str:
    """Return the first line of what an error says, or its class where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def find_similar(name: str, names: Sequence[str]) -> str | None:
    """Find the name that was probably meant: first one that differs by case, blanks or signs alone, then the only one
    that has it as a part, as `macro_f1` has `f1`."""
    plain = _simplify(name)
    if (own := OTHER_NAMES.get(plain)) in names:
        return own
    for other in names:
        if plain and _simplify(other) == plain:
            return other
    parts = [other for other in names if plain in map(_simplify, re.split(r"[^A-Za-z0-9]", other))]
    if len(parts) == 1 and plain:
        return parts[0]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return near[0] if near else None


def _simplify(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def list_some(items: Iterable[object], most: int = 8) -> str:
    """`a, b, c and 5 more`"""
    names = [text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..." for text in map(str, items)]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def join_names(names: Sequence[str]) -> str:
    """`a, b and c`"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def list_numbers(numbers: Iterable[int]) -> str:
    """`0, 2 to 5, 7, 8`, of numbers in their order"""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def count_things(n: int, what: str) -> str:
    """`1 file`, `3 files`, `2 classes`"""
    return f"{n} {what}" if n == 1 else f"{n} {what}{'es' if what.endswith('s') else 's'}"


def align_columns(lines: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return each line with its columns padded: the first ones to the left, the others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(text.ljust(widths[i]) if i < left else text.rjust(widths[i]) for i, text in enumerate(line))
        for line in lines
    ]


def read_title(kind: type) -> str:
    """Return the first paragraph of a docstring, in one line."""
    return " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())


def make_printable(text: str) -> str:
    """One line without signs that a terminal would act on, whatever a user's file holds: `a\\nb` for a line break."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def format_duration(seconds: float) -> str:
    """`about 3 min`"""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {round(seconds / 3600)} h" if seconds < 48 * 3600 else f"about {round(seconds / 86400)} days"


@contextmanager
def show_share(label: str, quiet: bool = False) -> Iterator[Callable[[float, str, float | None], None]]:
    """Yield a function that shows how far work is: as a bar on a terminal, else as a line from time to time.

    It is called with the part that is done, from 0 to 1, a count such as `3 of 8 trials`, and the seconds left; None
    while they are unknown.
    """
    if quiet:
        yield lambda share, count, left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _print_lines(label)
        return
    count_and_left = TextColumn("{task.fields[count]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]}")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *count_and_left, console=console,
        transient=True, redirect_stdout=sys.stdout.isatty(), redirect_stderr=sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        task = bar.add_task(label, total=1.0, visible=False, count="", left="")
        yield lambda share, count, left: bar.update(
            task, completed=share, visible=True, count=count, left=_say_left(share, left)
        )


@contextmanager
def count_files(label: str, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is called with how many are done, of how many, and shows it."""
    began = time.monotonic()
    with show_share(label, quiet) as show:

        def count(done: int, total: int) -> None:
            if 0 < done < total:
                left = (time.monotonic() - began) * (total - done) / done
                show(done / total, f"{done} of {total}", left)

        yield count


def _print_lines(label: str) -> Callable[[float, str, float | None], None]:
    began = last = time.monotonic()

    def show(share: float, count: str, left: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= max(EVERY, SELDOM * (now - began)):
            last = now
            parts = [f"{100 * share:.0f} %", count, _say_left(share, left)]
            print(f"{label}: {', '.join(part for part in parts if part)}", file=sys.stderr, flush=True)

    return show


def _say_left(share: float, left: float | None) -> str:
    return "" if left is None or share >= 1 else f"{format_duration(left)} left"


def list_own(names: Mapping[str, Any]) -> list[str]:
    """Return the public functions and classes that a module defines, for its `__dir__`: what completion offers.

    names: its `globals()`.
    """
    module = names["__name__"]
    return [n for n, value in names.items() if not n.startswith("_") and getattr(value, "__module__", "") == module]

"""Lists and counts as they read in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def list_some(items: Iterable[object], most: int = 8) -> str:
    """`a, b, c and 5 more`"""
    names = [str(item) for item in items]
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
    """`1 file`, `3 files`"""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def make_printable(text: str) -> str:
    """One line without signs that a terminal would act on, whatever a user's file holds: `a\\nb` for a line break."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)

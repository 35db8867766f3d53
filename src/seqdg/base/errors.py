"""Mistakes in the user's input: one sentence that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from seqdg.base.phrases import list_some

MOST_NAMES = 100  # that a sentence lists


class UsageError(ValueError):
    """A mistake in the input. The command line prints the message alone and exits with code 2."""


def unknown(kind: str, name: str, allowed: Iterable[str], owner: str = "") -> UsageError:
    """Return the error for a name that is not allowed: `There is no algorithm 'mlgd'. Did you mean 'mldg'? ...`

    owner: what has the names, at the start of a sentence: `agg has no setting 'rate'. Choose from: lr, steps.`
    """
    names = list(allowed)
    near = find_similar(name, names)
    start = f"{owner} has no {kind} '{name}'." if owner else f"There is no {kind} '{name}'."
    hint = f" Did you mean '{near}'?" if near is not None else ""
    return UsageError(f"{start}{hint} {f'Choose from: {list_some(names, MOST_NAMES)}' if names else 'It has none'}.")


def find_similar(name: str, names: Sequence[str]) -> str | None:
    """Find the name that was probably meant: one that differs by case, blanks or signs alone comes first."""
    plain = _simplify(name)
    for other in names:
        if plain and _simplify(other) == plain:
            return other
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return near[0] if near else None


def _simplify(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())

"""What goes wrong because of what the user gave: one sentence that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A mistake in the input. The command line prints the message alone and exits with code 2."""


def unknown(kind: str, given: str, allowed: Iterable[str]) -> UsageError:
    """`There is no algorithm 'mlgd'. Did you mean 'mldg'? ...`"""
    names = list(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return UsageError(f"There is no {kind} '{given}'. {hint}Choose from: {', '.join(names)}.")

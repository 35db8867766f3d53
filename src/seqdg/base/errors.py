"""Mistakes in the user's input: one sentence that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A mistake in the input. The command line prints the message alone and exits with code 2."""


def unknown(kind: str, name: str, allowed: Iterable[str]) -> UsageError:
    """Return the error for a name that is not allowed: `There is no algorithm 'mlgd'. Did you mean 'mldg'? ...`"""
    names = list(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return UsageError(f"There is no {kind} '{name}'. {hint}Choose from: {', '.join(names)}.")

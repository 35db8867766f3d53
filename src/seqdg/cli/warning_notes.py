"""Warnings as a user of the command line reads them: one line each, without the place in the code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def print_warnings_as_notes() -> Iterator[None]:
    """Print every warning once, as `note: ...` on stderr; as Python does where -W or PYTHONWARNINGS asks for them."""
    from seqdg.base.phrases import make_printable

    if sys.warnoptions:
        yield
        return
    said = set()

    def print_note(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        note = make_printable(" ".join(str(message).split()))
        if note not in said:
            said.add(note)
            print(f"note: {note}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.showwarning = print_note
        yield

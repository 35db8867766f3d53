"""Warnings as a user of the command line reads them: one line each, without the place in the code."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

NUMBER = re.compile(r"(?<![\w.'+-])[-+]?\d[\w.,+-]*")  # by itself: not a name such as x1 or '1'


@contextmanager
def print_warnings_as_notes() -> Iterator[None]:
    """Print every warning once, as `note: ...` on stderr; as Python does where -W or PYTHONWARNINGS asks for them.

    Of those from one line of code whose texts differ in numbers alone, such as how far a solver was off, the first is
    printed: every fit of a comparison may give another.
    """
    from seqdg.base import make_printable

    if sys.warnoptions:
        yield
        return
    said: set[tuple[str | int, ...]] = set()

    def print_note(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        note = make_printable(" ".join(str(message).split()))
        known = {(note,), (filename, lineno, NUMBER.sub("#", note))}
        if not known & said:
            print(f"note: {note}", file=sys.stderr, flush=True)
        said.update(known)

    with warnings.catch_warnings():
        warnings.showwarning = print_note
        yield

"""What the command line prints on stderr: notes, warnings, what was decided, how to go on."""

from __future__ import annotations

import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from seqdg.bench import Progress
    from seqdg.data import LabeledRows

EARLY = 5.0  # seconds of training that tell about the whole
LITTLE = 0.005  # share of the work that does
SHORT = 20.0  # seconds that need no announcement
NUMBER = re.compile(r"(?<![\w.'+-])[-+]?\d[\w.,+-]*")  # by itself: not a name such as x1 or '1'


def quote_command() -> str:
    """Return the command as the user typed it, quoted for a shell."""
    return shlex.join(["seqdg", *sys.argv[1:]])


class Announcement:
    """Sentences that are said once, when training begins: a mistake in the input is then the only thing said."""

    def __init__(self, rows: LabeledRows, minutes: float | None = None) -> None:
        """minutes: how long it may take; what it tries is then known only as it goes on."""
        self.notes = _note_table(rows)
        self.sentences = [*rows.notes, *_describe(rows), *(f"note: {note}" for note in self.notes)]
        self.counted = self.timed = minutes is not None
        if minutes is not None:
            self.sentences.append(f"The most promising candidates are tried first, for {minutes:g} min in all.")
        self.first: tuple[float, float] | tuple[()] = ()  # when training was first seen to go on, and how far it was

    def say(self) -> None:
        """Say what was decided, if it was not said yet."""
        for sentence in self.sentences:
            print(sentence, file=sys.stderr, flush=True)
        self.sentences = []

    def add(self, sentence: str) -> None:
        """Say what is known only as the training goes on, after what was decided."""
        self.say()
        print(sentence, file=sys.stderr, flush=True)

    def wrap(self, show: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """Return a function that shows how far the training is, and first says how much there is to do."""

        def show_and_say(progress: Progress) -> None:
            self.say()
            if not self.counted:
                self.counted = True
                print(f"{progress.trials} trainings, each domain held out in turn.", file=sys.stderr, flush=True)
            self._estimate(progress)
            show(progress)

        return show_and_say

    def _estimate(self, progress: Progress) -> None:
        """Say once how long the rest will take, at the pace since the first steps: workers take a while to start."""
        from seqdg.results import format_duration

        now, share = time.time(), progress.share
        if (not self.first and share > 0) or (self.first and share < self.first[1]):  # or it is another round
            self.first = now, share
        if self.timed or not self.first or now - self.first[0] < EARLY or share - self.first[1] < LITTLE:
            return
        self.timed = True
        left = (now - self.first[0]) * (1 - share) / (share - self.first[1])
        if left > SHORT:
            print(f"This takes {format_duration(left)} more; Ctrl-C stops it.", file=sys.stderr, flush=True)


def note_task(rows: LabeledRows, task: str | None, label: str) -> None:
    """Say that a number is predicted, where the user did not ask for it."""
    if rows.is_regression and task is None:
        print(
            f"note: '{label}' holds numbers with fractions, so the number is predicted; --task class tells classes "
            "apart.",
            file=sys.stderr,
        )


def _note_table(rows: LabeledRows) -> list[str]:
    """Note labels that may be none, and columns that may be no features."""
    from seqdg.data import Frame, note_columns, note_gap_labels

    if not isinstance(rows.x, Frame):
        return []
    return [*note_gap_labels(rows.y), *note_columns(rows.x, rows.domains)]


def _describe(rows: LabeledRows) -> list[str]:
    import numpy as np

    from seqdg.base import count_things, list_some
    from seqdg.data import Frame, describe_columns, rank_word

    if not isinstance(rows.x, Frame) or rows.domains is None:
        return []  # folders name their classes and domains
    classes = np.unique(rows.y).tolist()
    sites = sorted({site for site in rows.domains.tolist() if site is not None}, key=rank_word)
    labels = "numbers" if rows.is_regression else f"{len(classes)} classes ({list_some(classes)})"
    return [
        f"{count_things(len(rows.y), 'row')}; labels: {labels}; domains: {len(sites)} ({list_some(sites)})",
        f"columns: {describe_columns(rows.x.types or ())}",
    ]


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

"""What the command line prints on stderr: notes, warnings, what was decided, how to go on."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from seqdg import base, bench, results
from seqdg import data as datasets

EARLY = 5.0  # seconds of training that tell about the whole
LITTLE = 0.005  # share of the work that does
SHORT = 20.0  # seconds that need no announcement
NUMBER = re.compile(r"(?<![\w.'+-])[-+]?\d[\w.,+-]*")  # by itself: not a name such as x1 or '1'


def quote_command() -> str:
    """Return the command as the user typed it, quoted for a shell: bytes that are no text as `\\udcff`."""
    return shlex.join(["seqdg", *sys.argv[1:]]).encode(errors="backslashreplace").decode()


def quote_path(path: Path) -> str:
    """Return a path, quoted for a shell where it must be."""
    return base.make_printable(shlex.quote(str(path)))


def say(sentence: str) -> None:
    """Print a sentence on stderr, at once."""
    print(sentence, file=sys.stderr, flush=True)


@contextmanager
def explain_interruption(directory: Path, what: str = "trial") -> Iterator[None]:
    """Say after Ctrl-C or SIGTERM how many trials a directory holds, and how to go on. what: what they are called."""
    try:
        yield
    except KeyboardInterrupt:
        stored = 0
        with suppress(base.UsageError):  # it may not have begun
            store = results.Store.open(directory)
            stored = len(store.finished())
            store.close()
        count = base.count_things(stored, what)
        what = f"{count} stored in {directory}. To go on: {quote_command()}"
        raise end_interrupted(what) from None


def end_interrupted(what: str = "") -> typer.Exit:
    """Say that the command was interrupted, and what it leaves. Return what ends it, with the exit code by which a
    shell names the signal."""
    number = base.find_interrupt()
    said = "interrupted" if number == signal.SIGINT else f"interrupted by {number.name}"
    say(f"seqdg: {said}; {what}" if what else f"seqdg: {said}.")
    return typer.Exit(128 + number)


class Announcement:
    """Sentences that are said once, when training begins: a mistake in the input is then the only thing said."""

    def __init__(self, rows: datasets.LabeledRows, minutes: float | None = None) -> None:
        """minutes: how long it may take; what it tries is then known only as it goes on."""
        sentences, self.notes = _describe(rows)
        self.sentences = [*rows.notes, *sentences, *(f"note: {note}" for note in self.notes)]
        self.counted = self.timed = minutes is not None
        if minutes is not None:
            self.sentences.append(f"The cheapest candidates are tried first, for {minutes:g} min in all.")
        self.first: tuple[float, float] | tuple[()] = ()  # when training was first seen to go on, and how far it was

    def say(self) -> None:
        """Say what was decided, if it was not said yet."""
        for sentence in self.sentences:
            say(sentence)
        self.sentences = []

    def add(self, sentence: str) -> None:
        """Say what is known only as the training goes on, after what was decided."""
        self.say()
        say(sentence)

    def wrap(self, on_progress: Callable[[bench.Progress], None]) -> Callable[[bench.Progress], None]:
        """Return a function that shows how far the training is, and first says how much there is to do."""

        def show_and_say(progress: bench.Progress) -> None:
            self.say()
            if not self.counted:
                self.counted = True
                say(f"{progress.trials} trainings, each domain held out in turn.")
            self._estimate(progress)
            on_progress(progress)

        return show_and_say

    def _estimate(self, progress: bench.Progress) -> None:
        """Say once how long the rest will take, at the pace since the first steps: workers take a while to start."""
        now, share = time.time(), progress.share
        if (not self.first and share > 0) or (self.first and share < self.first[1]):  # or it is another round
            self.first = now, share
        if self.timed or not self.first or now - self.first[0] < EARLY or share - self.first[1] < LITTLE:
            return
        self.timed = True
        left = (now - self.first[0]) * (1 - share) / (share - self.first[1])
        if left > SHORT:
            say(f"This takes {base.format_duration(left)} more; Ctrl-C stops it.")


def note_task(rows: datasets.LabeledRows, task: str | None, label: str) -> None:
    """Say that this is regression, where the user did not ask for it."""
    if rows.is_regression and task is None:
        say(
            f"note: '{label}' holds numbers with fractions, so this is regression; --task class predicts classes "
            "instead."
        )


def _describe(rows: datasets.LabeledRows) -> tuple[list[str], list[str]]:
    """Say of a table how many rows, labels and domains it has, and what its columns hold; folders say so themselves.

    Return also notes on labels that may be missing values, and on columns that may be no features.
    """
    if not isinstance(rows.x, datasets.Frame):
        return [], []
    notes = [*datasets.note_missing_labels(rows.y), *datasets.note_columns(rows.x, rows.domains)]
    classes = sorted(set(rows.y.tolist()))
    domains = sorted(set(rows.domains.tolist()), key=datasets.rank_word)
    labels = "numbers" if rows.is_regression else f"{len(classes)} classes ({base.list_some(classes)})"
    count = base.count_things(len(rows.y), "row")
    return [
        f"{count}; labels: {labels}; domains: {len(domains)} ({base.list_some(domains)})",
        f"columns: {datasets.describe_columns(rows.x.types or ())}",
    ], notes


@contextmanager
def print_warnings_as_notes() -> Iterator[None]:
    """Print every warning once, as `note: ...` on stderr; as Python does where -W or PYTHONWARNINGS asks for them.

    Of those from one line of code whose texts differ in numbers alone, such as how far a solver was off, the first is
    printed: every fit of a comparison may give another.
    """
    if sys.warnoptions:
        yield
        return
    said: set[tuple[str | int, ...]] = set()

    def print_note(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        note = base.make_printable(" ".join(str(message).split()))
        known = {(note,), (filename, lineno, NUMBER.sub("#", note))}
        if not known & said:
            say(f"note: {note}")
        said.update(known)

    with warnings.catch_warnings():
        warnings.showwarning = print_note
        yield

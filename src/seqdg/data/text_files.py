"""Guess how a table of text is written: its encoding, what separates its columns, a decimal comma."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from seqdg.base import UsageError

MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # what may stand between columns
UTF8 = "utf-8-sig"  # with or without the mark that some programs write first
LOOK = 2**26  # bytes in which a sign that is no UTF-8 is looked for
SAMPLE = 50  # rows by which the separator is told
WITH_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")
WITH_POINT = re.compile(r"\s*[+-]?\d+\.\d+(?:[eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class TextStyle:
    """The form of a file of text."""

    encoding: str = UTF8
    separator: str = ","
    decimal: str = "."

    def describe(self, path: Path, usual: str = ",") -> list[str]:
        """Say what is not as usual."""
        parts = [] if self.encoding == UTF8 else [f"is read as {self.encoding}"]
        if self.separator != usual and self.separator in MARKS:
            parts.append(f"has {MARKS[self.separator]} between its columns")
        if self.decimal == ",":
            parts.append("has decimal commas")
        return [f"{path.name} {' and '.join(parts)}."] if parts else []


def open_text(path: Path, encoding: str) -> IO[str]:
    """Open a file of text, whole or compressed."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    file: IO[str] = opener(path, "rt", encoding=encoding, newline="")
    return file


def find_encoding(path: Path, asked: str = "") -> str:
    """Find the encoding of a file: UTF-8 if it is, UTF-16 if it says so, and Windows' western one otherwise.

    asked: the user's, which is checked.
    """
    if asked:
        try:
            codecs.lookup(asked)
        except LookupError:
            raise UsageError(
                f"There is no encoding '{asked}'. Usual ones are utf-8, utf-16, cp1252 and latin-1."
            ) from None
        return UTF8 if codecs.lookup(asked).name == "utf-8" else asked
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content = file.read(LOOK)
    except (OSError, EOFError) as error:
        raise UsageError(f"{path} cannot be read ({error}).") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in content[:1000]:  # every second byte of western text in UTF-16
        return "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content, final=len(content) < LOOK)
    except UnicodeDecodeError:
        return "cp1252" if _can_decode(content, "cp1252") else "latin-1"
    return UTF8


def guess_style(path: Path, encoding: str, usual: str = ",") -> TextStyle:
    """Guess what separates the columns of a file, and whether its numbers have decimal commas.

    usual: the mark that its ending promises, which is taken where another would do as well.
    """
    with open_text(path, encoding) as file:
        text = "".join(islice(file, SAMPLE))
    rows = {mark: _split(text, mark) for mark in (usual, *MARKS)}
    widths = {mark: {len(row) for row in cells} for mark, cells in rows.items()}
    even = {mark: max(width) for mark, width in widths.items() if len(width) == 1 and max(width) > 1}
    separator = max(even, key=lambda mark: even[mark], default=usual)  # of equals the first
    cells = [cell for row in rows[separator][1:] for cell in row]
    has_commas = separator != "," and any(WITH_COMMA.fullmatch(cell) for cell in cells)
    has_points = any(WITH_POINT.fullmatch(cell) for cell in cells)
    return TextStyle(encoding, separator, "," if has_commas and not has_points else ".")


@contextmanager
def as_utf8(path: Path, encoding: str) -> Iterator[Path]:
    """Yield a file of the same text in UTF-8: the file itself, or a copy that is removed."""
    if encoding == UTF8:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "table.csv"
        try:
            with open_text(path, encoding) as source, copy.open("w", encoding="utf-8", newline="") as target:
                shutil.copyfileobj(source, target, 2**20)
        except (UnicodeError, EOFError) as error:
            raise UsageError(f"{path} cannot be read as text in {encoding} ({error}).") from None
        yield copy


def _split(text: str, mark: str) -> Sequence[Sequence[str]]:
    try:
        return [row for row in csv.reader(text.splitlines(keepends=True), delimiter=mark) if row]
    except csv.Error:
        return []


def _can_decode(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True

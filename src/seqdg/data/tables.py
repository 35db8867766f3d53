"""Tables in files: opened, and read whole or in batches. `seqdg.data.table_writer` writes them.

A text table is UTF-8 with points in numbers, whole or compressed (`.gz`), unless `text_files` finds out otherwise. Its
first line names the columns, unless `TableFormat` does. pyarrow reads `.csv`, `.tsv` and `.parquet`; pandas reads
`.data` and Excel, scipy reads ARFF.
`seqdg.data.cells` says what is a number, a word and a gap.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from seqdg.base import UsageError, count_things, unknown
from seqdg.data import foreign_tables
from seqdg.data.arrow import join_parts, null_words, require_pyarrow, to_numpy
from seqdg.data.frame import Frame, make_column
from seqdg.data.readers import ProgressCallback
from seqdg.data.text_files import MARKS, UTF8, TextStyle, as_utf8, find_encoding, guess_style, open_text

SEPARATED = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".data": ""}  # by what, between columns; "": told from the file
EXCEL = (".xlsx", ".xls", ".ods")
SUFFIXES = (*SEPARATED, ".parquet", ".arff", *EXCEL)
BLANKS = " "  # a separator: any number of blanks and tabs
BLOCK = 2**21  # bytes of a CSV that become one batch; some more are read ahead
BATCH = 2**16  # rows of a Parquet file that are read at once
Cells = dict[str, Any]  # a batch of rows as pyarrow arrays by column; all cells of a CSV are text, null where empty


def is_table(path: Path) -> bool:
    return get_kind(path) in SUFFIXES


def get_kind(path: Path) -> str:
    """Return the ending that says what a file is: `.csv` for `rows.csv` and for `rows.csv.gz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


@dataclass(frozen=True)
class TableFormat:
    """The facts that a file does not state about itself."""

    separator: str = ""  # between columns; " " for any number of blanks; empty: told from the ending or the first line
    na: tuple[str, ...] = ()  # words that stand for a gap, besides those of `cells.GAPS`
    columns: tuple[str, ...] = ()  # names of all columns, where the first line of the file is a row already
    encoding: str = ""  # of a file of text; empty: UTF-8, or as it is guessed

    def __post_init__(self) -> None:
        if len(self.separator) > 1:
            raise UsageError(
                f"separator is '{self.separator}', but it must be one character, or ' ' for any number of blanks."
            )


@dataclass(frozen=True)
class TableFile:
    """A table whose columns are known and whose rows are not yet read."""

    path: Path
    names: tuple[str, ...]
    has_header: bool = True  # False: the first line is a row already, and the names are the user's or made up
    separator: str = ","
    na: tuple[str, ...] = ()
    encoding: str = UTF8
    decimal: str = "."
    notes: tuple[str, ...] = ()  # on what was guessed

    def read(
        self,
        but: Collection[str] = (),
        dates_as_words: Collection[str] = (),
        text: Collection[str] = (),
        parse: bool = True,
        codes: Collection[str] = (),
    ) -> Frame:
        """Read all rows, without the columns `but`.

        dates_as_words: columns in which a format's own dates become words.   text: columns whose cells stay words, as
        they are written.   parse: make numbers where all words are numbers or gaps; else where all are plain numbers.
        codes: columns whose cells stay words where floats would not give them back.
        """
        names = [name for name in self.names if name not in but]
        parts = list(self._read_cells(names))
        if not names or not any(len(part[names[0]]) for part in parts):
            raise UsageError(f"{self.path} has 0 rows below the names of its columns: there is nothing to learn from.")
        columns = [
            join_parts(name, [part[name] for part in parts], name in dates_as_words, name in text, parse, name in codes)
            for name in names
        ]
        return Frame(tuple(names), tuple(columns), named=True)

    def read_batches(
        self,
        wanted: Sequence[str],
        numeric: Collection[str],
        progress: ProgressCallback = lambda done, total: None,
        raw: Sequence[str] = (),
        text: Collection[str] = (),
    ) -> Iterator[Frame]:
        """Yield some rows at a time, of those columns in `wanted` that the table has. `numeric` should hold numbers.

        raw: columns that come along as they are written, apart from the others.   text: columns whose whole numbers
        are words.
        """
        names, first = [name for name in self.names if name in set(wanted)], 0
        if not names:
            raise unknown("column", wanted[0], self.names, owner=self.path.name)
        for part in self._read_cells(list(dict.fromkeys([*names, *raw])), progress):
            columns = [make_column(name, to_numpy(part[name], name in numeric, name in text)) for name in names]
            cells = {name: part[name] for name in raw}
            frame = Frame(tuple(names), tuple(columns), named=True, raw=cells)
            yield replace(frame, from_rows=first + np.arange(len(frame)))
            first += len(frame)

    def _read_cells(
        self, names: Sequence[str], progress: ProgressCallback = lambda done, total: None
    ) -> Iterator[Cells]:
        with _explain_errors(self.path):
            kind = get_kind(self.path)
            if kind == ".parquet":
                yield from self._read_parquet(names, progress)
            elif kind in (".csv", ".tsv", ".tab") and self.separator != BLANKS:
                yield from self._read_csv(names, progress)
            else:
                yield self._read_whole(names)
                progress(1, 1)

    def _read_csv(self, names: Sequence[str], progress: ProgressCallback) -> Iterator[Cells]:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        total = self.path.stat().st_size
        convert = arrow_csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            include_columns=list(names),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            null_values=["", *self.na],
        )
        parse = arrow_csv.ParseOptions(newlines_in_values=True, delimiter=self.separator)
        header = None if self.has_header else list(self.names)
        options = arrow_csv.ReadOptions(block_size=BLOCK, column_names=header)
        # Threads of pyarrow read ahead and must not need the interpreter. This one unpacks a .gz.
        with as_utf8(self.path, self.encoding) as path, pa.input_stream(str(path)) as file:
            try:
                reader = arrow_csv.open_csv(file, read_options=options, parse_options=parse, convert_options=convert)
            except pa.ArrowInvalid as error:
                if "Empty CSV" in str(error):
                    return
                raise
            for i, batch in enumerate(reader, 1):
                yield {name: self._put_points(batch.column(name)) for name in names}
                progress(min(i * BLOCK, total), total)  # not how far the file was read, which is far ahead
            progress(total, total)

    def _put_points(self, cells: Any) -> Any:
        """Return the cells with decimal points, where the file has decimal commas."""
        from pyarrow import compute

        if self.decimal == ".":
            return cells
        return compute.replace_substring_regex(cells, r"^\s*([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)\s*$", r"\1.\2")

    def _read_whole(self, names: Sequence[str]) -> Cells:
        """Read all rows at once, from formats that pyarrow does not read."""
        import pyarrow as pa

        kind = get_kind(self.path)
        if kind == ".arff":
            frame = foreign_tables.read_arff(self.path)
        elif kind in EXCEL:
            frame = foreign_tables.read_excel(self.path)
        else:
            frame = foreign_tables.read_separated(self.path, self.separator, self.names, self.has_header, self.encoding)
        frame.columns = self.names
        return {name: pa.array(foreign_tables.make_cells(frame[name].tolist(), self.na)) for name in names}

    def _read_parquet(self, names: Sequence[str], progress: ProgressCallback) -> Iterator[Cells]:
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            done, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(batch_size=BATCH, columns=list(names)):
                yield {name: null_words(batch.column(name), self.na) for name in names}
                done += batch.num_rows
                progress(done, total)


def open_table(
    path: Path, may_lack_header: bool = False, form: TableFormat | None = None, guess: bool = False
) -> TableFile:
    """Read the names of the columns and check them.

    may_lack_header: a first line of numbers is a row, unless it counts 0, 1, 2, ...; the columns are called f0, f1, ...
    guess: find out how a file of text is written, and note what is unusual: its encoding, separators, decimal commas.
    """
    require_pyarrow()
    form = form or TableFormat()
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    kind = get_kind(path)
    if kind not in SEPARATED:
        names = _read_names(path, kind)
        _check_names(path, names, form)
        return TableFile(path, tuple(names), na=form.na)
    style = _find_style(path, form, guess)
    names, separator = _read_header(path, form.separator or style.separator, style.encoding)
    notes = tuple(style.describe(path, SEPARATED[kind] or separator))
    opened = TableFile(path, tuple(names), True, separator, form.na, style.encoding, style.decimal, notes)
    if form.columns and tuple(names) != form.columns:
        if len(names) != len(form.columns):
            many = count_things(len(names), "column")
            raise UsageError(f"{path} has {many}, but `columns` names {len(form.columns)}: name every one, in order.")
        _check_names(path, form.columns, TableFormat())
        return replace(opened, names=form.columns, has_header=False)
    if may_lack_header and _is_row(names):
        return replace(opened, names=tuple(f"f{i}" for i in range(len(names))), has_header=False)
    if len(names) == 1:
        for mark, word in MARKS.items():
            if mark in names[0] and mark != ",":
                cure = "as many cells in every row" if guess else "points in numbers, or say `separator` in [data]"
                raise UsageError(
                    f"{path} has one column, '{names[0]}': its columns seem to be separated by {word}. Save it with "
                    f"commas between columns and {cure}."
                )
    _check_names(path, names, TableFormat())
    return opened


def _find_style(path: Path, form: TableFormat, guess: bool) -> TextStyle:
    """Return how a file of text is written: as its ending says, or as it is guessed."""
    usual = SEPARATED[get_kind(path)]
    if not guess:
        return TextStyle(find_encoding(path, form.encoding or "utf-8"), usual)
    encoding = find_encoding(path, form.encoding)
    if not usual:
        return TextStyle(encoding, usual)
    try:
        return guess_style(path, encoding, usual)
    except (OSError, UnicodeError, EOFError) as error:
        raise UsageError(f"{path} cannot be read as a table of text in {_name_encoding(encoding)} ({error}).") from None


def _name_encoding(encoding: str) -> str:
    return "UTF-8" if encoding == UTF8 else encoding


def _check_names(path: Path, names: Sequence[str], form: TableFormat) -> None:
    for key, value in (("columns", form.columns), ("separator", form.separator)):
        if value:
            raise UsageError(f"{path.name} names its columns and keeps them apart by itself: leave {key} out.")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UsageError(f"{path} has two columns '{twice[0]}': rename one.")


def _read_names(path: Path, kind: str) -> list[str]:
    """Return the names of the columns of a format that always has them."""
    if kind == ".arff":
        return [str(name) for name in foreign_tables.read_arff(path).columns]
    if kind in EXCEL:
        return [str(name) for name in foreign_tables.read_excel(path, rows=0).columns]
    from pyarrow import parquet

    with _explain_errors(path):
        return list(parquet.read_schema(path).names)


def _read_header(path: Path, separator: str, encoding: str) -> tuple[list[str], str]:
    """Return the cells of the first line, and what separates them: the mark in it, where `separator` is empty."""
    try:
        with open_text(path, encoding) as file:
            if not separator:
                line = next((line for line in file if line.strip()), "")
                separator = next((mark for mark in (",", "\t", ";", "|") if mark in line), BLANKS)
                file.seek(0)
            if separator == BLANKS:
                names: list[str] = next((line.split() for line in file if line.strip()), [])
            else:
                names = next((cells for cells in csv.reader(file, delimiter=separator) if cells), [])
    except (OSError, UnicodeError, EOFError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a table of text in {_name_encoding(encoding)} ({error}).") from None
    if not names:
        raise UsageError(f"{path} is empty: its first line must name the columns.")
    return [name.strip() for name in names] if get_kind(path) == ".data" else names, separator


def _is_row(names: Sequence[str]) -> bool:
    """Return whether a first line holds numbers other than 0, 1, 2, ..."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != list(range(len(numbers)))


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read as a {get_kind(path)} table ({first}).") from error

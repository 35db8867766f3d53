"""Tables in files: opened, and read whole or in batches. `seqdg.data.tables.table_writer` writes them."""

from __future__ import annotations

import codecs
import csv
import datetime
import gzip
import re
import shutil
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, unknown
from seqdg.data.dataset import ProgressCallback
from seqdg.data.tables.columns import CODE, Column, is_missing, parse_column, to_word
from seqdg.data.tables.frame import Frame, make_column

MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # what may stand between columns
UTF8 = "utf-8-sig"  # with or without the mark that some programs write first
LOOK = 2**26  # bytes in which a sign that is no UTF-8 is looked for
SAMPLE = 50  # rows by which the separator is told
WITH_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")
WITH_POINT = re.compile(r"\s*[+-]?\d+\.\d+(?:[eE][+-]?\d+)?\s*")
DATES = (datetime.date, datetime.time, datetime.timedelta)
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
            frame = read_arff(self.path)
        elif kind in EXCEL:
            frame = read_excel(self.path)
        else:
            frame = read_separated(self.path, self.separator, self.names, self.has_header, self.encoding)
        frame.columns = self.names
        return {name: pa.array(make_cells(frame[name].tolist(), self.na)) for name in names}

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
        return [str(name) for name in read_arff(path).columns]
    if kind in EXCEL:
        return [str(name) for name in read_excel(path, rows=0).columns]
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


def read_arff(path: Path) -> Any:
    """Read an ARFF file; `?` is a gap. scipy reads numbers and nominal words, and neither free text nor sparse rows."""
    import pandas
    from scipy.io import arff

    try:
        with path.open(encoding="utf-8") as file:
            rows, about = arff.loadarff(file)
    except NotImplementedError as error:
        raise UsageError(
            f"{path} has a kind of column that scipy does not read ({error}): save the table as a .csv."
        ) from None
    except (arff.ArffError, StopIteration, ValueError, IndexError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path} cannot be read as a .arff table ({first}).") from None
    frame = pandas.DataFrame({name: rows[name] for name in about.names()})
    for name, kind in zip(about.names(), about.types(), strict=True):
        if kind == "nominal":
            frame[name] = [None if value == b"?" else value.decode() for value in rows[name].tolist()]
    return frame


def read_excel(path: Path, rows: int | None = None) -> Any:
    """Read the first sheet of an Excel or OpenDocument file."""
    import pandas

    try:
        return pandas.read_excel(path, nrows=rows, keep_default_na=False, na_values=[""])
    except ImportError as error:
        raise UsageError(
            f"{path.name} is a sheet of Excel: pip install 'seqdg[excel]' to read it, or save it as a .csv ({error})."
        ) from None
    except Exception as error:  # each engine raises errors of its own
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path} cannot be read as a sheet of Excel ({first}).") from None


def read_separated(
    path: Path, separator: str, names: Sequence[str], has_header: bool, encoding: str = "utf-8-sig"
) -> Any:
    """Read a text table, whose cells stay text; blanks around a cell do not count.

    separator: " " for any number of blanks.
    """
    import pandas

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            frame = pandas.read_csv(
                path,
                sep=r"\s+" if separator == " " else separator,
                header=0 if has_header else None,
                names=list(names),
                index_col=False,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                encoding=encoding,
            )
    except (pandas.errors.ParserError, pandas.errors.ParserWarning, UnicodeError, EOFError, OSError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read as a table of text ({first}).") from None
    _check_widths(path, separator, len(names), encoding)
    return frame


def _check_widths(path: Path, separator: str, width: int, encoding: str) -> None:
    """Raise a UsageError where a row has fewer cells than there are columns: pandas would fill it with gaps."""
    with open_text(path, encoding) as file:
        rows: Iterable[list[str]] = (
            (line.split() for line in file if '"' not in line)
            if separator == " "
            else csv.reader(file, delimiter=separator, skipinitialspace=True)
        )
        for i, row in enumerate(row for row in rows if row):
            if len(row) < width:
                raise UsageError(
                    f"{path}: line {i + 1} that is not empty has {count_things(len(row), 'cell')} for {width} columns."
                )


def make_cells(values: Sequence[Any], na: Collection[str]) -> list[Any]:
    """Return cells that are all numbers or all words, with None for a gap."""
    cells = [value.strip() if isinstance(value, str) else value for value in values]
    cells = [None if is_missing(v) or (isinstance(v, str) and v in na) else v for v in cells]
    if any(isinstance(value, str) for value in cells):
        return [None if value is None else to_word(value) for value in cells]
    return cells


def join_parts(
    name: str, parts: Sequence[Any], dates_as_words: bool, text: bool, parse: bool, codes: bool = False
) -> Column:
    """Join one column of all batches: numbers if all its cells are plain numbers, or, with `parse`, numbers or gaps.

    text: its cells stay words.   codes: they do where floats would not give them back, as of 007 or 20 digits.
    """
    import pyarrow as pa

    array = pa.chunked_array(parts)
    text = text or (codes and _has_codes(array))
    if text and pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        with suppress(pa.ArrowInvalid):  # the quick way, where all cells are plain numbers
            if not text:
                return np.asarray(array.cast(pa.float64()).to_numpy())
        words = np.array(array.to_numpy(), dtype=object)
        words[words == ""] = None
        return parse_column(words) if parse and not text else words
    values = np.concatenate([to_numpy(part) for part in parts])
    if dates_as_words and values.dtype == object:
        values = np.array([str(v) if isinstance(v, DATES) else v for v in values], dtype=object)
    column = make_column(name, values)
    return parse_column(column) if parse and not text else column


def _has_codes(array: Any) -> bool:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return False
    return bool(compute.any(compute.match_substring_regex(array, f"^{CODE}$")).as_py())


def to_numpy(array: Any, numeric: bool = False, text: bool = False) -> NDArray[Any]:
    """Return numbers as float64, dates and all else as objects.

    numeric: make numbers of words, where all are plain numbers.   text: make words of whole numbers.
    """
    import pyarrow as pa

    if text and pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    kind = array.type
    if pa.types.is_string(kind):
        if numeric:
            with suppress(pa.ArrowInvalid):  # not all are plain numbers: they are read one by one later
                array = array.cast(pa.float64())
    elif pa.types.is_dictionary(kind):
        words = array.cast(kind.value_type).cast(pa.string())
        return np.asarray(words.to_numpy(zero_copy_only=False), dtype=object)
    elif pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    elif pa.types.is_temporal(kind):
        return np.array([*array.to_pylist(), None], dtype=object)[:-1]
    elif pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    return values.astype(np.float64) if values.dtype.kind in "iuf" else values


def null_words(array: Any, na: Sequence[str]) -> Any:
    """Return the array with nulls for the words `na`."""
    import pyarrow as pa
    from pyarrow import compute

    if not na or not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return array
    return compute.if_else(compute.is_in(array, pa.array(na, array.type)), pa.scalar(None, array.type), array)

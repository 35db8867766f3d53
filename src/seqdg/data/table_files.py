"""Tables in files: opened, read whole or in batches, and written batch by batch.

pyarrow reads text and Parquet, pandas reads Excel, scipy reads ARFF. What is ours says how a file of text is written,
refuses what is in doubt, and turns what was read into a `Frame`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, check_memory, count_things, refuse_broken, replace_file, state_reason, unknown
from seqdg.data.columns import CODE, Column, WrongRows
from seqdg.data.dataset import ProgressCallback
from seqdg.data.frame import Frame, get_values, make_column

MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # what may stand between columns
UTF8 = "utf-8-sig"  # with or without the mark that some programs write first
ENCODINGS = (UTF8, "cp1252", "latin-1")  # the first that fits; guesses of charset-normalizer are wrong for short cells
LOOK = 2**26  # bytes by which the encoding is told
SAMPLE = 50  # lines by which the separator is told
WITH_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")
WITH_POINT = re.compile(r"\s*[+-]?\d+\.\d+(?:[eE][+-]?\d+)?\s*")
SEPARATED = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".data": ""}  # by what, between columns; "": told from the file
EXCEL = (".xlsx", ".xls", ".ods")
SUFFIXES = (*SEPARATED, ".parquet", ".arff", *EXCEL)
BLANKS = " "  # a separator: any number of blanks and tabs
BLOCK = 2**21  # bytes of a CSV that become one batch; some more are read ahead
BATCH = 2**16  # rows of a Parquet file that are read at once
STDOUT = Path("-")  # standard output
CELL, WORD, SHEET = 8, 64, 3  # bytes that a cell takes at least: a number, a text; bytes for each of an unpacked sheet
BROKEN = (OSError, UnicodeError, EOFError, zlib.error, csv.Error)  # what a damaged file of text raises
UNCLOSED = "unexpected end of data"  # what csv says of a quote that nothing ends
WRITTEN = (".csv", ".parquet")


def is_table(path: Path) -> bool:
    return get_kind(path) in SUFFIXES


def get_kind(path: Path) -> str:
    """Return the ending that says what a file is: `.csv` for `rows.csv` and for `rows.csv.gz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


@dataclass(frozen=True)
class TableFormat:
    """The facts that a file does not state about itself."""

    separator: str = ""  # between columns; " " for any number of blanks; empty: told from the file
    na: tuple[str, ...] = ()  # text that means missing, besides the empty cell
    columns: tuple[str, ...] = ()  # names of all columns, where the first line of the file is a row already
    encoding: str = ""  # of a file of text; empty: told from the file

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
    form: TableFormat  # as it was told, and as the file is
    has_header: bool = True  # False: the first line is a row already, and the names are the user's or made up
    decimal: str = "."
    notes: tuple[str, ...] = ()  # on what was guessed
    whole: Any = None  # the rows as a table of pyarrow, where the format is not read in batches

    def __post_init__(self) -> None:
        twice = [name for i, name in enumerate(self.names) if name in self.names[:i]]
        if twice:
            raise UsageError(f"{self.path} has two columns '{twice[0]}': rename one.")

    @contextmanager
    def naming_lines(self) -> Iterator[None]:
        """Name the lines of a file of text, in place of numbers of rows, where the block finds a mistake in rows."""
        try:
            yield
        except WrongRows as error:
            if get_kind(self.path) not in SEPARATED:
                raise
            lines = dict(zip(range(max(error.rows) + 1), (line for line, _ in self._split_lines()), strict=False))
            raise error.name_lines([lines[row] for row in error.rows]) from None

    def _split_lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line of a file of text in which each row begins, and its cells; raise a csv.Error at a quote that
        nothing ends."""
        first, is_header = 1, self.has_header
        with open_file(self.path, "rt", encoding=self.form.encoding, newline="") as file:
            reader = csv.reader(file, delimiter=self.form.separator, strict=True)
            for cells in reader:
                begins, first = first, reader.line_num + 1
                is_row = any(cells) if self.form.separator == BLANKS else bool(cells)
                if is_row and not is_header:
                    yield begins, cells
                is_header = is_header and not is_row

    def _explain_break(self) -> str:
        """Say in which line a file of text is no table: one with more or fewer cells, or a quote that nothing ends."""
        begins = int(self.has_header)
        try:
            for begins, cells in self._split_lines():
                if len(cells) != len(self.names):
                    held = f"{count_things(len(cells), 'cell')} in a table of {count_things(len(self.names), 'column')}"
                    return f"line {begins} has {held}: {self.form.separator.join(cells)[:60]}"
        except csv.Error as error:
            return f"a quote after line {begins} is never closed" if UNCLOSED in str(error) else ""
        except BROKEN:
            pass
        return ""

    def _check_quotes(self) -> None:
        """Raise a UsageError where a quote is never closed: all lines after it would be one cell, without a word."""
        with open_file(self.path) as file:
            if not sum(part.count(b'"') for part in iter(lambda: file.read(2**20), b"")) % 2:
                return
        if (reason := self._explain_break()).startswith("a quote"):
            raise _refuse(self.path, csv.Error(reason))

    def require(self, names: Iterable[str]) -> None:
        """Raise a UsageError where the table lacks one of these columns."""
        for name in names:
            if name not in self.names:
                raise unknown("column", name, self.names, owner=self.path.name)

    def read(self, but: Collection[str] = (), text: Collection[str] = (), codes: Collection[str] = ()) -> Frame:
        """Read all rows: columns are numbers where every cell is a plain number, else text, or of the file's own type.

        but: columns to leave out.   text: columns whose cells stay as they are written.   codes: columns whose cells
        stay so where floats would not give them back, as of 007 or 20 digits.
        """
        import pyarrow as pa

        names = [name for name in self.names if name not in but]
        check_memory(self._measure(names), str(self.path))
        batches, size = [], 0
        for batch in self._read_arrow(names):
            batches.append(batch)
            size += batch.nbytes + CELL * len(batch) * len(names)
            check_memory(size, f"What is read of {self.path} so far")  # a .gz does not say what it unpacks to
        if not names or not sum(map(len, batches)):
            raise UsageError(f"{self.path} has 0 rows below the names of its columns: there is nothing to learn from.")
        table = pa.Table.from_batches(batches)
        kept = {*text, *(name for name in codes if name in names and _has_codes(table[name]))}
        with self._refusing():
            return _make_frame(table, kept)

    def _refusing(self) -> AbstractContextManager[None]:
        return refuse_broken(f"{self.path} cannot be read as a {get_kind(self.path)} table")

    def _measure(self, names: Sequence[str]) -> int:
        """Return how many bytes its rows take at least, as far as that is known before they are read."""
        if get_kind(self.path) == ".parquet":
            from pyarrow import parquet, types

            with self._refusing(), open_native(self.path) as raw, parquet.ParquetFile(raw) as file:
                kinds = [file.schema_arrow.field(name).type for name in names]
                cells = sum(
                    2 * CELL if types.is_primitive(k) else WORD for k in kinds
                )  # as it is read, and as we keep it
                return int(file.metadata.num_rows * cells)
        with self.path.open("rb") as raw:
            size = raw.seek(0, io.SEEK_END)
            if self.path.suffix.lower() == ".gz" and size > 4:
                raw.seek(-4, io.SEEK_END)
                size = int.from_bytes(raw.read(), "little")  # of the last 4 GiB
        return size

    def read_batches(
        self,
        wanted: Sequence[str],
        numeric: Collection[str],
        progress: ProgressCallback = lambda done, total: None,
        raw: Sequence[str] = (),
    ) -> Iterator[Frame]:
        """Yield some rows at a time, of those columns in `wanted` that the table has.

        numeric: columns that should hold numbers; the others stay text.   raw: columns that come along as they are
        written, apart from the others.
        """
        import pyarrow as pa

        names, first = [name for name in self.names if name in set(wanted)], 0
        if not names:
            self.require(wanted)
        for batch in self._read_arrow(list(dict.fromkeys([*names, *raw])), progress):
            with self._refusing():
                frame = _make_frame(pa.Table.from_batches([batch]).select(names), set(names) - set(numeric))
            rows = first + np.arange(len(frame))
            yield replace(frame, from_rows=rows, raw={name: batch.column(name) for name in raw})
            first += len(frame)

    def _read_arrow(self, names: Sequence[str], progress: ProgressCallback = lambda done, total: None) -> Iterator[Any]:
        """Yield record batches of pyarrow."""
        import pyarrow as pa

        kind = get_kind(self.path)
        read = self._read_csv if kind in SEPARATED else self._read_parquet if kind == ".parquet" else self._read_whole
        try:
            for batch in read(names, progress):
                yield pa.RecordBatch.from_arrays([self._clean(batch.column(name)) for name in names], list(names))
        except (pa.ArrowException, *BROKEN) as error:
            reason = self._explain_break() if kind in SEPARATED and isinstance(error, pa.ArrowInvalid) else ""
            raise _refuse(self.path, csv.Error(reason) if reason else error) from error

    def _read_csv(self, names: Sequence[str], progress: ProgressCallback) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        self._check_quotes()
        total = self.path.stat().st_size
        convert = arrow_csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            include_columns=list(names),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            null_values=["", *self.form.na],
        )
        parse = arrow_csv.ParseOptions(newlines_in_values=True, delimiter=self.form.separator)
        options = arrow_csv.ReadOptions(block_size=BLOCK, column_names=None if self.has_header else list(self.names))
        # Threads of pyarrow read ahead and must not need the interpreter. This one unpacks a .gz.
        with self._open_plain() as path, open_native(path) as file:
            try:
                reader = arrow_csv.open_csv(file, read_options=options, parse_options=parse, convert_options=convert)
            except pa.ArrowInvalid as error:
                if "Empty CSV" in str(error):
                    return
                raise
            for i, batch in enumerate(reader, 1):
                yield batch
                progress(min(i * BLOCK, total), total)  # not how far the file was read, which is far ahead
            progress(total, total)

    @contextmanager
    def _open_plain(self) -> Iterator[Path]:
        """Yield a file of the same cells in UTF-8, with nothing around them: the file itself, or a copy that is
        removed."""
        has_blanks = self.form.separator == BLANKS or get_kind(self.path) == ".data"
        if self.form.encoding == UTF8 and not has_blanks:
            yield self.path
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "table.csv"
            try:
                with (
                    open_file(self.path, "rt", encoding=self.form.encoding, newline="") as source,
                    copy.open("w", encoding="utf-8", newline="") as target,
                ):
                    if has_blanks:
                        rows = csv.writer(target, delimiter=self.form.separator)
                        rows.writerows(split_rows(source, self.form.separator, strict=True))
                    else:
                        shutil.copyfileobj(source, target, 2**20)
            except BROKEN as error:
                raise _refuse(self.path, error, self.form.encoding) from None
            yield copy

    def _read_parquet(self, names: Sequence[str], progress: ProgressCallback) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet, types

        with open_native(self.path) as raw, parquet.ParquetFile(raw) as known:
            # A text that is stored once may be in every row: it is unpacked when its size is known.
            kinds = {name: known.schema_arrow.field(name).type for name in names}
            texts = [name for name, kind in kinds.items() if types.is_string(kind) or types.is_large_string(kind)]
            file = parquet.ParquetFile(raw, metadata=known.metadata, read_dictionary=texts)
            done, total = 0, file.metadata.num_rows
            for batch in file.iter_batches(batch_size=BATCH, columns=list(names)):
                cells = [self._unpack(batch.column(name)) if name in texts else batch.column(name) for name in names]
                yield pa.RecordBatch.from_arrays(cells, list(names))
                done += batch.num_rows
                progress(done, total)

    def _unpack(self, cells: Any) -> Any:
        """Return texts, each as often as it is there, from their numbers in a dictionary."""
        from pyarrow import compute

        lengths = compute.binary_length(cells.dictionary).take(cells.indices)
        check_memory(compute.sum(lengths).as_py() or 0, f"What is read of {self.path} so far")
        return cells.dictionary_decode()

    def _read_whole(self, names: Sequence[str], progress: ProgressCallback) -> Iterator[Any]:
        yield from self.whole.to_batches()
        progress(1, 1)

    def _clean(self, cells: Any) -> Any:
        """Return the cells with nulls where they mean missing, and with points where the file has decimal commas."""
        import pyarrow as pa
        from pyarrow import compute

        if not _is_text(cells):
            return cells
        if self.form.na and get_kind(self.path) not in SEPARATED:
            missing = compute.is_in(cells, pa.array(self.form.na, cells.type))
            return compute.if_else(missing, pa.scalar(None, cells.type), cells)
        if self.decimal == ",":
            return compute.replace_substring_regex(cells, r"^\s*([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)\s*$", r"\1.\2")
        return cells


def open_table(path: Path, form: TableFormat | None = None, may_lack_header: bool = False) -> TableFile:
    """Read the names of the columns and check them; find out how a file of text is written, and note what is unusual.

    may_lack_header: a first line of numbers is a row, unless it counts 0, 1, 2, ...; the columns are called f0, f1, ...
    """
    form = form or TableFormat()
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    kind = get_kind(path)
    if kind in SEPARATED:
        return _open_text_table(path, form, may_lack_header)
    for key, value in (("columns", form.columns), ("separator", form.separator)):
        if value:
            raise UsageError(f"{path.name} names its columns and keeps them apart by itself: leave {key} out.")
    if kind == ".parquet":
        from pyarrow import ArrowException, parquet

        try:
            with open_native(path) as raw:
                whole, names = None, tuple(parquet.read_schema(raw).names)
        except (ArrowException, OSError) as error:
            raise _refuse(path, error) from error
    else:
        whole = read_arff(path) if kind == ".arff" else read_excel(path)
        names = tuple(whole.column_names)
    return TableFile(path, names, form, whole=whole)


def _open_text_table(path: Path, form: TableFormat, may_lack_header: bool) -> TableFile:
    kind, encoding = get_kind(path), find_encoding(path, form.encoding)
    try:
        with open_file(path, "rt", encoding=encoding, newline="") as file:
            head = list(islice(file, SAMPLE))
        separator = form.separator or _guess_separator(head, SEPARATED[kind])
        names = tuple(next(iter(split_rows(head, separator, strip=kind == ".data")), ()))
    except BROKEN as error:
        raise _refuse(path, error, encoding) from None
    if not names:
        raise UsageError(f"{path} is empty: its first line must name the columns.")
    decimal = "," if separator != "," and _has_decimal_commas(head, separator) else "."
    parts = [] if encoding == UTF8 else [f"is read as {encoding}"]
    if kind != ".data" and separator != SEPARATED[kind] and separator in MARKS and not form.separator:
        parts.append(f"has {MARKS[separator]} between its columns")
    parts += ["has decimal commas"] if decimal == "," else []
    notes = (f"{path.name} {' and '.join(parts)}.",) if parts else ()
    form = replace(form, separator=separator, encoding=encoding)
    has_header = True
    if form.columns and names != form.columns:
        if len(names) != len(form.columns):
            many = count_things(len(names), "column")
            raise UsageError(f"{path} has {many}, but `columns` names {len(form.columns)}: name every one, in order.")
        names, has_header = form.columns, False
    elif may_lack_header and _is_row(names):
        names, has_header = tuple(f"f{i}" for i in range(len(names))), False
    for mark, word in MARKS.items() if len(names) == 1 and has_header else ():
        if mark in names[0] and mark != ",":
            raise UsageError(
                f"{path} has one column, '{names[0]}': its columns seem to be separated by {word}. Save it with commas "
                "between columns and as many cells in every row."
            )
    return TableFile(path, names, form, has_header, decimal, notes)


def _is_row(names: Sequence[str]) -> bool:
    """Return whether a first line holds numbers other than 0, 1, 2, ..."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return numbers != list(range(len(numbers)))


def _refuse(path: Path, error: BaseException, encoding: str = "") -> UsageError:
    written = f" in {'UTF-8' if encoding == UTF8 else encoding}" if encoding else ""
    reason = state_reason(error)
    if isinstance(error, UnicodeDecodeError) and (line := _find_undecodable(path, encoding)):
        reason = f"line {line} has the byte 0x{error.object[error.start]:02x}, which is none of its characters"
    return UsageError(f"{path} cannot be read as a {get_kind(path)} table{written} ({reason}).")


def _find_undecodable(path: Path, encoding: str) -> int:
    """Return the first line that is not in an encoding whose line breaks are bytes of their own; 0 where none is."""
    with suppress(*BROKEN), open_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return 0 if encoding.startswith("utf-16") else number
    return 0


def open_file(path: Path, mode: str = "rb", **options: Any) -> IO[Any]:
    """Open a file, whole or compressed."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    file: IO[Any] = opener(path, mode, **options)
    return file


def open_native(path: Path) -> Any:
    """Open a file for pyarrow, which takes a name that is no text as bytes alone; a .gz is unpacked."""
    import pyarrow as pa

    file = pa.OSFile(os.fsencode(path))
    return pa.CompressedInputStream(file, "gzip") if path.suffix.lower() == ".gz" else file


def find_encoding(path: Path, asked: str = "") -> str:
    """Find the encoding of a file: UTF-16 if it says so, else the first of ENCODINGS that fits.

    asked: the user's, which is checked.
    """
    if asked:
        try:
            return UTF8 if codecs.lookup(asked).name == "utf-8" else asked
        except LookupError:
            raise UsageError(
                f"There is no encoding '{asked}'. Usual ones are utf-8, utf-16, cp1252 and latin-1."
            ) from None
    try:
        with open_file(path) as file:
            content = file.read(LOOK)
    except BROKEN as error:
        raise _refuse(path, error) from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in content[:1000]:  # every second byte of western text in UTF-16
        return "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
    for encoding in ENCODINGS:
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(content, final=len(content) < LOOK)
            break
    return encoding


def split_rows(lines: Iterable[str], separator: str, strip: bool = True, strict: bool = False) -> Iterator[list[str]]:
    """Split lines of text into cells.

    strip: leave out the blanks around them.   strict: raise a csv.Error where quotes do not match.
    """
    if separator == BLANKS:
        lines = (" ".join(line.split()) + "\n" if '"' not in line else line.strip() + "\n" for line in lines)
    for row in csv.reader(lines, delimiter=separator, skipinitialspace=strip, strict=strict):
        if row:
            yield [cell.strip() for cell in row] if strip else row


def _guess_separator(lines: Sequence[str], usual: str) -> str:
    """Guess what separates the columns: the mark that makes the most of them, and as many in every line.

    usual: the mark that the file's ending promises, which is taken where another would do as well.
    """
    widths = {mark: _count_cells(lines, mark) for mark in (usual, *MARKS) if mark}
    widest = max(widths, key=lambda mark: widths[mark])
    if widths[widest] > 1:
        return widest
    first = next((line for line in lines if line.strip()), "")
    return usual or next((mark for mark in MARKS if mark in first), BLANKS)


def _count_cells(lines: Sequence[str], mark: str) -> int:
    """Count the cells of every line; 0 where the lines differ."""
    with suppress(csv.Error):
        counts = {len(row) for row in split_rows(lines, mark, strip=False)}
        return counts.pop() if len(counts) == 1 else 0
    return 0


def _has_decimal_commas(lines: Sequence[str], separator: str) -> bool:
    try:
        cells = [cell for row in split_rows(lines[1:], separator) for cell in row]
    except csv.Error:
        return False
    return any(map(WITH_COMMA.fullmatch, cells)) and not any(map(WITH_POINT.fullmatch, cells))


def read_arff(path: Path) -> Any:
    """Read an ARFF file, where `?` means missing. scipy reads numbers and nominal text, and neither free text nor
    sparse rows."""
    import pandas
    import pyarrow as pa
    from scipy.io import arff

    try:
        with path.open(encoding="utf-8") as file:
            rows, _ = arff.loadarff(file)
    except NotImplementedError as error:
        raise UsageError(
            f"{path} has a kind of column that scipy does not read ({error}): save the table as a .csv."
        ) from None
    except (arff.ArffError, StopIteration, ValueError, IndexError) as error:
        raise _refuse(path, error) from None
    frame = pandas.DataFrame(
        {n: np.char.decode(rows[n], "utf-8") if rows[n].dtype.kind == "S" else rows[n] for n in rows.dtype.names}
    )
    return pa.Table.from_pandas(frame.replace("?", None), preserve_index=False)


def read_excel(path: Path) -> Any:
    """Read the first sheet of an Excel or OpenDocument file. As in a file of text, every cell is text."""
    import pandas
    import pyarrow as pa

    if zipfile.is_zipfile(path):
        with refuse_broken(f"{path} cannot be read as a {get_kind(path)} table"), zipfile.ZipFile(path) as file:
            check_memory(SHEET * sum(info.file_size for info in file.infolist()), str(path))
    try:
        frame = pandas.read_excel(path, dtype=str, keep_default_na=False, na_values=[""])
    except ImportError as error:
        raise UsageError(
            f"{path.name} is a sheet of Excel: pip install 'seqdg[excel]' to read it, or save it as a .csv ({error})."
        ) from None
    except Exception as error:  # each engine raises errors of its own
        raise _refuse(path, error) from None
    return pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)


def _is_text(array: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(array.type) or pa.types.is_large_string(array.type))


def _has_codes(array: Any) -> bool:
    import pyarrow as pa
    from pyarrow import compute

    array = array.cast(pa.string()) if pa.types.is_integer(array.type) else array
    return _is_text(array) and bool(compute.any(compute.match_substring_regex(array, f"^{CODE}$")).as_py())


def _make_frame(table: Any, text: Collection[str]) -> Frame:
    columns = [_make_column(name, table[name], name in text) for name in table.column_names]
    return Frame(tuple(table.column_names), tuple(columns), named=True)


def _make_column(name: str, array: Any, is_text: bool) -> Column:
    """Return the column of an array of pyarrow. is_text: cells that look like numbers stay text."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type).cast(pa.string())
    elif is_text and pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if not _is_text(array):
        return make_column(name, get_values(array.to_pandas()))
    if not is_text:
        with suppress(pa.ArrowInvalid):  # not all are plain numbers
            return np.asarray(array.cast(pa.float64()).to_numpy())
    check_memory(WORD * len(array), f"The text in column '{name}'")
    cells = np.array(array.to_numpy(), dtype=object)
    cells[cells == ""] = None
    return cells


@contextmanager
def open_writer(path: Path) -> Iterator[Callable[[Mapping[str, NDArray[Any]]], None]]:
    """Yield a function that writes some rows of predictions to a `.csv` or `.parquet`; the file is there once all of
    it is.

    To the path `-`, standard output, they are written as a .csv.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    if path.suffix.lower() not in WRITTEN and path != STDOUT:
        raise UsageError(
            f"Predictions are written to a .csv or a .parquet file, or to standard output (-), not to {path.name}."
        )
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent} to write to.")
    writer: Any = None

    def write(columns: Mapping[str, NDArray[Any]]) -> None:
        nonlocal writer
        arrays = {n: v if isinstance(v, pa.Array | pa.ChunkedArray) else pa.array(v) for n, v in columns.items()}
        table = pa.table(arrays)
        if writer is None:
            file = sys.stdout.buffer if path == STDOUT else stack.enter_context(replace_file(path))
            kind = parquet.ParquetWriter if path.suffix.lower() == ".parquet" else arrow_csv.CSVWriter
            writer = stack.enter_context(kind(file, table.schema))
        writer.write_table(table)

    try:
        with ExitStack() as stack:
            yield write
    except BrokenPipeError:  # whoever reads standard output has seen enough
        raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error

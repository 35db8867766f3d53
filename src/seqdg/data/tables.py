"""Tables in files, `.csv` or `.parquet`: read whole for a fit, in batches for predictions, and written in batches."""

from __future__ import annotations

import csv
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base.errors import UsageError, unknown
from seqdg.data.frame import Column, Frame, column
from seqdg.estimator.preprocessing import GAPS

SUFFIXES = (".csv", ".parquet")
BLOCK = 2**21  # bytes of a CSV that become one batch; some more are read ahead
BATCH = 2**16  # rows of a Parquet file that are read at once
Progress = Callable[[int, int], None]  # done, of how much
Batches = Iterator[dict[str, NDArray[Any]]]


def is_table(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def names_of(path: Path) -> list[str]:
    """Of the columns, without reading the rest."""
    _pyarrow()
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        with _reading(path):
            return list(parquet.read_schema(path).names)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a table of text in UTF-8 ({error}).") from None
    if not names:
        raise UsageError(f"{path} is empty: its first line must name the columns.")
    if len(names) == 1:
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in names[0]:
                raise UsageError(
                    f"{path} has one column, '{names[0]}': its columns seem to be separated by {word}. Save it with "
                    "commas between columns and points in numbers."
                )
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise UsageError(f"{path} has two columns '{twice[0]}': rename one.")
    return names


def read_table(path: Path) -> Frame:
    """All rows; a column whose cells all look like numbers holds numbers."""
    names = names_of(path)
    parts = list(batches(path, names))
    columns = [_column(name, np.concatenate([part[name] for part in parts])) for name in names] if parts else []
    if not columns or not len(columns[0]):
        raise UsageError(f"{path} has 0 rows below the names of its columns: there is nothing to learn from.")
    return Frame(tuple(names), tuple(columns), named=True)


def read_batches(
    path: Path, wanted: Sequence[str], numeric: Collection[str], progress: Progress = lambda done, total: None
) -> Iterator[Frame]:
    """Some rows at a time, of the columns wanted (`numeric` ones are expected to hold numbers); what has no column of
    that name is left out."""
    names, first = [name for name in names_of(path) if name in set(wanted)], 0
    if not names:
        raise unknown(f"column of {path.name}", wanted[0], names_of(path))
    for part in batches(path, names, numeric, progress):
        frame = Frame(tuple(names), tuple(column(name, part[name]) for name in names), named=True, first=first)
        yield frame
        first += len(frame)


def batches(
    path: Path,
    names: Sequence[str],
    numeric: Collection[str] = (),
    progress: Progress = lambda done, total: None,
) -> Batches:
    """Columns by name: of a CSV all as text, None where a cell is empty, but for those expected to hold numbers."""
    with _reading(path):
        if path.suffix.lower() == ".parquet":
            yield from _parquet(path, names, progress)
        else:
            yield from _csv(path, names, numeric, progress)


def _csv(path: Path, names: Sequence[str], numeric: Collection[str], progress: Progress) -> Batches:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    total = path.stat().st_size
    convert = arrow_csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=list(names),
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        null_values=[""],
    )
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    with pa.OSFile(str(path), "rb") as file:  # read ahead by threads of pyarrow, which must not need the interpreter
        options = arrow_csv.ReadOptions(block_size=BLOCK)
        try:
            reader = arrow_csv.open_csv(file, read_options=options, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                return
            raise
        for i, batch in enumerate(reader, 1):
            yield {name: _cells(batch.column(name), name in numeric) for name in names}
            progress(min(i * BLOCK, total), total)  # not how far the file was read, which is far ahead
        progress(total, total)


def _cells(array: Any, numeric: bool) -> NDArray[Any]:
    import pyarrow as pa

    if numeric:
        with suppress(pa.ArrowInvalid):  # not all are plain numbers: read one by one later
            array = array.cast(pa.float64())
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _parquet(path: Path, names: Sequence[str], progress: Progress) -> Batches:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        done, total = 0, file.metadata.num_rows
        for batch in file.iter_batches(batch_size=BATCH, columns=list(names)):
            yield {name: _values(batch.column(name)) for name in names}
            done += batch.num_rows
            progress(done, total)


def _values(array: Any) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        words = array.cast(array.type.value_type).cast(pa.string())
        return np.asarray(words.to_numpy(zero_copy_only=False), dtype=object)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(array.type) or pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    found = np.asarray(array.to_numpy(zero_copy_only=False))
    return found.astype(np.float64) if found.dtype.kind in "iuf" else found


def _column(name: str, values: NDArray[Any]) -> Column:
    """Text that is all numbers and gaps as numbers."""
    if values.dtype != object:
        return column(name, values)
    numbers = np.empty(len(values))
    some_number = False
    for i, value in enumerate(values.tolist()):
        if value is None or (isinstance(value, str) and value.strip().lower() in GAPS):
            numbers[i] = np.nan
            continue
        try:
            numbers[i], some_number = float(value), True
        except (TypeError, ValueError):
            return column(name, values)
    return numbers if some_number else np.full(len(values), np.nan)


class Writer:
    """Predictions to a `.csv` or `.parquet`, batch by batch; the file is there once all of it is."""

    def __init__(self, path: Path) -> None:
        _pyarrow()
        if not is_table(path):
            raise UsageError(f"Predictions are written to a .csv or a .parquet file, and not to {path.name}.")
        self.path = path
        self.unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        self._writer: Any = None

    def __enter__(self) -> Writer:
        if not self.path.parent.is_dir():
            raise UsageError(f"There is no folder {self.path.parent} to write to.")
        return self

    def write(self, columns: Mapping[str, NDArray[Any]]) -> None:
        import pyarrow as pa

        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        try:
            if self._writer is None:
                self._writer = self._open(table.schema)
            self._writer.write_table(table)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror or error}.") from error

    def _open(self, schema: Any) -> Any:
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet

        kind = parquet.ParquetWriter if self.path.suffix.lower() == ".parquet" else arrow_csv.CSVWriter
        return kind(str(self.unfinished), schema)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
                if kind is None:
                    os.replace(self.unfinished, self.path)  # noqa: PTH105
        finally:
            self.unfinished.unlink(missing_ok=True)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read as a {path.suffix} table ({first}).") from error


def _pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError("Reading and writing tables needs pyarrow: pip install 'seqdg[tables]'.") from None

"""Tables that pyarrow does not read, whole and as pandas' data frames: ARFF (by scipy), Excel, text with blanks."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, count_things
from seqdg.data.cells import is_missing, to_word
from seqdg.data.text_files import open_text


def read_arff(path: Path) -> Any:
    """Read an ARFF file; `?` is a gap. scipy reads numbers and nominal words, and neither free text nor sparse rows."""
    pandas = _need_pandas()
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
    pandas = _need_pandas()
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
    pandas = _need_pandas()
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


def _need_pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise UsageError("Reading this table needs pandas: pip install 'seqdg[tables]'.") from None
    return pandas

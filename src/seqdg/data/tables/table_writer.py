"""Tables written to a `.csv` or `.parquet` file, or to standard output, batch by batch."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import NDArray

from seqdg.base import UsageError, replace_file

STDOUT = Path("-")  # standard output
WRITTEN = (".csv", ".parquet")


class _StandardOutput(io.RawIOBase):
    """Bytes to where `print` writes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        sys.stdout.write(self._decoder.decode(bytes(content)))
        return len(content)

    def flush(self) -> None:
        sys.stdout.flush()


class TableWriter:
    """Predictions to a `.csv` or `.parquet`, batch by batch; the file is there once all of it is.

    To the path `-`, standard output, they are written as a .csv.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() not in WRITTEN and path != STDOUT:
            raise UsageError(
                f"Predictions are written to a .csv or a .parquet file, or to standard output (-), not to {path.name}."
            )
        self.path = path
        self._stack = ExitStack()
        self._writer: Any = None

    def __enter__(self) -> TableWriter:
        if not self.path.parent.is_dir():
            raise UsageError(f"There is no folder {self.path.parent} to write to.")
        return self

    def write(self, columns: Mapping[str, NDArray[Any]]) -> None:
        import pyarrow as pa

        arrays = {n: v if isinstance(v, pa.Array | pa.ChunkedArray) else pa.array(v) for n, v in columns.items()}
        table = pa.table(arrays)
        with self._explain_errors():
            if self._writer is None:
                self._writer = self._open(table.schema)
            self._writer.write_table(table)

    def _open(self, schema: Any) -> Any:
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet

        if self.path == STDOUT:
            return arrow_csv.CSVWriter(_StandardOutput(), schema)
        kind = parquet.ParquetWriter if self.path.suffix.lower() == ".parquet" else arrow_csv.CSVWriter
        return kind(self._stack.enter_context(replace_file(self.path)), schema)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._explain_errors():
            try:
                if self._writer is not None:
                    self._writer.close()
            except BaseException as late:
                self._stack.__exit__(type(late), late, late.__traceback__)
                raise
            self._stack.__exit__(kind, error, trace)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # whoever reads standard output has seen enough
            raise
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror or error}.") from error

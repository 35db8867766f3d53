"""Predictions of every held-out row of a run, as one table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, replace_file, unknown
from seqdg.results.record import FAILED, Record
from seqdg.results.run import CLASSES
from seqdg.results.store import Store

STEPS = ("chosen", "last")
ABOUT = ("trial", "algorithm", "seed", "domain", "row", "step", "label", "predicted")


@dataclass(frozen=True)
class Written:
    """Counts of what was written: rows, trials, and trials that kept no predictions."""

    rows: int
    trials: int
    lacking: int


def write_predictions(directory: Path, out: Path, step: str = "chosen") -> Written:
    """Write the predictions of every trial for every row that it held out: as CSV, or as Parquet by the file's name.

    A line has the trial, its algorithm and seed, the row's domain and number in the data set, the step, the label, the
    most probable class and the probability of each class; or the number that is predicted.
    """
    if step not in STEPS:
        raise unknown("step", step, STEPS)
    if out.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{out} is the name of no table: let it end in .csv or .parquet.")
    if not out.resolve().parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} to write {out.name} to.")
    store = Store.open(directory)
    try:
        classes: list[str] = json.loads(store.meta(CLASSES) or "[]")
        records = [r for r in store.records("accuracy") if r.status != FAILED and r.is_tabled]
    finally:
        store.close()
    files = [(r, directory / "predictions" / f"{r.key}.{step}.safetensors") for r in records]
    kept = [(r, path) for r, path in files if path.is_file()]
    if not kept:
        raise UsageError(
            f"No predictions were kept in {directory}. Run `seqdg bench` with --save-predictions and another --out: "
            "trials that are done are not trained again for them."
        )
    write = _write_csv if out.suffix == ".csv" else _write_parquet
    rows = write(out, [*ABOUT, *(f"p_{name}" for name in classes)], (_read(r, path, classes) for r, path in kept))
    return Written(rows, len(kept), len(files) - len(kept))


def _read(record: Record, path: Path, classes: Sequence[str]) -> list[list[Any]]:
    """Return the columns of one trial."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        tensors, step = {name: file.get_tensor(name) for name in file.keys()}, int(file.metadata()["step"])  # noqa: SIM118
    if "prediction" in tensors:
        said = tensors["prediction"].tolist()
        return [*_describe_rows(record, tensors, step), tensors["label"].tolist(), said]
    p = tensors["probability"]
    names = classes or [str(i) for i in range(p.shape[1])]
    return [
        *_describe_rows(record, tensors, step),
        [names[i] for i in tensors["label"].tolist()],
        [names[i] for i in p.argmax(1).tolist()],
        *p.T.tolist(),
    ]


def _describe_rows(record: Record, tensors: Mapping[str, Any], step: int) -> list[list[Any]]:
    count = len(tensors["row"])
    return [
        [record.key] * count,
        [record.algorithm] * count,
        [record.seed] * count,
        [record.held_out[i] for i in tensors["domain"].tolist()],
        tensors["row"].tolist(),
        [step] * count,
    ]


def _write_csv(out: Path, names: Sequence[str], trials: Iterator[list[list[Any]]]) -> int:
    import io

    rows = 0
    with replace_file(out) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for columns in trials:
            writer.writerows(zip(*columns, strict=True))
            rows += len(columns[0])
        text.flush()
        text.detach()
    return rows


def _write_parquet(out: Path, names: Sequence[str], trials: Iterator[list[list[Any]]]) -> int:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "Parquet files need pyarrow: pip install 'seqdg[tables]'; or let the name end in .csv."
        ) from None
    rows, writer = 0, None
    with replace_file(out) as file:
        for columns in trials:
            table = pyarrow.table(dict(zip(names, columns, strict=True)))
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
            rows += table.num_rows
        if writer is not None:
            writer.close()
    return rows

"""Predictions of every held-out row of a run, as one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seqdg.base import UsageError, replace_file, unknown
from seqdg.results.record import FAILED, Record
from seqdg.results.source import CLASSES
from seqdg.results.store import Store

if TYPE_CHECKING:
    import pandas as pd

STEPS = ("chosen", "last")


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
    rows = _write(out, kept, classes)
    return Written(rows, len(kept), len(files) - len(kept))


def _write(out: Path, kept: Sequence[tuple[Record, Path]], classes: Sequence[str]) -> int:
    """Write trial by trial, so that one at a time is in memory, and return how many rows."""
    import pyarrow
    from pyarrow import parquet

    rows, writer = 0, None
    with replace_file(out) as file:
        for record, path in kept:
            table = _read(record, path, classes)
            if out.suffix == ".csv":
                table.to_csv(file, index=False, header=not rows, lineterminator="\n")
            else:
                columns = pyarrow.Table.from_pandas(table, preserve_index=False).replace_schema_metadata()
                writer = writer or parquet.ParquetWriter(file, columns.schema)
                writer.write_table(columns)
            rows += len(table)
        if writer is not None:
            writer.close()
    return rows


def _read(record: Record, path: Path, classes: Sequence[str]) -> pd.DataFrame:
    """Return the table of one trial."""
    import pandas as pd
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        tensors, step = {name: file.get_tensor(name) for name in file.keys()}, int(file.metadata()["step"])  # noqa: SIM118
    table = pd.DataFrame({
        "trial": record.key,
        "algorithm": record.algorithm,
        "seed": record.seed,
        "domain": [record.held_out[i] for i in tensors["domain"].tolist()],
        "row": tensors["row"].astype(int),
        "step": step,
        "label": tensors["label"].astype(float),
    })  # fmt: skip
    if "prediction" in tensors:
        return table.assign(predicted=tensors["prediction"].astype(float))
    p = tensors["probability"].astype(float)
    names = classes or [str(i) for i in range(p.shape[1])]
    table["label"] = [names[i] for i in tensors["label"].tolist()]
    table["predicted"] = [names[i] for i in p.argmax(1).tolist()]
    return table.join(pd.DataFrame(p, columns=[f"p_{name}" for name in names]))

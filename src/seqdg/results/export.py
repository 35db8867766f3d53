"""Files that others read, of records: a packed run, and a table of what every trial predicts.

A packed run is its two tables as two Parquet files, for publishing, which pandas, polars and DuckDB read too, and
`Archive`. `trials.parquet` has a row for each trial, in the order in which they were planned, and the facts of the run
in its metadata. `evaluations.parquet` has a row for each trial, step, part and domain, and a column for each criterion,
empty where a criterion was not measured. The same records give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqdg.base import UsageError, has_broken_seal, list_unfinished, replace_file, unknown, write_file
from seqdg.results.criteria import CRITERIA, USUAL
from seqdg.results.record import (
    CLASSES,
    COMMANDS,
    DOMAINS,
    DONE,
    EVALUATIONS,
    FAILED,
    FILES,
    FORMAT,
    FORMAT_VERSION,
    PACKED_COLUMNS,
    PARTS,
    SEAL,
    TRIALS,
    Evaluation,
    Record,
    RecordSource,
    find_versions,
    list_packed_types,
    make_seal,
    pack_history,
    sort_criteria,
    thin,
)
from seqdg.results.store import Store

if TYPE_CHECKING:  # pandas and pyarrow are imported where they are used: that takes longer than printing a table
    import numpy as np
    import pandas as pd
    import pyarrow
    from numpy.typing import NDArray

CURVE, CURVE_DIGITS = 20, 3  # points of a loss curve, and their digits
LEVEL = 19  # of zstd; packing is rare, and reading is as fast at every level
STEPS = ("chosen", "last")


def pack(
    runs: Sequence[tuple[Path, RecordSource]],
    directory: Path,
    exact: bool = False,
    criteria: Sequence[str] | None = None,
) -> list[str]:
    """Write the records of these runs into a directory, and return sentences that say what was left out.

    Every criterion is kept with every digit. Loss curves are thinned, and left out of trials that no table shows; with
    `exact` they are kept as they are. criteria: those to keep beside accuracy and rmse; None: all.
    """
    for name in criteria or ():
        if name not in CRITERIA:
            raise unknown("criterion", name, CRITERIA)
    records, planned, facts, notes = _gather(runs)
    if not records:
        raise UsageError(f"{runs[0][0]} holds no finished trial, so there is nothing to pack.")
    if len(find_versions(records)) > 1:
        raise UsageError("These trials were described by different versions of seqdg: pack those of one together.")
    points = 0 if exact else max(len(r.losses) for r in records)
    kept = None if criteria is None else {*USUAL, *criteria}
    records = [_prepare(r, exact, kept) for r in records]
    evaluations, facts["criteria"] = _make_evaluations(records, facts[DOMAINS])
    facts["evaluations"] = hashlib.sha256(evaluations).hexdigest()
    _write(directory / EVALUATIONS, evaluations)
    _write(directory / TRIALS, _make_trials(records, planned, facts))
    if criteria is not None:
        notes.append(f"Kept are these criteria: {', '.join(facts['criteria'])}.")
    if points > CURVE:
        notes.append(f"Loss curves have {CURVE} points of {CURVE_DIGITS} digits, means of up to {points}.")
        if any(not r.is_tabled for r in records):
            notes.append("Of trials with two domains held out, loss curves are left out.")
    return notes


def _gather(
    runs: Sequence[tuple[Path, RecordSource]],
) -> tuple[list[Record], dict[str, tuple[str, bool]], dict[str, Any], list[str]]:
    """Return the records of all runs in order, by key the group of each and whether the latest run asked for it, the
    facts about the runs, and sentences on what is left out."""
    records: dict[str, Record] = {}
    planned: dict[str, tuple[str, bool]] = {}
    missing: dict[str, str] = {}
    commands: list[dict[str, Any]] = []
    analyses: list[list[Any]] = []
    failed = twice = 0
    first, benchmark = runs[0][0], runs[0][1].benchmark
    for path, run in runs:
        if run.benchmark != benchmark:
            raise UsageError(f"{path} holds a run of '{run.benchmark}' and {first} one of '{benchmark}': pack each.")
        latest, groups = run.planned(), run.groups()
        for record in run.records():
            failed += record.status == FAILED
            twice += record.key in records
            if record.status != FAILED and record.key not in records:
                records[record.key] = record
                planned[record.key] = groups.get(record.key, ""), record.key in latest
        missing.update(latest)
        commands += [c for c in map(_shorten_paths, run.read_commands()) if c not in commands]
        analyses += [[a.name, round(a.created), _shorten_paths(a.payload)] for a in run.analyses()]
    data = dict.fromkeys(r.description["data"] for r in records.values())
    if len(data) > 1:
        raise UsageError(
            f"These runs are on {len(data)} different data sets (fingerprints {', '.join(d[:12] for d in data)}): "
            "pack those of one data set together."
        )
    notes = [f"Left out: {failed} failed trials."] if failed else []
    notes += [f"{twice} trials are in more than one run; the first is kept."] if twice else []
    known = {name: [run.meta(name) for _, run in runs] for name in (DOMAINS, CLASSES)}
    facts = {
        "version": FORMAT_VERSION, "benchmark": benchmark, COMMANDS: commands, "analyses": analyses,
        "missing": [[key, group] for key, group in missing.items() if key not in records],
        # the first that is known
        **{name: json.loads(next(filter(None, texts), "null")) for name, texts in known.items()},
    }  # fmt: skip
    return list(records.values()), planned, facts, notes


def _shorten_paths(entry: Any) -> Any:
    """Keep only the last part of absolute paths in its command."""
    if not isinstance(entry, dict) or "command" not in entry:
        return entry
    words = [Path(word).name or word if word.startswith(("/", "~")) else word for word in shlex.split(entry["command"])]
    return {**entry, "command": shlex.join(words)}


def _prepare(record: Record, exact: bool, kept: set[str] | None) -> Record:
    """Return the record as it is packed: to a millisecond, with these criteria alone, its loss curve thinned."""

    def keep(values: dict[str, list[float]]) -> dict[str, list[float]]:
        return {name: v for name, v in values.items() if v and (kept is None or name in kept)}

    losses = list(record.losses)
    if not exact:
        losses = [float(f"{x:.{CURVE_DIGITS}g}") for x in thin(losses, CURVE)] if record.is_tabled else []
    history = [Evaluation(e.step, *(keep(getattr(e, part)) for part in PARTS)) for e in record.history]
    finished = round(record.finished * 1000) / 1000
    return replace(record, history=history, losses=losses, seconds=float(record.seconds), finished=finished)


def _make_trials(records: Sequence[Record], planned: dict[str, tuple[str, bool]], facts: dict[str, Any]) -> bytes:
    import pyarrow as arrow

    rows = []
    for record in records:
        group, latest = planned[record.key]
        added = {"finished": round(record.finished * 1000), "group": group, "latest": latest}
        rows.append({**record.make_row(), **added, "digest": record.make_digest(*pack_history(record.history))})
    types = list_packed_types()
    table = arrow.table({name: arrow.array([row[name] for row in rows], types[name]) for name in PACKED_COLUMNS})
    text = json.dumps(facts, ensure_ascii=False)
    return _make_parquet(table, {FORMAT: text, SEAL: make_seal(text, rows)})


def _make_evaluations(records: Sequence[Record], domains: Sequence[str] | None) -> tuple[bytes, list[str]]:
    """Return the file of evaluations, and its criteria. Criteria with as many values share rows."""
    import pyarrow as arrow

    rows: list[dict[str, Any]] = []
    for record in records:
        known = _name_domains(record, domains)
        for e, part in product(record.history, PARTS):
            measured = getattr(e, part)
            for size in sorted({len(values) for values in measured.values()}, reverse=True):
                # a mean over several domains has none
                named = known[part] if len(known[part]) == size else [None] * size
                for i, domain in enumerate(named):
                    numbers = {name: values[i] for name, values in measured.items() if len(values) == size}
                    rows.append({"key": record.key, "step": e.step, "part": part, "domain": domain, **numbers})
    criteria = sort_criteria(tuple({name for row in rows for name in row} - {"key", "step", "part", "domain"}))
    columns = [("key", arrow.string()), ("step", arrow.int32()), ("part", arrow.string()), ("domain", arrow.string())]
    schema = arrow.schema([*columns, *((name, arrow.float64()) for name in criteria)])
    return _make_parquet(arrow.Table.from_pylist(rows, schema)), criteria


def _name_domains(record: Record, domains: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the domains that the values of each part belong to; none where that is not known."""
    protocol = record.description["protocol"]
    rest = [name for name in domains or () if name not in record.held_out]
    return {
        **{part: list(record.held_out) for part in PARTS},
        "source": list(protocol.get("train_domains") or rest),
        "validation": list(protocol.get("validation_domains") or ()),
        "together": [],
    }


def _make_parquet(table: pyarrow.Table, metadata: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a Parquet file: plain types and zstd, which every reader knows, and sums of its pages."""
    from pyarrow import parquet

    file = io.BytesIO()
    how = {"compression": "zstd", "compression_level": LEVEL, "dictionary_pagesize_limit": 1 << 24}
    with parquet.ParquetWriter(file, table.schema, store_schema=False, write_page_checksum=True, **how) as writer:
        writer.write_table(table, row_group_size=1 << 24)
        if metadata is not None:
            writer.add_key_value_metadata(metadata)
    return file.getvalue()


def _write(file: Path, data: bytes) -> None:
    for left in list_unfinished(file):  # by a process that was killed: what is packed is often published
        left.unlink(missing_ok=True)
    write_file(file, data, " Give --out another directory.")
    file.chmod(0o644)


# Predictions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """Counts of what was written: rows, trials, and trials that kept no predictions."""

    rows: int
    trials: int
    lacking: int


def write_predictions(directory: Path, out: Path, step: str = "chosen") -> Written:
    """Write the predictions of every trial for every row that it held out: as CSV, or as Parquet by the file's name.

    A line has the trial, its algorithm and seed, the row's domain and number in the data set, the name of its file
    where rows are pictures, the step, the label, the most probable class and the probability of each class; or the
    number that is predicted.
    """
    if step not in STEPS:
        raise unknown("step", step, STEPS)
    if out.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{out} is the name of no table: let it end in .csv or .parquet.")
    if not out.resolve().parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} to write {out.name} to.")
    with closing(Store.open(directory)) as store:
        classes, names = (json.loads(store.meta(name) or "[]") for name in (CLASSES, FILES))
        records = [r for r in store.records("accuracy") if r.status != FAILED and r.is_tabled]
    files = [(r, directory / "predictions" / f"{r.key}.{step}.safetensors") for r in records]
    kept = [(r, path) for r, path in files if path.is_file()]
    if not kept:
        raise UsageError(
            f"No predictions were kept in {directory}. Run `seqdg bench` with --save-predictions and another --out: "
            "trials that are done are not trained again for them."
        )
    rows = _write_predictions(out, kept, classes, names)
    return Written(rows, len(kept), len(files) - len(kept))


def _write_predictions(
    out: Path, kept: Sequence[tuple[Record, Path]], classes: Sequence[str], names: Sequence[str]
) -> int:
    """Write trial by trial, so that one at a time is in memory, and return how many rows. names: of the files of all
    rows of the data set; none where rows are no files."""
    import pyarrow
    from pyarrow import parquet

    rows, writer = 0, None
    with replace_file(out) as file:
        for record, path in kept:
            table = _read_predictions(record, path, classes)
            if names:
                table.insert(table.columns.get_loc("row") + 1, "file", [names[i] for i in table["row"]])
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


def _read_predictions(record: Record, path: Path, classes: Sequence[str]) -> pd.DataFrame:
    """Return the table of one trial."""
    import pandas as pd
    from safetensors import SafetensorError, safe_open

    try:
        if has_broken_seal(path.read_bytes()):
            raise ValueError
        with safe_open(path, framework="numpy") as file:
            tensors, step = {name: file.get_tensor(name) for name in file.keys()}, int(file.metadata()["step"])  # noqa: SIM118
    except (ValueError, TypeError, KeyError, SafetensorError):
        raise UsageError(
            f"{path} is damaged: its bytes have changed since it was written. Fetch it again, or run `seqdg bench` "
            "with --save-predictions and another --out."
        ) from None
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


def count_confusions(
    records: Sequence[Record], directory: Path, classes: int
) -> dict[str, tuple[NDArray[np.int64], int]]:
    """Count, by algorithm, held-out rows of every class (first axis) by the class that is predicted for them, over the
    trials whose predictions at the chosen step are kept, and these trials."""
    import numpy as np

    counts: dict[str, tuple[NDArray[np.int64], int]] = {}
    names = [str(i) for i in range(classes)]
    for record in records:
        path = directory / "predictions" / f"{record.key}.{STEPS[0]}.safetensors"
        if record.status != DONE or not record.is_tabled or not path.is_file():
            continue
        table = _read_predictions(record, path, names)
        matrix, trials = counts.get(record.algorithm, (np.zeros((classes, classes), np.int64), 0))
        np.add.at(matrix, (table["label"].to_numpy(int), table["predicted"].to_numpy(int)), 1)
        counts[record.algorithm] = matrix, trials + 1
    return counts

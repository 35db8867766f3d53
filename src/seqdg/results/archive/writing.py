"""Packs runs into two Parquet files: the same records give the same bytes, and every number stays the same."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqdg.base import Folder, UsageError, unknown
from seqdg.results.archive.layout import (
    EVALUATIONS,
    FORMAT,
    PARTS,
    PLACE,
    SEAL,
    TRIAL,
    TRIALS,
    VERSION,
    import_pyarrow,
    list_criteria,
    list_evaluation_rows,
    make_seal,
    make_trial_row,
    round_time,
    sort_criteria,
)
from seqdg.results.archive.old import OLD_FILE
from seqdg.results.commands import read_commands
from seqdg.results.criteria import CRITERIA, USUAL
from seqdg.results.curves import thin
from seqdg.results.record import FAILED, Evaluation, Record
from seqdg.results.run import CLASSES, DOMAINS, RecordSource
from seqdg.results.versions import find_versions

CURVE, CURVE_DIGITS = 20, 3  # points of a loss curve, and their digits
LEVEL = 19  # of zstd; packing is rare, and reading is as fast at every level


@dataclass(frozen=True)
class _Entry:
    """A record, its group in the plan, and whether the latest run asked for it."""

    record: Record
    group: str
    latest: bool


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
    import_pyarrow()
    entries, facts, notes = _gather(runs)
    if criteria is not None:
        entries = [replace(e, record=_keep_criteria(e.record, criteria)) for e in entries]
    if not entries:
        raise UsageError(f"{runs[0][0]} holds no finished trial, so there is nothing to pack.")
    records = [e.record for e in entries]
    if len(find_versions(records)) > 1:
        raise UsageError("These trials were described by different versions of seqdg: pack those of one together.")
    points = 0 if exact else max(len(r.losses) for r in records)
    entries = [replace(e, record=_prepare(e.record, exact)) for e in entries]
    facts["criteria"] = list_criteria({c: 0 for r in records for e in r.history for p in PARTS for c in getattr(e, p)})
    evaluations = _write_evaluations([e.record for e in entries], facts["criteria"], facts[DOMAINS])
    facts["evaluations"] = hashlib.sha256(evaluations).hexdigest()
    trials = _write_trials(entries, facts)
    _write(directory / EVALUATIONS, evaluations)
    _write(directory / TRIALS, trials)
    if criteria is not None:
        notes.append(f"Kept are these criteria: {', '.join(facts['criteria'])}.")
    if points > CURVE:
        notes.append(f"Loss curves have {CURVE} points of {CURVE_DIGITS} digits, means of up to {points}.")
        if any(not r.is_tabled for r in records):
            notes.append("Of trials with two domains held out, loss curves are left out.")
    if (directory / OLD_FILE).is_file():
        notes.append(f"{directory / OLD_FILE}, of an older version, is no longer read and can be deleted.")
    return notes


def _gather(runs: Sequence[tuple[Path, RecordSource]]) -> tuple[list[_Entry], dict[str, Any], list[str]]:
    """Return the records of all runs in order, the facts about the runs, and sentences on what is left out."""
    entries: dict[str, _Entry] = {}
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
            twice += record.key in entries
            if record.status != FAILED and record.key not in entries:
                entries[record.key] = _Entry(record, groups.get(record.key, ""), record.key in latest)
        missing.update({key: group for key, group in latest.items() if key not in entries})
        commands += [c for c in map(_shorten_paths, read_commands(run)) if c not in commands]
        analyses += [[a.name, round(a.created), _shorten_paths(a.payload)] for a in run.analyses()]
    data = dict.fromkeys(e.record.description["data"] for e in entries.values())
    if len(data) > 1:
        raise UsageError(
            f"These runs are on {len(data)} different data sets (fingerprints {', '.join(d[:12] for d in data)}): "
            "pack those of one data set together."
        )
    notes = [f"Left out: {failed} failed trials."] if failed else []
    notes += [f"{twice} trials are in more than one run; the first is kept."] if twice else []
    left = [[key, group] for key, group in missing.items() if key not in entries]
    facts = {
        "version": VERSION, "benchmark": benchmark, "commands": commands, "analyses": analyses, "missing": left,
        DOMAINS: _find_domains(runs, commands, list(entries.values())), CLASSES: _find_classes(runs),
    }  # fmt: skip
    return list(entries.values()), facts, notes


def _find_classes(runs: Sequence[tuple[Path, RecordSource]]) -> list[str] | None:
    known = [text for _, run in runs if (text := run.meta(CLASSES)) is not None]
    classes: list[str] | None = json.loads(known[0]) if known else None
    return classes


def _find_domains(
    runs: Sequence[tuple[Path, RecordSource]], commands: Sequence[dict[str, Any]], entries: Sequence[_Entry]
) -> list[str] | None:
    """Return the domains of the data in their order, as the runs say. Older runs do not: where every domain was held
    out in turn, and no command chose which, they were planned in that order."""
    known = [text for _, run in runs if (text := run.meta(DOMAINS)) is not None]
    if known:
        domains: list[str] = json.loads(known[0])
        return domains
    if not commands or any("--held-out" in command["command"] for command in commands):
        return None
    planned = [e.record for e in entries if e.record.is_tabled and not e.record.is_fixed]
    names = list(dict.fromkeys(name for r in planned for name in r.held_out))
    counts = {len(e.source[c]) + 1 for r in planned for e in r.history for c in e.source if c in USUAL}
    return names if counts == {len(names)} else None


def _keep_criteria(record: Record, criteria: Sequence[str]) -> Record:
    """Return the record with accuracy, or rmse, and these criteria alone."""
    for name in criteria:
        if name not in CRITERIA:
            raise unknown("criterion", name, CRITERIA)
    kept = {*USUAL, *criteria}

    def keep(values: dict[str, list[float]]) -> dict[str, list[float]]:
        return {c: v for c, v in values.items() if c in kept}

    history = [Evaluation(e.step, *(keep(getattr(e, part)) for part in PARTS)) for e in record.history]
    return replace(record, history=history)


def _shorten_paths(entry: dict[str, Any]) -> dict[str, Any]:
    """Keep only the last part of absolute paths in its command."""
    if not isinstance(entry, dict) or "command" not in entry:
        return entry
    words = [Path(word).name or word if word.startswith(("/", "~")) else word for word in shlex.split(entry["command"])]
    return {**entry, "command": shlex.join(words)}


def _prepare(record: Record, exact: bool) -> Record:
    """Return the record as it is packed: to a millisecond, its criteria in order, its loss curve thinned."""
    losses = list(record.losses)
    if not exact:
        losses = [float(f"{x:.{CURVE_DIGITS}g}") for x in thin(losses, CURVE)] if record.is_tabled else []
    history, seconds = sort_criteria(record), float(record.seconds)
    return replace(record, history=history, losses=losses, seconds=seconds, finished=round_time(record))


def _write_trials(entries: Sequence[_Entry], facts: dict[str, Any]) -> bytes:
    arrow, _ = import_pyarrow()
    special = {"time": arrow.timestamp("ms"), "numbers": arrow.list_(arrow.float64()), "bool": arrow.bool_()}
    rows = [make_trial_row(e.record, e.group, e.latest) for e in entries]
    columns = {
        name: arrow.array([row[name] for row in rows], special.get(kind) or getattr(arrow, kind)())
        for name, kind in TRIAL.items()
    }
    text = json.dumps(facts, ensure_ascii=False)
    return _write_table(arrow.table(columns), {FORMAT: text, SEAL: make_seal(text, rows)})


def _write_evaluations(records: Sequence[Record], criteria: Sequence[str], domains: Sequence[str] | None) -> bytes:
    arrow, _ = import_pyarrow()
    place: dict[str, list[Any]] = {name: [] for name in PLACE}
    numbers: dict[str, list[float | None]] = {name: [] for name in criteria}
    for record in records:
        for *where, values in list_evaluation_rows(record, domains):
            for column, value in zip(place.values(), (record.key, *where), strict=True):
                column.append(value)
            for name, column in numbers.items():
                column.append(values.get(name))
    columns = {name: arrow.array(place[name], getattr(arrow, kind)()) for name, kind in PLACE.items()}
    columns |= {name: arrow.array(column, arrow.float64()) for name, column in numbers.items()}
    return _write_table(arrow.table(columns))


def _write_table(table: Any, metadata: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a Parquet file: plain types and zstd, which every reader knows, and sums of its pages."""
    _, parquet = import_pyarrow()
    file = io.BytesIO()
    how = {"compression": "zstd", "compression_level": LEVEL, "dictionary_pagesize_limit": 1 << 24}
    with parquet.ParquetWriter(file, table.schema, store_schema=False, write_page_checksum=True, **how) as writer:
        writer.write_table(table, row_group_size=1 << 24)
        if metadata is not None:
            writer.add_key_value_metadata(metadata)
    return file.getvalue()


def _write(file: Path, data: bytes) -> None:
    try:
        Folder(file.parent).write(file.name, data)
        file.chmod(0o644)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Give --out another place.") from None

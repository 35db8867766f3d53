"""Packs runs into one file: the same records give the same bytes, and every table stays the same."""

from __future__ import annotations

import json
import lzma
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError, unknown
from seqdg.base.files import Folder
from seqdg.results.archive.columns import encode, encode_numbers, encode_shares, thin
from seqdg.results.archive.reading import FORMAT, PLAIN, VERSION, Archive
from seqdg.results.commands import read_commands
from seqdg.results.criteria import CRITERIA, USUAL
from seqdg.results.record import FAILED, Evaluation, Record, make_key
from seqdg.results.run import RecordSource
from seqdg.results.select import RULES, average_finite, select_outcomes
from seqdg.results.summary import format_cell, summarize
from seqdg.results.versions import find_versions

DIGITS = (7, 9, 12)  # of criteria other than accuracy: the first that keeps every table the same is used
CURVE, CURVE_DIGITS = 20, 3  # points of a loss curve, and their digits


@dataclass(frozen=True)
class _Entry:
    """A record, its group in the plan, and whether the latest run asked for it."""

    record: Record
    group: str
    latest: bool


def pack(
    runs: Sequence[tuple[Path, RecordSource]], file: Path, exact: bool = False, criteria: Sequence[str] | None = None
) -> list[str]:
    """Write the records of these runs, and return sentences that say what was left out.

    Accuracy is exact. Other criteria have seven digits, or more where a table would show the difference; on source
    validation only their mean over the sources is kept, as selection looks at nothing else. With `exact`, or where even
    that would change a table, they are kept as they are. Loss curves are thinned. criteria: those to keep beside
    accuracy and rmse; None: all.
    """
    entries, content, notes = _gather(runs)
    if criteria is not None:
        entries = [replace(e, record=_keep_criteria(e.record, criteria)) for e in entries]
        known = [c for c in CRITERIA if any(c in e.record.history[-1].held_out for e in entries if e.record.history)]
        notes.append(f"Kept are these criteria: {', '.join(known)}.")
    if not entries:
        raise UsageError(f"{runs[0][0]} holds no finished trial, so there is nothing to pack.")
    printed = _list_printed([e.record for e in entries])
    digits = None
    for count in () if exact else DIGITS:
        _write(file, _encode(entries, content, count))
        if _list_printed(Archive(file).records()) == printed:
            digits = count
            break
    if digits is None:
        _write(file, _encode(entries, content, None))
    else:
        notes.append(
            f"Criteria other than accuracy have {digits} digits, and on source validation their mean over the sources."
        )
        if any(not e.record.is_tabled for e in entries):
            notes.append("Of trials with two domains held out, these means and the loss curves are left out.")
    points = max(len(e.record.losses) for e in entries)
    if points > CURVE:
        notes.append(f"Loss curves have {CURVE} points of {CURVE_DIGITS} digits, means of up to {points}.")
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
    return list(entries.values()), _describe_run(benchmark, commands, analyses, left), notes


def _keep_criteria(record: Record, criteria: Sequence[str]) -> Record:
    """Return the record with accuracy, or rmse, and these criteria alone."""
    for name in criteria:
        if name not in CRITERIA:
            raise unknown("criterion", name, CRITERIA)
    kept = {*USUAL, *criteria}
    history = [
        replace(
            e,
            source={c: v for c, v in e.source.items() if c in kept},
            held_out={c: v for c, v in e.held_out.items() if c in kept},
        )
        for e in record.history
    ]
    return replace(record, history=history)


def _shorten_paths(entry: dict[str, Any]) -> dict[str, Any]:
    """Keep only the last part of absolute paths in its command."""
    if not isinstance(entry, dict) or "command" not in entry:
        return entry
    words = [Path(word).name or word if word.startswith(("/", "~")) else word for word in shlex.split(entry["command"])]
    return {**entry, "command": shlex.join(words)}


def _describe_run(benchmark: str, commands: list[Any], analyses: list[Any], missing: list[Any]) -> dict[str, Any]:
    return {
        "format": FORMAT, "version": VERSION, "benchmark": benchmark,
        "commands": commands, "analyses": analyses, "missing": missing,
    }  # fmt: skip


def _encode(entries: Sequence[_Entry], content: dict[str, Any], digits: int | None) -> bytes:
    records = [replace(e.record, finished=round(e.record.finished)) for e in entries]
    columns = {name: encode([getattr(r, name) for r in records]) for name in PLAIN}
    columns |= {"group": encode([e.group for e in entries]), "latest": encode([e.latest for e in entries])}
    if any(r.key != make_key(r.description) for r in records):
        columns["key"] = encode([r.key for r in records])
    curves = [thin(r.losses, CURVE) if digits is None or r.is_tabled else [] for r in records]
    whole = {
        **content,
        "count": len(records),
        "description": _encode_descriptions(records),
        "columns": columns,
        "history": _encode_histories([r.history if digits is None else _shorten_history(r) for r in records], digits),
        "losses": {
            "lengths": encode([len(c) for c in curves]),
            "values": encode_numbers([x for c in curves for x in c], CURVE_DIGITS),
        },
    }
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    return lzma.compress(text.encode(), check=lzma.CHECK_CRC64, preset=9 | lzma.PRESET_EXTREME)


def _encode_descriptions(records: Sequence[Record]) -> dict[str, Any]:
    """Write a column for every field of a trial's description; None where a trial has no such field."""
    if len(find_versions(records)) > 1:
        raise UsageError("These trials were described by different versions of seqdg: pack those of one together.")
    names = dict.fromkeys(name for r in records for name in r.description)
    return {name: encode([r.description.get(name) for r in records]) for name in names}


def _shorten_history(record: Record) -> list[Evaluation]:
    """Keep of source validation the accuracy, and of other criteria the mean over the sources. Of trials that hold out
    two domains these means are dropped, as selection does not look at them."""
    inner = not record.is_tabled

    def shorten(source: dict[str, list[float]]) -> dict[str, list[float]]:
        return {c: v if c in USUAL else [average_finite(v)] for c, v in source.items() if c in USUAL or not inner}

    return [replace(e, source=shorten(e.source)) for e in record.history]


def _encode_histories(histories: Sequence[Sequence[Evaluation]], digits: int | None) -> dict[str, Any]:
    """Write the shapes, the same for most, and for each criterion its numbers on sources and on held-out domains.

    The two parts of a held-out domain have the shape of the whole; `split` says which evaluations have them. `outside`
    has the shapes of what a fixed split adds: the validation domains, and all rows together.
    """
    shapes, numbers = [], dict[str, list[float]]()
    for history in histories:
        shape = []
        for e in history:
            parts = {"source": e.source, "held_out": e.held_out}
            shape.append([e.step, *([[c, len(v)] for c, v in part.items()] for part in parts.values())])
            if e.held_out_rest:
                parts |= {"held_out_fifth": e.held_out_fifth, "held_out_rest": e.held_out_rest}
            parts |= {"validation": e.validation, "together": e.together} if e.together else {}
            for name, part in parts.items():
                for criterion, values in part.items():
                    numbers.setdefault(f"{criterion}.{name}", []).extend(values)
        shapes.append(shape)
    columns = {
        name: encode_shares(values) if name.startswith("accuracy.") else encode_numbers(values, digits)
        for name, values in numbers.items()
    }
    split = [[bool(e.held_out_rest) for e in history] for history in histories]
    outside = [
        [[[[c, len(v)] for c, v in part.items()] for part in (e.validation, e.together)] for e in history]
        for history in histories
    ]
    return {
        "shape": encode(shapes),
        "numbers": columns,
        **({"split": encode(split)} if any(map(any, split)) else {}),
        **({"outside": encode(outside)} if any(e.together for history in histories for e in history) else {}),
    }


def _list_printed(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """Return every cell of the tables of every rule and criterion as printed, and what accuracy selects.

    By other criteria, rounding may decide between two that print alike, such as nets at the level of chance.
    """
    names = dict.fromkeys(c for r in records for e in r.history[:1] for c in e.held_out)
    printed: list[tuple[object, ...]] = []
    for criterion in (c for c in CRITERIA if c in names):
        for rule in RULES:
            try:
                chosen = select_outcomes(records, rule, criterion)
            except UsageError:  # the run has no trials for leave-one-out
                continue
            if criterion in USUAL:
                printed += [(rule, criterion, o.record.key, o.step) for o in chosen]
            unit = CRITERIA[criterion]
            cells = summarize(chosen, unit.factor, unit.higher_is_better)
            printed += [(rule, criterion, c.held_out, c.algorithm, format_cell(c, unit.digits)) for c in cells]
    return printed


def _write(file: Path, data: bytes) -> None:
    try:
        Folder(file.parent).write(file.name, data)
        file.chmod(0o644)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Give --out another place.") from None

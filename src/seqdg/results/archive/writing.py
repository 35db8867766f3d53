"""Runs packed into one file: the same bytes for the same records, and every table the same."""

from __future__ import annotations

import json
import lzma
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError
from seqdg.base.files import Folder
from seqdg.results.archive.columns import coded, coded_numbers, coded_shares, thinned
from seqdg.results.archive.reading import FORMAT, PLAIN, VERSION, Archive
from seqdg.results.commands import read_commands
from seqdg.results.criteria import HIGHER_IS_BETTER
from seqdg.results.record import FAILED, Evaluation, Record, key_of
from seqdg.results.run import Results
from seqdg.results.select import RULES, mean, outcomes
from seqdg.results.summary import UNITS, format_cell, summarize

DIGITS = (7, 9, 12)  # of criteria other than accuracy: as few as keep every table as it is
CURVE, CURVE_DIGITS = 20, 3  # points of a loss curve, and their digits


@dataclass(frozen=True)
class _Entry:
    """A record, the group that it was planned in, and whether the latest run asked for it."""

    record: Record
    group: str
    latest: bool


def pack(runs: Sequence[tuple[Path, Results]], file: Path, exact: bool = False) -> list[str]:
    """Writes the records of these runs, and says in sentences what was left out.

    Accuracy is exact. Other criteria have seven digits, or more where a table would show the difference, and on source
    validation only their mean over the sources, which is what selection looks at; with `exact`, or should even that
    change a table, they are kept as they are too. Loss curves are thinned.
    """
    entries, content, said = _gathered(runs)
    if not entries:
        raise UsageError(f"{runs[0][0]} holds no finished trial, so there is nothing to pack.")
    shown = _shown([e.record for e in entries])
    digits = None
    for tried in () if exact else DIGITS:
        _write(file, _bytes(entries, content, tried))
        if _shown(Archive(file).records()) == shown:
            digits = tried
            break
    if digits is None:
        _write(file, _bytes(entries, content, None))
    else:
        said.append(
            f"Criteria other than accuracy have {digits} digits, and on source validation their mean over the sources."
        )
        if any(len(e.record.held_out) > 1 for e in entries):
            said.append("Of trials with two domains held out, these means and the loss curves are left out.")
    points = max(len(e.record.losses) for e in entries)
    if points > CURVE:
        said.append(f"Loss curves have {CURVE} points of {CURVE_DIGITS} digits, means of up to {points}.")
    return said


def _gathered(runs: Sequence[tuple[Path, Results]]) -> tuple[list[_Entry], dict[str, Any], list[str]]:
    """Records of all runs, those of the first one first; what else is known; and what is left out."""
    found: dict[str, _Entry] = {}
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
            twice += record.key in found
            if record.status != FAILED and record.key not in found:
                found[record.key] = _Entry(record, groups.get(record.key, ""), record.key in latest)
        missing.update({key: group for key, group in latest.items() if key not in found})
        commands += [c for c in map(_without_places, read_commands(run)) if c not in commands]
        analyses += [[a.name, round(a.created), _without_places(a.payload)] for a in run.analyses()]
    data = dict.fromkeys(e.record.description["data"] for e in found.values())
    if len(data) > 1:
        raise UsageError(
            f"These runs are on {len(data)} different data sets (fingerprints {', '.join(d[:12] for d in data)}): "
            "pack those of one data set together."
        )
    said = [f"Left out: {failed} failed trials."] if failed else []
    said += [f"{twice} trials are in more than one run; the first is kept."] if twice else []
    left = [[key, group] for key, group in missing.items() if key not in found]
    return list(found.values()), _about(benchmark, commands, analyses, left), said


def _without_places(made: dict[str, Any]) -> dict[str, Any]:
    """Of paths in its command that start at the root of a machine's disk, the last part."""
    if not isinstance(made, dict) or "command" not in made:
        return made
    words = [Path(word).name or word if word.startswith(("/", "~")) else word for word in shlex.split(made["command"])]
    return {**made, "command": shlex.join(words)}


def _about(benchmark: str, commands: list[Any], analyses: list[Any], missing: list[Any]) -> dict[str, Any]:
    return {
        "format": FORMAT, "version": VERSION, "benchmark": benchmark,
        "commands": commands, "analyses": analyses, "missing": missing,
    }  # fmt: skip


def _bytes(entries: Sequence[_Entry], content: dict[str, Any], digits: int | None) -> bytes:
    records = [replace(e.record, finished=round(e.record.finished)) for e in entries]
    columns = {name: coded([getattr(r, name) for r in records]) for name in PLAIN}
    columns |= {"group": coded([e.group for e in entries]), "latest": coded([e.latest for e in entries])}
    if any(r.key != key_of(r.description) for r in records):
        columns["key"] = coded([r.key for r in records])
    curves = [thinned(r.losses, CURVE) if digits is None or len(r.held_out) == 1 else [] for r in records]
    whole = {
        **content,
        "count": len(records),
        "description": _described(records),
        "columns": columns,
        "history": _history([r.history if digits is None else _shortened(r) for r in records], digits),
        "losses": {
            "lengths": coded([len(c) for c in curves]),
            "values": coded_numbers([x for c in curves for x in c], CURVE_DIGITS),
        },
    }
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    return lzma.compress(text.encode(), check=lzma.CHECK_CRC64, preset=9 | lzma.PRESET_EXTREME)


def _described(records: Sequence[Record]) -> dict[str, Any]:
    """A column for every part of a trial's description."""
    names = list(records[0].description)
    if any(list(r.description) != names for r in records):
        raise UsageError("These trials were described by different versions of seqdg: pack those of one together.")
    return {name: coded([r.description[name] for r in records]) for name in names}


def _shortened(record: Record) -> list[Evaluation]:
    """On source validation, criteria other than accuracy as their mean; not at all for trials that hold out two
    domains, of which selection looks at these alone."""
    inner = len(record.held_out) > 1

    def kept(source: dict[str, list[float]]) -> dict[str, list[float]]:
        return {c: v if c == "accuracy" else [mean(v)] for c, v in source.items() if c == "accuracy" or not inner}

    return [Evaluation(e.step, kept(e.source), e.held_out) for e in record.history]


def _history(histories: Sequence[Sequence[Evaluation]], digits: int | None) -> dict[str, Any]:
    """What is where, alike for most, and a column of numbers for every criterion inside and outside the sources."""
    shapes, numbers = [], dict[str, list[float]]()
    for history in histories:
        shape = []
        for e in history:
            parts = {"source": e.source, "held_out": e.held_out}
            shape.append([e.step, *([[c, len(v)] for c, v in part.items()] for part in parts.values())])
            for name, part in parts.items():
                for criterion, values in part.items():
                    numbers.setdefault(f"{criterion}.{name}", []).extend(values)
        shapes.append(shape)
    columns = {
        name: coded_shares(values) if name.startswith("accuracy.") else coded_numbers(values, digits)
        for name, values in numbers.items()
    }
    return {"shape": coded(shapes), "numbers": columns}


def _shown(records: Sequence[Record]) -> list[tuple[object, ...]]:
    """Every cell of the tables of every rule and criterion as it is printed, and what is chosen by accuracy. By others,
    rounding may decide between two that print alike, such as nets at the level of chance."""
    known = dict.fromkeys(c for r in records for e in r.history[:1] for c in e.held_out)
    found: list[tuple[object, ...]] = []
    for criterion in (c for c in HIGHER_IS_BETTER if c in known):
        for rule in RULES:
            try:
                chosen = outcomes(records, rule, criterion)
            except UsageError:  # leave-one-out, where it was not run
                continue
            if criterion == "accuracy":
                found += [(rule, criterion, o.record.key, o.step) for o in chosen]
            unit = UNITS[criterion]
            cells = summarize(chosen, unit.factor, HIGHER_IS_BETTER[criterion])
            found += [(rule, criterion, c.held_out, c.algorithm, format_cell(c, unit.digits)) for c in cells]
    return found


def _write(file: Path, data: bytes) -> None:
    try:
        Folder(file.parent).write(file.name, data)
        file.chmod(0o644)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Give --out another place.") from None

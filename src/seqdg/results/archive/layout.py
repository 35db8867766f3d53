"""The two files of a packed run: a row for each trial, and one for each domain of each evaluation.

`trials.parquet` has a row for each trial, in the order in which they were planned. What has parts of its own, such as
settings, is JSON. `evaluations.parquet` has a row for each trial, step, part and domain, and a column for each
criterion, empty where a criterion was not measured. Numbers are doubles, and come back with every bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from seqdg.base import UsageError
from seqdg.results.criteria import CRITERIA
from seqdg.results.record import Evaluation, Record
from seqdg.results.record_rows import pack_history, pack_numbers

TRIALS, EVALUATIONS = "trials.parquet", "evaluations.parquet"
FORMAT, VERSION = "seqdg records", 2
SEAL = f"{FORMAT}, sha256"
# What an evaluation was measured on: a source's validation rows, a held-out domain, a fifth of it and the rest; of a
# fixed split also a validation domain, and the rows of several domains together.
PARTS = ("source", "held_out", "held_out_fifth", "held_out_rest", "validation", "together")
PLACE = {"key": "string", "step": "int32", "part": "string", "domain": "string"}  # of the numbers in a row
TRIAL = {
    "key": "string", "algorithm": "string", "settings": "string", "held_out": "string", "seed": "int64",
    "status": "string", "data": "string", "net": "string", "protocol": "string", "more": "string",
    "seconds": "float64", "peak_memory": "int64", "stacked": "int64", "finished": "time", "device": "string",
    "versions": "string", "commit": "string", "weights": "string", "notes": "string", "group": "string",
    "latest": "bool", "losses": "numbers", "digest": "string",
}  # fmt: skip
_AS_IT_IS = ("status", "seconds", "peak_memory", "stacked", "device", "commit", "weights")
_DESCRIBED = ("algorithm", "seed", "data")  # of the description, as they are
_DESCRIBED_AS_JSON = ("settings", "net", "protocol")
_START = datetime(1970, 1, 1)


def import_pyarrow() -> tuple[Any, Any]:
    """Return pyarrow and its parquet module."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "Packed runs are Parquet files, which need pyarrow: pip install 'seqdg[tables]'. Without it, copy the run "
            "directory itself: every command reads that, and `seqdg pack` packs it on a machine that has pyarrow."
        ) from None
    return pyarrow, parquet


def round_time(record: Record) -> float:
    """Return when a record was finished, to a millisecond."""
    return round(record.finished * 1000) / 1000


def sort_criteria(record: Record) -> list[Evaluation]:
    """Return the history with its criteria in one order, so that equal ones have equal digests."""

    def sort(values: Mapping[str, list[float]]) -> dict[str, list[float]]:
        return {name: values[name] for name in list_criteria(values) if values[name]}

    return [Evaluation(e.step, *(sort(getattr(e, part)) for part in PARTS)) for e in record.history]


def list_criteria(names: Mapping[str, Any]) -> list[str]:
    """List these criteria in the order of `CRITERIA`, those that it does not know last."""
    known = [name for name in CRITERIA if name in names]
    return [*known, *sorted(name for name in names if name not in CRITERIA)]


def make_digest(record: Record) -> str:
    """Return a hash of all that the two files hold of a trial, with every bit of its numbers."""
    names = ("key", "description", *_AS_IT_IS, "versions", "notes", "finished")
    facts = json.dumps({name: getattr(record, name) for name in names}, sort_keys=True)
    shape, numbers = pack_history(record.history)
    return hashlib.sha256(
        b"\n".join([facts.encode(), shape.encode(), numbers, pack_numbers(record.losses)])
    ).hexdigest()


def make_seal(facts: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a hash of the facts of a run, as they are written, and of its trials, by their digests."""
    trials = [[row["digest"], row["group"], row["latest"]] for row in rows]
    return hashlib.sha256(f"{facts}\n{json.dumps(trials)}".encode()).hexdigest()


def make_trial_row(record: Record, group: str, latest: bool) -> dict[str, Any]:
    """Return the row of a trial in `trials.parquet`, by column."""
    about = dict(record.description)
    return {
        "key": record.key,
        **{name: about.pop(name, None) for name in _DESCRIBED},
        **{name: _write(about.pop(name)) if name in about else None for name in _DESCRIBED_AS_JSON},
        "held_out": _write_names(about.pop("held_out")),
        "more": _write(about),
        **{name: getattr(record, name) for name in _AS_IT_IS},
        "versions": _write(record.versions),
        "notes": _write(record.notes),
        "finished": _START + timedelta(milliseconds=round(record.finished * 1000)),
        "group": group,
        "latest": latest,
        "losses": record.losses,
        "digest": make_digest(record),
    }


def read_trial_row(row: Mapping[str, Any], history: list[Evaluation], read: Callable[[str], Any]) -> Record:
    """Return the record of such a row.   read: turns JSON into what it says."""
    description = {
        **{name: row[name] for name in _DESCRIBED if row[name] is not None},
        **{name: read(row[name]) for name in _DESCRIBED_AS_JSON if row[name] is not None},
        "held_out": read(row["held_out"]) if _is_list(row["held_out"]) else [row["held_out"]],
        **read(row["more"]),
    }
    return Record(
        key=row["key"],
        description=description,
        **{name: row[name] for name in _AS_IT_IS},
        versions=read(row["versions"]),
        notes=read(row["notes"]),
        finished=round((row["finished"] - _START) / timedelta(milliseconds=1)) / 1000,
        losses=row["losses"],
        history=history,
    )


def list_evaluation_rows(
    record: Record, domains: Sequence[str] | None
) -> Iterator[tuple[int, str, str | None, dict[str, float]]]:
    """Yield step, part, domain and values of each row of a trial in `evaluations.parquet`.

    domains: of the data, where they are known. The mean over several domains, and rows of several together, have none.
    """
    names = _name_domains(record, domains)
    for evaluation in record.history:
        for part in PARTS:
            values: dict[str, list[float]] = getattr(evaluation, part)
            for count in sorted({len(v) for v in values.values()}, reverse=True):
                measured = {c: v for c, v in values.items() if len(v) == count}
                named = names[part] if len(names[part]) == count else [None] * count
                for i, name in enumerate(named):
                    yield evaluation.step, part, name, {c: v[i] for c, v in measured.items()}


def _name_domains(record: Record, domains: Sequence[str] | None) -> dict[str, list[Any]]:
    """Return the domains that the values of each part belong to; none where that is not known."""
    protocol = record.description["protocol"]
    rest = [name for name in domains or () if name not in record.held_out]
    held_out = list(record.held_out)
    return {
        **dict.fromkeys(PARTS, held_out),
        "source": list(protocol.get("train_domains") or rest),
        "validation": list(protocol.get("validation_domains") or ()),
        "together": [],
    }


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_names(names: Sequence[str]) -> str:
    """Return the one name, or several as JSON; also one that looks like that."""
    return names[0] if len(names) == 1 and not _is_list(names[0]) else _write(names)


def _is_list(text: str) -> bool:
    return text.startswith("[")

"""The record of a finished trial, what every run offers of its records, and how a record becomes rows of two tables.

A run directory and a packed run hold the same rows, of trials and of evaluations: `Store` in SQLite, `Archive` in two
Parquet files. The row of a
trial has the columns of `TRIAL`; what has parts of its own, such as settings, is JSON. Its evaluations have a row for
each step, part and domain, and a number for each criterion that was measured there. SQLite holds them as a shape, the
same for most trials of a run, and the bytes of all their numbers: as rows of SQLite they take twice as long to read.
Numbers come back with every bit.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seqdg.base import UsageError, refuse_broken
from seqdg.results.criteria import CRITERIA, USUAL, choose_usual

if TYPE_CHECKING:  # imported where it is used: a run directory is read without it
    import pyarrow

VERSION = 2  # of descriptions: it rises when a trial with the same description would give other numbers
IMPORTED = "imported"  # the name in a description of where a record is from
FILES = "files"  # the name of the file of each row, where predictions of pictures are kept
CLASSES, DOMAINS, COMMANDS = "classes", "domains", "commands"  # facts about a run, kept as JSON
DONE, DIVERGED, FAILED = "done", "diverged", "failed"
LOSS_POINTS = 200  # of the losses in a record
TRIAL = {  # by column, its type; that of `evaluations` and `numbers` is known to SQLite alone
    "key": "string", "algorithm": "string", "settings": "string", "held_out": "string", "seed": "int64",
    "status": "string", "data": "string", "net": "string", "protocol": "string", "more": "string",
    "seconds": "float64", "peak_memory": "int64", "stacked": "int64", "finished": "float64", "device": "string",
    "versions": "string", "commit": "string", "weights": "string", "notes": "string", "losses": "numbers",
    "digest": "string",
}  # fmt: skip
_AS_IT_IS = ("key", "status", "seconds", "peak_memory", "stacked", "finished", "device", "commit", "weights")
_DESCRIBED = ("algorithm", "seed", "data")  # of the description, as they are
_DESCRIBED_AS_JSON = ("settings", "net", "protocol")
OPTIONAL = ("data", *_DESCRIBED_AS_JSON)
TRIALS, EVALUATIONS = "trials.parquet", "evaluations.parquet"  # of a packed run
FORMAT, FORMAT_VERSION = "seqdg records", 2
SEAL = f"{FORMAT}, sha256"
_FOREVER = 2.0**53  # seconds, more than any record has
_LAST = ("losses", "digest")
_KINDS: Mapping[str, type | tuple[type, ...]] = {"string": str, "int64": int, "float64": (float, int)}
PACKED_COLUMNS = (*(name for name in TRIAL if name not in _LAST), "group", "latest", *_LAST)  # of the trials


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metrics after some number of steps: by criterion, a value for each source (validation rows) and each held-out
    domain. The rows of a held-out domain are also measured in two parts, a fifth and the rest, for the rule
    `oracle-split`; imported trials have neither. A fixed split also has values for each validation domain, and for the
    rows of all held-out domains together, then (where there are some) for those of all validation domains together."""

    step: int
    source: dict[str, list[float]]
    held_out: dict[str, list[float]]
    held_out_fifth: dict[str, list[float]] = field(default_factory=dict)
    held_out_rest: dict[str, list[float]] = field(default_factory=dict)
    validation: dict[str, list[float]] = field(default_factory=dict)
    together: dict[str, list[float]] = field(default_factory=dict)

    def list_values(self, criterion: str) -> list[float]:
        """Return the values of all sources, held-out domains and validation domains."""
        return [*self.source[criterion], *self.held_out[criterion], *self.validation.get(criterion, ())]


PARTS = tuple(part.name for part in fields(Evaluation)[1:])


@dataclass(frozen=True)
class Record:
    """The outcome of one trial; `description` is that of the trial."""

    key: str
    description: dict[str, Any]
    status: str
    history: list[Evaluation] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # training loss, at most a few hundred points
    seconds: float = 0.0  # this trial's share of its stack's time
    peak_memory: int = 0  # bytes, of the stack
    stacked: int = 1  # trials in the stack
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    weights: str = ""  # sha256 of the deployed weights
    error: str = ""  # traceback, if it failed
    notes: list[str] = field(default_factory=list)  # peculiarities of the data
    finished: float = 0.0  # seconds since 1970; the store sets it
    serving: float = field(default=0.0, compare=False)  # seconds to predict 1,000 rows; 0: not known; not stored

    @property
    def algorithm(self) -> str:
        return str(self.description["algorithm"])

    @property
    def held_out(self) -> tuple[str, ...]:
        return tuple(self.description["held_out"])

    @property
    def is_fixed(self) -> bool:
        """True of a trial of a fixed split, with all its test domains held out at once."""
        return bool(self.description["protocol"].get("train_domains"))

    @property
    def is_tabled(self) -> bool:
        """True of a trial that tables show. Other trials hold out two domains and serve selection by leave-one-out."""
        return is_tabled(self.description)

    @property
    def is_joint(self) -> bool:
        """True of a trial whose protocol holds out several domains at once, in every choice of so many."""
        return is_joint(self.description)

    @property
    def members(self) -> tuple[str, ...]:
        """The keys of the trials that it is mixed of, where it is a soup or an ensemble."""
        return tuple(self.description.get("soup", {}).get("members", ()))

    @property
    def seed(self) -> int:
        return int(self.description["seed"])

    @property
    def version(self) -> int:
        """The version of its description."""
        return int(self.description.get("version", VERSION))

    @property
    def is_imported(self) -> bool:
        """True of a trial that another program trained."""
        return IMPORTED in self.description

    def make_row(self) -> dict[str, Any]:
        """Return its row in the table of trials, by column, without its digest."""
        about = dict(self.description)
        held_out = about.pop("held_out")
        return {
            **{name: getattr(self, name) for name in _AS_IT_IS},
            **{name: about.pop(name, None) for name in _DESCRIBED},
            **{name: _write(about.pop(name)) if name in about else None for name in _DESCRIBED_AS_JSON},
            # one name as it is, unless it looks like several
            "held_out": held_out[0] if len(held_out) == 1 and not held_out[0].startswith("[") else _write(held_out),
            "more": _write(about),
            "versions": _write(self.versions),
            "notes": _write(self.notes),
            "losses": self.losses,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], history: list[Evaluation], read: Callable[[str], Any]) -> Record:
        """Return the record of such a row; raise any error where it is none.   read: turns JSON into what it says."""
        for name, kind in TRIAL.items():
            value = row[name] if name not in _LAST else None
            is_right = value is None or isinstance(value, _KINDS[kind])
            if not is_right or (isinstance(value, float) and not abs(value) < _FOREVER):
                raise ValueError(f"its {name} is {value!r}")
        if row["key"].startswith("/") or ".." in row["key"]:  # weights and predictions are named by it
            raise UsageError(
                f"A trial has the key {row['key']!r}, which is not a key: these records are from another program."
            )
        description = {
            **{name: row[name] for name in _DESCRIBED if row[name] is not None},
            **{name: read(row[name]) for name in _DESCRIBED_AS_JSON if row[name] is not None},
            "held_out": read_held_out(row["held_out"], read),
            **read(row["more"]),
        }
        _check_description(description)
        versions, notes = read(row["versions"]), read(row["notes"])
        if not isinstance(versions, dict) or not all(isinstance(text, str) for text in (*versions.values(), *notes)):
            raise ValueError("its versions or its notes are no texts")
        return cls(
            **{name: row[name] for name in _AS_IT_IS},
            description=description,
            history=history,
            losses=row["losses"],
            versions=versions,
            error=row.get("error", ""),
            notes=notes,
        )

    def make_digest(self, shape: str, numbers: bytes) -> str:
        """Return a hash of all that the two tables hold of it, with every bit of its numbers."""
        facts = {name: getattr(self, name) for name in (*_AS_IT_IS, "description", "versions", "notes")}
        parts = [json.dumps(facts, sort_keys=True).encode(), shape.encode(), numbers, pack_numbers(self.losses)]
        return hashlib.sha256(b"\n".join(parts)).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """The selected result of one algorithm, held-out domain and seed; its value is None where training diverged.

    held_out: the domain; of a protocol that holds out several at once, all of them, as `name_choices` has it, and the
        value is their mean.
    domain_index: of the domain among those that its trial holds out.
    together: the value over the rows of all of them, where a fixed split holds out several.
    """

    algorithm: str
    held_out: str
    seed: int
    value: float | None
    step: int
    record: Record
    domain_index: int = 0
    together: float | None = None


def _check_description(description: Mapping[str, Any]) -> None:
    """Raise a ValueError where a description is not that of a trial, so that what reads it finds its parts."""
    texts = [description.get("algorithm"), *description["held_out"]]  # none: the final training of a comparison
    parts = [description.get(name, {}) for name in (*_DESCRIBED_AS_JSON, "soup")]
    is_known = all(isinstance(text, str) for text in texts) and all(isinstance(part, dict) for part in parts)
    numbers = (description.get("seed"), description.get("version", VERSION))
    if not is_known or not all(isinstance(number, int) for number in numbers):
        raise ValueError("its description is that of no trial")


def make_key(description: Mapping[str, Any]) -> str:
    """Return the key of the trial with this description."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def summarize_trials(descriptions: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the algorithms, held-out domains and seeds of trials with these descriptions."""
    return {
        "algorithms": list(dict.fromkeys(str(d["algorithm"]) for d in descriptions)),
        "held_out": list(dict.fromkeys(domain for d in descriptions for domain in d["held_out"])),
        "seeds": sorted({d["seed"] for d in descriptions}),
    }


def find_versions(records: Iterable[Record]) -> list[int]:
    """Return the versions of these records, the oldest first."""
    return sorted({r.version for r in records})


def name_commit(record: Record) -> str:
    """Say which code made a record."""
    if not record.commit:
        return "a version of seqdg whose commit was not recorded"
    commit = record.commit.removesuffix("+")
    return f"commit {commit}" + (" with changes that were not committed" if record.commit.endswith("+") else "")


def describe_versions(records: Sequence[Record]) -> list[str]:
    """Say which records another version made, whose numbers today's trials would not repeat."""
    versions = find_versions(records)
    sentences = [
        f"{'These' if versions == [version] else 'Some of these'} trials were made by another version of seqdg "
        f"(description {version}; today's is {VERSION}), whose methods give other numbers."
        for version in versions
        if version != VERSION
    ]
    if len(versions) > 1:
        sentences.append("This run mixes trials of different versions of seqdg: do not compare them.")
    return sentences


# Runs -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis of a run, kept beside its records."""

    name: str
    created: float  # seconds since 1970
    payload: Any  # anything that JSON can hold


@dataclass(frozen=True)
class RunningGroup:
    """A group of trials that is being trained."""

    group: str  # its key
    algorithm: str
    trials: int
    step: int
    steps: int


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run when it was last noted."""

    started: float  # seconds since 1970
    noted: float = 0.0
    share: float = 0.0  # of the work that was missing, by time


class RecordSource(ABC):
    """The records of a run and the facts about it."""

    @property
    @abstractmethod
    def benchmark(self) -> str: ...

    @abstractmethod
    def records(self, criterion: str | None = None) -> list[Record]:
        """Return the records in the order in which they were planned; with a criterion, at least what a table of it
        needs."""

    @abstractmethod
    def meta(self, name: str) -> str | None: ...

    @abstractmethod
    def analyses(self, name: str | None = None) -> list[Analysis]:
        """Return all analyses, or those of one name, the oldest first."""

    @abstractmethod
    def statuses(self) -> dict[str, str]:
        """Return the status of every trial that has a record, by key."""

    @abstractmethod
    def planned(self) -> dict[str, str]:
        """Return the trials of the latest run by key, each with its group."""

    @abstractmethod
    def groups(self) -> dict[str, str]:
        """Return every trial that was ever planned by key, with its latest group."""

    def failures(self) -> list[tuple[str, str]]:
        """Return the key and traceback of every failed trial, the latest first."""
        return []

    def run(self) -> RunProgress | None:
        """Return how far the latest run is."""
        return None

    def running(self) -> list[RunningGroup]:
        """Return what is being trained."""
        return []

    def read_commands(self) -> list[dict[str, Any]]:
        """Return the commands that made the run, the oldest first."""
        with refuse_broken("The commands of this run cannot be read"):
            commands: list[dict[str, Any]] = json.loads(self.meta(COMMANDS) or "[]")
            check_facts({COMMANDS: commands})
        return commands

    def close(self) -> None:  # noqa: B027  a packed run has nothing to close
        """Close the file."""


def check_facts(facts: Mapping[str, Any]) -> None:
    """Raise a ValueError where what JSON says of a run is not what a run writes of itself."""

    def is_list(value: Any, kind: type) -> bool:
        return isinstance(value, list) and all(isinstance(item, kind) for item in value)

    for name in (CLASSES, DOMAINS):
        if facts.get(name) is not None and not is_list(facts[name], str):
            raise ValueError(f"its {name} are no names")
    commands = facts.get(COMMANDS, [])
    if not is_list(commands, dict):
        raise ValueError("its commands are no list")
    for entry in commands:
        kinds = {"algorithms": str, "held_out": str, "seeds": int}
        search = entry.get("search") or {"space": ""}
        is_known = isinstance(entry.get("command"), str) and isinstance(search, dict)
        if not is_known or not all(is_list(entry.get(name), kind) for name, kind in kinds.items()):
            raise ValueError("one of its commands is not a command")
        if not isinstance(search.get("space"), str):
            raise ValueError("a search of it has no space")
        shlex.split(entry["command"])


def find_usual_criterion(run: RecordSource) -> str:
    """Return the criterion that tables of a run show by default: accuracy, or the RMSE for regression."""
    classes = run.meta(CLASSES)
    if classes is not None:
        return USUAL[0] if json.loads(classes) else USUAL[1]
    return find_usual_criterion_in(run.records(USUAL[1]))


def find_usual_criterion_in(records: Sequence[Record]) -> str:
    """Choose the usual criterion from records: the RMSE if they hold it, else accuracy."""
    return choose_usual({name for r in records for e in r.history[-1:] for name in e.held_out})


# Rows -----------------------------------------------------------------------------------------------------------------


def is_tabled(description: Mapping[str, Any]) -> bool:
    """Say whether tables show the trial that is described so: one of a fixed split, or one with as many domains held
    out as its protocol says."""
    return (
        bool(description["protocol"].get("train_domains")) or len(description["held_out"]) == 1 or is_joint(description)
    )


def is_joint(description: Mapping[str, Any]) -> bool:
    """Say whether its protocol holds out several domains at once, in every choice of so many."""
    return int(description["protocol"].get("held_out_together", 1)) > 1


def read_held_out(text: str, read: Callable[[str], Any]) -> list[str]:
    """Return the names of a row's held-out domains: one, or several as JSON."""
    return list(read(text)) if text.startswith("[") else [text]


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def list_packed_types() -> dict[str, pyarrow.DataType]:
    """Return the type of each of PACKED_COLUMNS."""
    import pyarrow as arrow

    kinds = {**TRIAL, "group": "string"}
    types = {name: getattr(arrow, kind)() for name, kind in kinds.items() if kind != "numbers"}
    return types | {"finished": arrow.timestamp("ms"), "latest": arrow.bool_(), "losses": arrow.list_(arrow.float64())}


def make_seal(facts: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return a hash of the facts of a run, as they are written, and of its trials, by their digests."""
    trials = [[row["digest"], row["group"], row["latest"]] for row in rows]
    return hashlib.sha256(f"{facts}\n{json.dumps(trials)}".encode()).hexdigest()


def pack_numbers(numbers: Sequence[float]) -> bytes:
    """Return doubles with the lowest byte first."""
    return struct.pack(f"<{len(numbers)}d", *numbers)


def unpack_numbers(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def pack_history(history: Iterable[Evaluation]) -> tuple[str, bytes]:
    """Return the shape of a history as JSON, the same for most records of a run, and its numbers as bytes."""
    shape, numbers = flatten_history(history)
    return shape, pack_numbers(numbers)


def flatten_history(history: Iterable[Evaluation]) -> tuple[str, list[float]]:
    """Return the shape of a history, and its numbers in the order of the shape."""
    shape, numbers = [], []
    for e in history:
        parts = [getattr(e, part) for part in PARTS]
        while len(parts) > 2 and not parts[-1]:  # most trials are of no fixed split
            parts.pop()
        ordered = [[(name, part[name]) for name in sort_criteria(tuple(part))] for part in parts]
        shape.append((e.step, *([(name, len(values)) for name, values in part] for part in ordered)))
        numbers += [x for part in ordered for _, values in part for x in values]
    return json.dumps(shape), numbers


@lru_cache(maxsize=256)
def sort_criteria(names: Sequence[str]) -> list[str]:
    """List these criteria in the order of `CRITERIA`, those that it does not know last."""
    known = [name for name in CRITERIA if name in names]
    return [*known, *sorted(name for name in names if name not in CRITERIA)]


def unpack_history(shape: str, numbers: bytes, criterion: str | None = None) -> list[Evaluation]:
    """Return the history; with a criterion, only the values of that criterion."""
    values = unpack_numbers(numbers)
    return [
        Evaluation(step, *[{name: values[start:stop] for name, start, stop in part} for part in parts])
        for step, parts in _locate(shape, criterion)
    ]


@lru_cache(maxsize=256)
def _locate(shape: str, criterion: str | None) -> list[tuple[int, list[list[tuple[str, int, int]]]]]:
    """Return for each evaluation its step, and by part the criteria and where their numbers begin and end."""
    start, evaluations = 0, []
    for step, *parts in json.loads(shape):
        slices: list[list[tuple[str, int, int]]] = []
        for part in parts:
            slices.append([])
            for name, count in part:
                if criterion in (None, name):
                    slices[-1].append((name, start, start + count))
                start += count
        evaluations.append((step, slices))
    return evaluations


def gather_rows(rows: Iterable[tuple[int, str, Mapping[str, int]]]) -> tuple[str, list[int]]:
    """Return the shape of a trial from the step, part and numbers of its rows, and where each of its numbers is."""
    history: list[Evaluation] = []
    for step, part, numbers in rows:
        if not history or history[-1].step != step:
            history.append(Evaluation(step, *({} for _ in PARTS)))
        for name, where in numbers.items():
            getattr(history[-1], part).setdefault(name, []).append(where)
    shape, order = flatten_history(history)
    return shape, [int(where) for where in order]


def thin(curve: Sequence[float], points: int) -> list[float]:
    """Divide a curve into stretches and return their means. Where they cannot be equally long, the first are longer."""
    if len(curve) <= points:
        return list(curve)
    stretches = [curve[start:stop] for start, stop in pairwise([0, *list_ends(len(curve), points)])]
    return [sum(stretch) / len(stretch) for stretch in stretches]


def list_ends(length: int, points: int) -> list[int]:
    """List where these stretches of a curve end."""
    size, more = divmod(length, points)
    return [size * i + min(i, more) for i in range(1, points + 1)]

"""The record of a finished trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DONE, DIVERGED, FAILED = "done", "diverged", "failed"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The metrics after some number of steps: by criterion, a value for each source (validation rows) and each held-out
    domain. The rows of a held-out domain are also measured in two parts, a fifth and the rest, for the rule
    `oracle-split`; older records have neither. A fixed split also has values for each validation domain, and for the
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
        return self.is_fixed or len(self.held_out) == 1

    @property
    def members(self) -> tuple[str, ...]:
        """The keys of the trials that it is mixed of, where it is a soup or an ensemble."""
        return tuple(self.description.get("soup", {}).get("members", ()))

    @property
    def seed(self) -> int:
        return int(self.description["seed"])


def make_key(description: Mapping[str, Any]) -> str:
    """Return the key of the trial with this description."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]

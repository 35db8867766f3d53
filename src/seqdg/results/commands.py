"""The commands that made a run, kept in its store: what was asked for, and how to ask again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seqdg.bench.trial import Trial
from seqdg.results.run import Results
from seqdg.results.store import Store

META = "commands"


def remember(store: Store, command: str, trials: Sequence[Trial]) -> None:
    """Adds a command with the algorithms, held-out domains and seeds that it asked for; once, however often it ran."""
    single = [t for t in trials if len(t.held_out) == 1]
    entry = {
        "command": command,
        "algorithms": list(dict.fromkeys(str(t.description()["algorithm"]) for t in single)),
        "held_out": list(dict.fromkeys(t.held_out[0] for t in single)),
        "seeds": sorted({t.seed for t in single}),
    }
    known = remembered(store)
    if entry not in known:
        store.set_meta(META, json.dumps([*known, entry]))


def remembered(store: Results) -> list[dict[str, Any]]:
    """The oldest first."""
    found: list[dict[str, Any]] = json.loads(store.meta(META) or "[]")
    return found

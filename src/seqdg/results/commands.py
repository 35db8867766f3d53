"""The commands that made a run, kept in its store: what was asked for, and how to ask again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seqdg.results.run import RecordSource
from seqdg.results.store import Store

META = "commands"


def add_command(store: Store, command: str, descriptions: Sequence[Mapping[str, Any]]) -> None:
    """Store a command with the algorithms, held-out domains and seeds of the trials that it asked for.

    A command that runs again is stored once.
    """
    single = [d for d in descriptions if len(d["held_out"]) == 1 or d["protocol"].get("train_domains")]
    entry = {
        "command": command,
        "algorithms": list(dict.fromkeys(str(d["algorithm"]) for d in single)),
        "held_out": list(dict.fromkeys(domain for d in single for domain in d["held_out"])),
        "seeds": sorted({d["seed"] for d in single}),
    }
    commands = read_commands(store)
    if entry not in commands:
        store.set_meta(META, json.dumps([*commands, entry]))


def read_commands(source: RecordSource) -> list[dict[str, Any]]:
    """Return the commands, the oldest first."""
    commands: list[dict[str, Any]] = json.loads(source.meta(META) or "[]")
    return commands

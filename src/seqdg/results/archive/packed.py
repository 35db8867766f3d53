"""The part of reading a packed run that does not depend on its file format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from seqdg.results.run import Analysis, RunningGroup, RunProgress


class PackedRun:
    """The facts of a packed run; a subclass reads them, and the records.

    facts: its benchmark, commands, analyses, and the trials that were asked for and are missing, each with its group;
    of newer ones also the domains and classes of the data.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        keys: Sequence[str],
        statuses: Sequence[str],
        groups: Sequence[str],
        latest: Sequence[bool],
    ) -> None:
        self.facts = facts
        self._keys, self._statuses, self._groups, self._latest = keys, statuses, groups, latest

    @property
    def benchmark(self) -> str:
        return str(self.facts["benchmark"])

    def meta(self, name: str) -> str | None:
        known = name in ("commands", "domains", "classes") and self.facts.get(name) is not None
        return json.dumps(self.facts[name]) if known else None

    def analyses(self, name: str | None = None) -> list[Analysis]:
        analyses = [Analysis(*entry) for entry in self.facts["analyses"]]
        return [a for a in analyses if name in (None, a.name)]

    def statuses(self) -> dict[str, str]:
        return dict(zip(self._keys, self._statuses, strict=True))

    def planned(self) -> dict[str, str]:
        known = zip(self._keys, self._groups, self._latest, strict=True)
        return {**{key: group for key, group, latest in known if latest}, **dict(self.facts["missing"])}

    def groups(self) -> dict[str, str]:
        known = {key: group for key, group in zip(self._keys, self._groups, strict=True) if group}
        return {**known, **dict(self.facts["missing"])}

    def failures(self) -> list[tuple[str, str]]:
        return []

    def run(self) -> RunProgress | None:
        return None

    def running(self) -> list[RunningGroup]:
        return []

    def close(self) -> None:
        """There is nothing to close."""

"""Every analysis that was run, as a section of the report: from what the store has of it."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.report.section import Section
from seqdg.store import Analysis


def sections(analyses: Sequence[Analysis]) -> list[Section]:
    return []

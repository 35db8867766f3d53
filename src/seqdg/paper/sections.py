"""Every analysis that was run, as a section of the report: from what the store has of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seqdg.paper.pictures import alignment, cost, ensemble, invariance, ranks, similarity, tsne
from seqdg.report.draw.theme import Looks, styles
from seqdg.report.section import Section, Table
from seqdg.results.run import Analysis

PICTURES: dict[str, Callable[[Mapping[str, Any], Looks], Section]] = {
    "invariance": invariance.shown,
    "tsne": tsne.shown,
    "similarity": similarity.shown,
    "ranks": ranks.shown,
    "alignment": alignment.shown,
    "ensemble": ensemble.shown,
    "cost": cost.shown,
}


HOW = "How this was made"


def looked_at(analyses: Sequence[Analysis]) -> list[str]:
    """All algorithms that they are of."""
    return list(dict.fromkeys(n for a in analyses if a.name in PICTURES for n in a.payload["of"]["algorithms"]))


def sections(analyses: Sequence[Analysis], looks: Looks | None = None) -> list[Section]:
    """The newest of each kind and subject, in a fixed order, with its command; an algorithm looks the same in all."""
    looks = looks or styles(looked_at(analyses))
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for analysis in analyses:
        if analysis.name in PICTURES:
            newest[analysis.name, json.dumps(analysis.payload["of"], sort_keys=True)] = analysis.payload
    found: list[Section] = []
    for name in PICTURES:
        for i, payload in enumerate(p for (kind, _), p in newest.items() if kind == name):
            found.append(_numbered(section(name, payload, looks), i))
    return found


def section(name: str, payload: Mapping[str, Any], looks: Looks | None = None) -> Section:
    """One analysis, with how it was made."""
    shown = PICTURES[name](payload, looks or styles(payload["of"]["algorithms"]))
    first, *others = shown.text
    return replace(shown, text=[" ".join([first, *shown.found]), *others], aside=[*shown.aside, _made(payload)])


def learned(shown: Sequence[Section]) -> str:
    """What the analyses say of what was learned, one sentence each."""
    named = [
        s for name in ("alignment", "invariance", "tsne", "similarity") for s in shown if s.name == name and s.found
    ]
    if not named:
        return "No analysis has been run. `seqdg analyze invariance`, `tsne` and others look into it, and show here."
    said = [s.found[-1] if s.name == "invariance" else s.found[0] for s in named[:3]]
    return " ".join([*said, "Of how many seeds that is stands below, with each."])


def _made(payload: Mapping[str, Any]) -> Table:
    settings = payload["of"]["settings"]
    rows = [(n, [", ".join(f"{k} {v}" for k, v in own.items()) or "no settings"]) for n, own in settings.items()]
    return Table(HOW, ["algorithm", "settings"], [*rows, ("command", [payload.get("command", "")])])


def _numbered(shown: Section, i: int) -> Section:
    """Anchors and files of a second one of a kind have names of their own."""
    if i == 0:
        return shown
    figures = [replace(f, name=f"{f.name}-{i + 1}") for f in shown.figures]
    return replace(shown, name=f"{shown.name}-{i + 1}", title=f"{shown.title} ({i + 1})", figures=figures)

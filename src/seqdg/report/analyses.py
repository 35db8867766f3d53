"""Sections of the report, and analyses by name, which have one each.

An analysis is one file in `seqdg/paper/` that computes numbers, shows them, and registers itself under the file's name.
There is no central list: the file is imported when its analysis is asked for, so a report imports only what it shows.

What the store keeps of an analysis is its payload: `of` says what was trained, `numbers` what was computed, `command`
how to repeat it.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from seqdg.base import UsageError
from seqdg.report.charts import Figure, Looks, make_styles
from seqdg.report.run_contents import RunContents
from seqdg.results import Analysis

PACKAGE = "seqdg.paper"
HOW = "How this was made"
Payload = Mapping[str, Any]
_kinds: dict[str, AnalysisKind] = {}


@dataclass(frozen=True)
class Table:
    """Each row has a head and cells; a cell that starts with a star is the best of its column."""

    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    tips: Mapping[tuple[str, int], str] = field(default_factory=dict)  # by row and cell, what more there is to say
    is_text: bool = False  # its cells are aligned to the left


@dataclass(frozen=True)
class Section:
    name: str  # of its anchor in the page
    title: str
    text: Sequence[str] = ()
    points: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    aside: Sequence[Table] = ()  # folded away
    code: Sequence[str] = ()
    findings: Sequence[str] = ()  # in sentences


@dataclass(frozen=True)
class AnalysisKind:
    """One kind of analysis: the functions that compute and show it, and its defaults."""

    name: str
    compute: Callable[..., dict[str, Any]]  # from a `seqdg.paper.study.Study` to what JSON can hold
    show: Callable[[Payload, Looks], Section]
    algorithms: tuple[str, ...]
    trials: int
    steps: int = 300
    has_first_phase: bool = False  # whose length may differ from that of the training of the algorithms
    everywhere: bool = False  # holds out every domain in turn, unless one is named
    order: int = 100  # of its section among the others
    headline: tuple[int, int] | None = None  # for "What did it learn?": its position there, and which of its sentences


def register_analysis(kind: AnalysisKind) -> None:
    """Make an analysis known by its name."""
    known = _kinds.setdefault(kind.name, kind)
    if known.compute.__module__ != kind.compute.__module__:
        modules = f"{known.compute.__module__} and {kind.compute.__module__}"
        raise UsageError(f"Two analyses are named '{kind.name}', in {modules}. Rename one.")


def find_analysis(name: str) -> AnalysisKind | None:
    """Return the analysis of that name, or None where no file has it."""
    if name not in _kinds and name in _list_files():
        importlib.import_module(f"{PACKAGE}.{name}")
    return _kinds.get(name)


def list_analyses() -> tuple[str, ...]:
    """Return the names of all analyses, in the order of their sections."""
    for name in _list_files():
        find_analysis(name)
    return tuple(sorted(_kinds, key=lambda name: (_kinds[name].order, name)))


def _list_files() -> list[str]:
    folder = importlib.import_module(PACKAGE)
    return [module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_")]


def list_analyzed_algorithms(analyses: Sequence[Analysis]) -> list[str]:
    """Return the algorithms that the analyses are of."""
    return list(dict.fromkeys(n for a in analyses if find_analysis(a.name) for n in a.payload["of"]["algorithms"]))


def show_analyses(analyses: Sequence[Analysis], looks: Looks | None = None) -> list[Section]:
    """Make a section of the newest analysis of each kind and subject; an algorithm looks the same in all."""
    looks = looks or make_styles(list_analyzed_algorithms(analyses))
    newest: dict[tuple[str, str], Payload] = {}
    for analysis in analyses:
        if find_analysis(analysis.name):
            newest[analysis.name, json.dumps(analysis.payload["of"], sort_keys=True)] = analysis.payload
    sections: list[Section] = []
    for name in sorted({name for name, _ in newest}, key=lambda name: (_kinds[name].order, name)):
        for i, payload in enumerate(p for (other, _), p in newest.items() if other == name):
            sections.append(_number(show_analysis(name, payload, looks), i))
    return sections


def show_analysis(name: str, payload: Payload, looks: Looks | None = None) -> Section:
    """Make the section of one analysis, with how it was made."""
    kind = find_analysis(name)
    assert kind is not None
    section = kind.show(payload, looks or make_styles(payload["of"]["algorithms"]))
    first, *others = section.text
    return replace(
        section, text=[" ".join([first, *section.findings]), *others], aside=[*section.aside, _list_settings(payload)]
    )


def summarize_learning(sections: Sequence[Section], run: RunContents) -> str:
    """Say in a few sentences what the analyses of a run show of what was learned, or how to analyze it."""
    ranked = sorted((kind.headline, kind.name) for kind in _kinds.values() if kind.headline)
    sentences = [s.findings[which] for (_, which), name in ranked for s in sections if s.name == name and s.findings]
    if not sentences:
        command = propose_analysis(run)
        hint = f" `{command}` makes one, for the next report; there are others in place of invariance, such as tsne."
        return "No analysis has been run." + (hint if command else "")
    return " ".join([*sentences[:3], "Seed counts are listed with each analysis."])


def propose_analysis(run: RunContents) -> str:
    """Return the command of an analysis on the benchmark and data of a run, kept in its directory; "" where the run is
    packed, or where no `seqdg bench` made it."""
    made_by = str(run.commands[-1]["command"]) if run.commands else ""
    if run.directory is None or not made_by.startswith("seqdg bench"):
        return ""
    try:
        words = [part for word in shlex.split(made_by) for part in word.split("=", 1)]  # --data=DIR is --data DIR
    except ValueError:  # a command that somebody wrote by hand, with a quote that does not end
        return ""
    files = [word for word in words if word.endswith(".toml") and Path(word).stem == run.benchmark]
    data = [option for option in pairwise(words) if option[0] == "--data"]
    arguments = [*(files or [run.benchmark])[:1], *(data[-1] if data else ())]
    return shlex.join(["seqdg", "analyze", "invariance", *arguments, "--out", str(run.directory)])


def _list_settings(payload: Payload) -> Table:
    settings = payload["of"]["settings"]
    rows = [
        (name, [", ".join(f"{k} {v}" for k, v in values.items()) or "no settings"]) for name, values in settings.items()
    ]
    return Table(HOW, ["algorithm", "settings"], [*rows, ("command", [payload.get("command", "")])])


def _number(section: Section, i: int) -> Section:
    """Give the anchor and the files of a second section of a kind names of their own."""
    if i == 0:
        return section
    figures = [replace(f, name=f"{f.name}-{i + 1}") for f in section.figures]
    return replace(section, name=f"{section.name}-{i + 1}", title=f"{section.title} ({i + 1})", figures=figures)


# What the analyses share ---------------------------------------------------------------------------------------------


def make_section(
    payload: Payload,
    name: str,
    title: str,
    figures: Sequence[Figure],
    tables: Sequence[Table],
    findings: Sequence[str] = (),
    about: str = "",
    text: Sequence[str] = (),
) -> Section:
    """Make the section of an analysis: what it was made on, why some algorithms are not shown, and what is.

    about: more of what it was made on, behind the first sentences.   text: sentences at the end.
    """
    first = f"{describe_study(payload)} {about}".strip()
    refused = payload["numbers"].get("refused", {}).values()
    return Section(name, title, [first, *refused, *text], (), figures, tables, findings=findings)


def describe_study(payload: Payload) -> str:
    """Say on what an analysis was made: `Held out: dslr. 3 seeds, 500 steps.`"""
    study = payload["of"]
    seeds, steps = study["seeds"], sorted(set(study["steps"].values()))
    count = "One seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    length = " or ".join(str(n) for n in steps)
    return f"Held out: {study['held_out']}. {count}, {length} steps."


def format_significant(value: float, sign: str = "") -> str:
    """Format a number with three significant digits, as in `2.00` and `0.0312`."""
    return f"{value:{sign}#.3g}".rstrip(".")


def format_mean(mean: float, spread: float | None, digits: int = 2) -> str:
    """Format a mean as in `0.71 ± 0.02`."""
    return f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread is not None else "")

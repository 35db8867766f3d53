"""The report of a run: one self-contained HTML page."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from seqdg.base.errors import UsageError
from seqdg.report.analyses import list_analyzed_algorithms, show_analyses, summarize_learning
from seqdg.report.answers import answer_questions
from seqdg.report.charts import MISSING, PAGE_FONT, Figure, can_draw, compile_chart, draw_for_page, load_vega
from seqdg.report.contents import (
    RunContents,
    describe_diverged,
    describe_missing,
    list_commands,
    list_facts,
    list_settings,
)
from seqdg.report.figures import draw_cost, draw_curves, draw_differences, draw_domains
from seqdg.report.panels import Cloud, Lines
from seqdg.report.published import find_table
from seqdg.report.section import Page, Section, Table
from seqdg.report.sheet import DIFFERENCES, PAIRING, Sheet, build_sheet, choose_baseline, list_differences
from seqdg.report.theme import DARK, LIGHT, Looks, make_styles
from seqdg.results.criteria import CRITERIA
from seqdg.results.select import Outcome, select_outcomes
from seqdg.results.summary import AVERAGE, summarize


def build_page(
    run: RunContents, select: str = "source-val", criterion: str = "accuracy", baseline: str | None = None
) -> Page:
    """Build the page of a run, finished or not. The baseline is `agg` where it ran, unless named."""
    chosen = select_outcomes(run.records, select, criterion)
    lacking = describe_missing(run) if run.records or run.commands else []
    title = f"{run.benchmark}: domain generalization compared"
    if not chosen:
        lead = "No trial has finished yet, so there is nothing to compare."
        return Page(title, lead, (), lacking, [*show_analyses(run.analyses), _show_commands(run)])
    names = list(dict.fromkeys(o.algorithm for o in chosen))
    looks = make_styles([*names, *list_analyzed_algorithms(run.analyses)])
    sheet = _build_sheet(run, chosen, select, criterion, baseline or choose_baseline(names))
    warnings = [*lacking, *(f"Diverged: {text}." for text in describe_diverged(run))]
    sections = [_show_results(sheet, run, looks), *_show_differences(sheet, looks)]
    curves, cost = draw_curves(sheet, chosen, looks), draw_cost(sheet, chosen, looks)
    sections += [Section("training", "Training", figures=[curves])] if curves else []
    sections += [Section("cost", "Cost", figures=[cost])] if cost else []
    looked_into = show_analyses(run.analyses, looks)
    sections += [*looked_into, *_show_paper(sheet), _show_commands(run)]
    answers = [*answer_questions(sheet, chosen), ("What did it learn?", summarize_learning(looked_into))]
    return Page(title, sheet.footnote, answers, warnings, sections)


def _build_sheet(run: RunContents, chosen: Sequence[Outcome], select: str, criterion: str, baseline: str) -> Sheet:
    several = len({o.algorithm for o in chosen}) > 1
    against = "paper" if criterion == "accuracy" and find_table(run.benchmark, run.records) else None
    tested = baseline if several else None
    return build_sheet(run.records, select, criterion, tested, against, run.benchmark, chosen)


def _show_results(sheet: Sheet, run: RunContents, looks: Looks) -> Section:
    rows = []
    for name in sheet.columns:
        values = [("*" if sheet.place(r, name) == 0 else "") + sheet.value(r, name) for r in sheet.rows]
        rows.append((name, [*values, str(max(c.trials for c in sheet.cells if c.algorithm == name))]))
    table = Table(sheet.footnote, ["algorithm", *sheet.rows, "trials"], rows)
    return Section("results", "Results", sheet.remarks, (), [draw_domains(sheet, looks)], [table],
                   [_show_criteria(run, sheet.select)])  # fmt: skip


def _show_criteria(run: RunContents, select: str) -> Table:
    """Show the average over held-out domains by every criterion that the run has."""
    columns: dict[str, dict[str, str]] = {}
    for criterion in CRITERIA:
        try:
            chosen = select_outcomes(run.records, select, criterion)
        except UsageError:  # only runs with two classes have AUROC
            continue
        unit = CRITERIA[criterion]
        sheet = Sheet(summarize(chosen, unit.factor, unit.higher_is_better), select, criterion)
        columns[unit.title] = {
            n: ("*" if sheet.place(AVERAGE, n) == 0 else "") + sheet.value(AVERAGE, n) for n in sheet.columns
        }
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [(name, [column.get(name, "-") for column in columns.values()]) for name in names]
    return Table("Average over the held-out domains by other criteria, each selected by itself",
                 ["algorithm", *columns], rows)  # fmt: skip


def _show_differences(sheet: Sheet, looks: Looks) -> list[Section]:
    figure = draw_differences(sheet, looks)
    if figure is None:
        return []
    rows = [(head, cells) for head, *cells in list_differences(sheet.paired, sheet.unit.digits)]
    table = Table(f"Paired differences from {sheet.paired[0].baseline}", DIFFERENCES, rows)
    return [Section("differences", "Is it real?", [PAIRING], (), [figure], [table])]


def _show_paper(sheet: Sheet) -> list[Section]:
    if sheet.paper is None:
        return []
    rows = []
    domains = [r for r in sheet.rows if any((r, a) in sheet.paper.values for a in sheet.columns)]
    for name, column in sheet.paper.columns.items():
        rows.append((f"{name}, here", [sheet.value(r, name) for r in domains]))
        rows.append((f"{column}, paper", [sheet.published(r, name) or "-" for r in domains]))
    table = Table(f"Beside {sheet.paper.table.place} of the paper", ["algorithm", *domains], rows)
    text = ["Set beside each other, not compared: these differ in what the notes say."]
    return [Section("paper", "Beside the paper", text, sheet.paper.notes, (), [table])]


def _show_commands(run: RunContents) -> Section:
    facts = Table("What these results are of", ["", ""], [(name, [text]) for name, text in list_facts(run)])
    settings = Table("Settings of every algorithm", ["algorithm", "settings"],
                     [(name, [" | ".join(texts)]) for name, texts in list_settings(run)])  # fmt: skip
    tables = [facts, settings] if run.records else []
    return Section("reproduce", "How to reproduce it", (), (), (), tables, (), list_commands(run))


def render_page(content: Page) -> str:
    """Return the HTML. The template engine escapes names from data. Without Altair it has no figures, and says so."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _mark_code
    folder = files("seqdg") / "report"
    drawn = can_draw()
    return environment.from_string((folder / "page.html.jinja").read_text(encoding="utf-8")).render(
        report=content,
        light=Markup(_list_variables(LIGHT)),
        dark=Markup(_list_variables(DARK)),
        font=Markup(PAGE_FONT),
        missing="" if drawn or not content.figures else MISSING,
        charts=Markup(_embed_charts(content.figures)) if drawn else "",
        vega=Markup(load_vega()) if drawn and content.figures else "",
        script=Markup((folder / "page.js").read_text(encoding="utf-8")),
        names=list(dict.fromkeys(name for s in content.sections[:4] for f in s.figures for name in f.list_names())),
        is_curves=lambda panel: isinstance(panel, Lines),
        is_cloud=lambda panel: isinstance(panel, Cloud),
    )


def _embed_charts(figures: Sequence[Figure]) -> str:
    """Return the charts of all panels as JSON; those of a kind are written once."""
    charts: dict[str, int] = {}
    panels = {}
    for figure in figures:
        looks = {name: figure.looks[name] for name in figure.list_names()}
        for i, panel in enumerate(figure.panels):
            chart, rows = draw_for_page(panel, looks)
            place = charts.setdefault(chart, len(charts))
            panels[f"{figure.name}-{i}"] = {"chart": place, "rows": rows, "names": list(looks)}
    known = {"charts": [compile_chart(chart) for chart in charts], "panels": panels}
    return json.dumps(known, separators=(",", ":")).replace("<", "\\u003c")


def _mark_code(text: str) -> Markup:
    """Escape the text, and mark what is between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _list_variables(theme: dict[str, Any]) -> str:
    return "".join(f"--{role}:{color};" for role, color in theme.items())

"""One self-contained HTML page for a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from seqdg.base.errors import UsageError
from seqdg.report import run as of_run
from seqdg.report.analyses import list_analyzed_algorithms, show_analyses, summarize_learning
from seqdg.report.answers import answers
from seqdg.report.draw import svg
from seqdg.report.draw.theme import DARK, LIGHT, Style, styles
from seqdg.report.figures import cost_figure, curve_figure, difference_figure, domain_figure
from seqdg.report.paper import table_for
from seqdg.report.run import Run
from seqdg.report.section import Report, Section, Table
from seqdg.report.sheet import PAIRING, Sheet, sheet_of
from seqdg.results.criteria import HIGHER_IS_BETTER
from seqdg.results.select import Outcome, select_outcomes
from seqdg.results.summary import AVERAGE, UNITS, summarize


def report(run: Run, select: str = "source-val", criterion: str = "accuracy", baseline: str | None = None) -> Report:
    """From a run, whole or not."""
    chosen = select_outcomes(run.records, select, criterion)
    lacking = of_run.missing(run) if run.records or run.commands else []
    title = f"{run.benchmark}: domain generalization compared"
    if not chosen:
        lead = "No trial has finished yet, so there is nothing to compare."
        return Report(title, lead, (), lacking, [*show_analyses(run.analyses), _again(run)])
    names = list(dict.fromkeys(o.algorithm for o in chosen))
    looks = styles([*names, *list_analyzed_algorithms(run.analyses)])
    sheet = _sheet(run, chosen, select, criterion, baseline if baseline else "agg" if "agg" in names else names[0])
    warnings = [*lacking, *(f"Diverged: {text}." for text in of_run.diverged(run))]
    sections = [_results(sheet, run, looks), *_differences(sheet, looks)]
    curves, cost = curve_figure(sheet, chosen, looks), cost_figure(sheet, chosen, looks)
    sections += [Section("training", "Training", figures=[curves])] if curves else []
    sections += [Section("cost", "Cost", figures=[cost])] if cost else []
    looked_into = show_analyses(run.analyses, looks)
    sections += [*looked_into, *_paper(sheet), _again(run)]
    said = [*answers(sheet, chosen), ("What did it learn?", summarize_learning(looked_into))]
    return Report(title, sheet.footnote, said, warnings, sections)


def _sheet(run: Run, chosen: Sequence[Outcome], select: str, criterion: str, baseline: str) -> Sheet:
    several = len({o.algorithm for o in chosen}) > 1
    against = "paper" if criterion == "accuracy" and table_for(run.benchmark, run.records) else None
    return sheet_of(chosen, run.records, select, criterion, baseline if several else None, against, run.benchmark)


def _results(sheet: Sheet, run: Run, looks: dict[str, Style]) -> Section:
    rows = []
    for name in sheet.columns:
        shown = [("*" if sheet.place(r, name) == 0 else "") + sheet.value(r, name) for r in sheet.rows]
        rows.append((name, [*shown, str(max(c.trials for c in sheet.cells if c.algorithm == name))]))
    table = Table(sheet.footnote, ["algorithm", *sheet.rows, "trials"], rows)
    return Section("results", "Results", sheet.remarks, (), [domain_figure(sheet, looks)], [table],
                   [_criteria(run, sheet.select)])  # fmt: skip


def _criteria(run: Run, select: str) -> Table:
    """The average over held-out domains by every criterion that the run has."""
    found: dict[str, dict[str, str]] = {}
    for criterion in HIGHER_IS_BETTER:
        try:
            chosen = select_outcomes(run.records, select, criterion)
        except UsageError:  # AUROC is there for two classes alone
            continue
        unit, higher = UNITS[criterion], HIGHER_IS_BETTER[criterion]
        sheet = Sheet(summarize(chosen, unit.factor, higher), select, criterion)
        found[unit.title] = {
            n: ("*" if sheet.place(AVERAGE, n) == 0 else "") + sheet.value(AVERAGE, n) for n in sheet.columns
        }
    names = dict.fromkeys(name for column in found.values() for name in column)
    rows = [(name, [column.get(name, "-") for column in found.values()]) for name in names]
    return Table("Average over the held-out domains by other criteria, each selected by itself",
                 ["algorithm", *found], rows)  # fmt: skip


def _differences(sheet: Sheet, looks: dict[str, Style]) -> list[Section]:
    figure = difference_figure(sheet, looks)
    if figure is None:
        return []
    digits = sheet.unit.digits
    rows = []
    for x in sheet.paired:
        ends = "-" if x.low is None else f"{x.low:+.{digits}f} to {x.high:+.{digits}f}"
        gap = "-" if x.difference is None else f"{x.difference:+.{digits}f}"
        p = "-" if x.p_holm is None else "<0.001" if x.p_holm < 0.001 else f"{x.p_holm:.3f}"
        rows.append((x.algorithm, [gap, ends, p, str(x.pairs), f"{x.better_on} of {x.domains}", x.verdict]))
    caption = f"Paired differences from {sheet.paired[0].baseline}"
    table = Table(
        caption, ["algorithm", "difference", "95 % interval", "p (Holm)", "pairs", "domains ahead", "verdict"], rows
    )
    return [Section("differences", "Is it real?", [PAIRING], (), [figure], [table])]


def _paper(sheet: Sheet) -> list[Section]:
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


def _again(run: Run) -> Section:
    facts = Table("What these results are of", ["", ""], [(name, [text]) for name, text in of_run.facts(run)])
    settings = Table("Settings of every algorithm", ["algorithm", "settings"],
                     [(name, [" | ".join(texts)]) for name, texts in of_run.settings(run)])  # fmt: skip
    tables = [facts, settings] if run.records else []
    return Section("reproduce", "How to reproduce it", (), (), (), tables, (), of_run.commands(run))


def page(made: Report) -> str:
    """The HTML. Names from data are escaped by the template engine; drawings escape their own."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _with_code
    source = (files("seqdg") / "report" / "page.html.jinja").read_text(encoding="utf-8")
    themes = {"light": LIGHT, "dark": DARK}
    return environment.from_string(source).render(
        report=made,
        light=Markup(_variables(themes["light"])),
        dark=Markup(_variables(themes["dark"])),
        draw=lambda picture: Markup(svg.inline(picture)),
        key=lambda style, line: Markup(svg.legend_key(style, line)),
        font=Markup(svg.FONT),
    )


def _with_code(text: str) -> Markup:
    """What stands between backticks as code; everything escaped."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _variables(theme: dict[str, Any]) -> str:
    return "".join(f"--{role}:{color};" for role, color in theme.items())

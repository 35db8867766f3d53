"""The report of a run: one self-contained HTML page."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from seqdg import results
from seqdg.base import UsageError, count_things, join_names, replace_file
from seqdg.report import charts
from seqdg.report.analyses import Section, Table, list_analyzed_algorithms, show_analyses, summarize_learning
from seqdg.report.published import find_table, set_beside
from seqdg.report.run_contents import (
    RunContents,
    describe_budgets,
    describe_diverged,
    describe_missing,
    list_commands,
    list_draws,
    list_facts,
    list_settings,
    read_contents,
)
from seqdg.report.sheet import (
    DIFFERENCES,
    PAIRING,
    Sheet,
    SummarySheet,
    build_sheet,
    choose_baseline,
    list_differences,
)

DATA_MARK = "@@data@@"  # replaced by what the script reads, when all of it is known
MOST_CLASSES = 20  # of which all are shown; of more, as many mistakes
MOST_BASELINES = 20  # algorithms that can be chosen as the baseline on the page
CHANGING = ("results", "differences", "training", "cost", "paper")  # sections that depend on what is chosen


@dataclass(frozen=True)
class Parts:
    """The parts of the page that depend on the rule, the criterion and the baseline."""

    lead: str
    answers: Sequence[tuple[str, str]]
    sections: Sequence[Section]


@dataclass(frozen=True)
class Page:
    """The contents of the HTML page; its figures can also be written as files.

    choices: by rule, criterion and baseline, what the page shows when that is chosen; `chosen` is shown at first.
    names: the algorithms that can be followed, or what `followed` calls them.   warned: the title of the warnings.
    """

    title: str
    lead: str
    answers: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = field(default=())
    names: charts.Looks = field(default_factory=dict)
    chosen: tuple[str, str, str] = ("", "", "")
    choices: Mapping[tuple[str, str, str], Parts] = field(default_factory=dict)
    footer: str = "Made by seqdg from the records of the run alone."
    warned: str = "Not everything is here"
    followed: str = "Algorithms"

    @property
    def figures(self) -> list[charts.Figure]:
        return [f for s in self.sections for f in s.figures]


def build_page(
    run: RunContents,
    select: str = "source-val",
    criterion: str = "accuracy",
    baseline: str | None = None,
    every_choice: bool = False,
) -> Page:
    """Build the page of a run, finished or not. The baseline is `agg` where it ran, unless named.

    every_choice: also what it shows for other rules, criteria and baselines, to be chosen on the page.
    """
    selections = Selections(run)
    chosen = results.select_outcomes(run.records, select, criterion)
    lacking = describe_missing(run) if run.records or run.commands else []
    title = f"{run.benchmark}: domain generalization compared"
    if not chosen:
        lead = "No trial has finished yet, so there is nothing to compare."
        return Page(title, lead, (), lacking, [*show_analyses(run.analyses), _show_commands(run)])
    names = list(dict.fromkeys(o.algorithm for o in chosen))
    looks = charts.make_styles([*names, *list_analyzed_algorithms(run.analyses)])
    unequal = describe_budgets(run)
    warnings = [*unequal, *lacking, *(f"Diverged: {text}." for text in describe_diverged(run))]
    looked_into = show_analyses(run.analyses, looks)
    learned = ("What did it learn?", summarize_learning(looked_into, run))
    first = select, criterion, baseline or choose_baseline(names)
    parts = _show_choices(selections, select, criterion, [first[2]], looks, learned)
    if every_choice:
        baselines = names if len(names) <= MOST_BASELINES else [first[2]]
        for rule, other in selections.list_possible():
            parts |= _show_choices(selections, rule, other, baselines, looks, learned)
    first_parts = parts[first]
    sections = [s for s in first_parts.sections if s.name != "paper"]
    sections += _show_confusions(run)
    sections += [*looked_into, *(s for s in first_parts.sections if s.name == "paper"), _show_commands(run)]
    styles = {name: looks[name] for name in names}
    choices = parts if every_choice else {}
    warned = "Before you compare" if unequal else Page.warned
    return Page(title, first_parts.lead, first_parts.answers, warnings, sections, styles, first, choices, warned=warned)


def build_summary_page(sheet: SummarySheet, commands: Sequence[str]) -> Page:
    """Build the page of several data sets: their summary, the table of each, and the commands that made them."""
    looks = charts.make_styles(sheet.columns)
    figure = charts.draw_domains(sheet, looks)
    summary = Section("summary", "All data sets", sheet.remarks, (), [figure], [_make_table(sheet, {})])
    sections = [
        Section(f"set{i}", name, part.remarks, (), (), [_make_table(part, {})])
        for i, (name, part) in enumerate(sheet.parts.items())
    ]
    made = Section("reproduce", "How to reproduce it", code=commands)
    title = f"{join_names(list(sheet.parts))}: domain generalization compared"
    return Page(title, sheet.footnote, (), (), [summary, *sections, made], looks)


def write_summary_page(paths: Sequence[Path], sheet: SummarySheet) -> Path:
    """Write summary.html beside the directory of the first run, and return its path."""
    commands = []
    for path in paths:
        with closing(results.open_run(path)) as run:
            commands += list_commands(read_contents(run))
    page = paths[0].resolve().parent / "summary.html"
    with replace_file(page) as file:
        file.write(render_page(build_summary_page(sheet, commands)).encode(errors="backslashreplace"))
    return page


class Selections:
    """The selections of a run by rule and criterion, each made once."""

    def __init__(self, run: RunContents) -> None:
        self.run = run
        self._known: dict[tuple[str, str], list[results.Outcome]] = {}
        self._sheet: Sheet | None = None

    def select(self, rule: str, criterion: str) -> list[results.Outcome]:
        """Return the outcomes; none where the run lacks what the rule or criterion needs."""
        if (rule, criterion) not in self._known:
            try:
                self._known[rule, criterion] = results.select_outcomes(self.run.records, rule, criterion)
            except UsageError:  # only runs with two classes have AUROC
                self._known[rule, criterion] = []
        return self._known[rule, criterion]

    def list_criteria(self) -> list[str]:
        known = {name for record in self.run.records for e in record.history[-1:] for name in e.held_out}
        return [name for name in results.CRITERIA if name in known]

    def list_possible(self) -> list[tuple[str, str]]:
        return [(rule, name) for rule in results.RULES for name in self.list_criteria() if self.select(rule, name)]

    def build_sheet(self, rule: str, criterion: str) -> Sheet:
        """Return the table, without tests; what it says of the run itself is found once."""
        run, chosen, unit = self.run, self.select(rule, criterion), results.CRITERIA[criterion]
        if self._sheet is None:
            draws = list_draws(run.commands)
            self._sheet = build_sheet(run.records, rule, criterion, outcomes=chosen, draws=draws)
        cells = results.summarize(chosen, unit.factor, unit.higher_is_better)
        beside = criterion == "accuracy" and find_table(run.benchmark, run.records)
        return replace(
            self._sheet, cells=cells, select=rule, criterion=criterion, reused=results.find_reuse(run.records, chosen),
            paper=set_beside("paper", cells, run.records, run.benchmark, rule) if beside else None,
        )  # fmt: skip


def _show_choices(
    selections: Selections,
    select: str,
    criterion: str,
    baselines: Sequence[str],
    looks: charts.Looks,
    learned: tuple[str, str],
) -> dict[tuple[str, str, str], Parts]:
    """Show what a rule and a criterion select, compared with each of the baselines."""
    chosen, unit = selections.select(select, criterion), results.CRITERIA[criterion]
    several = len({o.algorithm for o in chosen}) > 1
    tests = results.compare_with_each(chosen, baselines, unit.factor, unit.higher_is_better) if several else {}
    sheet = selections.build_sheet(select, criterion)
    results_section = _show_results(sheet, selections, looks)
    curves, cost = charts.draw_curves(sheet, chosen, looks), charts.draw_cost(sheet, chosen, looks)
    training = [Section("training", "Training", figures=[curves])] if curves else []
    costs = [Section("cost", "Cost", figures=[cost])] if cost else []
    paper = _show_paper(sheet)
    parts = {}
    for baseline in baselines:
        compared = replace(sheet, paired=tests.get(baseline, ()))
        answers = [*answer_questions(compared, chosen), learned]
        sections = [results_section, *_show_differences(compared, looks), *training, *costs, *paper]
        parts[select, criterion, baseline] = Parts(sheet.footnote, answers, sections)
    return parts


def _show_results(sheet: Sheet, selections: Selections, looks: charts.Looks) -> Section:
    table = _make_table(sheet, _list_trials(sheet, selections.select(sheet.select, sheet.criterion)))
    return Section("results", "Results", sheet.remarks, (), [charts.draw_domains(sheet, looks)], [table],
                   [_show_criteria(selections, sheet.select)])  # fmt: skip


def _make_table(sheet: Sheet, tips: Mapping[tuple[str, int], str]) -> Table:
    rows = []
    for name in sheet.columns:
        values = [sheet.mark(r, name) for r in sheet.rows]
        rows.append((name, [*values, str(max(c.trials for c in sheet.cells if c.algorithm == name))]))
    return Table(sheet.footnote, ["algorithm", *sheet.rows, "trials"], rows, tips)


def _list_trials(sheet: Sheet, chosen: Sequence[results.Outcome]) -> dict[tuple[str, int], str]:
    """Return by algorithm and column the value of every seed that the mean is of."""
    trials: dict[tuple[str, int], list[str]] = {}
    indices = {row: i for i, row in enumerate(sheet.rows)}
    for o in chosen:
        value = "diverged" if o.value is None else f"{sheet.unit.factor * o.value:.{sheet.unit.digits}f}"
        trials.setdefault((o.algorithm, indices[results.name_row(o.held_out)]), []).append(f"{o.seed}: {value}")
    return {where: f"By seed  {',  '.join(values)}" for where, values in trials.items()}


def _show_criteria(selections: Selections, select: str) -> Table:
    """Show the average over held-out domains by every criterion that the run has."""
    columns: dict[str, dict[str, str]] = {}
    for criterion in selections.list_criteria():
        chosen = selections.select(select, criterion)
        if not chosen:
            continue
        unit = results.CRITERIA[criterion]
        sheet = Sheet(results.summarize(chosen, unit.factor, unit.higher_is_better), select, criterion)
        columns[unit.title] = {n: sheet.mark(results.AVERAGE, n) for n in sheet.columns}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [(name, [column.get(name, "-") for column in columns.values()]) for name in names]
    return Table("Average over the held-out domains by other criteria, each selected by itself",
                 ["algorithm", *columns], rows)  # fmt: skip


def _show_differences(sheet: Sheet, looks: charts.Looks) -> list[Section]:
    figure = charts.draw_differences(sheet, looks)
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
    table = Table(f"Beside {sheet.paper.table.location} of the paper", ["algorithm", *domains], rows)
    text = ["Set beside each other, not compared: these differ in the settings below."]
    head, *settings = sheet.paper.departures
    rows = [(name, values) for name, *values in settings]
    departures = Table("Settings in which the two differ", head, rows, is_text=True)
    return [Section("paper", "Beside the paper", text, sheet.paper.notes, (), [table, departures])]


def _show_confusions(run: RunContents) -> list[Section]:
    """Show which classes are taken for which, where predictions are kept: of few classes all, of many the most
    frequent mistakes."""
    names = list(run.classes)
    if run.directory is None or not names:
        return []
    tables = []
    for algorithm, (counts, trials) in results.count_confusions(run.records, run.directory, len(names)).items():
        caption = f"{algorithm}: % of the held-out rows of a class, over {count_things(trials, 'trial')}"
        total = counts.sum(1)
        shares = [[100 * n / t if t else math.nan for n in row] for row, t in zip(counts.tolist(), total, strict=True)]
        if len(names) <= MOST_CLASSES:
            cells = [["-" if math.isnan(v) else f"{v:.1f}" for v in row] for row in shares]
            rows = list(zip(names, cells, strict=True))
            tables.append(Table(caption, ["true class", *(f"as {name}" for name in names)], rows))
            continue
        wrong = [(v, i, j) for i, row in enumerate(shares) for j, v in enumerate(row) if i != j and v > 0]
        worst = sorted(wrong, key=lambda mistake: (-mistake[0], *mistake[1:]))[:MOST_CLASSES]
        rows = [(names[i], [names[j], f"{v:.1f}"]) for v, i, j in worst]
        tables.append(Table(caption, ["true class", "predicted as", "%"], rows))
    text = ["Counted on every held-out row, at the step that source validation chose (--save-predictions)."]
    first, others = tables[:1], tables[1:]
    return [Section("confusion", "Which classes are confused?", text, tables=first, aside=others)] if tables else []


def _show_commands(run: RunContents) -> Section:
    facts = [(name, [text]) for name, text in list_facts(run)]
    settings = [(name, [" | ".join(texts)]) for name, texts in list_settings(run)]
    tables = [
        Table("What was run", ["", ""], facts, is_text=True),
        Table("Settings of every algorithm", ["algorithm", "settings"], settings, is_text=True),
    ]
    return Section("reproduce", "How to reproduce it", tables=tables if run.records else (), code=list_commands(run))


# Answers -------------------------------------------------------------------------------------------------------------


def answer_questions(sheet: Sheet, chosen: Sequence[results.Outcome]) -> list[tuple[str, str]]:
    """Return questions and answers."""
    answers = []
    best = _find_best(sheet, results.AVERAGE)
    if best is None:
        return [("Which algorithm?", "No algorithm has a result on every held-out domain yet.")]
    answers.append(("Which algorithm?", _answer_which(sheet, best)))
    if sheet.paired:
        answers.append(("Is that real?", _answer_real(sheet, best)))
        if cost := _answer_cost(sheet, chosen, best):
            answers.append(("What did it cost?", cost))
    return answers


def _find_best(sheet: Sheet, row: str) -> results.Cell | None:
    known = [c for c in sheet.cells if c.held_out == row and c.mean is not None]
    return min(known, key=lambda c: sheet.rank(row, c.algorithm) or 0) if known else None


def _answer_which(sheet: Sheet, best: results.Cell) -> str:
    alike = [n for n in sheet.columns if sheet.rank(results.AVERAGE, n) == 0]
    word = "highest" if sheet.higher else "lowest"
    verb = "are" if len(alike) > 1 else "is"
    value = sheet.value(results.AVERAGE, alike[0])
    text = f"{join_names(alike)} {verb} {word} on average over the held-out domains: {value}"
    if len(alike) == 1 and (second := [n for n in sheet.columns if sheet.rank(results.AVERAGE, n) == 1]):
        text += f", before {join_names(second)} with {sheet.value(results.AVERAGE, second[0])}"
    if worst := _find_best(sheet, results.WORST):
        too = ", too" if worst.algorithm in alike else ""
        text += f". On its worst held-out domain {worst.algorithm} does best{too}: "
        text += sheet.value(results.WORST, worst.algorithm)
    return text + "."


def _answer_real(sheet: Sheet, best: results.Cell) -> str:
    baseline = sheet.paired[0].baseline
    test = next((x for x in sheet.paired if x.algorithm == best.algorithm), None)
    word = "higher" if sheet.higher else "lower"
    text = [
        _describe_test(test, sheet) if test else f"No algorithm has a {word} average than the baseline, {baseline}."
    ]
    for verdict in ("better", "worse"):
        others = [x.algorithm for x in sheet.paired if x.verdict.startswith(verdict) and x is not test]
        if others:
            also = f"Also {verdict}" if test and test.verdict.startswith(verdict) else verdict.capitalize()
            text.append(f"{also} than {baseline}: {join_names(others)}.")
    unclear = [x.algorithm for x in sheet.paired if not x.distinguishable and x is not test]
    if unclear:
        text.append(f"Not distinguishable from {baseline}: {join_names(unclear)}.")
    return " ".join(text)


def _describe_test(x: results.PairedDifference, sheet: Sheet) -> str:
    if x.difference is None:
        return f"There is no pair of trials to compare {x.algorithm} with {x.baseline}."
    digits, unit = sheet.unit.digits, f" {sheet.unit.points}" if sheet.unit.points else ""
    lead = f"{abs(x.difference):.{digits}f}{unit} {'above' if x.difference > 0 else 'below'} {x.baseline}"
    ends = f", 95 % confidence interval {x.low:+.{digits}f} to {x.high:+.{digits}f}" if x.low is not None else ""
    p = _describe_chance(x, len(sheet.paired))
    if x.distinguishable:
        wins = results.describe_wins(x)
        return f"Yes, on these data and domains: {x.algorithm} is {lead} over {x.pairs} pairs{ends}{p}; {wins}."
    return f"That cannot be said: {x.algorithm} is {x.verdict} ({lead} over {x.pairs} pairs{ends}{p})."


def _describe_chance(x: results.PairedDifference, tests: int) -> str:
    if x.p is None or x.p_holm is None:
        return ""
    if tests == 1 or results.format_p(x.p) == results.format_p(x.p_holm):
        return f", {results.format_p(x.p_holm)}"
    return f", {results.format_p(x.p)}, after Holm's correction for {tests} comparisons {results.format_p(x.p_holm)}"


def _answer_cost(sheet: Sheet, chosen: Sequence[results.Outcome], best: results.Cell) -> str | None:
    baseline = sheet.paired[0].baseline
    seconds, base = charts.average_seconds(chosen, best.algorithm), charts.average_seconds(chosen, baseline)
    if not seconds or not base:
        return None
    if best.algorithm == baseline:
        return f"{seconds:.2g} s per trial."
    return f"A trial of {best.algorithm} took {seconds:.2g} s, {seconds / base:.1f} times as long as one of {baseline}."


# HTML ----------------------------------------------------------------------------------------------------------------


class Charts:
    """Collects the charts of a page. Panels of a kind share a chart, and equal panels are kept once."""

    def __init__(self) -> None:
        self.charts: dict[int, tuple[int, dict[str, Any]]] = {}
        self.panels: dict[str, int] = {}

    def add(self, panel: charts.Panel) -> int:
        """Return the number of the panel, by which the script finds it."""
        kind = id(panel.chart)  # which charts.py keeps
        if kind not in self.charts:
            self.charts[kind] = len(self.charts), charts.compile_for_page(panel)
        columns = {name: [row[name] for row in panel.rows] for name in panel.rows[0]} if panel.rows else {}
        drawn = json.dumps({"chart": self.charts[kind][0], "columns": columns})
        return self.panels.setdefault(drawn, len(self.panels))

    def list_parts(self) -> dict[str, Any]:
        return {"charts": [chart for _, chart in self.charts.values()], "panels": list(map(json.loads, self.panels))}


def pack(content: dict[str, Any]) -> str:
    """Return the content as compressed JSON in letters; the same content gives the same letters."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), mtime=0)).decode()


def render_page(content: Page, version: str = "") -> str:
    """Return the HTML. The template engine escapes names from data. Without Altair it has no figures, and says so.

    version: of a page that a later one will replace; it looks for that one, and shows it (`seqdg report --watch`).
    """
    folder = files("seqdg") / "report"
    loader = FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8"))
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["code"] = _mark_code
    can_show, drawn = charts.can_draw(), Charts()
    shared = {"missing": "" if can_show else charts.MISSING, "chart": drawn.add, "names": content.names}
    parts = environment.get_template("parts.html.jinja").make_module(shared)
    choices, fragments = _embed_choices(content, parts)
    html = environment.get_template("page.html.jinja").render(
        **shared,
        report=content,
        changing=CHANGING,
        rules=list(dict.fromkeys(rule for rule, _, _ in content.choices)),
        criteria={name: results.CRITERIA[name].title for _, name, _ in content.choices},
        baselines=list(dict.fromkeys(name for _, _, name in content.choices)),
        light=Markup(_list_variables(charts.LIGHT)),
        dark=Markup(_list_variables(charts.DARK)),
        font=Markup(charts.PAGE_FONT),
        vega=Markup(charts.load_vega()) if can_show and content.figures else "",
        script=Markup((folder / "page.js").read_text(encoding="utf-8")),
        data=DATA_MARK,
    )
    known = {
        **drawn.list_parts(), "fragments": fragments, "choices": choices, "version": version,
        "first": dict(zip(("select", "criterion", "baseline"), content.chosen, strict=True)),
    }  # fmt: skip
    return html.replace(DATA_MARK, pack(known))


def _embed_choices(content: Page, parts: Any) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return by rule, criterion and baseline which fragment stands in which part of the page, and the fragments, each
    once."""
    fragments: dict[str, int] = {}

    def add(html: object) -> int:
        return fragments.setdefault(str(html), len(fragments))

    choices, sections = {}, {id(s): s for made in content.choices.values() for s in made.sections}
    known = {key: add(parts.section(s)) for key, s in sections.items()}
    nothing = add("")
    for key, made in content.choices.items():
        by_name = {s.name: known[id(s)] for s in made.sections}
        choices["\n".join(key)] = {
            "lead": add(escape(made.lead)), "answers": add(parts.answers(made.answers)),
            **{name: by_name.get(name, nothing) for name in CHANGING},
        }  # fmt: skip
    return choices, list(fragments)


def _mark_code(text: str) -> Markup:
    """Escape the text, and mark what is between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _list_variables(theme: dict[str, Any]) -> str:
    return "".join(f"--{role}:{color};" for role, color in theme.items())

"""Writes all that is published of a packed run, from its records alone:

    seqdg pack runs/NAME --out docs/results/NAME
    python scripts/publish.py docs/results/NAME

Tables (docs/results/NAME/tables/*.md; the first line of each is the command that prints the rest), the figures of the
report as SVG (figures/), and a page with all of them, hardware, versions, commit and commands (README.md). Run it from
the root of the repository. A test checks that every file is what the records say.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from seqdg.base import UsageError
from seqdg.report import render_costs
from seqdg.report.charts import name_file, render_figure
from seqdg.report.page import build_page
from seqdg.report.published import find_table
from seqdg.report.run_contents import RunContents, list_commands, list_draws, list_facts, list_settings, read_contents
from seqdg.report.sheet import build_sheet
from seqdg.report.table import render
from seqdg.results import CRITERIA, RULES, Record, describe_versions, open_run, select_outcomes

BASELINE = "agg"
WITH_DATA = '```sh title="needs the data set"'
BY = {
    "source-val": "Selected by source validation",
    "last": "At the last step",
    "leave-one-out": "Selected by leave-one-out within the sources",
    "oracle": "Oracle: selected by the held-out domain itself. What could have been reached, not what can be expected",
    "oracle-split": "Settings chosen by a fifth of the held-out rows at the last step, reported on the others",
}


def files(directory: Path) -> dict[str, str]:
    """By name below the directory, the contents of every file that is made from its records."""
    results = open_run(directory)
    records, run, name = results.records(), read_contents(results), results.benchmark
    tables = _tables(records, name, directory, list_draws(run.commands))
    made = build_page(run)
    figures = {f"figures/{name_file(f)}": render_figure(f).decode() for f in made.figures}
    titles = {f"figures/{name_file(f)}": f"{f.title}. {f.caption}" for f in made.figures}
    page = _page(run, directory, tables, titles, made.answers, made.warnings)
    return {**{file: f"<!-- {command} -->\n\n{text}" for file, (_, command, text) in tables.items()}, **figures,
            "README.md": page}  # fmt: skip


def _tables(
    records: list[Record], benchmark: str, directory: Path, draws: tuple[str, ...]
) -> dict[str, tuple[str, str, str]]:
    """Title, command and what it prints, by file."""
    where = directory.as_posix()
    baseline = BASELINE if len({r.algorithm for r in records}) > 1 and _ran(records, BASELINE) else None
    tested = f" --baseline {baseline}" if baseline else ""
    found = {}
    for rule in _rules(records):
        command = f"seqdg table {where} --format markdown --select {rule}{tested}"
        text = render(build_sheet(records, rule, "accuracy", baseline, draws=draws), "markdown")
        found[f"tables/accuracy-{rule}.md"] = (BY[rule], command, text)
    if find_table(benchmark, records) is not None:
        command = f"seqdg table {where} --format markdown --against paper"
        text = render(build_sheet(records, "source-val", "accuracy", None, "paper", benchmark, draws=draws), "markdown")
        found["tables/beside-the-paper.md"] = ("Beside the paper", command, text)
    for criterion in [c for c in _criteria(records) if c != "accuracy"]:
        command = f"seqdg table {where} --format markdown --criterion {criterion}{tested}"
        text = render(build_sheet(records, "source-val", criterion, baseline, draws=draws), "markdown")
        file = f"tables/{criterion.replace('_', '-')}.md"
        found[file] = (f"{CRITERIA[criterion].title}, selected by itself on source validation", command, text)
    command = f"seqdg table {where} --format markdown --cost"
    found["tables/cost.md"] = ("Cost", command, render_costs(records, "markdown"))
    return found


def _ran(records: list[Record], algorithm: str) -> bool:
    return any(o.algorithm == algorithm for o in select_outcomes(records))


def _rules(records: list[Record]) -> list[str]:
    """Those that the run has the trials for."""
    found = []
    for rule in RULES:
        try:
            select_outcomes(records, rule)
        except UsageError:
            continue
        found.append(rule)
    return found


def _criteria(records: list[Record]) -> list[str]:
    known = {c for r in records for e in r.history for c in e.held_out}
    return [c for c in CRITERIA if c in known]


def _page(run: RunContents, directory: Path, tables: dict, figures: dict, answers: list, warnings: list) -> str:
    """All of it on one page."""
    where = directory.as_posix()
    records = "the records, [trials](trials.parquet) and [evaluations](evaluations.parquet)"
    made = f"Made by `python scripts/publish.py {where}` from {records}: do not edit."
    lines = [f"# {run.benchmark}", "", f"{made} The line above each table is the command that prints it.", ""]
    lines += [f"- **{question}** {answer}" for question, answer in answers]
    lines += [f"- Note: {text}" for text in (*describe_versions(run.records), *warnings)]
    for title, command, text in tables.values():
        lines += ["", f"## {title}", "", "```sh", command, "```", "", text.rstrip("\n")]
    lines += ["", "## Figures"]
    for file, caption in figures.items():
        lines += ["", f"![{caption.partition('.')[0]}]({file})", "", caption]
    lines += ["", "## What these results are of", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in list_facts(run)]
    lines += ["", "The trials were made by", "", WITH_DATA, *map(_anywhere, list_commands(run)), "```"]
    there = " (with the commit that made it: methods have changed since)" if describe_versions(run.records) else ""
    lines += ["", f"and any of them can be trained again{there} and compared with its record by", "", WITH_DATA,
              f"seqdg rerun {where} --sample 3 --data DATA", "```"]  # fmt: skip
    lines += ["", "## Settings", "", "Every candidate of every algorithm:", ""]
    for name, candidates in list_settings(run):
        lines += [f"- `{name}`", *(f"  - {text}" for text in candidates)]
    return "\n".join(lines) + "\n"


def _anywhere(command: str) -> str:
    """With no name of the folder that the data were in."""
    words = shlex.split(command)
    pairs = zip(["", *words[:-1]], words, strict=True)
    return shlex.join("DATA" if before == "--data" else word for before, word in pairs)


def publish(directory: Path) -> list[Path]:
    """Writes them, and removes tables and figures that are no longer made."""
    made = files(directory)
    for folder in ("tables", "figures"):
        (directory / folder).mkdir(exist_ok=True)
        for old in (directory / folder).iterdir():
            if f"{folder}/{old.name}" not in made:
                old.unlink()
    for name, content in made.items():
        (directory / name).write_text(content, encoding="utf-8")
    return [directory / name for name in made]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python scripts/publish.py docs/results/NAME")
    try:
        for path in publish(Path(sys.argv[1])):
            print(path)
    except UsageError as error:
        raise SystemExit(f"publish: {error}") from None

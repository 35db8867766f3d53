"""Is it only the averaging of networks? (S-)Undo-Bias against the naive ensemble (a figure of appendix B)."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from seqdg import report
from seqdg.base import UsageError
from seqdg.results import AVERAGE, Cell, select_outcomes, summarize

if TYPE_CHECKING:  # only to compute, not to show
    from seqdg.bench import Progress
    from seqdg.paper.study import Numbers, Study


def compute(study: Study) -> Numbers:
    """Compute the accuracy on each held-out domain, selected by source validation, of every algorithm."""
    from seqdg.bench import MemorySink, Request, TrainingFailed, execute

    chosen = study.dataset.domains if study.everywhere else [study.held_out]
    request = Request(study.algorithms, chosen, study.trials, study.steps, study.seed, study.settings)
    planned = study.benchmark.plan(study.session.task, request, study.session.device)
    sink, taken = MemorySink(), 0

    def on_progress(progress: Progress) -> None:
        nonlocal taken
        now = round(progress.share * planned.work)
        study.on_progress(now - taken)
        taken = now

    try:
        execute(planned, study.session, study.executor, sink, on_progress=on_progress)
    except TrainingFailed as error:
        raise UsageError(f"A trial of {error.record.algorithm} failed: {error.reason}") from None
    cells = summarize(select_outcomes([sink.records[trial.key] for trial in planned.trials]))
    return {
        "cells": [asdict(c) for c in cells],
        "refused": {},
    }


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    sheet = report.Sheet([Cell(**cell) for cell in payload["numbers"]["cells"]])
    figure = replace(report.draw_domains(sheet, looks), name="ensemble", title="Against the naive ensemble")
    rows = [(name, [sheet.mark(r, name) for r in sheet.rows]) for name in sheet.columns]
    table = report.Table(sheet.footnote, ["algorithm", *sheet.rows], rows)
    return report.make_section(
        payload, "ensemble", figure.title, [figure], [table], _state_findings(sheet), text=sheet.remarks
    )


def _state_findings(sheet: report.Sheet) -> list[str]:
    base = sheet.cell(AVERAGE, "ensemble")
    if base is None or base.mean is None:
        return []
    sentences = []
    for name in sheet.columns:
        cell = sheet.cell(AVERAGE, name)
        if name != "ensemble" and cell is not None and cell.mean is not None:
            lead = cell.mean - base.mean
            sentences.append(
                f"{name} is {abs(lead):.1f} points {'above' if lead >= 0 else 'below'} the naive ensemble."
            )
    return sentences


report.register_analysis(report.AnalysisKind(
    "ensemble", compute, show, ("ensemble", "undo-bias", "s-undo-bias"), trials=1, steps=200, everywhere=True, order=60
))  # fmt: skip

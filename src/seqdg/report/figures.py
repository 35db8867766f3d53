"""The figures of every report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from seqdg.report.charts import Figure
from seqdg.report.panels import Lines, Point, Points, Row, Rows, Series
from seqdg.report.sheet import Sheet
from seqdg.report.theme import Looks
from seqdg.results import AVERAGE, TOGETHER, WORST, Outcome, mean_and_error


def draw_domains(sheet: Sheet, looks: Looks) -> Figure:
    """Draw a panel for each held-out domain and the average: a dot and its standard error for each algorithm."""
    panels = []
    for domain in [r for r in sheet.rows if r not in (WORST, TOGETHER)]:
        rows = []
        for name in sheet.columns:
            cell, value_text = sheet.cell(domain, name), sheet.value(domain, name)
            value, error = (cell.mean, cell.stderr) if cell else (None, None)
            low, high = (value - error, value + error) if value is not None and error is not None else (None, None)
            missing = {"diverged": "diverged", "-": "no value" if cell else "not run"}.get(value_text, "")
            rows.append(Row(name, value, low, high, missing))
        panels.append(Rows(rows, sheet.unit.title, domain))
    several = any(c.stderr is not None for c in sheet.cells)
    bars = "Bars are one standard error." if several else "One trial each, so there are no error bars."
    caption = f"{sheet.unit.title} on the held-out domain. {bars} Every panel has its own scale."
    return Figure("domains", "By held-out domain", panels, caption, looks)


def draw_differences(sheet: Sheet, looks: Looks) -> Figure | None:
    """Draw the mean paired differences from the baseline with their 95 % intervals."""
    rows = []
    for x in sheet.paired:
        note = x.verdict.removesuffix(f" than {x.baseline}") if x.distinguishable else "not distinguishable"
        rows.append(Row(x.algorithm, x.difference, x.low, x.high, note if x.difference is not None else "no pair"))
    if not rows:
        return None
    baseline = sheet.paired[0].baseline
    label = f"{sheet.unit.points} above {baseline}".strip()
    caption = (
        f"Algorithm minus {baseline} at the same seed and held-out domain: mean and 95 % confidence interval. The "
        "words are the verdict of a sign-flip permutation test after Holm's correction."
    )
    return Figure("differences", f"Against {baseline}", [Rows(rows, label, zero=True)], caption, looks)


def draw_curves(sheet: Sheet, chosen: Sequence[Outcome], looks: Looks) -> Figure | None:
    """Draw the training loss, and the criterion on source validation and the held-out domain, over the steps."""
    criterion, factor = sheet.criterion, sheet.unit.factor
    sound = [o for o in chosen if o.value is not None]
    losses, source, held_out = [], [], []
    for name in dict.fromkeys(o.algorithm for o in sound):
        trials = _keep_usual_length([o for o in sound if o.algorithm == name])
        steps = trials[0].record.history[-1].step
        curve = _average_curves([o.record.losses for o in trials])
        losses.append(Series(name, [steps * (i + 0.5) / len(curve) for i in range(len(curve))], curve))
        at = [e.step for e in trials[0].record.history]
        inside = [[factor * fmean(e.source[criterion]) for e in o.record.history] for o in trials]
        outside = [[factor * e.held_out[criterion][o.place] for e in o.record.history] for o in trials]
        source.append(Series(name, at, _average_curves(inside)))
        held_out.append(Series(name, at, _average_curves(outside)))
    if not losses:
        return None
    panels = [
        _draw_losses(losses),
        Lines(source, "step", sheet.unit.title, "Source validation"),
        Lines(held_out, "step", sheet.unit.title, "Held-out domain"),
    ]
    caption = (
        "Means over all trials and held-out domains, diverged trials left out. Each algorithm has its own training "
        "loss (agg averages over domains, sequential ones sum), so compare shapes there, not heights."
    )
    return Figure("curves", "Training", panels, caption, looks, has_legend=True)


def _keep_usual_length(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with the most common number of evaluations and losses, so that curves can be averaged."""
    sizes = [(len(o.record.history), len(o.record.losses)) for o in outcomes]
    usual = max(dict.fromkeys(sizes), key=sizes.count)
    return [o for o, size in zip(outcomes, sizes, strict=True) if size == usual]


def _draw_losses(losses: Sequence[Series]) -> Lines:
    """Draw the losses, cut off above where a few values would flatten all others."""
    values = sorted(v for s in losses for v in s.ys if math.isfinite(v))
    top = values[math.ceil(0.95 * len(values)) - 1] * 1.3 if values else 1.0
    heading = "Training loss"
    if values and values[-1] > 2 * top:
        heading = f"Training loss, cut off at {top:.2g}"
        losses = [Series(s.name, s.xs, [min(v, top) for v in s.ys]) for s in losses]
    return Lines(losses, "step", "loss", heading)


def _average_curves(curves: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(values) for values in zip(*curves, strict=True)]


def draw_cost(sheet: Sheet, chosen: Sequence[Outcome], looks: Looks) -> Figure | None:
    """Draw the average over domains against the time that a trial takes."""
    points = []
    for name in sheet.columns:
        cell, seconds = sheet.cell(AVERAGE, name), average_seconds(chosen, name)
        if cell is not None and cell.mean is not None and seconds:
            low, high = (None, None) if cell.stderr is None else (cell.mean - cell.stderr, cell.mean + cell.stderr)
            points.append(Point(name, seconds, cell.mean, low, high))
    if not points:
        return None
    spread = max(p.x for p in points) / min(p.x for p in points) > 4
    panel = Points(points, "seconds per trial", sheet.unit.title, "Average over domains", spread)
    caption = (
        "Time is a trial's share of the stack it was trained in, evaluation included; so it is the time of this run."
    )
    return Figure(
        "cost",
        "Cost against error" if sheet.unit.is_of_numbers else "Cost against accuracy",
        [panel],
        caption,
        looks,
        has_legend=True,
    )


def average_seconds(chosen: Sequence[Outcome], algorithm: str) -> float | None:
    """Return the seconds of a trial on average; those that diverged may have ended early and do not count."""
    return mean_and_error([o.record.seconds for o in chosen if o.algorithm == algorithm and o.value is not None])[0]

"""Loss on a domain of interest by its place in the path."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from seqdg.paper.pictures.about import about, refusals
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.plots import Series, lines_plot
from seqdg.report.draw.theme import Looks, Style, styles
from seqdg.report.section import Section, Table

PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    numbers = payload["numbers"]
    interest, by_place, last = numbers["interest"], numbers["by_place"], numbers["with_it_last"]
    text = [f"{about(payload)} Domain of interest: {interest}.", *refusals(payload)]
    figures, tables = [], []
    for name, curves in by_place.items():
        labels = [_place(i, len(curves)) for i in range(len(curves))]
        by_label = styles(labels)
        series = [Series(n, by_label[n], c["at"], c["mean"]) for n, c in zip(labels, curves, strict=True)]
        caption = f"Loss that {name} takes on {interest}, at the weights that the domains before it lead to."
        figures.append(_figure(f"ranks-{name}", f"{name} by place of {interest}", series, caption))
        rows = [(n, _row(c)) for n, c in zip(labels, curves, strict=True)]
        tables.append(Table(f"{name}: loss on {interest} by its place", HEAD, rows))
    if last:
        series = [Series(n, looks[n], c["at"], c["mean"]) for n, c in last.items()]
        caption = f"{interest} last in the path, or the meta-test domain; agg knows no order."
        figures.append(_figure("ranks-last", f"With {interest} last", series, caption))
        tables.append(Table(f"Loss on {interest} with it last", HEAD, [(n, _row(c)) for n, c in last.items()]))
    return Section("ranks", "Practice: place in the path", text, (), figures, tables, found=_found(numbers))


HEAD = ("", "mean, second half", "at the end")


def _place(i: int, count: int) -> str:
    name = PLACES[i] if i < len(PLACES) else str(i + 1)
    return f"{name}, last" if i == count - 1 else name


def _row(curve: Mapping[str, Any]) -> list[str]:
    return [f"{_later(curve):.3f}", f"{curve['mean'][-1]:.3f}"]


def _later(curve: Mapping[str, Any]) -> float:
    """Mean over the second half of the training."""
    return fmean(curve["mean"][len(curve["mean"]) // 2 :])


def _figure(name: str, title: str, series: list[Series], caption: str) -> Figure:
    base = series[0]
    relative = [Series(s.name, s.style, s.xs, [a - b for a, b in zip(s.ys, base.ys, strict=True)]) for s in series[1:]]
    panels = [lines_plot(series, "step", "loss", "Loss")]
    if relative:
        panels.append(lines_plot(relative, "step", "difference", f"Minus {base.name}", level=(0.0, "")))
    legend: list[tuple[str, Style]] = [(s.name, s.style) for s in series]
    return Figure(name, title, panels, caption, legend, lines=True)


def _found(numbers: Mapping[str, Any]) -> list[str]:
    sentences = []
    for name, curves in numbers["by_place"].items():
        means = [_later(c) for c in curves]
        falling = all(a > b for a, b in pairwise(means))
        lower = "is lower when it is last" if means[-1] < means[0] else "does not fall"
        sentences.append(
            f"{name}: the loss on {numbers['interest']} {'falls with every place' if falling else lower} "
            f"({means[0]:.3f} first, {means[-1]:.3f} last, means over the second half of the training)."
        )
    last = {n: _later(c) for n, c in numbers["with_it_last"].items()}
    if len(last) > 1:
        order = sorted(last, key=lambda n: last[n])
        sentences.append("With it last, from lowest: " + ", ".join(f"{n} {last[n]:.3f}" for n in order) + ".")
    return sentences

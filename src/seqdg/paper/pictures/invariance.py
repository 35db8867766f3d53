"""Domain loss over both phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqdg.paper.pictures.about import about, listed, plus_minus, refusals
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.plots import Row, Series, lines_plot, rows_plot
from seqdg.report.draw.theme import Looks, Style
from seqdg.report.section import Section, Table


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    numbers = payload["numbers"]
    second, probe, chance = numbers["second"], numbers["probe"], numbers["chance"]
    first, turn = numbers["first"], numbers["first"]["at"][-1]
    series = [Series("domain classifier alone", Style("muted"), first["at"], first["mean"])]
    series += [
        Series(name, looks[name], [turn + s for s in curve["at"]], curve["mean"]) for name, curve in second.items()
    ]
    panels = [
        lines_plot(series, "step", "domain loss", "Classifier of the first phase", (turn, "class training"),
                   (chance, "chance, ln N"))
    ]  # fmt: skip
    if probe:
        rows = [Row(name, looks[name], p["mean"], *_ends(p)) for name, p in probe.items()]
        panels.append(rows_plot(rows, "domain loss", "Classifier fitted anew at the end"))
    table = Table(
        "Domain loss at the end; higher is more invariant",
        ["algorithm", "classifier kept", "classifier fitted anew"],
        [(name, [f"{second[name]['mean'][-1]:.3f}", plus_minus(probe[name]["mean"], probe[name]["spread"], 3)])
         for name in second],
    )  # fmt: skip
    caption = (
        "First a domain classifier on the penultimate layer is trained, then the classes with each algorithm. The "
        "first panel has that classifier, kept, on training rows. Features that move also confuse a classifier that "
        "stays, so the second has one fitted anew, and judged on rows that neither it nor the net has seen. "
        f"{_bars(probe)}"
    )
    figure = Figure("invariance", "Domain invariance", panels, caption, [(s.name, s.style) for s in series], lines=True)
    text = [about(payload), *refusals(payload)]
    return Section("invariance", "Domain invariance", text, (),
                   [figure] if second else [], [table] if second else [], found=_found(numbers))  # fmt: skip


def _bars(probe: Mapping[str, Any]) -> str:
    several = any(value["spread"] is not None for value in probe.values())
    return "Bars are one standard error over seeds." if several else "One seed, so there are no error bars."


def _ends(value: Mapping[str, Any]) -> tuple[float | None, float | None]:
    spread = value["spread"]
    return (None, None) if spread is None else (value["mean"] - spread, value["mean"] + spread)


def _found(numbers: Mapping[str, Any]) -> list[str]:
    kept = {name: curve["mean"][-1] for name, curve in numbers["second"].items()}
    anew = {name: value["mean"] for name, value in numbers["probe"].items()}
    if len(kept) < 2:
        return []
    most, least = max(kept, key=lambda n: kept[n]), min(kept, key=lambda n: kept[n])
    order = sorted(anew, key=lambda n: -anew[n])
    return [
        f"By the classifier of the first phase, the domain is hardest to tell from the features of {most} (loss "
        f"{kept[most]:.2f}) and easiest from those of {least} ({kept[least]:.2f}); guessing costs "
        f"{numbers['chance']:.2f}.",
        f"By a classifier fitted anew, from hardest to easiest: {listed(order)} (loss {anew[order[0]]:.2f} to "
        f"{anew[order[-1]]:.2f}).",
    ]

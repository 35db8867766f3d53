"""Cosine between domain-specific weights, a panel per layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqdg.paper.pictures.about import about, plus_minus, refusals
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.plots import Series, lines_plot
from seqdg.report.draw.theme import Looks
from seqdg.report.section import Section, Table

DIGITS = 6
TITLE = "Similarity of domain-specific weights"


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    curves = payload["numbers"]["curves"]
    text = [about(payload), *refusals(payload)]
    if not curves:
        return Section("similarity", TITLE, text)
    layers = list(dict.fromkeys(layer for c in curves.values() for layer in c["layers"]))
    panels, rows = [], []
    for layer in layers:
        own = {name: c for name, c in curves.items() if layer in c["layers"]}
        series = [Series(name, looks[name], c["at"], c["layers"][layer]["mean"]) for name, c in own.items()]
        panels.append(lines_plot(series, "step", "cosine", layer))
    for name, c in curves.items():
        ends = [c["layers"].get(layer) for layer in layers]
        rows.append((name, [_last(end) if end else "-" for end in ends]))
    table = Table("Mean cosine between the sources' weights at the end, and its lowest over the training",
                  ["algorithm", *layers], rows)  # fmt: skip
    caption = (
        "Mean cosine over all pairs of source domains between their own copies of a layer's weights; 1 is the same."
    )
    figure = Figure("similarity", TITLE, panels, caption,
                    [(n, looks[n]) for n in curves], lines=True)  # fmt: skip
    return Section("similarity", TITLE, text, (), [figure], [table], found=_found(curves))


def _last(curve: Mapping[str, Any]) -> str:
    end = plus_minus(curve["mean"][-1], curve["spread"][-1] if curve["spread"] else None, DIGITS)
    return f"{end}, lowest {min(curve['mean']):.{DIGITS}f}"


def _found(curves: Mapping[str, Any]) -> list[str]:
    sentences = []
    for name, c in curves.items():
        lowest = {layer: min(curve["mean"]) for layer, curve in c["layers"].items()}
        most, least = min(lowest, key=lambda n: lowest[n]), max(lowest, key=lambda n: lowest[n])
        sentences.append(
            f"{name}: the sources' weights part most in {most} (cosine down to {lowest[most]:.{DIGITS}f}) and least in "
            f"{least} ({lowest[least]:.{DIGITS}f})."
        )
    return sentences

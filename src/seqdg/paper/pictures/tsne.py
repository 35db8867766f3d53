"""Embeddings of the held-out domain, small multiples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqdg.paper.pictures.about import about, refusals
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.plots import points_plot
from seqdg.report.draw.theme import Looks, styles
from seqdg.report.section import Section, Table


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    numbers = payload["numbers"]
    classes = [numbers["classes"][k] for k in numbers["labels"]]
    present = [c for c in numbers["classes"] if c in set(classes)]
    by_class = styles(present)
    panels = []
    for name, panel in numbers["panels"].items():
        points = [(float(x), float(y)) for x, y in panel["points"]]
        panels.append(points_plot(points, classes, by_class, name, f"silhouette {_score(panel['score'])}"))
    scores = [(name, [_score(panel["score"])]) for name, panel in numbers["panels"].items()]
    table = Table("Mean silhouette of the classes", ["", "silhouette"], scores)
    caption = (
        f"t-SNE of the held-out rows with the same settings for all (perplexity {numbers['perplexity']:g}); color and "
        "shape are the class. The silhouette is of the features, not of their picture: 1 apart, 0 mixed."
    )
    legend = [(c, by_class[c]) for c in present]
    figure = Figure("tsne", "Embeddings of the held-out domain", panels, caption, legend)
    text = [about(payload), *refusals(payload)]
    return Section("tsne", "What it learned: embeddings", text, (),
                   [figure], (), [table], found=_found(numbers))  # fmt: skip


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _found(numbers: Mapping[str, Any]) -> list[str]:
    scores = {name: p["score"] for name, p in numbers["panels"].items() if p["score"] is not None}
    if not scores:
        return []
    best = max(scores, key=lambda name: scores[name])
    raw = f", against {scores['raw data']:.2f} of the raw data" if "raw data" in scores and best != "raw data" else ""
    return [f"Classes are best separated by {best} (silhouette {scores[best]:.2f}{raw})."]

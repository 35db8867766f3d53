"""Inner products and cosines of gradients between source domains."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from seqdg.paper.pictures.about import about, listed, plus_minus, refusals
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.plots import Series, lines_plot
from seqdg.report.draw.theme import Looks
from seqdg.report.section import Section, Table


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    numbers = payload["numbers"]
    curves = numbers["curves"]
    text = [about(payload), *refusals(payload)]
    if not curves:
        return Section("alignment", "Alignment of gradients", text)
    panels = [
        lines_plot([Series(n, looks[n], c["at"], c[key]) for n, c in curves.items()], "step", heading.lower(), heading)
        for key, heading in (("cosine", "Cosine"), ("inner", "Inner product"))
    ]
    at_loss = [Series(n, looks[n], c["loss"], c["cosine"]) for n, c in curves.items()]
    panels.insert(1, lines_plot(at_loss, "loss on the sources", "cosine", "Cosine at equal loss"))
    rows = []
    for name, c in curves.items():
        spread = c["cosine_spread"][-1] if c["cosine_spread"] else None
        rows.append(
            (name, [f"{fmean(c['cosine']):.3f}", plus_minus(c["cosine"][-1], spread, 3), f"{c['inner'][-1]:.3g}"])
        )
    head = ["algorithm", "cosine, mean over training", "cosine at the end", "inner product at the end"]
    table = Table("Gradients of different source domains", head, rows)
    caption = (
        f"Mean over {len(numbers['pairs'])} pairs of sources, gradients of the plain loss on the same training rows at "
        "the deployed weights. Gradients shrink and part as less is left to learn, so the second panel compares at "
        "equal loss; training goes from right to left there."
    )
    figure = Figure("alignment", "Alignment of gradients", panels, caption, [(n, looks[n]) for n in curves], lines=True)
    return Section("alignment", "Alignment of gradients", text, (), [figure], [table], found=_found(curves))


def _found(curves: Mapping[str, Any]) -> list[str]:
    if len(curves) < 2:
        return []
    mean = {name: fmean(c["cosine"]) for name, c in curves.items()}
    order = sorted(mean, key=lambda name: -mean[name])
    return [f"Gradients of different sources point most alike, on average over the training, with {listed(order)}, in "
            f"this order (cosine {mean[order[0]]:.2f} to {mean[order[-1]]:.2f})."]  # fmt: skip

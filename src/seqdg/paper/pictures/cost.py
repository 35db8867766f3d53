"""The cost table, and the paper's ratios beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqdg.paper.pictures.about import about, refusals
from seqdg.report import paper
from seqdg.report.draw.marks import Figure
from seqdg.report.draw.plots import Row, rows_plot
from seqdg.report.draw.theme import Looks
from seqdg.report.section import Section, Table

BASE = "agg"


def shown(payload: Mapping[str, Any], looks: Looks) -> Section:
    numbers = payload["numbers"]
    costs = numbers["costs"]
    base = costs.get(BASE)
    parts = (("seconds", "time of a step"), ("gradients", "gradient evaluations"), ("memory", "peak memory"))
    panels = []
    for key, heading in parts:
        unit = base[key] if base else 1.0
        rows = [
            Row(name, looks[name], c[key] / unit, note=f"{c[key] / unit:.2f}" if base else "")
            for name, c in costs.items()
        ]
        label = f"times {BASE}'s" if base else {"seconds": "seconds", "memory": "bytes"}.get(key, "per step")
        panels.append(rows_plot(rows, label, heading.capitalize(), log=_wide([r.value for r in rows])))
    head = ["algorithm", "ms per step", "× agg", "gradients", "MiB at peak", "× agg", "paper: minutes", "× AGG"]
    table = Table("Cost of a training step", head, [_row(name, costs) for name in costs])
    caption = (
        "Gradient evaluations: arithmetic of a step in units of one domain's minibatch gradient. Peak memory: weights, "
        "optimizer and all that a step makes, without the data."
    )
    text = [_where(payload), *refusals(payload),
            "The paper's minutes are for 3,000 steps of ResNet-18 on PACS on a TITAN X (Pascal), another net, machine "
            "and implementation, with Undo-Bias on the last layer alone: set beside ours, not compared."]  # fmt: skip
    return Section("step-cost", "Cost of a step", text, (), [Figure("step-cost", "Cost of a step", panels, caption)],
                   [table], found=_found(costs))  # fmt: skip


def _where(payload: Mapping[str, Any]) -> str:
    numbers = payload["numbers"]
    together = f"{numbers['stacked']} trials in a stack" if numbers["stacked"] > 1 else "one trial"
    return (
        f"{about(payload).split('. ')[0]}. {together.capitalize()}, {numbers['sources']} sources, {numbers['device']}."
    )


def _wide(values: list[float | None]) -> bool:
    known = [v for v in values if v]
    return bool(known) and max(known) / min(known) > 5


def _row(name: str, costs: Mapping[str, Any]) -> tuple[str, list[str]]:
    c, base = costs[name], costs.get(BASE)
    column = paper.column_of(name)
    minutes = paper.cost().get(column) if column else None
    return name, [
        f"{1000 * c['seconds']:.2f}",
        f"{c['seconds'] / base['seconds']:.2f}" if base else "-",
        f"{c['gradients']:.2f}",
        f"{c['memory'] / 2**20:.1f}",
        f"{c['memory'] / base['memory']:.2f}" if base else "-",
        f"{minutes:.2f}" if minutes else "-",
        f"{minutes / paper.cost()['AGG']:.2f}" if minutes else "-",
    ]


def _found(costs: Mapping[str, Any]) -> list[str]:
    if BASE not in costs or len(costs) < 2:
        return []
    ratios = {name: c["seconds"] / costs[BASE]["seconds"] for name, c in costs.items() if name != BASE}
    low, high = min(ratios, key=lambda n: ratios[n]), max(ratios, key=lambda n: ratios[n])
    if low == high:
        return [f"A step of {low} takes {ratios[low]:.1f} times as long as one of {BASE}."]
    return [
        f"A step takes from {ratios[low]:.1f} ({low}) to {ratios[high]:.1f} ({high}) times as long as one of {BASE}."
    ]

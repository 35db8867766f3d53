"""How alike are the weights that each source domain has for itself? (The cut figure on Undo-Bias and S-Undo-Bias.)"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from seqdg import report
from seqdg.algorithms import _branches as branches
from seqdg.base import Params
from seqdg.paper.study import Numbers, Refused, Study, analyze_each, make_curve, trace
from seqdg.training import Stack


def compute(study: Study) -> Numbers:
    """Compute the mean cosine between the copies of each layer over all pairs of sources, over the training."""
    curves, refused = analyze_each(study, lambda name, stack: _trace_curves(study, name, stack))
    return {"curves": curves, "refused": refused}


def _trace_curves(study: Study, name: str, stack: Stack) -> Numbers:
    if not branches.select_copies(stack.start().params):
        raise Refused(
            f"{name} has no domain-specific weights, so there is no similarity to look at. Those of undo-bias, "
            "s-undo-bias and ensemble have one."
        )
    measure = stack.map_over_trials(lambda params: compute_cosines(branches.select_copies(params)))
    steps, values, _ = trace(study, name, stack, lambda state: measure(state.params))
    layers = {layer: make_curve(steps, [v[layer].mean(-1) for v in values]) for layer in values[0]}
    return {"at": steps, "layers": {layer: {k: c[k] for k in ("mean", "spread")} for layer, c in layers.items()}}


def compute_cosines(copies: Params) -> dict[str, Tensor]:
    """Return by layer (pair,) the cosines between two domains' weights and biases; copies are (domain, ...)."""
    flat: dict[str, list[Tensor]] = {}
    for name, w in copies.items():
        flat.setdefault(name.rpartition(".")[0] or name, []).append(w.flatten(1))
    cosines = {}
    for layer, parts in flat.items():
        w = torch.cat(parts, 1).double()  # in single precision, a million equal weights have a cosine above 1
        unit = w / w.norm(dim=1, keepdim=True).clamp(min=1e-30)
        first, second = torch.triu_indices(len(w), len(w), 1)
        cosines[layer] = (unit @ unit.T)[first, second]
    return cosines


TITLE = "Similarity of domain-specific weights"


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show the angle between domain-specific weights, a panel per layer.

    Cosines are so near 1 that they may differ in the sixth digit alone; angles differ in the first.
    """
    curves = payload["numbers"]["curves"]
    if not curves:
        return report.make_section(payload, "similarity", TITLE, [], [])
    looks = report.pick_styles(looks, curves)
    layers = list(dict.fromkeys(layer for c in curves.values() for layer in c["layers"]))
    angles = {name: _find_angles(c["layers"]) for name, c in curves.items()}
    panels, rows = [], []
    for layer in layers:
        drawn = {name: (c["at"], angles[name][layer]) for name, c in curves.items() if layer in c["layers"]}
        panels.append(report.draw_lines(drawn, "step", "angle in degrees", looks, layer))
    for name, by_layer in angles.items():
        ends = [by_layer.get(layer) for layer in layers]
        rows.append((name, [f"{end[-1]:.2f}, at most {max(end):.2f}" if end else "-" for end in ends]))
    table = report.Table("Angle between the sources' weights at the end, and its largest over the training, in degrees",
                  ["algorithm", *layers], rows)  # fmt: skip
    caption = (
        "Angle between the source domains' own copies of a layer's weights, of the mean cosine over all pairs; 0 is "
        "the same, 90 unrelated."
    )
    figure = report.Figure("similarity", TITLE, panels, caption, looks, has_legend=True)
    return report.make_section(payload, "similarity", TITLE, [figure], [table], _state_findings(angles))


def _find_angles(layers: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Return the angles in degrees, by layer."""
    cosines = {layer: [min(1.0, max(-1.0, cosine)) for cosine in curve["mean"]] for layer, curve in layers.items()}
    return {layer: [math.degrees(math.acos(cosine)) for cosine in values] for layer, values in cosines.items()}


def _state_findings(angles: Mapping[str, Mapping[str, Sequence[float]]]) -> list[str]:
    sentences = []
    for name, by_layer in angles.items():
        largest = {layer: max(values) for layer, values in by_layer.items()}
        most, least = max(largest, key=lambda n: largest[n]), min(largest, key=lambda n: largest[n])
        sentences.append(
            f"{name}: the sources' weights part most in {most} (up to {largest[most]:.1f} degrees) and least in "
            f"{least} ({largest[least]:.1f})."
        )
    return sentences


report.register_analysis(report.AnalysisKind(
    "similarity", compute, show, ("undo-bias", "s-undo-bias"), trials=1, steps=200, order=30, headline=(4, 0)
))  # fmt: skip

"""Do the gradients of the source domains point the same way? (The quantity that section 4.1's Taylor expansion says
S-MLDG raises: inner products of gradients between all pairs of domains.)"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from seqdg import report
from seqdg.base import Params, join_names
from seqdg.nets import Net
from seqdg.paper.study import (
    Numbers,
    Refused,
    Study,
    analyze_each,
    deploy_trainable,
    is_one_net,
    make_curves,
    trace,
)
from seqdg.training import Stack

TITLE = "Alignment of gradients"
MOST = 128  # rows of each source


def compute(study: Study) -> Numbers:
    """Compute the mean inner product and cosine over pairs of sources at even distances over the training, for each
    algorithm; and the loss there, as gradients also part when there is less left to learn.

    The gradients are those of the mean loss on the same training rows of each source, at the weights that would be
    deployed.
    """
    curves, refused = analyze_each(study, lambda name, stack: _trace_curves(study, name, stack))
    return {"pairs": [list(p) for p in combinations(study.sources, 2)], "curves": curves, "refused": refused}


def _trace_curves(study: Study, name: str, stack: Stack) -> Numbers:
    if not is_one_net(stack, stack.deploy(stack.start())):
        raise Refused(f"{name} deploys several networks, so there is no one gradient of a domain.")
    steps, measures, _ = trace(study, name, stack, lambda state: _measure_stack(stack, deploy_trainable(stack, state)))
    return make_curves(steps, measures, ("inner", "cosine", "loss"))


def _measure_stack(stack: Stack, weights: Params) -> tuple[Tensor, Tensor, Tensor]:
    """Return (trial,) inner products and cosines, means over the pairs, and the loss, a mean over the sources."""
    count = min(MOST, *(len(rows) for job in stack.jobs for rows in job.split.train))
    rows = torch.stack([torch.stack([r[:count] for r in job.split.train]) for job in stack.jobs])
    x, y = stack.inputs.serve(rows.to(stack.inputs.device))

    def measure(weights: Params, xs: Tensor, ys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner, cosine = measure_alignment(stack.net, weights, xs, ys)
        return inner.mean(), cosine.mean(), vmap(lambda a, b: _compute_loss(stack.net, weights, a, b))(xs, ys).mean()

    inner, cosine, loss = stack.map_over_trials(measure)(weights, x, y)
    return inner.detach(), cosine.detach(), loss.detach()


def measure_alignment(net: Net, weights: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return (pair,) inner products and cosines of the gradients of pairs of domains; x is (domain, row, *input)."""
    gradients = vmap(lambda inputs, labels: grad(_compute_loss, argnums=1)(net, weights, inputs, labels))(x, y)
    flat = torch.cat([g.flatten(1) for g in gradients.values()], 1)  # (domain, weight)
    products = flat @ flat.T
    length = products.diagonal().sqrt()
    first, second = torch.triu_indices(len(x), len(x), 1)
    inner = products[first, second]
    return inner, inner / (length[first] * length[second]).clamp(min=1e-30)


def _compute_loss(net: Net, weights: Params, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of the net as it serves: without dropout."""
    return net.criterion(net(weights, x), y)


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show inner products and cosines of gradients between source domains."""
    numbers = payload["numbers"]
    curves = numbers["curves"]
    if not curves:
        return report.make_section(payload, "alignment", TITLE, [], [])
    looks = report.pick_styles(looks, curves)
    panels = [
        report.draw_lines({n: (c[across], c[key]) for n, c in curves.items()}, label, key_label, looks, heading)
        for across, key, label, key_label, heading in (
            ("at", "cosine", "step", "cosine", "Cosine"),
            ("loss", "cosine", "loss on the sources", "cosine", "Cosine at equal loss"),
            ("at", "inner", "step", "inner product", "Inner product"),
        )
    ]
    rows = []
    for name, c in curves.items():
        spread = c["cosine_spread"][-1] if c["cosine_spread"] else None
        mean, end = f"{fmean(c['cosine']):.3f}", report.format_mean(c["cosine"][-1], spread, 3)
        rows.append((name, [mean, end, report.format_significant(c["inner"][-1])]))
    head = ["algorithm", "cosine, mean over training", "cosine at the end", "inner product at the end"]
    table = report.Table("Gradients of different source domains", head, rows)
    caption = (
        f"Mean over {len(numbers['pairs'])} pairs of sources, gradients of the plain loss on the same training rows at "
        "the deployed weights. Gradients shrink and part as less is left to learn, so the second panel compares at "
        "equal loss; training goes from right to left there."
    )
    figure = report.Figure("alignment", TITLE, panels, caption, looks, has_legend=True)
    return report.make_section(payload, "alignment", TITLE, [figure], [table], _state_findings(curves))


def _state_findings(curves: Mapping[str, Any]) -> list[str]:
    if len(curves) < 2:
        return []
    mean = {name: fmean(c["cosine"]) for name, c in curves.items()}
    order = sorted(mean, key=lambda name: -mean[name])
    return [f"Gradients of different sources point most alike, on average over the training, with {join_names(order)}, "
            f"in this order (cosine {mean[order[0]]:.2f} to {mean[order[-1]]:.2f})."]  # fmt: skip


report.register_analysis(report.AnalysisKind(
    "alignment", compute, show, ("agg", "fo-mldg", "fo-s-mldg", "ffo-s-mldg"), trials=2, order=50, headline=(1, 0)
))  # fmt: skip

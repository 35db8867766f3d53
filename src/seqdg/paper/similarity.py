"""How alike are the weights that each source domain has for itself? (The cut figure on Undo-Bias and S-Undo-Bias.)"""

from __future__ import annotations

import torch
from torch import Tensor

from seqdg.algorithms import _branches as branches
from seqdg.base.episode import Params
from seqdg.paper.study import Numbers, Refused, Study, mean_and_spread, of_each, walk
from seqdg.training.stack import Stack


def similarity(study: Study) -> Numbers:
    """Mean cosine between the copies of each layer over all pairs of sources, over the training."""
    curves, refused = of_each(study, lambda name, stack: _curves(study, name, stack))
    return {"curves": curves, "refused": refused}


def _curves(study: Study, name: str, stack: Stack) -> Numbers:
    if not branches.own(stack.start().params):
        raise Refused(
            f"{name} has no domain-specific weights, so there is no similarity to look at. Those of undo-bias, "
            "s-undo-bias and ensemble have one."
        )
    steps, found = [], []
    for state in walk(stack, name, study.points, study.tick):
        steps.append(state.step)
        found.append(stack.over_trials(lambda params: cosines(branches.own(params)))(state.params))
    layers = {}
    for layer in found[0]:
        mean, spread = mean_and_spread(torch.stack([f[layer].mean(-1) for f in found], 1))
        layers[layer] = {"mean": mean, "spread": spread}
    return {"at": steps, "layers": layers}


def cosines(copies: Params) -> dict[str, Tensor]:
    """(pair,) by layer: cosine between the weights and biases of two domains' copies; copies are (domain, ...)."""
    flat: dict[str, list[Tensor]] = {}
    for name, w in copies.items():
        flat.setdefault(name.rpartition(".")[0] or name, []).append(w.flatten(1))
    found = {}
    for layer, parts in flat.items():
        w = torch.cat(parts, 1).double()  # in single precision, a million equal weights have a cosine above 1
        unit = w / w.norm(dim=1, keepdim=True).clamp(min=1e-30)
        first, second = torch.triu_indices(len(w), len(w), 1)
        found[layer] = (unit @ unit.T)[first, second]
    return found

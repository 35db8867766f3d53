"""Do the gradients of the source domains point the same way? (The quantity that section 4.1's Taylor expansion says
S-MLDG raises: inner products of gradients between all pairs of domains.)"""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor
from torch.func import grad, vmap

from seqdg.base.episode import Params
from seqdg.nets.net import Net
from seqdg.paper.study import Numbers, Refused, Study, in_training, is_one_net, mean_and_spread, of_each, walk
from seqdg.training.stack import Stack

MOST = 128  # rows of each source


def alignment(study: Study) -> Numbers:
    """Mean inner product and cosine over pairs of sources at even distances over the training, for each algorithm;
    and the loss there, as gradients also part when there is less left to learn.

    The gradients are those of the mean loss on the same training rows of each source, at the weights that would be
    deployed.
    """
    curves, refused = of_each(study, lambda name, stack: _curves(study, name, stack))
    return {"pairs": [list(p) for p in combinations(study.sources, 2)], "curves": curves, "refused": refused}


def _curves(study: Study, name: str, stack: Stack) -> Numbers:
    if not is_one_net(stack, stack.deploy(stack.start())):
        raise Refused(f"{name} deploys several nets, so there is no one gradient of a domain.")
    steps, seen = [], []
    for state in walk(stack, name, study.points, study.tick):
        steps.append(state.step)
        seen.append(_of_stack(stack, in_training(stack, state)))
    curves: Numbers = {"at": steps}
    for what, values in zip(("inner", "cosine", "loss"), zip(*seen, strict=True), strict=True):
        curves[what], curves[f"{what}_spread"] = mean_and_spread(torch.stack(values, 1))
    return curves


def _of_stack(stack: Stack, weights: Params) -> tuple[Tensor, Tensor, Tensor]:
    """(trial,) inner products and cosines, means over the pairs, and the loss, a mean over the sources."""
    count = min(MOST, *(len(rows) for job in stack.jobs for rows in job.split.train))
    rows = torch.stack([torch.stack([r[:count] for r in job.split.train]) for job in stack.jobs])
    x, y = stack.inputs.serve(rows.to(stack.inputs.device))

    def one(own: Params, xs: Tensor, ys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner, cosine = aligned(stack.net, own, xs, ys)
        return inner.mean(), cosine.mean(), vmap(lambda a, b: stack.net.loss(own, (a, b)))(xs, ys).mean()

    inner, cosine, loss = stack.over_trials(one)(weights, x, y)
    return inner.detach(), cosine.detach(), loss.detach()


def aligned(net: Net, weights: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(pair,) inner products and cosines of the gradients of all pairs of domains; x is (domain, row, *input)."""
    gradients = vmap(lambda inputs, labels: grad(net.loss)(weights, (inputs, labels)))(x, y)
    flat = torch.cat([g.flatten(1) for g in gradients.values()], 1)  # (domain, weight)
    products = flat @ flat.T
    length = products.diagonal().sqrt()
    first, second = torch.triu_indices(len(x), len(x), 1)
    inner = products[first, second]
    return inner, inner / (length[first] * length[second]).clamp(min=1e-30)

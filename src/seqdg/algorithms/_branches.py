"""Weights of which every source domain has its own copy: stacked, first axis the sources, under a prefixed name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from seqdg import kernels
from seqdg.base import Episode, Params, UsageError, private, tree
from seqdg.nets import Net

PREFIX = "branch."


def select_names(net: Net, which: str) -> tuple[str, ...]:
    """Return names of weights: `all`, those of the `head`, or those that match a pattern or the start of a name."""
    if which == "all":
        return net.names
    if which == "head":
        names = net.head_names
    else:
        names = tuple(name for name in net.names if fnmatch(name, which) or name.startswith(f"{which}."))
    if not names:
        parts = dict.fromkeys(name.split(".")[0] for name in net.names)
        raise UsageError(
            f"No weight of the net belongs to branches '{which}'. Give 'all', 'head' (of a net that ends in a linear "
            f"layer), or the start of a name or a pattern with *; this net has: {', '.join(parts)}."
        )
    return names


def split(params: Params, names: Iterable[str], sources: int) -> Params:
    """Return the weights with equal copies of those named, one for each source domain; they share their memory until
    training starts."""
    copies = {name: params[name].expand(sources, *params[name].shape) for name in names}
    return {**{name: w for name, w in params.items() if name not in copies}, **tree.with_prefix(copies, PREFIX)}


def select_shared(params: Params) -> Params:
    """Return the weights that all source domains share."""
    return tree.without_prefix(params, PREFIX)


def select_copies(params: Params) -> Params:
    """Return (source, ...) the copies, by the net's names."""
    return tree.under_prefix(params, PREFIX)


def order_copies(params: Params, domain: Tensor) -> Params:
    """Return (domain, ...) the copies of these sources, in this order."""
    # As a product with rows of 0 and 1: the gradient of an index_select is a loop over the trials of a stack.
    return {
        name: torch.tensordot(select_met(domain, len(w), w.dtype), w, 1) for name, w in select_copies(params).items()
    }


def average_copies(params: Params, domain: Tensor) -> Params:
    """Return the mean of the copies of these sources."""
    copies = select_copies(params).items()
    return {name: torch.tensordot(select_met(domain, len(w), w.dtype).mean(0), w, 1) for name, w in copies}


def select_weights(params: Params, episode: Episode, i: int) -> Params:
    """Return the weights for the i-th domain of the path: what is shared, and its copies."""
    return {**select_shared(params), **average_copies(params, episode.domain.narrow(0, i, 1))}


def replace_met(values: Tensor, new: Tensor, domain: Tensor) -> Tensor:
    """Return (source, ...) the values, with new ones (domain, ...) of the sources that these domains are."""
    index = domain.reshape(-1, *(1,) * (values.dim() - 1)).expand(new.shape)
    return values.scatter(0, index, new.to(values.dtype))


def count_sources(params: Params) -> int:
    """Count the copies."""
    return len(next(iter(select_copies(params).values())))


def select_met(domain: Tensor, sources: int, dtype: torch.dtype) -> Tensor:
    """Return (domain, source) the matrix that takes the copies of all sources to those of these domains: 1 where the
    domain is the source, else 0."""
    return (domain.unsqueeze(1) == torch.arange(sources, device=domain.device)).to(dtype)


def build_contrast(met: Tensor) -> Tensor:
    """Return (domain, source) the matrix that takes the copies of all sources to those of these domains, each less the
    mean of theirs. met: that of `select_met`."""
    return met - met.mean(0)


def build_past_contrast(met: Tensor) -> Tensor:
    """Return (domain - 1, source) the matrix that takes the copies of all sources to those of the domains of a path,
    but for the first, each less the mean of those before it. met: that of `select_met`."""
    count = len(met) - 1
    before = torch.arange(1, count + 1, device=met.device).unsqueeze(1)
    return met.narrow(0, 1, count) - met.cumsum(0).narrow(0, 0, count) / before


class Contrasts:
    """C w of copies w (copy, ...) under several names. Rows of the matrix C (row, copy) sum to zero.

    In a stack of trials on a GPU its functions are kernels, which run once for all trials.
    """

    def __init__(self, matrix: Tensor, copies: Mapping[str, Tensor]) -> None:
        self.matrix, self.copies = matrix, copies
        self.fused = all(map(kernels.can_contrast, copies.values()))
        self._away = {} if self.fused else {name: _contrast(matrix, w) for name, w in copies.items()}

    def measure(self) -> Tensor:
        """Return (row,) the squared norm of each contrast, over all names."""
        if self.fused:
            return torch.stack([kernels.measure_contrasts(self.matrix, w) for w in self.copies.values()]).sum(0)
        norms: list[Tensor] = [torch.linalg.vector_norm(w.flatten(1), dim=1) for w in self._away.values()]
        return torch.stack([norm**2 for norm in norms]).sum(0)

    def add_pull(self, name: str, strengths: Tensor, d: Tensor) -> Tensor:
        """Return d + C' (strength * C w). strengths: (row,)"""
        if self.fused:
            return kernels.add_pull(self.matrix, self.copies[name], strengths, d)
        away = self._away[name]
        back: Tensor = torch.tensordot(self.matrix.T, strengths.reshape(-1, *(1,) * (away.dim() - 1)) * away, 1)
        return d + back


def _contrast(matrix: Tensor, copies: Tensor) -> Tensor:
    """Return (row, ...) C w, from differences, so that equal copies give zero to the last bit."""
    others = len(copies) - 1
    away: Tensor = torch.tensordot(matrix.narrow(1, 1, others), copies.narrow(0, 1, others) - copies.narrow(0, 0, 1), 1)
    return away


def compute_losses(net: Net, common: Params, copies: Params, episode: Episode) -> Tensor:
    """Return (domain,) the loss of each domain with its copies; one pass below the head where only that is copied."""
    if _are_in_head(net, copies):
        z = net.domain_features(common, episode)
        logits = vmap(lambda copy, features: net.head({**common, **copy}, features))(copies, z)
        return net.losses_from_logits(logits, episode.y)
    return vmap(lambda copy, batch: net.loss({**common, **copy}, batch))(copies, episode.minibatches)


def compute_gradient(net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
    """Return the gradient of the sum of all domains' losses, each with its copies, and that sum.

    Where more than the head is copied, domain by domain: in a stack of trials all of them at once (a gradient inside a
    `vmap` lies in memory as its weights do, one around it does not), else one after the other, since a convolution with
    other weights for every domain is slow.
    """
    step, sources = episode.by_source(), count_sources(params)
    if step.domains < sources:
        met = {**select_shared(params), **tree.with_prefix(order_copies(params, step.domain), PREFIX)}
        direction, value = compute_gradient(net, met, step)
        zeros = {name: torch.zeros_like(w) for name, w in select_copies(params).items()}
        copies = {name: replace_met(zeros[name], d, step.domain) for name, d in select_copies(direction).items()}
        return {**direction, **tree.with_prefix(copies, PREFIX)}, value
    common, copies = select_shared(params), select_copies(params)
    if _are_in_head(net, copies):
        return grad_and_value(lambda w: compute_losses(net, select_shared(w), select_copies(w), step).sum())(params)
    one = grad_and_value(lambda copy, batch: net.loss(copy, batch))
    if private.is_transformed():
        stacked, losses = vmap(lambda copy, batch: one({**common, **copy}, batch))(copies, step.minibatches)
    else:
        each = [
            one({**common, **{name: w.select(0, i) for name, w in copies.items()}}, step.minibatch(i))
            for i in range(step.domains)
        ]
        stacked = {name: torch.stack([gradient[name] for gradient, _ in each]) for name in (*common, *copies)}
        losses = torch.stack([loss for _, loss in each])
    gradients = {name: g.sum(0) if name in common else g for name, g in stacked.items()}
    return {name: gradients[name.removeprefix(PREFIX)] for name in params}, losses.sum()


def average(copies: Params) -> Params:
    """Return the mean over the first axis."""
    return {name: w.mean(0) for name, w in copies.items()}


def _are_in_head(net: Net, copies: Params) -> bool:
    return net.has_features and set(copies) <= set(net.head_names)

"""Penalties across domains: how far apart features are, what the gradients of the domains have in common, and
penalties that are weak at first, as in DomainBed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, UsageError, tree
from seqdg.core import Algorithm, Number, setting
from seqdg.nets import Net

GAMMAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # of DomainBed's seven Gaussian kernels, exp(-gamma |a - b|^2)


def compute_moments(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean (..., feature) and covariance (..., feature, feature) of rows (..., row, feature), over row - 1."""
    mean = z.mean(-2)
    centred = z - mean.unsqueeze(-2)
    return mean, centred.mT @ centred / (z.shape[-2] - 1)


def compare_moments(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean squared difference of two means, plus that of two covariances."""
    return sum((((a - b) ** 2).mean() for a, b in zip(one, other, strict=True)), one[0].new_zeros(()))


def compute_kernel(rows: Tensor) -> Tensor:
    """Return (row, row) the sum of the Gaussian kernels between rows (row, feature)."""
    # Two precautions against rounding, which the narrowest kernel multiplies by a thousand: rows less their mean, which
    # changes no distance, and a distance of exactly 0 from a row to itself.
    rows = rows - rows.mean(0).detach()
    squares, others = (rows**2).sum(1), 1.0 - torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    distances = others * (squares.unsqueeze(1) + squares.unsqueeze(0) - 2.0 * rows @ rows.mT).clamp_min(0.0)
    kernel = torch.exp(-GAMMAS[0] * distances)
    for gamma in GAMMAS[1:]:
        kernel = kernel + torch.exp(-gamma * distances)
    return kernel


def compute_discrepancy(z: Tensor) -> Tensor:
    """Return the mean over pairs of domains of the squared MMD between their features (domain, batch, feature)."""
    domains, batch = z.shape[:2]
    kernel = compute_kernel(z.flatten(0, 1)).reshape(domains, batch, domains, batch).mean((1, 3))
    inside = kernel.diagonal().sum()
    across = kernel.sum() - inside
    return 2.0 * (inside / domains - across / (domains * (domains - 1)))


def check_rows(episode: Episode, kind: str) -> None:
    """Raise a UsageError where a minibatch has a single row, which has no variance and no halves."""
    if episode.y.shape[1] < 2:
        raise UsageError(f"{kind} compares the rows of a domain's minibatch, but it has 1: give a batch of at least 2.")


def compute_gradients(net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
    """Return (domain, ...) the gradient of each domain's loss by name, and (domain,) the losses."""
    # One by one: products of stacks of matrices would give gradients whose order in memory is not that of the weights.
    each = [grad_and_value(net.loss)(params, episode.minibatch(i)) for i in range(episode.domains)]
    return tree.stack([gradient for gradient, _ in each]), torch.stack([loss for _, loss in each])


def measure_agreement(gradients: Tensor) -> Tensor:
    """Return |mean over domains of sign g_i| of gradients (domain, ...): 1 where all domains agree."""
    return torch.sign(gradients).mean(0).abs()


def apply_mask(mask: Tensor, gradients: Tensor) -> Tensor:
    """Return the masked mean of gradients (domain, ...), divided by the mean of the mask."""
    return mask * gradients.mean(0) / (1e-10 + mask.mean())


def anneal_setting() -> Any:
    """Declare the share of the steps with the weak penalty; DomainBed's 500 of 5,001 steps are 0.1."""
    return setting(0.1, least=0.0, most=0.9, static=True, search=(0.0, 0.1, 0.3))


def weaken(weight: Number) -> Number:
    """Return 1, or the weight itself where that is less."""
    return weight.clamp(max=1.0) if isinstance(weight, Tensor) else min(weight, 1.0)


def split_stages(share: float, weak: Algorithm, full: Algorithm) -> tuple[tuple[float, Algorithm], ...]:
    """Return the two stages, so that the second begins with a new optimizer; with a share of 0 there is no weak one."""
    return ((share, weak), (1.0 - share, full)) if share > 0 else ((1.0, full),)

"""CausIRL: features with the same distribution in two random halves of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.algorithms import _layers as layers
from seqdg.algorithms import _penalties as penalties
from seqdg.base import Episode, Params, noise
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("causirl")
@dataclass(frozen=True)
class CausIRL(Algorithm):
    """Causality-based invariant representation learning, CausIRL (Chevalley, Bunne, Krause and Bauer 2022).

    Each domain is cut at a random row. Features of all rows before the cuts, A, and after them, B, mix the domains in
    other proportions, and should have the same distribution:

        L(w) = 1/N * sum over i of l(D_i, w) + gamma * distance(A, B)

    distance: `mmd`, with the kernels of `mmd`, or `coral`, the squared differences of the means and covariances.
    gamma: weight of the distance (DomainBed: 1, searched from 0.1 to 10).
    """

    distance: str = setting("mmd", choices=("mmd", "coral"))
    gamma: Number = setting(1.0, least=0.0, search=Range(0.1, 10.0))
    needs: ClassVar[int] = 2
    needs_features: ClassVar[bool] = True

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        z = net.domain_features(params, episode)
        first = draw_halves(episode).to(z.dtype)
        halves = torch.stack([first, 1.0 - first])  # (half, row), 1 where the row is in it
        apart = (compare_kernels if self.distance == "mmd" else compare_moments)(z.flatten(0, 1), halves)
        enough = (halves.sum(1) > 1).all()  # as in DomainBed, a half of a single row is compared with nothing
        return layers.label_loss(net, params, z, episode.y) + self.gamma * torch.where(enough, apart, 0.0)


def draw_halves(episode: Episode) -> Tensor:
    """Return (row,) whether a row is before the cut of its domain, which lies before one of its rows."""
    batch = episode.y.shape[1]
    cut = (noise.uniform(episode.key, (episode.domains,), torch.float64) * batch).floor()
    return (torch.arange(batch, device=cut.device) < cut.unsqueeze(1)).flatten()


def compare_kernels(rows: Tensor, halves: Tensor) -> Tensor:
    """Return the squared MMD between the halves."""
    shares = halves / halves.sum(1, keepdim=True).clamp_min(1.0)
    difference = shares.select(0, 0) - shares.select(0, 1)
    return difference @ penalties.compute_kernel(rows) @ difference


def compare_moments(rows: Tensor, halves: Tensor) -> Tensor:
    """Return the distance of CORAL between the halves."""
    counts = halves.sum(1)
    means = halves @ rows / counts.clamp_min(1.0).unsqueeze(1)  # (half, feature)
    centred = rows - means.unsqueeze(1)  # (half, row, feature)
    covariances = (halves.unsqueeze(2) * centred).mT @ centred / (counts - 1.0).clamp_min(1.0).reshape(2, 1, 1)
    return sum((((m.select(0, 0) - m.select(0, 1)) ** 2).mean() for m in (means, covariances)), rows.new_zeros(()))

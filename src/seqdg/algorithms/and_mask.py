"""AND-mask: learn only where the domains agree on the sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from seqdg.algorithms._penalties import apply_mask, compute_gradients, measure_agreement
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net


@register("and-mask")
@dataclass(frozen=True)
class ANDMask(Algorithm):
    """Learning explanations that are hard to vary (Parascandolo et al., ICLR 2021): the AND-mask.

    An entry of the weights learns only if enough domains agree on the sign of its gradient g_i = grad l(D_i, w):

        m = 1 where |1/N * sum over i of sign(g_i)| >= tau, else 0
        direction = m / mean(m) * 1/N * sum over i of g_i

    with mean(m) over the entries of each tensor of weights, as in DomainBed: the fewer entries learn, the longer their
    steps, so it wants a smaller learning rate than AGG. The mask acts on the mean gradient, before the optimizer:
    momentum carries an entry on while its gradient is masked.

    tau: least agreement, from 0 (no mask: AGG) to 1 (all domains). Of N domains only 1, 1 - 2/N, 1 - 4/N, ... occur.
        DomainBed's default of 1 presupposes Adam at 5e-5; it leaves one entry in 16 of five unrelated gradients.
    """

    tau: Number = setting(0.5, least=0.0, most=1.0, search=Range(0.5, 1.0, log=False))
    needs: ClassVar[int] = 2
    inert: ClassVar[tuple[str, ...]] = ("tau",)  # of 3 domains, 0.34 to 1 are all the same

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        gradients, losses = compute_gradients(net, params, episode)
        masked = {name: apply_mask(self.mask(g), g) for name, g in gradients.items()}
        return masked, losses.mean()

    def mask(self, gradients: Tensor) -> Tensor:
        return (measure_agreement(gradients) >= self.tau).to(gradients.dtype)

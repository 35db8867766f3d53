"""FFO-S-MLDG, the paper's fast first-order approximation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import grad_and_value

from seqdg.base import Episode, Params, tree
from seqdg.core import Algorithm, Numbers, Range, check_count, pick, pick_from_end, register, setting
from seqdg.nets import Net


@register("ffo-s-mldg")
@dataclass(frozen=True)
class FastFirstOrderSMLDG(Algorithm):
    """Fast first-order S-MLDG, Algorithm 2 of Li et al. (2020): walk the path, then step towards where it ended.

        w_1 = w,   w_{i+1} = w_i - alpha_i * beta_i * grad l(D_i, .) at w_i,   direction = w - w_{N+1}

    With plain SGD at learning rate gamma the update is w + gamma * (w_{N+1} - w). The paper's appendix C names momentum
    0.9 and weight decay 0.00005 without saying for which steps; Algorithm 2 has neither. With both in the inner steps,

        v_0 = 0,   v_i = inner_momentum * v_{i-1} + beta_i * grad l(D_i, .) at w_i + inner_decay * w_i
        w_{i+1} = w_i - alpha_i * v_i

    Along a direction in which every loss has curvature h, a step multiplies the distance to the minimum by

        1 - gamma * (1 - product over i of (1 - alpha_i * beta_i * h))

    which is unstable where its size is above 1: for the paper's settings on PACS above h = 176; the limit of
    FO-S-MLDG with momentum is 1194. Measured on PACS (ResNet-18 with rebuilt weights, frozen BatchNorm, no
    augmentation, art held out, 3,000 steps), 10 of 12 minibatches of the first 400 steps have a largest curvature
    above 176 (136 to 503). With one seed, bf16 diverges at step 588, after a minibatch of sketches with 1296,
    float32 at step 651, and tf32 does not; from the weights of step 540, bf16 and float32 diverge at the same step.
    Three more seeds in bf16 recover from every spike of the loss. So the length of the steps is the cause, and
    rounding decides who is hit. Without a spike after the third step, one seed each: alpha = 0.005, beta = 1, batch
    statistics in place of frozen ones. An inner momentum of 0.9 lengthens the walk, and the net only guesses until
    step 174, then recovers; with alpha = 0.0062 it has no spike. If training diverges, halve alpha.

    alpha: length of an inner step, one for all or alpha_1, ..., alpha_N (the last repeats where N - 1 are given).
    beta: weight of a domain's loss, one for all or the last few of beta_1, ..., beta_N (1 where missing).
    inner_momentum: momentum of the inner steps, which starts anew with every path.
    inner_decay: weight decay of the inner steps.
    """

    # The range is narrower than S-MLDG's: here alpha is what the learning rate is to others.
    alpha: Numbers = setting(0.1, least=0.0, per_position=True, search=Range(0.03, 1.0))
    beta: Numbers = setting(1.0, least=0.0, per_position=True, search=Range(0.5, 2.0))
    # Static, so that the paper's walk, which has neither, costs nothing more for them.
    inner_momentum: float = setting(0.0, least=0.0, most=1.0, static=True, added=0.0)
    inner_decay: float = setting(0.0, least=0.0, static=True, added=0.0)
    optimizer: ClassVar[str] = "sgd"

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        check_count("alpha", self.alpha, tuple(n for n in (sources - 1, sources) if n), sources)
        check_count("beta", self.beta, tuple(range(1, sources + 1)), sources)

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        n, weights, total = episode.domains, params, episode.x.new_zeros(())
        velocity: Params = {}
        for i in range(n):
            minibatch, alpha, beta = episode.minibatch(i), pick(self.alpha, i), pick_from_end(self.beta, i, n)
            direction, value = grad_and_value(net.loss)(weights, minibatch)
            if self.inner_momentum == 0.0 == self.inner_decay:
                weights = tree.add(weights, direction, -alpha * beta)
            else:
                pull = tree.add(tree.scale(direction, beta), weights, self.inner_decay)
                velocity = tree.add(pull, velocity, self.inner_momentum) if velocity else pull
                weights = tree.add(weights, velocity, -alpha)
            total = total + beta * value
        return tree.add(params, weights, -1.0), total

"""MLDG, exact and first-order. `Sequential` of these are S-MLDG and FO-S-MLDG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import grad_and_value

from seqdg import tree
from seqdg.algorithm import Chainable, Loss, Numbers, Range, setting
from seqdg.episode import Episode, Params
from seqdg.models.net import Net
from seqdg.positions import check_count, nth, nth_from_end
from seqdg.registry import register


@register("mldg", sequential="s-mldg")
@dataclass(frozen=True)
class MLDG(Chainable):
    """Meta-learning for domain generalization (Li et al., AAAI 2018).

    A new domain is judged at the weights that one gradient step on the past would give:

        L_i(w) = L_{i-1}(w) + beta * l(D_i, w - alpha * grad L_{i-1}(w))

    By itself, the past is the mean over all domains of the path but the last, and the last is the meta-test domain.
    `Sequential` of it is S-MLDG, Algorithm 1 of Li et al. (2020).

    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    """

    alpha: Numbers = setting(0.1, least=0.0, per_position=True, search=Range(1e-3, 1.0))
    beta: Numbers = setting(1.0, least=0.0, per_position=True, search=Range(0.5, 2.0))
    needs: ClassVar[int] = 2
    inert: ClassVar[tuple[str, ...]] = ("beta_1",)  # the first domain has no past to be judged after

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        self.check_path(net, 2)

    def check_path(self, net: Net, length: int) -> None:
        check_count("alpha", self.alpha, (length - 1,), length)
        check_count("beta", self.beta, tuple(range(1, length + 1)), length)

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        last = episode.domains - 1
        before = episode.part(0, last)
        total = self._extended(net, lambda w: net.losses(w, before).mean(), episode, last, position=1, length=2)
        return total(params)

    def extend(self, net: Net, past: Loss, episode: Episode, i: int) -> Loss:
        return self._extended(net, past, episode, i, position=i, length=episode.domains)

    def _extended(self, net: Net, past: Loss, episode: Episode, i: int, position: int, length: int) -> Loss:
        alpha, beta = nth(self.alpha, position - 1), nth_from_end(self.beta, position, length)

        def total(weights: Params) -> Tensor:
            step, so_far = grad_and_value(past)(weights)
            ahead = tree.add(weights, self._through(step), -alpha)
            extended: Tensor = so_far + beta * net.loss(ahead, episode.minibatch(i))
            return extended

        return total

    def _through(self, step: Params) -> Params:
        """Exact: the step is differentiated through."""
        return step


@register("fo-mldg", sequential="fo-s-mldg")
@dataclass(frozen=True)
class FirstOrderMLDG(MLDG):
    """First-order MLDG (Li et al. 2020, section 4.2): the look-ahead step counts as a constant.

        L_i(w) = L_{i-1}(w) + beta * l(D_i, w - alpha * stop(grad L_{i-1}(w)))
        g_i = g_{i-1} + beta * grad l(D_i, .) at w - alpha * g_{i-1}

    so that a path of N domains takes N ordinary gradients. `Sequential` of it is FO-S-MLDG, what the paper's tables
    call S-MLDG.

    alpha: length of the look-ahead step, one for all positions or alpha_1, ..., alpha_{N-1}.
    beta: weight of the new domain, one for all positions or the last few of beta_2, ..., beta_N (1 where missing).
    """

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        last = episode.domains - 1
        before = episode.part(0, last)
        past = grad_and_value(lambda weights: net.losses(weights, before).mean())(params)
        return self._advanced(net, params, past, episode, last, position=1, length=2)

    def advance(
        self, net: Net, params: Params, past: tuple[Params, Tensor], episode: Episode, i: int
    ) -> tuple[Params, Tensor]:
        return self._advanced(net, params, past, episode, i, position=i, length=episode.domains)

    def _advanced(
        self,
        net: Net,
        params: Params,
        past: tuple[Params, Tensor],
        episode: Episode,
        i: int,
        position: int,
        length: int,
    ) -> tuple[Params, Tensor]:
        alpha, beta = nth(self.alpha, position - 1), nth_from_end(self.beta, position, length)
        direction, so_far = past
        ahead = tree.add(params, direction, -alpha)
        new, value = grad_and_value(lambda weights: net.loss(weights, episode.minibatch(i)))(ahead)
        return tree.add(direction, new, beta), so_far + beta * value

    def _through(self, step: Params) -> Params:
        return tree.detach(step)

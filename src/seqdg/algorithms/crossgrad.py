"""CrossGrad, cross-gradient training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad, grad_and_value

from seqdg.algorithms import _layers as layers
from seqdg.base import Episode, Params, UsageError, tree
from seqdg.core import Algorithm, Number, Range, register, setting
from seqdg.nets import Net

SMALLEST = 1e-20  # by which a gradient is divided; one of length 0 moves nothing
LossOfInputs = Callable[[Params, Tensor], Tensor]


@register("crossgrad")
@dataclass(frozen=True)
class CrossGrad(Algorithm):
    """Generalizing across domains via cross-gradient training (Shankar et al., ICLR 2018).

    Beside the label net w there is a domain net v, of the same form. Each is also trained on inputs that move along
    the other's input gradient, as if from a domain in between, or of a label in between (their Algorithm 1):

        x_d = x + epsilon_label * clip(grad_x d(x, v)),   x_l = x + epsilon_domain * clip(grad_x l(x, w))
        L(w, v) = (1 - alpha_label) * l(x, w)  + alpha_label * l(x_d, w)
                + (1 - alpha_domain) * d(x, v) + alpha_domain * d(x_l, v)

    where l and d are the mean losses of label and domain, grad_x that of each input's own loss, and a constant. Each
    number of a gradient is clipped. With `length = "relative"` a step has a length that means the same in every net,
    epsilon times that of the input:

        x_d = x + epsilon_label * |x| * g / |g|,   g = grad_x d(x, v),   and x_l likewise

    The authors' code (github.com/vihari/crossgrad, on gray pictures of letters) has one epsilon of 10, a clip of 0.1
    and a weight of 0.5, on the gradient of the minibatch's *mean* loss, which is that of an input's own loss over the
    number of rows: of 96 rows, epsilon 0.104 and clip 9.6 here. The defaults, 1 and 0.1 on the gradient of an input's
    own loss, are ours; 1, 0.1 and 0.5 on that of the mean loss are those of the toolbox Dassl.

    epsilon_label: how far inputs of the label net move along the domain net's gradient.
    epsilon_domain: how far inputs of the domain net move along the label net's gradient.
    clip: the largest absolute value of a number of a gradient; `relative` has no use for it.
    alpha_label: weight of the moved inputs in the label net's loss.
    alpha_domain: weight of the moved inputs in the domain net's loss.
    length: of a step, epsilon times a clipped gradient, or epsilon times the input's own length.
    """

    epsilon_label: Number = setting(1.0, least=0.0, search=Range(0.01, 10.0))
    epsilon_domain: Number = setting(1.0, least=0.0, search=Range(0.01, 10.0))
    clip: Number = setting(0.1, above=0.0)
    alpha_label: Number = setting(0.5, least=0.0, most=1.0, search=Range(0.1, 0.9, log=False))
    alpha_domain: Number = setting(0.5, least=0.0, most=1.0, search=Range(0.1, 0.9, log=False))
    length: str = setting("clipped", choices=("clipped", "relative"), added="clipped")
    needs: ClassVar[int] = 2

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        if not net.head_names:
            raise UsageError(
                "CrossGrad gives a copy of the net a head that names domains, but this net does not end in a linear "
                "layer: end it in one, or choose another algorithm, such as agg."
            )

    def init(self, net: Net, params: Params, sources: int, generator: torch.Generator) -> Params:
        head = params[net.head_names[0]]
        body = {name: w for name, w in params.items() if name not in net.head_names}
        outputs = layers.linear_params("domain.head.", head.shape[1], sources, generator, head)
        return {**params, **tree.with_prefix(body, "domain.body."), **outputs}

    def loss(self, net: Net, params: Params, episode: Episode) -> Tensor:
        (label, domain), x = self._define_losses(net, episode), episode.x
        along_domain, along_label = self.move_inputs(net, params, episode)
        return (
            (1.0 - self.alpha_label) * label(params, x) + self.alpha_label * label(params, along_domain)
            + (1.0 - self.alpha_domain) * domain(params, x) + self.alpha_domain * domain(params, along_label)
        )  # fmt: skip

    def move_inputs(self, net: Net, params: Params, episode: Episode) -> tuple[Tensor, Tensor]:
        """Return x_d and x_l, the moved inputs of the label net and of the domain net."""
        (label, domain), x, constants = self._define_losses(net, episode), episode.x, tree.detach(params)
        along_domain = self.move(x, grad(domain, argnums=1)(constants, x), self.epsilon_label)
        along_label = self.move(x, grad(label, argnums=1)(constants, x), self.epsilon_domain)
        return along_domain, along_label

    def gradient(self, net: Net, params: Params, episode: Episode) -> tuple[Params, Tensor]:
        """One pass over the inputs gives the gradients of the weights and those that the other net's inputs follow."""
        (label, domain), x = self._define_losses(net, episode), episode.x
        label_params, domain_params = tree.without_prefix(params, "domain."), tree.select_prefix(params, "domain.")
        (of_label, from_label), label_there = grad_and_value(label, argnums=(0, 1))(label_params, x)
        (of_domain, from_domain), domain_there = grad_and_value(domain, argnums=(0, 1))(domain_params, x)
        moved = self.move(x, from_domain, self.epsilon_label), self.move(x, from_label, self.epsilon_domain)
        label_on, label_value = grad_and_value(label)(label_params, moved[0])
        domain_on, domain_value = grad_and_value(domain)(domain_params, moved[1])
        direction = {
            **tree.mix(of_label, label_on, self.alpha_label), **tree.mix(of_domain, domain_on, self.alpha_domain)
        }  # fmt: skip
        value = (1.0 - self.alpha_label) * label_there + self.alpha_label * label_value
        value = value + (1.0 - self.alpha_domain) * domain_there + self.alpha_domain * domain_value
        return {name: direction[name] for name in params}, value

    def _define_losses(self, net: Net, episode: Episode) -> tuple[LossOfInputs, LossOfInputs]:
        """Return the losses of label and domain as functions of the weights and the inputs."""

        def label(weights: Params, inputs: Tensor) -> Tensor:
            return layers.label_loss(net, weights, net.domain_features(weights, episode._replace(x=inputs)), episode.y)

        def domain(weights: Params, inputs: Tensor) -> Tensor:
            z = net.domain_features(tree.under_prefix(weights, "domain.body."), episode._replace(x=inputs))
            return layers.domain_loss(layers.linear(weights, "domain.head.", z), episode.domain)

        return label, domain

    def move(self, x: Tensor, gradient: Tensor, epsilon: Number) -> Tensor:
        """Move inputs along the gradient of each one's own loss, given that of the mean over all."""
        if self.length == "relative":
            return x + epsilon * measure_length(x) * gradient / measure_length(gradient).clamp_min(SMALLEST)
        return x + epsilon * self.limit(x.shape[0] * x.shape[1] * gradient)

    def limit(self, gradient: Tensor) -> Tensor:
        return self.clip * torch.clamp(gradient / self.clip, -1.0, 1.0)

    def deploy(self, params: Params, memory: Params) -> Params:
        return tree.without_prefix(params, "domain.")


def measure_length(x: Tensor) -> Tensor:
    """Return (domain, batch, 1, ...) the Euclidean length of each row of x (domain, batch, *input)."""
    return (x**2).sum(tuple(range(2, x.dim())), keepdim=True).sqrt()

"""Sound algorithms for tests to check, and to break."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch.func import grad, grad_and_value

from seqdg import Algorithm
from seqdg.base import tree
from seqdg.core import Number, setting
from seqdg.testing import ContractError, check_algorithm

toy = dataclass(frozen=True)


@toy
class Sound(Algorithm):
    """Weighted aggregation, for these tests (nobody, 2024).

    strength: of the weight decay.   power: of the loss.
    """

    strength: Number = setting(0.1, least=0.0)
    power: Number = setting(1.0, above=0.0, most=1.0)

    def loss(self, net, params, episode):
        total = torch.stack([net.loss(params, episode.minibatch(i)) for i in range(episode.domains)]).sum()
        return total**self.power + 0.5 * self.strength * tree.squared_norm(params)


@toy
class Pull(Algorithm):
    """The first stage of TwoStages (nobody, 2024).

    goal: where the weights of the pull go.
    """

    goal: Number = 0.0

    def loss(self, net, params, episode):
        return 0.5 * (params["pull"] - self.goal - net.loss(params, episode.minibatch(0)).detach()) ** 2

    def gradient(self, net, params, episode):
        value = self.loss(net, params, episode)
        return {"pull": grad(lambda w: self.loss(net, params | {"pull": w}, episode))(params["pull"])}, value


@toy
class Pulled(Algorithm):
    """The second stage of TwoStages (nobody, 2024)."""

    def gradient(self, net, params, episode):
        total = lambda w: net.losses(w, episode).mean() + params["pull"].detach() * tree.squared_norm(w)  # noqa: E731
        return grad_and_value(total)({name: params[name] for name in net.names})


@toy
class TwoStages(Algorithm):
    """Learns a weight decay, then trains with it (nobody, 2024).

    goal: of the weight decay.   share: of the first stage.
    """

    goal: Number = setting(0.3)
    share: float = setting(0.2, above=0.0, most=0.9, static=True)

    def init(self, net, params, sources, generator):
        return params | {"pull": torch.zeros((), dtype=next(iter(params.values())).dtype)}

    def stages(self):
        return ((self.share, Pull(self.goal)), (1 - self.share, Pulled()))


@toy
class Remembers(Algorithm):
    """Domains weigh more, the worse they do, as in GroupDRO (nobody, 2024).

        q_i <- q_i * exp(eta * l_i) / sum,   L = sum of q_i * l_i

    eta: how fast the weights of the domains change.
    """

    eta: Number = setting(0.5, above=0.0)

    def memory(self, net, params, sources):
        first = next(iter(params.values()))
        return {"q": first.new_full((sources,), 1.0 / sources)}

    def step(self, net, params, memory, episode):
        before = memory["q"].index_select(0, episode.domain)

        def total(weights):
            losses = net.losses(weights, episode)
            q = before * torch.exp(self.eta * losses.detach())
            q = q / q.sum()
            return (q * losses).sum(), q

        direction, (value, q) = grad_and_value(total, has_aux=True)(params)
        return direction, value, {"q": memory["q"].index_copy(0, episode.domain, q)}


def failure(algorithm: Algorithm) -> str:
    """What the contract says of one that breaks it."""
    with pytest.raises(ContractError) as caught:
        check_algorithm(algorithm)
    message = str(caught.value)
    assert message.startswith(f"{type(algorithm).__name__} on an MLP"), message
    assert "\n" not in message, message
    return message


PAPER = (
    "agg", "mldg", "fo-mldg", "s-mldg", "fo-s-mldg", "ffo-s-mldg", "undo-bias", "s-undo-bias", "ensemble", "dann",
    "crossgrad", "metareg", "mmd-aae",
)  # fmt: skip


def mark_all(names, mark):
    """Return names as parameters of a test, each with this mark."""
    return [pytest.param(name, marks=mark) for name in names]


def mark_others(names, mark):
    """Return names as parameters of a test, those of algorithms that are not the paper's with this mark."""
    return [pytest.param(name, marks=() if name in PAPER else mark) for name in names]

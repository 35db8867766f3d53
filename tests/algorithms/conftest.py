"""A two-layer net in float64, the same net written out by hand, and an episode with as many domains as a test wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqdg import Algorithm, Episode, Net, Params

Theta = list[Tensor]  # W1, b1, W2, b2
Domain = tuple[Tensor, ...]  # x, y, perhaps a key


@pytest.fixture
def net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    return Net(module, "none")


@pytest.fixture
def weights(net: Net) -> dict[str, Tensor]:
    return {name: 1.5 * w for name, w in net.params().items()}


@pytest.fixture
def theta(weights: dict[str, Tensor]) -> Theta:
    return [w.clone().requires_grad_() for w in weights.values()]


@pytest.fixture
def episode_of() -> Callable[[int], Episode]:
    def make(domains: int) -> Episode:
        g = torch.Generator().manual_seed(domains)
        shift = torch.arange(domains, dtype=torch.float64).reshape(-1, 1, 1)
        return Episode(
            x=torch.randn((domains, 5, 3), generator=g, dtype=torch.float64) + 0.3 * shift,
            y=torch.randint(3, (domains, 5), generator=g),
            domain=torch.randperm(domains, generator=g),
            progress=torch.tensor(0.5, dtype=torch.float64),
        )

    return make


@pytest.fixture
def literal_forward() -> Callable[[Theta, Tensor], tuple[Tensor, Tensor]]:
    """Features and logits of the two-layer net, by hand."""

    def forward(theta: Theta, x: Tensor) -> tuple[Tensor, Tensor]:
        w1, b1, w2, b2 = theta
        z = torch.tanh(x @ w1.T + b1)
        return z, z @ w2.T + b2

    return forward


@pytest.fixture
def take_steps(episode_of: Callable[[int], Episode]) -> Callable[..., tuple[list[Params], Params]]:
    """Train with plain gradient descent on three domains: the weights before, between and after all steps, and the
    last memory."""

    def take(algorithm: Algorithm, net: Net, params: Params, steps: int) -> tuple[list[Params], Params]:
        memory, path = algorithm.memory(net, params, 3), [params]
        for i in range(steps):
            episode = episode_of(3)._replace(key=torch.tensor(i), progress=torch.tensor(i / steps, dtype=torch.float64))
            direction, _, memory = algorithm.step(net, path[-1], memory, episode)
            path.append({name: w - 0.3 * direction[name] for name, w in path[-1].items()})
        return path, memory

    return take


@pytest.fixture
def literal_loss() -> Callable[[Theta, Domain], Tensor]:
    """Cross-entropy of the two-layer net, by hand."""

    def loss(theta: Theta, domain: Domain) -> Tensor:
        (x, y, *_), (w1, b1, w2, b2) = domain, theta
        logits = torch.tanh(x @ w1.T + b1) @ w2.T + b2
        return (logits.logsumexp(1) - logits[torch.arange(len(y)), y]).mean()

    return loss


@pytest.fixture
def assert_direction() -> Callable[..., None]:
    """That a direction by name is a list of gradients in the order of theta."""

    def check(got: dict[str, Tensor], want: Theta, rtol: float = 1e-9) -> None:
        assert len(got) == len(want)
        size = max(float(w.detach().abs().max()) for w in want)
        for (name, g), w in zip(got.items(), want, strict=True):
            torch.testing.assert_close(g, w.detach(), rtol=0, atol=rtol * size, msg=lambda m, n=name: f"{n}: {m}")

    return check

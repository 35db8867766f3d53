from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from scipy.stats import beta, kstest
from torch import Tensor
from torch.func import vmap
from torch.testing import assert_close

from seqdg import Algorithm, Net, UsageError, build, noise
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.mixup import STREAM, Mixup


def assert_beta(drawn: Tensor, a: float) -> None:
    """That the lower half follows the distribution, and as many are in the upper half, where 1 - 1e-20 is 1."""
    low = drawn[drawn < 0.5].numpy()
    assert kstest(low, lambda x: 2 * beta(a, a).cdf(x)).pvalue > 0.001
    assert abs(len(low) / len(drawn) - 0.5) < 0.02


@pytest.mark.parametrize("a", [0.1, 0.2, 1.0, 3.0])
def test_beta_draws_follow_the_beta_distribution(a):
    drawn = noise.beta(torch.tensor(7), a, (20000,), torch.float64)
    assert_beta(drawn, a)
    assert abs(float(torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1])) < 0.03
    keys = torch.arange(5000) * 7919
    by_key = vmap(lambda key: noise.beta(key, torch.tensor(a), (2,), torch.float64))(keys)
    assert_beta(by_key[:, 0], a)
    assert abs(float(torch.corrcoef(by_key.T)[0, 1])) < 0.05


def test_the_loss_is_that_of_a_loop_over_mixed_rows(net, weights, theta, episode_of):
    episode = episode_of(3)._replace(key=torch.tensor(123456789))
    share = noise.beta(episode.key ^ STREAM, 0.7, (3,), torch.float64)
    w1, b1, w2, b2 = theta
    total = 0.0
    for i in range(3):
        j, m = (i + 1) % 3, share[i]
        for r in range(5):
            x = m * episode.x[i, r] + (1 - m) * episode.x[j, r]
            log_p = torch.log_softmax(torch.tanh(x @ w1.T + b1) @ w2.T + b2, 0)
            total = total - m * log_p[episode.y[i, r]] - (1 - m) * log_p[episode.y[j, r]]
    direction, value = Mixup(AGG(), mix=0.7).gradient(net, weights, episode)
    assert_close(value, total.detach() / 15)
    for got, want in zip(direction.values(), torch.autograd.grad(total / 15, theta), strict=True):
        assert_close(got, want)


def test_with_hardly_any_mixing_every_domain_is_itself_or_its_neighbour(net, weights, episode_of):
    kinds = set()
    for key in range(6):
        episode = episode_of(3)._replace(key=torch.tensor(key))
        chosen = noise.beta(episode.key ^ STREAM, 1e-6, (3,), torch.float64).round().bool()
        rows = torch.where(chosen, torch.arange(3), (torch.arange(3) + 1) % 3)
        plain = episode._replace(x=episode.x[rows], y=episode.y[rows])
        assert_close(Mixup(AGG(), mix=1e-6).gradient(net, weights, episode)[0], AGG().gradient(net, weights, plain)[0])
        kinds.update(chosen.tolist())
    assert kinds == {True, False}


def test_much_mixing_is_half_of_each(net, weights, episode_of):
    episode = episode_of(2)._replace(key=torch.tensor(5))
    half = episode._replace(x=(0.5 * (episode.x + episode.x.roll(1, 0))))
    want = 0.5 * (AGG().loss(net, weights, half) + AGG().loss(net, weights, half._replace(y=episode.y.roll(1, 0))))
    assert_close(Mixup(AGG(), mix=1e8).loss(net, weights, episode), want, rtol=1e-3, atol=1e-4)


def test_class_weights_hold_for_both_labels(net, weights, episode_of):
    by_class = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)
    weighted = net.with_criterion(lambda z, y: torch.nn.functional.cross_entropy(z, y, by_class))
    episode = episode_of(2)._replace(key=torch.tensor(5))
    m = noise.beta(episode.key ^ STREAM, 0.2, (2,), torch.float64)[:, None, None]
    x = m * episode.x + (1 - m) * episode.x.roll(-1, 0)
    own = AGG().loss
    want = torch.stack(
        [
            m[i, 0, 0] * weighted.loss(weights, (x[i], episode.y[i]))
            + (1 - m[i, 0, 0]) * weighted.loss(weights, (x[i], episode.y[1 - i]))
            for i in range(2)
        ]
    ).mean()
    assert_close(Mixup(AGG()).loss(weighted, weights, episode), want)
    assert not torch.isclose(own(weighted, weights, episode), want)


def test_other_keys_mix_in_other_shares(net, weights, episode_of):
    losses = [Mixup(AGG()).loss(net, weights, episode_of(3)._replace(key=torch.tensor(key))) for key in (1, 2, 3)]
    assert len({float(value) for value in losses}) == 3


@dataclass(frozen=True)
class ReadsLabels(Algorithm):
    """Takes the mean of the labels."""

    hard_labels = True

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean() * episode.y.double().mean()


def test_an_algorithm_that_reads_labels_is_refused(net):
    with pytest.raises(UsageError, match=r"ReadsLabels reads the label of each row, and mixup gives a row two"):
        Mixup(ReadsLabels()).check(net, 3)


def test_a_chained_algorithm_sees_mixed_domains(net: Net, weights, episode_of):
    episode = episode_of(3)._replace(key=torch.tensor(99))
    plain, mixed = (build(name, alpha=0.2) for name in ("fo-s-mldg", "fo-s-mldg+mixup"))
    one, other = (a.gradient(net, weights, episode)[0] for a in (plain, mixed))
    assert max(float((one[n] - other[n]).abs().max()) for n in one) > 1e-3

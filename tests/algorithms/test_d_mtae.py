"""D-MTAE: the auto-encoder against loops over pairs in float64, its second stage, and limits where it is simpler."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.d_mtae import weigh_pairs
from seqdg.base import noise


@pytest.fixture
def params(net, weights):
    start = build("d-mtae").init(net, weights, 3, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    return {name: w + 0.2 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


def learn_code(**settings):
    return build("d-mtae", **{"weight": 1.0, **settings}).stages()[0][1]


def literal(p, episode, corruption):
    """Every row of every domain, restored in every domain, partner by partner."""
    chance = noise.uniform(episode.key, episode.x.shape, torch.float64)
    domains, batch = episode.y.shape
    total = 0.0
    for i in range(domains):
        for r in range(batch):
            corrupted = torch.stack(
                [v if c >= corruption else 0 * v for v, c in zip(episode.x[i, r], chance[i, r], strict=False)]
            )
            h = torch.tanh(p["0.weight"] @ corrupted + p["0.bias"])
            for j in range(domains):
                number = int(episode.domain[j])
                guess = p["branch.decoder.weight"][number] @ h + p["branch.decoder.bias"][number]
                partners = [s for s in range(batch) if episode.y[j, s] == episode.y[i, r]] if i != j else [r]
                for s in partners:
                    error = sum((guess[k] - episode.x[j, s, k]) ** 2 for k in range(3)) / 3
                    total = total + error / len(partners) / (domains * domains * batch)
    return total


@pytest.mark.parametrize("corruption", [0.0, 0.3])
def test_the_first_stage_restores_rows_of_the_class_in_every_domain(net, params, episode_of, corruption):
    episode = episode_of(3)._replace(key=torch.tensor(5))
    got, value = learn_code(corruption=corruption).gradient(net, params, episode)
    assert set(got) == {name for name in params if not name.startswith("2.")}
    leaves = {name: params[name].clone().requires_grad_() for name in got}
    want = literal(leaves, episode, corruption)
    assert_close(value, want.detach())
    assert_close(learn_code(corruption=corruption, weight=4.0).gradient(net, params, episode)[1], 4 * want.detach())
    assert_close(got, dict(zip(leaves, torch.autograd.grad(want, list(leaves.values())), strict=True)))


def test_a_row_alone_in_its_class_is_restored_only_in_its_own_domain():
    weights = weigh_pairs(torch.tensor([[0, 1, 1], [1, 1, 2]]))
    assert weights.shape == (2, 6, 3)
    assert_close(weights[0], torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.5, 0.5], [0, 0.5, 0.5], [0, 0, 0]]))
    assert_close(weights[1], torch.tensor([[0.0, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]))


def test_with_no_class_in_two_domains_it_is_one_denoising_auto_encoder_per_decoder(net, params, episode_of):
    """Then nothing is restored across domains, and decoder j learns from domain j alone."""
    episode = episode_of(3)._replace(y=torch.arange(15).reshape(3, 5))
    code = torch.tanh(episode.x @ params["0.weight"].T + params["0.bias"])
    each = []
    for i, number in enumerate(episode.domain):
        guess = code[i] @ params["branch.decoder.weight"][number].T + params["branch.decoder.bias"][number]
        each.append(((guess - episode.x[i]) ** 2).mean())
    _, value = learn_code(corruption=0.0).gradient(net, params, episode)
    assert_close(value, sum(each) / 9)


def test_the_second_stage_trains_the_head_alone_or_as_aggregation_does(net, params, episode_of):
    want, plain = AGG().gradient(net, {name: params[name] for name in net.names}, episode_of(3))
    got, value = build("d-mtae", code="fixed").gradient(net, params, episode_of(3))
    assert_close(got, {name: want[name] for name in ("2.weight", "2.bias")})
    assert_close(value, plain)
    assert_close(build("d-mtae", code="tuned").gradient(net, params, episode_of(3))[0], want)


def test_the_corruption_is_drawn_anew_by_the_key_of_the_step(net, params, episode_of):
    one, other = (learn_code().gradient(net, params, episode_of(3)._replace(key=torch.tensor(k)))[1] for k in (1, 2))
    assert abs(float(one - other)) > 1e-4


def test_the_code_learns_to_restore(net, params, episode_of):
    stage, episode, values = learn_code(corruption=0.0), episode_of(3), []
    for _ in range(40):
        direction, value = stage.gradient(net, params, episode)
        params |= {name: params[name] - 0.3 * d for name, d in direction.items()}
        values.append(float(value))
    assert values[-1] < 0.7 * values[0]


def test_the_net_alone_is_deployed_and_both_stages_have_their_share(net, params):
    assert set(build("d-mtae").deploy(params, {})) == set(net.names)
    assert [share for share, _ in build("d-mtae", share=0.5).stages()] == [0.5, 1.0]


def test_one_source_or_a_net_without_features_is_refused_with_a_sentence(net):
    with pytest.raises(UsageError, match="needs at least 2 source domains"):
        build("d-mtae").check(net, 1)
    with pytest.raises(UsageError, match="works on the features that enter the head"):
        build("d-mtae").check(Net(nn.Linear(3, 2), "none"), 3)

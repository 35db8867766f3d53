"""URM: the features play the generator, the discriminator plays against them."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.testing import assert_close

from seqdg import build, noise


@pytest.fixture
def params(net, weights):
    return build("urm", hidden=6).init(net, weights, 3, torch.Generator().manual_seed(0))


def discriminate(params, u):
    hidden = torch.tanh(u @ params["discriminator.hidden.weight"].T + params["discriminator.hidden.bias"])
    return (hidden @ params["discriminator.output.weight"].T + params["discriminator.output.bias"]).squeeze(1)


@pytest.mark.parametrize(("adversary", "lowest"), [(0.1, -1.0), (0.7, 0.0)])
def test_the_direction_is_that_of_the_two_published_losses(net, params, episode_of, adversary, lowest):
    episode = episode_of(3)
    algorithm = build("urm", hidden=6, adversary=adversary, lowest=lowest)
    got, _ = algorithm.gradient(net, params, episode)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    x, y = episode.x.flatten(0, 1), episode.y.flatten()
    u = torch.tanh(net.features(leaves, x))
    drawn = noise.uniform(episode.key, (3, 5, 4), torch.float64).reshape(15, 4) * (1 - lowest) + lowest
    ones, zeros = torch.ones(15, dtype=torch.float64), torch.zeros(15, dtype=torch.float64)
    logits = u @ leaves["2.weight"].T + leaves["2.bias"]
    posing = binary_cross_entropy_with_logits(discriminate(leaves, u), ones)
    generator = cross_entropy(logits, y) + adversary * posing
    fake = binary_cross_entropy_with_logits(discriminate(leaves, u.detach()), zeros)
    discriminator = binary_cross_entropy_with_logits(discriminate(leaves, drawn), ones) + adversary * fake
    for loss, inside in ((generator, False), (discriminator, True)):
        names = [name for name in params if name.startswith("discriminator.") == inside]
        for name, d in zip(
            names, torch.autograd.grad(loss, [leaves[n] for n in names], retain_graph=True), strict=True
        ):
            assert_close(got[name], d)


def test_the_head_is_served_features_between_minus_1_and_1(net, params, episode_of):
    x = episode_of(1).x[0]
    algorithm = build("urm")
    deployed = algorithm.deploy(params, {})
    assert set(deployed) == set(net.names)
    want = net.head(deployed, torch.tanh(net.features(deployed, x)))
    assert_close(algorithm.predict(net, deployed, x), want)


def test_without_an_adversary_it_is_a_net_with_one_more_tanh(net, params, episode_of):
    episode = episode_of(3)
    got, _ = build("urm", hidden=6, adversary=0.0).gradient(net, params, episode)
    leaves = {name: params[name].clone().requires_grad_() for name in net.names}
    logits = net.head(leaves, torch.tanh(net.features(leaves, episode.x.flatten(0, 1))))
    wanted = torch.autograd.grad(cross_entropy(logits, episode.y.flatten()), list(leaves.values()))
    for name, d in zip(leaves, wanted, strict=True):
        assert_close(got[name], d)

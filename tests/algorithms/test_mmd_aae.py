"""MMD-AAE: every term of the published objective against loops in float64, and limits where it is simpler."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms._layers import count_restored, flatten_input
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.mmd_aae import discrepancy
from seqdg.base import noise as draw
from seqdg.core import describe_settings, restore_settings
from seqdg.results import open_run

ZERO = {"reconstruction": 0.0, "mmd": 0.0, "adversary": 0.0}


@pytest.fixture
def params(net, weights):
    start = build("mmd-aae", hidden=6).init(net, weights, 3, torch.Generator().manual_seed(0))
    assert_close(start["code.2.weight"], torch.eye(4, dtype=torch.float64))
    assert not start["code.2.bias"].any()
    g = torch.Generator().manual_seed(1)
    return {name: w + 0.2 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


def encode(p, x):
    return p["code.2.weight"] @ torch.tanh(p["0.weight"] @ x + p["0.bias"]) + p["code.2.bias"]


def two_layers(p, name, h):
    inner = torch.tanh(p[f"{name}.hidden.weight"] @ h + p[f"{name}.hidden.bias"])
    return p[f"{name}.output.weight"] @ inner + p[f"{name}.output.bias"]


def squared_mmd(a, b, unit):
    """|| mean phi(a) - mean phi(b) ||^2 as three double sums over the kernel, itself a mean over bandwidths."""

    def kernel(u, v):
        distance = sum((u[k] - v[k]) ** 2 for k in range(len(u)))
        return sum(torch.exp(-distance / (2 * s * unit)) for s in (1, 5, 10)) / 3

    inside_a = sum(kernel(u, v) for u in a for v in a) / len(a) ** 2
    inside_b = sum(kernel(u, v) for u in b for v in b) / len(b) ** 2
    return inside_a + inside_b - 2 * sum(kernel(u, v) for u in a for v in b) / (len(a) * len(b))


def literal(p, episode, prior, reconstruction, mmd, adversary, form, unit):
    """What the encoder, the decoder and the classifier minimize, and what the discriminator does; row by row."""
    codes = [[encode(p, x) for x in rows] for rows in episode.x]
    rows = sum(len(h) for h in codes)
    label = restored = deceit = told = 0.0
    for i, domain in enumerate(codes):
        for j, h in enumerate(domain):
            logits = p["2.weight"] @ h + p["2.bias"]
            label = label - torch.log_softmax(logits, 0)[episode.y[i, j]] / rows
            restored = restored + ((two_layers(p, "decoder", h) - episode.x[i, j]) ** 2).sum() / 3 / rows
            chance = torch.sigmoid(two_layers(p, "discriminator", h)[0])
            deceit = deceit + (torch.log(1 - chance) if form == "minimax" else -torch.log(chance)) / rows
            real = torch.sigmoid(two_layers(p, "discriminator", prior[i, j])[0])
            told = told - (torch.log(real) + torch.log(1 - chance)) / rows
    apart = sum(squared_mmd(a, b, unit) for a in codes for b in codes) / len(codes) ** 2
    return label + reconstruction * restored + mmd * apart + adversary * deceit, told


@pytest.mark.parametrize("form", ["non-saturating", "minimax"])
def test_every_part_learns_by_its_own_objective(net, params, episode_of, form):
    episode = episode_of(3)._replace(key=torch.tensor(77))
    settings = {"reconstruction": 0.7, "mmd": 1.3, "adversary": 0.2, "form": form, "unit": 0.5}
    got, value = build("mmd-aae", hidden=6, **settings).gradient(net, params, episode)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    prior = draw.laplace(episode.key, (3, 5, 4), torch.float64)
    ours, theirs = literal(leaves, episode, prior, **settings)
    assert_close(value, (ours + theirs).detach())
    for part, total in (("rest", ours), ("discriminator.", theirs)):
        names = [n for n in leaves if n.startswith("discriminator.") == (part == "discriminator.")]
        wanted = torch.autograd.grad(total, [leaves[n] for n in names], retain_graph=True)
        for name, want in zip(names, wanted, strict=True):
            assert want.abs().max() > 1e-6
            assert_close(got[name], want)


def test_the_minimax_form_is_the_reversed_gradient_of_the_discriminators_loss(net, params, episode_of):
    episode, settings = episode_of(3), {"hidden": 6, **ZERO}
    plain, _ = build("mmd-aae", **settings).gradient(net, params, episode)
    got, _ = build("mmd-aae", **settings | {"adversary": 0.4, "form": "minimax"}).gradient(net, params, episode)

    def told(weight):
        h = torch.tanh(episode.x @ weight.T + params["0.bias"])
        h = h @ params["code.2.weight"].T + params["code.2.bias"]
        inner = torch.tanh(h @ params["discriminator.hidden.weight"].T + params["discriminator.hidden.bias"])
        chance = torch.sigmoid(inner @ params["discriminator.output.weight"].T + params["discriminator.output.bias"])
        return -torch.log(1 - chance).mean()

    reversed_ = -0.4 * torch.func.grad(told)(params["0.weight"])
    assert_close(got["0.weight"], plain["0.weight"] + reversed_)


def test_without_weights_and_with_features_as_code_the_net_learns_by_aggregation(net, params, episode_of):
    algorithm, episode = build("mmd-aae", hidden=6, code="features", **ZERO), episode_of(3)
    params = {name: w for name, w in params.items() if not name.startswith("code.")}
    got, _ = algorithm.gradient(net, params, episode)
    want, _ = AGG().gradient(net, {name: params[name] for name in net.names}, episode)
    assert_close({name: got[name] for name in net.names}, want)
    assert all(not d.any() for name, d in got.items() if name.startswith("decoder."))


def codes(domains=3, batch=4, width=5):
    g = torch.Generator().manual_seed(0)
    shift = 0.4 * torch.arange(domains, dtype=torch.float64).reshape(-1, 1, 1)
    return torch.randn((domains, batch, width), generator=g, dtype=torch.float64) + shift


def test_the_discrepancy_is_zero_for_equal_domains_and_a_distance_of_means_for_wide_kernels():
    code = codes()
    assert abs(discrepancy(code[:1].expand(4, -1, -1)).item()) < 1e-14
    shuffled = torch.stack([code[0], code[0][torch.tensor([2, 0, 3, 1])]])
    assert abs(discrepancy(shuffled).item()) < 1e-14
    assert discrepancy(code) > 1e-2
    means, unit = code.mean(1), 1e5
    pairs = sum(((a - b) ** 2).sum() for a in means for b in means) / 9
    linear = pairs * (1 + 1 / 5 + 1 / 10) / 3 / unit  # 1 - k is the squared distance over 2 s, up to rounding
    assert_close(discrepancy(code, unit), linear, rtol=1e-3, atol=0)


def test_reconstruction_ties_the_encoder_to_the_input(net, weights, episode_of):
    """By the reconstruction alone, encoder and decoder learn to restore x, which features of other rows do not."""
    algorithm, episode = build("mmd-aae", **ZERO | {"reconstruction": 1.0}), episode_of(3)
    params = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    start = {name: w.clone() for name, w in params.items()}

    def error(p):
        return float(sum(((two_layers(p, "decoder", encode(p, x)) - x) ** 2).mean() for x in episode.x.flatten(0, 1)))

    for _ in range(60):
        direction, _ = algorithm.gradient(net, params, episode)
        trained = ("0.", "decoder.")
        params |= {name: params[name] - 0.3 * d for name, d in direction.items() if name.startswith(trained)}
    assert error(params) < 0.5 * error(start)


def test_published_records_have_the_features_as_their_code(published_runs):
    """They were made before there was a linear code, and keep their description, so their keys."""
    records = [r for r in open_run(published_runs / "pacs-features").records() if r.algorithm == "mmd-aae"]
    assert records
    for texts in (record.description["settings"] for record in records):
        algorithm = restore_settings(build("mmd-aae"), texts)
        assert algorithm.code == "features"
        assert describe_settings(algorithm) == texts


def test_the_prior_is_drawn_anew_by_the_key_of_the_step(net, params, episode_of):
    algorithm = build("mmd-aae", hidden=6)
    one, other = (algorithm.loss(net, params, episode_of(3)._replace(key=torch.tensor(k))) for k in (1, 2))
    assert abs(float(one - other)) > 1e-4


def test_the_net_alone_is_deployed_and_the_decoder_is_as_wide_as_the_input(net, params, episode_of):
    algorithm, x = build("mmd-aae"), episode_of(3).x[0]
    deployed = algorithm.deploy(params, {})
    assert set(deployed) == set(net.names)
    logits = [params["2.weight"] @ encode(params, row) + params["2.bias"] for row in x]
    assert_close(algorithm.predict(net, deployed, x), torch.stack(logits))
    assert params["decoder.output.weight"].shape == (3, 6)


def test_a_linear_code_needs_no_bias_where_the_head_has_none(episode_of):
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3, bias=False)).double(), "none")
    algorithm, episode = build("mmd-aae"), episode_of(3)
    params = algorithm.init(net, net.params(), 3, torch.Generator().manual_seed(0))
    direction, _ = algorithm.gradient(net, params, episode)
    params = {name: w - direction[name] for name, w in params.items()}
    deployed = algorithm.deploy(params, {})
    assert set(deployed) == set(net.names)
    code = net.features(params, episode.x[0]) @ params["code.2.weight"].T
    assert_close(net(deployed, episode.x[0]), code @ params["2.weight"].T)


@pytest.mark.slow
@pytest.mark.parametrize("code", ["linear", "features"])
def test_only_a_linear_code_meets_the_two_signs_of_the_prior(code, episode_of):
    """By the adversary alone. Half of the prior's numbers are below 0; of features behind a ReLU none ever is."""
    net = Net(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).double(), "none")
    algorithm = build("mmd-aae", code=code, **ZERO | {"adversary": 1.0})
    params = algorithm.init(net, net.params(), 3, torch.Generator().manual_seed(0))
    for step in range(300):
        episode = episode_of(3)._replace(key=torch.tensor(step))
        direction, _ = algorithm.gradient(net, params, episode)
        params = {name: w - 0.3 * direction[name] for name, w in params.items()}
    codes = algorithm.encode(params, net.features(params, episode_of(3).x.flatten(0, 1)))
    below = float((codes < 0).double().mean())
    assert below == 0 if code == "features" else 0.25 < below < 0.75


def test_of_images_the_means_over_8_by_8_fields_are_restored():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    assert count_restored(Net(module, "none").params()) == 3 * 64
    x = torch.randn(2, 4, 3, 16, 24, dtype=torch.float64)
    got = flatten_input(x, 192, "MMD-AAE").reshape(2, 4, 3, 8, 8)
    for row in range(8):
        for column in range(8):
            field = x[..., 2 * row : 2 * row + 2, 3 * column : 3 * column + 3]
            assert_close(got[..., row, column], field.mean((-2, -1)))


def test_an_input_that_the_first_layer_does_not_take_whole_is_refused():
    with pytest.raises(UsageError, match="restores inputs of 7 numbers, by the net's first layer, but these have 5"):
        flatten_input(torch.zeros(2, 3, 5), 7, "MMD-AAE")


def test_the_prior_has_the_scale_of_the_paper():
    draws = draw.laplace(torch.tensor(3), (200_000,), torch.float64)
    assert math.isclose(float(draws.abs().mean()), 1.0, rel_tol=0.01)

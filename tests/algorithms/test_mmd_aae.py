"""MMD-AAE: the discrepancy against a loop over kernel values, the loss against a transcription."""

from __future__ import annotations

import math

import pytest
import torch
from torch.func import grad
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.mmd_aae import BANDWIDTHS, discrepancy
from seqdg.base import noise as draw


def codes(domains=3, batch=4, width=5):
    g = torch.Generator().manual_seed(0)
    shift = 0.4 * torch.arange(domains, dtype=torch.float64).reshape(-1, 1, 1)
    return torch.randn((domains, batch, width), generator=g, dtype=torch.float64) + shift


@pytest.fixture
def params(net, weights):
    start = build("mmd-aae", hidden=6).init(net, weights, 3, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    return {name: w + 0.2 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


def test_the_discrepancy_is_a_mean_over_pairs_of_domains_and_loops_over_kernel_values():
    code = codes()

    def mean_kernel(a, b):
        values = [
            math.exp(-float(((one - other) ** 2).sum()) / (2 * s * code.shape[2]))
            for one in a for other in b for s in BANDWIDTHS
        ]  # fmt: skip
        return sum(values) / len(values)

    pairs = [mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b) for a in code for b in code]
    assert_close(discrepancy(code).item(), sum(pairs) / 9)


def test_the_discrepancy_of_the_same_codes_is_zero_and_of_others_is_not():
    code = codes()
    assert abs(discrepancy(code[:1].expand(4, -1, -1)).item()) < 1e-14
    shuffled = torch.stack([code[0], code[0][torch.tensor([2, 0, 3, 1])]])
    assert abs(discrepancy(shuffled).item()) < 1e-14
    assert discrepancy(code) > 1e-2


def parts(net, params, episode):
    """Label, reconstruction, discrepancy and adversarial losses, with no reversal."""
    z = torch.stack([net.features(params, x) for x in episode.x])
    code = z @ params["encoder.weight"].T + params["encoder.bias"]
    logits = code @ params["2.weight"].T + params["2.bias"]
    label = torch.stack([net.criterion(a, y) for a, y in zip(logits, episode.y, strict=True)]).mean()
    restored = code @ params["decoder.weight"].T + params["decoder.bias"]
    prior = draw.laplace(episode.key, code.shape, torch.float64) / math.sqrt(2)

    def real(h):
        hidden = torch.tanh(h @ params["discriminator.hidden.weight"].T + params["discriminator.hidden.bias"])
        return torch.sigmoid(hidden @ params["discriminator.output.weight"].T + params["discriminator.output.bias"])

    adversarial = -real(prior).log().mean() - (1 - real(code)).log().mean()
    return label, ((restored - z.detach()) ** 2).mean(), discrepancy(code), adversarial


def test_codes_learn_by_their_losses_and_against_the_discriminator(net, params, episode_of):
    episode = episode_of(3)._replace(key=torch.tensor(77))
    algorithm = build("mmd-aae", hidden=6, reconstruction=0.7, mmd=1.3, adversary=0.2)
    got, value = algorithm.gradient(net, params, episode)
    weights = (1.0, 0.7, 1.3, 1.0)
    assert_close(value, sum(w * p for w, p in zip(weights, parts(net, params, episode), strict=True)))
    label, restored, apart, adversarial = (grad(lambda p, i=i: parts(net, p, episode)[i])(params) for i in range(4))
    for name in got:
        sign = 1.0 if name.startswith("discriminator.") else -0.2
        want = label[name] + 0.7 * restored[name] + 1.3 * apart[name] + sign * adversarial[name]
        assert_close(got[name], want)


def test_the_prior_is_drawn_anew_by_the_key_of_the_step(net, params, episode_of):
    algorithm = build("mmd-aae", hidden=6)
    one, other = (algorithm.loss(net, params, episode_of(3)._replace(key=torch.tensor(k))) for k in (1, 2))
    assert abs(float(one - other)) > 1e-4


def test_at_first_the_code_is_the_features_and_the_prediction_the_nets(net, weights, episode_of):
    algorithm, x = build("mmd-aae"), episode_of(3).x[0]
    params = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    assert_close(algorithm.predict(net, algorithm.deploy(params, {}), x), net(weights, x))


def test_encoder_and_net_are_deployed_and_classify_the_code(net, params, episode_of):
    algorithm, x = build("mmd-aae"), episode_of(3).x[0]
    deployed = algorithm.deploy(params, {})
    assert set(deployed) == {*net.names, "encoder.weight", "encoder.bias"}
    code = net.features(params, x) @ params["encoder.weight"].T + params["encoder.bias"]
    assert_close(algorithm.predict(net, deployed, x), code @ params["2.weight"].T + params["2.bias"])

"""CrossGrad against a transcription that moves one input at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms.agg import AGG


@pytest.fixture
def params(net, weights):
    start = build("crossgrad").init(net, weights, 3, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    return {name: w + 0.3 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


def domain_logits(net, params, x):
    body = {name: params[f"domain.body.{name}"] for name in net.names if name not in net.head_names}
    return net.features(body, x) @ params["domain.head.weight"].T + params["domain.head.bias"]


def literal(net, params, episode, epsilon_label, epsilon_domain, clip, alpha_label, alpha_domain, length):
    """The loss with its moved inputs, one input at a time."""
    total, rows = 0.0, 0
    for i, source in enumerate(episode.domain):
        for x, y in zip(episode.x[i], episode.y[i], strict=True):

            def label(inputs, y=y):
                return cross_entropy(net(params, inputs[None]), y[None])

            def domain(inputs, source=source):
                return cross_entropy(domain_logits(net, params, inputs[None]), source[None])

            along_domain, along_label = x.clone(), x.clone()
            by_domain, by_label = grad(domain)(x).detach(), grad(label)(x).detach()
            for number in range(len(x)):
                if length == "relative":
                    along_domain[number] += epsilon_label * x.norm() * by_domain[number] / by_domain.norm()
                    along_label[number] += epsilon_domain * x.norm() * by_label[number] / by_label.norm()
                else:
                    along_domain[number] += epsilon_label * max(-clip, min(clip, by_domain[number].item()))
                    along_label[number] += epsilon_domain * max(-clip, min(clip, by_label[number].item()))
            total = total + (1 - alpha_label) * label(x) + alpha_label * label(along_domain)
            total = total + (1 - alpha_domain) * domain(x) + alpha_domain * domain(along_label)
            rows += 1
    return total / rows


@pytest.mark.parametrize(("clip", "length"), [(0.05, "clipped"), (100.0, "clipped"), (0.1, "relative")])
def test_each_net_learns_from_inputs_moved_along_the_others_gradient(net, params, episode_of, clip, length):
    episode = episode_of(3)
    settings = {"epsilon_label": 0.8, "epsilon_domain": 2.1, "clip": clip, "alpha_label": 0.3, "alpha_domain": 0.6}
    settings["length"] = length
    got, value = build("crossgrad", **settings).gradient(net, params, episode)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    want = literal(net, leaves, episode, **settings)
    assert_close(value, want.detach())
    assert_close(got, dict(zip(leaves, torch.autograd.grad(want, list(leaves.values())), strict=True)))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_without_epsilon_the_label_net_learns_by_its_label_loss_alone(net, params, episode_of, alpha):
    episode = episode_of(3)
    algorithm = build("crossgrad", epsilon_label=0.0, epsilon_domain=0.0, alpha_label=alpha, alpha_domain=alpha)
    got, value = algorithm.gradient(net, params, episode)
    want, label_value = AGG().gradient(net, algorithm.deploy(params, {}), episode)
    assert_close({name: got[name] for name in net.names}, want)
    labels = episode.domain.repeat_interleave(episode.x.shape[1])
    assert_close(value, label_value + cross_entropy(domain_logits(net, params, episode.x.flatten(0, 1)), labels))


def test_an_input_without_a_gradient_stays_where_it_is():
    algorithm, x = (
        build("crossgrad", length="relative"),
        torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)),
    )
    moved = algorithm.move(x, torch.zeros_like(x), 0.3)
    assert torch.equal(moved, x)
    far = algorithm.move(x, torch.full_like(x, 1e-12), 0.3) - x
    assert_close(far.flatten(2).norm(dim=2), 0.3 * x.flatten(2).norm(dim=2))


def test_the_domain_net_starts_as_the_label_net_with_a_head_of_its_own(net, weights):
    params = build("crossgrad").init(net, weights, 5, torch.Generator().manual_seed(0))
    assert torch.equal(params["domain.body.0.weight"], weights["0.weight"])
    assert params["domain.head.weight"].shape == (5, 4)
    assert set(build("crossgrad").deploy(params, {})) == set(net.names)


@pytest.mark.parametrize("name", ["crossgrad", "metareg"])
def test_a_net_that_does_not_end_in_a_linear_layer_is_refused(name):
    with pytest.raises(UsageError, match="does not end in a linear layer: end it in one"):
        build(name).check(Net(nn.Conv1d(1, 2, 3), "none"), 3)

"""ARM: inputs and the mean of what the context net says of their domain, written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, cross_entropy

from seqdg import Episode, Net, UsageError, build
from seqdg.base import tree


@pytest.fixture
def more(net, weights):
    drawn = build("arm", width=5).init(net, weights, 3, torch.Generator().manual_seed(1))
    g = torch.Generator().manual_seed(2)
    return {name: w + 0.3 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in drawn.items()}


def test_the_direction_is_that_of_the_equations(net, more, episode_of, assert_direction):
    episode = episode_of(3)
    got, value = build("arm", width=5).gradient(net, more, episode)
    theta = [w.clone().requires_grad_() for w in more.values()]
    w1, b1, w2, b2, c1, d1, c2, d2 = theta
    total = torch.zeros((), dtype=torch.float64)
    for x, y in zip(episode.x, episode.y, strict=True):
        context = sum(c2 @ torch.relu(c1 @ row + d1) + d2 for row in x) / len(x)
        for row, label in zip(x, y, strict=True):
            logits = w2 @ torch.tanh(w1 @ (row + context) + b1) + b2
            total = total + (logits.logsumexp(0) - logits[label]) / len(x) / 3
    torch.testing.assert_close(value, total.detach())
    assert_direction(got, torch.autograd.grad(total, theta))


def test_it_starts_as_agg_for_without_context_it_is_agg(net, weights, episode_of):
    first = build("arm").init(net, weights, 3, torch.Generator().manual_seed(1))
    got, value = build("arm").gradient(net, first, episode_of(3))
    want, loss = build("agg").gradient(net, weights, episode_of(3))
    torch.testing.assert_close(value, loss)
    torch.testing.assert_close({name: got[name] for name in want}, want)
    assert got["context.1.weight"].any()
    x = episode_of(3).x[0]
    torch.testing.assert_close(build("arm").predict(net, first, x), net(weights, x))


def test_a_domain_that_is_shifted_is_met_as_if_it_were_not_where_the_context_takes_the_shift_away(net, weights):
    """With c(x) = -x every batch is centred: so the context can undo what only moves a domain."""
    eye = torch.eye(3, dtype=torch.float64)
    zero = torch.zeros(3, dtype=torch.float64)
    context = {
        "context.0.weight": torch.cat([eye, -eye]), "context.0.bias": torch.cat([zero, zero]),
        "context.1.weight": torch.cat([-eye, eye], 1), "context.1.bias": zero,
    }  # fmt: skip
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    arm = build("arm", width=6)
    torch.testing.assert_close(arm.predict(net, weights | context, x), net(weights, x - x.mean(0)))
    torch.testing.assert_close(arm.predict(net, weights | context, x + 7), net(weights, x - x.mean(0)))


def test_images_have_a_context_of_their_own_form_from_three_convolutions():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3)).double()
    net, arm = Net(module, "recalibrate"), build("arm", width=4)
    params = arm.init(net, net.params(), 2, torch.Generator().manual_seed(1))
    assert [tuple(w.shape) for w in tree.under_prefix(params, "context.").values()] == [
        (4, 2, 5, 5), (4,), (4, 4, 5, 5), (4,), (2, 4, 5, 5), (2,),
    ]  # fmt: skip
    params = {n: w + 0.1 if n.startswith("context.2") else w for n, w in params.items()}
    x = torch.randn(2, 4, 2, 6, 6, dtype=torch.float64)
    y = torch.randint(3, (2, 4))
    got = arm.loss(net, params, Episode(x, y, torch.arange(2), torch.zeros(())))
    total = torch.zeros((), dtype=torch.float64)
    for images, labels in zip(x, y, strict=True):
        out = images
        for i in range(3):
            layer = f"context.{i}."
            out = conv2d(torch.relu(out) if i else out, params[f"{layer}weight"], params[f"{layer}bias"], padding=2)
        total = total + cross_entropy(net(params, images + out.mean(0)), labels) / 2
    torch.testing.assert_close(got, total)
    statistics = arm.statistics(net, params, x[0])
    assert not torch.allclose(statistics["1.running_mean"], net.statistics(params, x[0])["1.running_mean"])


def test_a_net_that_trains_no_first_layer_is_refused():
    norm = Net(nn.BatchNorm1d(3), "recalibrate")
    with pytest.raises(UsageError, match="ARM adds a context to the input of the first linear or convolutional layer"):
        build("arm").check(norm, 3)

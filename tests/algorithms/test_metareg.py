"""MetaReg: its meta-gradient against finite differences, its two stages against transcriptions of Algorithm 1."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad
from torch.testing import assert_close

from seqdg import UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.base import tree


@pytest.fixture
def params(net, weights):
    """Away from the start; phi is between 0.02 and 0.12 everywhere."""
    start, g = build("metareg").init(net, weights, 3, torch.Generator()), torch.Generator().manual_seed(0)
    moved = {name: w + 0.3 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}
    phi = {name: 0.02 + 0.1 * torch.rand(w.shape, generator=g, dtype=w.dtype) for name, w in moved.items()}
    return {**moved, **{name: p for name, p in phi.items() if name.startswith("phi.")}}


def judged(net, params, episode, alpha, steps):
    """Loss on the second domain after steps on the first, each on rows of its own, written out for the linear head."""
    (x, y, _), (x_next, y_next, _) = episode.minibatch(0), episode.minibatch(1)
    a = int(episode.domain[0])
    z, z_next = (torch.tanh(v @ params["task.0.weight"].T + params["task.0.bias"]) for v in (x, x_next))
    w, b = params["branch.2.weight"][a], params["branch.2.bias"][a]

    def loss(w, b, z, y):
        logits = z @ w.T + b
        return (logits.logsumexp(1) - logits[torch.arange(len(y)), y]).mean()

    sizes = [5] if steps == 1 else [2, 2, 1]  # of the five rows of a minibatch
    for start, size in zip([0, 2, 4], sizes, strict=False):
        rows, labels = z[start : start + size], y[start : start + size]
        w, b = w.detach().requires_grad_(), b.detach().requires_grad_()
        penalty = (params["phi.2.weight"] * w.abs()).sum() + (params["phi.2.bias"] * b.abs()).sum()
        dw, db = torch.autograd.grad(loss(w, b, rows, labels) + penalty, [w, b])
        w, b = w - alpha * dw, b - alpha * db
    return loss(w, b, z_next, y_next).item()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_meta_gradient_of_the_regularizer_is_a_finite_difference(net, params, episode_of, steps):
    episode, h = episode_of(3), 1e-5
    algorithm = build("metareg", alpha=0.2, inner_steps=steps, meta_rate=2.0)
    got, _ = algorithm.stages()[0][1].gradient(net, params, episode)
    for name in ("phi.2.weight", "phi.2.bias"):
        want = torch.zeros_like(params[name])
        for entry in range(want.numel()):
            values = []
            for shift in (h, -h):
                moved = params[name].clone()
                moved.view(-1)[entry] += shift
                values.append(judged(net, {**params, name: moved}, episode, 0.2, steps))
            want.view(-1)[entry] = (values[0] - values[1]) / (2 * h)
        assert want.abs().max() > 1e-3
        assert_close(got[name], 2.0 * want, rtol=1e-6, atol=1e-9)


def test_the_first_stage_trains_shared_features_and_a_head_for_each_domain(net, params, episode_of):
    episode = episode_of(3)
    got, value = build("metareg").stages()[0][1].gradient(net, params, episode)
    losses, bodies = [], []
    for row, source in enumerate(episode.domain.tolist()):
        one = {name: params[f"branch.{name}"][source] for name in net.head_names}
        one |= {name: params[f"task.{name}"] for name in net.names if name not in net.head_names}
        want = grad(net.loss)(one, (episode.x[row], episode.y[row]))
        losses.append(net.loss(one, (episode.x[row], episode.y[row])))
        bodies.append(want["0.weight"])
        assert_close(got["branch.2.weight"][source], want["2.weight"])
    assert_close(got["task.0.weight"], torch.stack(bodies).mean(0))
    assert_close(value, torch.stack(losses).mean())


def test_the_second_stage_is_aggregation_with_the_learned_regularizer_from_a_fresh_start(net, weights, episode_of):
    algorithm, episode = build("metareg", start=0.05, meta_rate=5.0), episode_of(3)
    params = algorithm.init(net, weights, 3, torch.Generator())
    (_, first), (_, second) = algorithm.stages()
    for _ in range(5):
        direction, _ = first.gradient(net, params, episode)
        params |= {name: params[name] - 0.2 * d for name, d in direction.items()}
    assert (params["phi.2.weight"] - 0.05).abs().max() > 1e-3
    assert_close({name: params[name] for name in net.names}, weights)
    got, value = second.gradient(net, second.enter(net, params, {})[0], episode)
    want, plain = AGG().gradient(net, weights, episode)
    penalty = 0.0
    for name in net.head_names:
        strength = params[f"phi.{name}"].clamp(min=0)
        penalty = penalty + (strength * weights[name].abs()).sum()
        want[name] = want[name] + strength * weights[name].sign()
    assert_close(got, want)
    assert_close(value, plain + penalty)


def test_weights_below_zero_regularize_nothing_but_may_come_back(net, params, episode_of):
    episode, algorithm = episode_of(3), build("metareg")
    low, zero = ({name: torch.full_like(p, v) if name.startswith("phi.") else p for name, p in params.items()}
                 for v in (-0.5, 0.0))  # fmt: skip
    assert_close(algorithm.gradient(net, low, episode), algorithm.gradient(net, zero, episode))
    learning = algorithm.stages()[0][1]
    assert_close(learning.gradient(net, low, episode), learning.gradient(net, zero, episode))
    assert learning.gradient(net, low, episode)[0]["phi.2.weight"].abs().max() > 1e-4


def test_one_inner_step_moves_phi_against_what_shrinking_the_head_does_to_the_next_domain(net, params, episode_of):
    """h' = h - alpha * (grad l_a + phi * sign h), so grad_phi l_b = -alpha * sign h * grad l_b at h'."""
    episode, alpha = episode_of(3), 0.2
    got, _ = build("metareg", alpha=alpha, inner_steps=1, meta_rate=1.0).stages()[0][1].gradient(net, params, episode)
    body = {name: params[f"task.{name}"] for name in net.names if name not in net.head_names}
    a = int(episode.domain[0])
    head = {name: params[f"branch.{name}"][a] for name in net.head_names}
    step = grad(lambda h: net.loss({**body, **h}, (episode.x[0], episode.y[0])))(head)
    ahead = {n: h - alpha * (step[n] + params[f"phi.{n}"] * h.sign()) for n, h in head.items()}
    then = grad(lambda h: net.loss({**body, **h}, (episode.x[1], episode.y[1])))(ahead)
    for name, h in head.items():
        assert_close(got[f"phi.{name}"], -alpha * h.sign() * then[name])


def test_inner_steps_take_fresh_rows_and_refuse_to_take_the_same_twice(net, params, episode_of):
    episode = episode_of(3)
    stage = build("metareg", inner_steps=5).stages()[0][1]
    got, _ = stage.gradient(net, params, episode)
    order = torch.tensor([4, 3, 2, 1, 0])  # other rows come first: other steps, though the same minibatch
    x, y = episode.x.clone(), episode.y.clone()
    x[0], y[0] = x[0][order], y[0][order]
    other, _ = stage.gradient(net, params, episode._replace(x=x, y=y))
    assert (got["phi.2.weight"] - other["phi.2.weight"]).abs().max() > 1e-6
    assert_close(got["task.0.weight"], other["task.0.weight"])
    with pytest.raises(UsageError, match="inner_steps = 6 steps, each on rows of its own, but a minibatch has 5"):
        build("metareg", inner_steps=6).stages()[0][1].gradient(net, params, episode)


def test_without_a_regularizer_the_second_stage_is_aggregation(net, weights, episode_of):
    algorithm, episode = build("metareg", start=0.0), episode_of(3)
    params = algorithm.init(net, weights, 3, torch.Generator())
    assert_close(algorithm.gradient(net, params, episode), AGG().gradient(net, weights, episode))


def test_the_second_stage_is_a_whole_training_and_the_net_alone_is_deployed(net, params):
    assert [share for share, _ in build("metareg").stages()] == [1.0, 1.0]
    algorithm = build("metareg", share=0.25)
    assert [share for share, _ in algorithm.stages()] == [0.25, 1.0]
    assert set(algorithm.deploy(params, {})) == set(net.names)
    assert tree.under_prefix(params, "task.").keys() == {"0.weight", "0.bias"}

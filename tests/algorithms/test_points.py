"""Algorithms that act between the layers of a net, against loops over rows, channels and positions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, softplus
from torch.testing import assert_close

from seqdg import Episode, Net, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.dsu import STREAM as DSU_STREAM
from seqdg.algorithms.mixstyle import STREAM as MIXSTYLE_STREAM
from seqdg.algorithms.sagnet import STREAM as SAGNET_STREAM
from seqdg.base import noise
from seqdg.nets import Point
from seqdg.testing import Case, build_nets

NET = build_nets(with_points=True)["a convolutional net"]
CASE = Case(AGG(), NET, 3)
EPISODE, WEIGHTS = CASE.draw_episode(), CASE.draw_weights()


def measure(channel):
    """Mean and deviation of one channel of one row."""
    values = list(channel.flatten())
    mean = sum(values) / len(values)
    return mean, torch.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) + 1e-6)


def measure_all(h):
    pairs = [[measure(channel) for channel in row] for row in h]
    return [torch.stack([torch.stack([pair[k] for pair in row]) for row in pairs]) for k in range(2)]


def run(weights, x, at=lambda point, h: h):
    """The net of the contract, written out; `at` stands at its points."""
    h = x.reshape(-1, 1, 2, 2)
    h = torch.tanh(conv2d(h, weights["1.weight"], weights["1.bias"], padding=1))
    h = torch.tanh(conv2d(at(1, h), weights["4.weight"], weights["4.bias"]))
    return at(2, h).flatten(1) @ weights["8.weight"].T + weights["8.bias"]


def key_of(stream, number):
    return noise.fold(EPISODE.key ^ (stream << 8), number)


def losses(logits):
    parts = logits.reshape(EPISODE.domains, -1, logits.shape[1])
    return sum(cross_entropy(part, y) for part, y in zip(parts, EPISODE.y, strict=True)) / EPISODE.domains


def test_the_net_written_out_is_the_net():
    assert_close(run(WEIGHTS, EPISODE.x.flatten(0, 1)), NET(WEIGHTS, EPISODE.x.flatten(0, 1)))


@pytest.mark.parametrize("partners", ["domain", "random"])
def test_mixstyle_mixes_means_and_deviations_of_two_rows(partners):
    def mix(point, h):
        key, rows, batch = key_of(MIXSTYLE_STREAM, point - 1), len(h), EPISODE.x.shape[1]
        share = noise.beta(noise.fold(key, 1), 0.3, (rows,), torch.float64)
        order = noise.uniform(noise.fold(key, 0), (rows,)).argsort()
        mean, deviation = measure_all(h.detach())
        out = []
        for i, row in enumerate(h):
            j = int(order[i]) if partners == "random" else (i + batch) % rows
            channels = []
            for c, channel in enumerate(row):
                m = share[i] * mean[i, c] + (1 - share[i]) * mean[j, c]
                s = share[i] * deviation[i, c] + (1 - share[i]) * deviation[j, c]
                channels.append(s * (channel - mean[i, c]) / deviation[i, c] + m)
            out.append(torch.stack(channels))
        return torch.stack(out)

    theta = {name: w.clone().requires_grad_() for name, w in WEIGHTS.items()}
    value = losses(run(theta, EPISODE.x.flatten(0, 1), mix))
    value.backward()
    algorithm = build("mixstyle", p=1.0, spread=0.3, partners=partners)
    direction, loss = algorithm.gradient(NET, WEIGHTS, EPISODE)
    assert_close(loss, value.detach())
    assert_close(direction, {name: w.grad for name, w in theta.items()})


def test_dsu_adds_noise_as_wide_as_styles_vary_over_the_batch():
    def shake(point, h):
        key = key_of(DSU_STREAM, point - 1)
        mean, deviation = measure_all(h)
        shaken = []
        for number, part in ((1, mean), (0, deviation)):
            drawn = noise.normal(noise.fold(key, number), (*part.shape, 1, 1), torch.float64).reshape(part.shape)
            width = torch.stack([measure(column)[1] for column in part.T])
            shaken.append(part + drawn * width)
        m, s = (part[:, :, None, None] for part in shaken)
        return s * (h - mean[:, :, None, None]) / deviation[:, :, None, None] + m

    theta = {name: w.clone().requires_grad_() for name, w in WEIGHTS.items()}
    value = losses(run(theta, EPISODE.x.flatten(0, 1), shake))
    value.backward()
    direction, loss = build("dsu", p=1.0).gradient(NET, WEIGHTS, EPISODE)
    assert_close(loss, value.detach())
    assert_close(direction, {name: w.grad for name, w in theta.items()})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixstyle", "dsu"])
def test_without_mixing_it_is_aggregation_and_p_is_how_often_it_mixes(name):
    assert_close(build(name, p=0.0).gradient(NET, WEIGHTS, EPISODE), AGG().gradient(NET, WEIGHTS, EPISODE))
    plain, points, mixed = AGG().loss(NET, WEIGHTS, EPISODE), "after1", 0
    for key in range(400):
        loss = build(name, p=0.3, points=points).loss(NET, WEIGHTS, EPISODE._replace(key=torch.tensor(key)))
        mixed += abs(float(loss - plain)) > 1e-12
    assert 85 < mixed < 155


def test_rows_of_one_style_are_not_changed_by_mixstyle():
    same = EPISODE._replace(x=EPISODE.x[:1, :1].expand(EPISODE.x.shape).clone())
    got = build("mixstyle", p=1.0).loss(NET, WEIGHTS, same)
    assert_close(got, AGG().loss(NET, WEIGHTS, same))


def test_sagnet_trains_content_style_and_adversary_each_on_its_part():
    algorithm = build("sagnet", adversary=0.7, point="after1")
    params = Case(algorithm, NET, 3).draw_weights()
    x, key = EPISODE.x.flatten(0, 1), key_of(SAGNET_STREAM, 0)

    def restyle(point, h):
        if point == 2:
            return h
        mean, deviation = (part[:, :, None, None] for part in measure_all(h))
        mine = noise.fold(key, 0)
        order = noise.uniform(noise.fold(mine, 0), (len(h),)).argsort()
        share = noise.uniform(noise.fold(mine, 1), (len(h), 1, 1, 1), torch.float64)
        m, s = (share * part + (1 - share) * part[order] for part in (mean, deviation))
        return s * (h - mean) / deviation + m

    def recontent(point, h):
        if point == 2:
            return h
        mean, deviation = (part[:, :, None, None] for part in measure_all(h))
        order = noise.uniform(noise.fold(noise.fold(key, 1), 0), (len(h),)).argsort()
        return deviation * ((h - mean) / deviation)[order].detach() + mean  # as in the authors' program

    theta = {name: w.clone().requires_grad_() for name, w in params.items()}
    below, after = ("1.weight", "1.bias"), ("4.weight", "4.bias", "8.weight", "8.bias")
    assert set(params) == {*below, *after, *(f"style.{name}" for name in after)}
    content = losses(run(theta, x, restyle))
    content.backward()
    frozen = {name: theta[name].detach() for name in below}
    style = losses(run({**frozen, **{name: theta[f"style.{name}"] for name in after}}, x, recontent))
    style.backward()
    judge = {name: theta[f"style.{name}"].detach() for name in after}
    logits = run({**{name: theta[name] for name in below}, **judge}, x, recontent)
    classes = logits.shape[1]
    confusion = sum(-p / classes for row in torch.log_softmax(logits, 1) for p in row) / len(logits)
    (0.7 * confusion).backward()
    direction, loss = algorithm.gradient(NET, params, EPISODE)
    assert_close(loss, (content + style + 0.7 * confusion).detach())
    assert_close(direction, {name: w.grad for name, w in theta.items()})
    assert set(algorithm.deploy(params, {})) == set(NET.names)


def test_miro_keeps_to_the_features_of_the_first_weights_on_a_learned_scale():
    algorithm = build("miro", lam=0.4)
    case = Case(algorithm, NET, 3)
    first, params, x = case.init_weights(), case.draw_weights(), EPISODE.x.flatten(0, 1)
    memory = algorithm.memory(NET, first, 3)
    assert_close(softplus(first["variance.after1"]) + 1e-5, torch.full((3,), 0.1, dtype=torch.float64))

    def passing(weights):
        seen = {}
        logits = run(weights, x, lambda point, h: seen.setdefault(point, h))
        return seen, logits

    theta = {name: w.clone().requires_grad_() for name, w in params.items()}
    (now, logits), (before, _) = passing(theta), passing(first)
    value = losses(logits)
    for point in (1, 2):
        scale = [math.log1p(math.e**raw) + 1e-5 for raw in theta[f"variance.after{point}"].tolist()]
        terms = []
        for row, row0 in zip(now[point], before[point].detach(), strict=True):
            for c, (a, b) in enumerate(zip(row, row0, strict=True)):
                v = softplus(theta[f"variance.after{point}"][c]) + 1e-5
                assert_close(v.item(), scale[c])
                terms += [((p - q) ** 2 / v + torch.log(v)) / 2 for p, q in zip(a.flatten(), b.flatten(), strict=True)]
        value = value + 0.4 * sum(terms) / len(terms)
    value.backward()
    direction, loss, kept = algorithm.step(NET, params, memory, EPISODE)
    assert_close(loss, value.detach())
    assert_close(direction, {name: w.grad for name, w in theta.items()})
    assert kept is memory
    assert algorithm.pace("variance.after1") == 10.0
    assert algorithm.pace("1.weight") == 1.0


def test_miro_without_weight_is_aggregation():
    algorithm = build("miro", lam=0.0)
    params = Case(algorithm, NET, 3).draw_weights()
    direction, loss, _ = algorithm.step(NET, params, algorithm.memory(NET, params, 3), EPISODE)
    want, plain = AGG().gradient(NET, {name: params[name] for name in NET.names}, EPISODE)
    assert_close(loss, plain)
    assert_close({name: direction[name] for name in want}, want)


@pytest.mark.parametrize("name", ["mixstyle", "dsu", "sagnet", "miro"])
def test_a_net_without_points_or_without_this_one_is_refused_with_a_sentence(name):
    bare = Net(nn.Sequential(nn.Linear(4, 3)), "none")
    with pytest.raises(UsageError, match=r"has no points there|has no point 'after"):
        build(name).check(bare, 3)
    setting = "point" if name == "sagnet" else "points"
    with pytest.raises(UsageError, match=r"no point 'after7' between its layers\. It has: after1, after2"):
        build(name, **{setting: "after7"}).check(NET, 3)


def test_vectors_have_the_style_of_all_their_entries():
    net = Net(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Point("after1"), nn.Linear(6, 3)).double(), "none")
    params = net.params()
    episode = Episode(EPISODE.x, EPISODE.y, EPISODE.domain, EPISODE.progress, EPISODE.key)
    loss = build("mixstyle", p=1.0, spread=0.3, points="after1").loss(net, params, episode)
    x = episode.x.flatten(0, 1)
    h = torch.tanh(x @ params["0.weight"].T + params["0.bias"])
    key, batch = key_of(MIXSTYLE_STREAM, 0), episode.x.shape[1]
    share = noise.beta(noise.fold(key, 1), 0.3, (len(h),), torch.float64)
    mixed = []
    for i, row in enumerate(h):
        (mean, deviation), (other_mean, other_deviation) = measure(row), measure(h[(i + batch) % len(h)])
        s = share[i] * deviation + (1 - share[i]) * other_deviation
        mixed.append(s * (row - mean) / deviation + share[i] * mean + (1 - share[i]) * other_mean)
    assert_close(loss, losses(torch.stack(mixed) @ params["3.weight"].T + params["3.bias"]))


@pytest.mark.parametrize("name", ["mixstyle", "dsu", "sagnet"])
def test_tokens_have_a_style_in_each_channel_over_their_positions(name):
    """As those of a transformer, (row, position, channel): the same net with channels first gives the same."""

    class Turn(nn.Module):
        def forward(self, h):
            return h.mT.unsqueeze(-1) if h.dim() == 3 else h.squeeze(-1).mT

    def build_net(*inside):
        torch.manual_seed(0)
        before = (nn.Unflatten(1, (4, 1)), nn.Linear(1, 3), nn.Tanh())
        return Net(nn.Sequential(*before, *inside, nn.Flatten(), nn.Linear(12, 3)).double(), "none")

    tokens, channels = build_net(Point("after1")), build_net(Turn(), Point("after1"), Turn())
    algorithm = build(name, **({} if name == "sagnet" else {"p": 1.0, "points": "after1"}))
    values = [
        algorithm.loss(net, algorithm.init(net, net.params(), 3, torch.Generator()), EPISODE)
        for net in (tokens, channels)
    ]
    assert_close(*values)

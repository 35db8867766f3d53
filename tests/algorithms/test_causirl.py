"""CausIRL: the two halves as lists of rows."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from domainbed_classes import assert_same_gradient, build_theirs, draw_episode, import_domainbed
from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.causirl import draw_halves


def keyed(episode, key=5):
    return episode._replace(key=torch.tensor(key))


def kernel(a, b):
    values = [torch.exp(-(10.0**p) * ((one - other) ** 2).sum()) for one in a for other in b for p in range(-3, 4)]
    return sum(values) / (len(a) * len(b))


def measure_mmd(a, b):
    return kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)


def measure_coral(a, b):
    moments = []
    for rows in (a, b):
        mean = sum(rows) / len(rows)
        moments.append((mean, sum(torch.outer(r - mean, r - mean) for r in rows) / (len(rows) - 1)))
    (m, c), (n, d) = moments
    return ((m - n) ** 2).mean() + ((c - d) ** 2).mean()


@pytest.mark.parametrize(("distance", "measure"), [("mmd", measure_mmd), ("coral", measure_coral)])
def test_the_direction_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction, distance, measure
):
    episode = keyed(episode_of(3))
    first = draw_halves(episode).tolist()
    z = [row for x in episode.x for row in literal_forward(theta, x)[0]]
    halves = ([r for r, f in zip(z, first, strict=True) if f], [r for r, f in zip(z, first, strict=True) if not f])
    want = sum(literal_loss(theta, episode.minibatch(i)) for i in range(3)) / 3 + 0.6 * measure(*halves)
    got, value = build("causirl", gamma=0.6, distance=distance).gradient(net, weights, episode)
    assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_a_cut_lies_before_any_row_of_its_domain_alike_and_anew_in_every_step(episode_of):
    cuts = torch.stack([draw_halves(keyed(episode_of(3), key)).reshape(3, 5).sum(1) for key in range(2000)])
    counts = torch.bincount(cuts.flatten(), minlength=5)
    assert len(counts) == 5
    assert (counts - 1200).abs().max() < 5 * 1200**0.5
    rows = draw_halves(keyed(episode_of(3))).reshape(3, 5)
    assert all(row == sorted(row, reverse=True) for row in rows.tolist())


@pytest.mark.parametrize("distance", ["mmd", "coral"])
def test_without_a_weight_or_with_a_half_of_one_row_it_is_aggregation(net, weights, episode_of, distance):
    episode = keyed(episode_of(2))
    agg = AGG().gradient(net, weights, episode)
    assert_close(build("causirl", gamma=0.0, distance=distance).gradient(net, weights, episode), agg)
    lonely = [k for k in range(200) if int(draw_halves(keyed(episode, k)).sum()) < 2]
    assert lonely
    for key in lonely:
        got = build("causirl", gamma=9.0, distance=distance).gradient(net, weights, keyed(episode, key))
        assert_close(got, agg)


@pytest.mark.parametrize(("distance", "theirs"), [("mmd", "CausIRL_MMD"), ("coral", "CausIRL_CORAL")])
def test_the_direction_is_domainbeds_gradient_with_the_same_cuts(distance, theirs, monkeypatch):
    episode = draw_episode()
    module, cuts = import_domainbed(), iter(draw_halves(episode).reshape(3, -1).sum(1).tolist())
    monkeypatch.setattr(module.np.random, "randint", lambda low, high: next(cuts))
    ours = build("causirl", distance=distance, gamma=1.3)
    assert_same_gradient(ours, build_theirs(theirs, mmd_gamma=1.3), episode)

"""CAD: sums over rows, one by one."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from seqdg import UsageError, build
from seqdg.algorithms.agg import AGG


def bottleneck(z, y, domain, temperature, conditional):
    """Minus the mean logarithm of how much of a row's likeness is to other domains; all as lists of rows."""
    total, count = 0.0, 0
    for r in range(len(z)):
        likeness = [torch.exp((z[r] * z[q]).sum() / temperature) for q in range(len(z))]
        mates = [q for q in range(len(z)) if q != r and y[q] == y[r]]
        everyone = mates if conditional else [q for q in range(len(z)) if q != r]
        others = [q for q in everyone if domain[q] != domain[r]]
        if mates and others:
            total = total - torch.log(sum(likeness[q] for q in others) / sum(likeness[q] for q in everyone))
            count += 1
    return total / count


@pytest.mark.parametrize("conditional", [False, True])
def test_the_direction_is_that_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction, conditional
):
    episode = episode_of(3)
    labels = episode.y.clone()
    labels[0, 0] = 7  # a label that no other row has
    domain = episode.domain.repeat_interleave(5).tolist()
    plain = sum(literal_loss(theta, episode.minibatch(i)) for i in range(3)) / 3
    z = [row for x in episode.x for row in literal_forward(theta, x)[0]]
    for y in (episode.y, labels):
        want = plain + 0.4 * 0.5 / 0.07 * bottleneck(z, y.flatten().tolist(), domain, 0.5, conditional)
        algorithm = build("cad", lam=0.4, temperature=0.5, conditional=conditional)
        forgiving = net.with_criterion(lambda logits, y: net.criterion(logits, torch.where(y == 7, episode.y[0, 0], y)))
        got, value = algorithm.gradient(forgiving, weights, episode._replace(y=y))
        assert_close(value, want.detach())
        assert_direction(got, torch.autograd.grad(want, theta, retain_graph=True))


def test_without_a_weight_or_a_partner_it_is_aggregation(net, weights, episode_of):
    episode = episode_of(3)
    assert_close(build("cad", lam=0.0).gradient(net, weights, episode), AGG().gradient(net, weights, episode))
    alone = episode._replace(y=torch.arange(3).reshape(3, 1).expand(3, 5))  # no label in two domains
    got = build("cad", conditional=True).gradient(net, weights, alone)
    assert_close(got, AGG().gradient(net, weights, alone))


def test_between_rows_that_are_all_alike_it_is_the_share_of_the_other_domains(net, weights, episode_of):
    episode = episode_of(3)
    same = episode._replace(x=episode.x[:1, :1].expand(3, 5, 3), y=torch.zeros_like(episode.y))
    added = build("cad", lam=1.0, temperature=0.07).loss(net, weights, same) - AGG().loss(net, weights, same)
    assert_close(added, torch.tensor(-math.log(10 / 14), dtype=torch.float64))


def test_labels_that_are_mixed_are_refused(net):
    with pytest.raises(UsageError, match="CAD reads the label of each row"):
        build("cad+mixup").check(net, 3)

"""GroupDRO: the weights of the domains, step by step."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from domainbed_classes import assert_same_gradient, build_theirs, draw_episode
from seqdg import Net, build
from seqdg.algorithms.agg import AGG


def test_direction_and_weights_are_those_of_the_transcription(
    net, weights, theta, episode_of, literal_loss, assert_direction
):
    algorithm, q = build("group-dro", eta=0.9), [1 / 3] * 3
    memory = algorithm.memory(net, weights, 3)
    assert_close(memory["q"], torch.tensor(q, dtype=torch.float64))
    for seed in range(3):
        order = torch.randperm(3, generator=torch.Generator().manual_seed(seed))
        first = episode_of(3)
        episode = first._replace(x=first.x[order], y=first.y[order], domain=first.domain[order])
        losses = [literal_loss(theta, episode.minibatch(i)) for i in range(3)]
        for source, loss in zip(episode.domain.tolist(), losses, strict=True):
            q[source] *= float(torch.exp(0.9 * loss.detach()))
        q = [share / sum(q) for share in q]
        want = sum(q[source] * loss for source, loss in zip(episode.domain.tolist(), losses, strict=True))
        got, value, memory = algorithm.step(net, weights, memory, episode)
        assert_close(value, want.detach())
        assert_direction(got, torch.autograd.grad(want, theta))
        assert_close(memory["q"], torch.tensor(q, dtype=torch.float64))


def test_without_eta_it_is_aggregation_and_with_much_of_it_the_worst_domain(net, weights, episode_of):
    episode = episode_of(3)
    still = build("group-dro", eta=0.0)
    got = still.step(net, weights, still.memory(net, weights, 3), episode)[:2]
    assert_close(got, AGG().gradient(net, weights, episode))
    eager = build("group-dro", eta=1e4)
    worst = int(net.losses(weights, episode).argmax())
    got = eager.step(net, weights, eager.memory(net, weights, 3), episode)[:2]
    assert_close(got, AGG().gradient(net, weights, episode.part(worst, worst + 1)))


def test_the_first_direction_is_domainbeds_gradient():
    assert_same_gradient(build("group-dro", eta=0.5), build_theirs("GroupDRO", groupdro_eta=0.5), draw_episode())


def test_three_steps_with_the_same_weights_are_domainbeds():
    theirs, episode = build_theirs("GroupDRO", groupdro_eta=0.5, lr=0.0), draw_episode()
    ours, net = build("group-dro", eta=0.5), Net(theirs.network, "none")
    memory = ours.memory(net, net.params(), 3)
    for _ in range(3):
        theirs.update([(x, y) for x, y in zip(episode.x, episode.y, strict=True)])
        _, _, memory = ours.step(net, net.params(), memory, episode)
        assert_close(memory["q"], theirs.q)

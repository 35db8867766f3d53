"""S-CORAL, S-IRM and S-GroupDRO, written out step by step along the path."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.base import tree


def look_ahead(terms, theta, alphas, betas):
    """The first-order direction: g <- g + beta_i * grad of term i at theta - alpha_i * g, with its value."""
    direction, value = [torch.zeros_like(w) for w in theta], 0.0
    for term, alpha, beta in zip(terms, alphas, betas, strict=True):
        ahead = [(w - alpha * d).detach().requires_grad_() for w, d in zip(theta, direction, strict=True)]
        loss = term(ahead)
        gradient = torch.autograd.grad(loss, ahead)
        direction = [d + beta * g for d, g in zip(direction, gradient, strict=True)]
        value = value + beta * loss.detach()
    return direction, value


def moments(rows):
    mean = sum(rows) / len(rows)
    return mean, sum(torch.outer(row - mean, row - mean) for row in rows) / (len(rows) - 1)


@pytest.mark.parametrize("domains", [1, 2, 4])
def test_s_coral_compares_a_new_domain_with_the_pooled_past_after_a_step_on_it(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction, domains
):
    episode = episode_of(domains)

    def term(i):
        def loss(ahead):
            total = literal_loss(ahead, episode.minibatch(i))
            if i:
                past = [row for x in episode.x[:i] for row in literal_forward(ahead, x)[0]]
                (m, c), (n, d) = moments(literal_forward(ahead, episode.x[i])[0]), moments(past)
                total = total + 1.3 * (((m - n) ** 2).mean() + ((c - d) ** 2).mean())
            return total

        return loss

    alphas, betas = [0.0] + [0.4] * (domains - 1), [1.0] + [1.2] * (domains - 1)
    want, value = look_ahead([term(i) for i in range(domains)], theta, alphas, betas)
    algorithm = build("s-coral", gamma=1.3, alpha=0.4, beta=1.2)
    got, total = algorithm.gradient(net, weights, episode)
    assert_close(total, value)
    assert_direction(got, want)


@pytest.mark.parametrize("domains", [1, 2, 4])
def test_s_irm_wants_logits_that_need_no_scale_after_a_step_on_the_past(
    net, weights, theta, episode_of, literal_loss, literal_forward, assert_direction, domains
):
    episode = episode_of(domains)

    def term(i):
        def loss(ahead):
            x, y, _ = episode.minibatch(i)
            logits = literal_forward(ahead, x)[1]
            slopes = [(torch.softmax(f, 0) * f).sum() - f[label] for f, label in zip(logits, y.tolist(), strict=True)]
            return literal_loss(ahead, episode.minibatch(i)) + 0.7 * (sum(slopes) / len(slopes)) ** 2

        return loss

    alphas, betas = [0.0] + [0.4] * (domains - 1), [1.0] + [1.2] * (domains - 1)
    want, value = look_ahead([term(i) for i in range(domains)], theta, alphas, betas)
    got, total = build("s-irm", lam=0.7, alpha=0.4, beta=1.2).gradient(net, weights, episode)
    assert_close(total, value)
    assert_direction(got, want)


def test_s_group_dro_carries_weights_that_follow_the_losses_after_the_look_ahead(
    net, weights, theta, episode_of, literal_loss, assert_direction
):
    algorithm = build("s-group-dro", alpha=0.4, eta=0.9)
    memory = algorithm.memory(net, weights, 3)
    q = [1 / 3] * 3
    for seed in range(3):
        order = torch.randperm(3, generator=torch.Generator().manual_seed(seed))
        first = episode_of(3)
        episode = first._replace(x=first.x[order], y=first.y[order], domain=first.domain[order])
        met = []

        def term(i, episode=episode, met=met):
            def recorded(ahead):
                met.append(literal_loss(ahead, episode.minibatch(i)))
                return met[-1]

            return recorded

        betas = [3 * q[source] for source in episode.domain.tolist()]
        want, value = look_ahead([term(i) for i in range(3)], theta, [0.0, 0.4, 0.4], betas)
        got, total, memory = algorithm.step(net, weights, memory, episode)
        assert_close(total, value)
        assert_direction(got, want)
        for source, loss in zip(episode.domain.tolist(), met, strict=True):
            q[source] *= float(torch.exp(0.9 * loss.detach()))
        q = [share / sum(q) for share in q]
        assert_close(memory["q"], torch.tensor(q, dtype=torch.float64))
    assert max(q) > min(q) + 0.1


@pytest.mark.parametrize(
    ("name", "settings"), [("s-coral", {"gamma": 0.0}), ("s-irm", {"lam": 0.0}), ("s-group-dro", {"eta": 0.0})]
)
def test_without_what_is_new_a_chain_is_fo_s_mldg(net, weights, episode_of, name, settings):
    episode, plain = episode_of(4), build("fo-s-mldg", alpha=(0.2, 0.3, 0.4))
    chain = build(name, alpha=(0.2, 0.3, 0.4), **settings)
    memory = chain.memory(net, weights, 4)
    for _ in range(2):
        direction, value, memory = chain.step(net, weights, memory, episode)
        assert_close((direction, value), plain.gradient(net, weights, episode))


@pytest.mark.parametrize("name", ["s-coral", "s-irm", "s-group-dro"])
def test_a_path_in_another_order_gives_another_direction(net, weights, episode_of, name):
    episode, chain = episode_of(3), build(name, alpha=0.4)
    back = episode._replace(x=episode.x.flip(0), y=episode.y.flip(0), domain=episode.domain.flip(0))
    memory = chain.memory(net, weights, 3)
    one, other = (chain.step(net, weights, memory, e)[0] for e in (episode, back))
    assert float(tree.squared_norm(tree.add(one, other, -1.0))) > 1e-6


def test_s_coral_without_look_ahead_still_differs_from_coral_by_its_pooled_past(net, weights, episode_of):
    episode = episode_of(3)
    chain, _ = build("s-coral", alpha=0.0).gradient(net, weights, episode)
    pairs, _ = build("coral").gradient(net, weights, episode)
    assert float(tree.squared_norm(tree.add(chain, tree.scale(pairs, 3.0), -1.0))) > 1e-6

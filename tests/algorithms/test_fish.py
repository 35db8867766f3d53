"""Fish: torch's own Adam along the path, whose moments go on from step to step."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg import build


@pytest.mark.parametrize("n", [1, 3])
def test_steps_are_those_of_reptile_with_torch_s_adam(net, weights, episode_of, literal_loss, n):
    algorithm, rate = build("fish", alpha=0.02), 0.5
    params, memory = weights, algorithm.memory(net, weights, n)
    meta, state = [w.clone() for w in weights.values()], None
    for seed in range(4):
        episode = episode_of(n)
        g = torch.Generator().manual_seed(seed)
        episode = episode._replace(x=episode.x + torch.randn(episode.x.shape, generator=g, dtype=torch.float64))
        direction, value, memory = algorithm.step(net, params, memory, episode)
        params = {name: w - rate * direction[name] for name, w in params.items()}
        inner = [w.clone().requires_grad_() for w in meta]
        adam = torch.optim.Adam(inner, lr=0.02)
        if state is not None:
            adam.load_state_dict(state)
        losses = []
        for i in range(n):
            adam.zero_grad()
            loss = literal_loss(inner, (episode.x[i], episode.y[i]))
            loss.backward()
            adam.step()
            losses.append(loss.detach())
        state = adam.state_dict()
        meta = [w + rate * (end.detach() - w) for w, end in zip(meta, inner, strict=True)]
        assert_close(value, torch.stack(losses).mean())
        for w, want in zip(params.values(), meta, strict=True):
            assert_close(w, want)
    assert int(memory["count"]) == 4 * n


def test_the_first_inner_step_has_the_length_alpha_in_every_entry(net, weights, episode_of):
    algorithm = build("fish", alpha=0.02)
    direction, _, _ = algorithm.step(net, weights, algorithm.memory(net, weights, 1), episode_of(1))
    for d in direction.values():
        assert_close(d.abs(), torch.full_like(d, 0.02), rtol=1e-5, atol=0)


def test_moments_that_change_change_the_direction(net, weights, episode_of):
    algorithm, episode = build("fish"), episode_of(2)
    first = algorithm.memory(net, weights, 2)
    before, _, memory = algorithm.step(net, weights, first, episode)
    after, _, _ = algorithm.step(net, weights, memory, episode)
    assert any((after[name] - d).abs().max() > 1e-5 for name, d in before.items())

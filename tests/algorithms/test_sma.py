from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg.algorithms.agg import AGG
from seqdg.algorithms.sma import SMA


@pytest.mark.parametrize("since", [0.0, 0.29, 0.3, 0.31, 0.9])
def test_the_mean_is_over_all_weights_from_the_share_on(net, weights, take_steps, since):
    steps, algorithm = 10, SMA(AGG(), since=since)
    path, memory = take_steps(algorithm, net, weights, steps)
    first = next(i for i in range(steps) if i / steps >= since)
    deployed = algorithm.deploy(path[-1], memory)
    for name in weights:
        assert_close(deployed[name], torch.stack([w[name] for w in path[first:]]).mean(0), rtol=0, atol=1e-14)


def test_averaging_from_the_end_on_is_the_algorithm_inside(net, weights, take_steps):
    algorithm = SMA(AGG(), since=1.0)
    path, memory = take_steps(algorithm, net, weights, 6)
    assert_close(algorithm.deploy(path[-1], memory), path[-1], rtol=0, atol=0)


def test_before_the_start_the_current_weights_are_deployed(net, weights, episode_of):
    algorithm = SMA(AGG(), since=0.5)
    memory = algorithm.memory(net, weights, 3)
    _, _, memory = algorithm.step(net, weights, memory, episode_of(3)._replace(progress=torch.tensor(0.1)))
    now = {name: w + 1 for name, w in weights.items()}
    assert_close(algorithm.deploy(now, memory), now, rtol=0, atol=0)

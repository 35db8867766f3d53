from __future__ import annotations

import torch
from torch.testing import assert_close

from seqdg import build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.ema import EMA
from seqdg.bench import find_learner
from seqdg.core import describe_settings, restore_settings


def test_the_moving_average_is_the_one_of_the_equation(net, weights, take_steps):
    algorithm = EMA(AGG(), decay=0.8)
    path, memory = take_steps(algorithm, net, weights, 7)
    deployed = algorithm.deploy(path[-1], memory)
    for name in weights:
        mean = path[0][name]
        for w in path[1:]:
            mean = 0.8 * mean + 0.2 * w[name]
        assert_close(deployed[name], mean, rtol=0, atol=1e-14)


def test_nothing_of_the_past_is_the_algorithm_inside_and_all_of_it_the_first_weights(net, weights, take_steps):
    for decay, which in ((0.0, -1), (1.0, 0)):
        algorithm = EMA(AGG(), decay=decay)
        path, memory = take_steps(algorithm, net, weights, 5)
        assert_close(algorithm.deploy(path[-1], memory), path[which], rtol=0, atol=1e-14)


def test_before_the_first_step_the_first_weights_are_deployed(net, weights):
    assert_close(EMA(AGG()).deploy(weights, EMA(AGG()).memory(net, weights, 3)), weights)


def test_the_average_starts_anew_with_a_stage(net, weights):
    algorithm = build("metareg+ema", decay=0.9)
    params = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    moved = {name: w + 1.0 for name, w in params.items()}
    last = algorithm.stages()[-1][1]
    entered, memory = last.enter(net, moved, algorithm.memory(net, params, 3))
    assert_close(algorithm.deploy(entered, memory), algorithm.base.deploy(entered, {}))


def test_the_share_of_the_first_weights_falls_with_every_step():
    average, zero, one = EMA(AGG(), decay=0.9), {"w": torch.zeros(1).double()}, {"w": torch.ones(1).double()}
    seen = average.observe(average.begin(one), one, torch.tensor(0.0))
    for step in range(1, 40):
        deployed = average.average(seen, zero)  # all weights but the first are 0
        assert_close(deployed["w"].item(), average.weigh_first(step), rtol=1e-12, atol=0)
        seen = average.observe(seen, zero, torch.tensor(0.5))


def test_a_decay_that_grows_is_the_one_of_the_equation(net, weights, take_steps):
    algorithm = EMA(AGG(), decay=0.6, grows=True)
    path, memory = take_steps(algorithm, net, weights, 20)
    deployed = algorithm.deploy(path[-1], memory)
    assert set(deployed) == set(weights)
    for name in weights:
        mean = path[0][name]
        for t, w in enumerate(path[1:], start=1):
            kept = min(0.6, (1 + t) / (10 + t))
            mean = kept * mean + (1 - kept) * w[name]
        assert_close(deployed[name], mean, rtol=0, atol=1e-14)


def test_little_of_the_first_weights_is_left_where_the_decay_grows():
    average, zero, one = EMA(AGG(), grows=True), {"w": torch.zeros(1).double()}, {"w": torch.ones(1).double()}
    seen = average.observe(average.begin(one), one, torch.tensor(0.0))
    for step in range(1, 30):
        assert_close(average.average(seen, zero)["w"].item(), average.weigh_first(step), rtol=1e-12, atol=0)
        seen = average.observe(seen, zero, torch.tensor(0.5))
    assert average.weigh_first(30) < 1e-6 < EMA(AGG()).weigh_first(30)


def test_a_decay_that_does_not_grow_is_described_as_before():
    assert "grows" not in describe_settings(build("agg+ema"))
    assert describe_settings(build("agg+ema", grows=True))["grows"] == "true"
    assert restore_settings(build("agg+ema", grows=True), {"decay": "0.9"}) == build("agg+ema", decay=0.9)


def test_what_a_user_s_data_are_fitted_with_grows_unless_told_otherwise():
    assert find_learner("agg+ema").build_settings("agg+ema").grows
    assert not find_learner("agg+ema").build_settings("agg+ema", grows=False).grows
    assert find_learner("agg").build_settings("agg") == AGG()


def test_trials_of_a_stack_may_have_decays_of_their_own():
    average = EMA(AGG(), decay=torch.tensor([0.2, 0.9]), grows=True)
    one, zero = {"w": torch.ones(2)}, {"w": torch.zeros(2)}

    def start(decay, first, then):
        single = EMA(AGG(), decay=decay, grows=True)
        seen = single.observe(single.begin(first), first, torch.tensor(0.0))
        return single.average(seen, then)["w"]

    kept = torch.func.vmap(start)(average.decay, one, zero)
    assert_close(kept, torch.tensor([2 / 11, 2 / 11]))
    later = torch.func.vmap(
        lambda d, t: EMA(AGG(), decay=d, grows=True).average({"w": t, "#steps": 90 * t}, {"w": 0 * t})["w"]
    )
    assert_close(later(average.decay, one["w"]), torch.tensor([0.2, 0.9]))

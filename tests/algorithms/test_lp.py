from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build, list_algorithms, run
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.lp import LinearProbingFirst
from seqdg.testing import Case, build_nets
from seqdg.training import end_stages
from toys import Remembers


def test_at_first_the_head_learns_alone_and_then_all_weights_do(net, weights, episode_of):
    (first_share, head), (rest, whole) = LinearProbingFirst(AGG(), head_share=0.2).stages()
    assert (first_share, rest) == (0.2, 0.8)
    plain, loss = AGG().gradient(net, weights, episode_of(3))
    direction, value = head.gradient(net, weights, episode_of(3))
    assert set(direction) == set(net.head_names) == {"2.weight", "2.bias"}
    assert_close(direction, {name: plain[name] for name in direction})
    assert_close(value, loss)
    assert_close(whole.gradient(net, weights, episode_of(3))[0], plain)


def test_the_stages_of_the_algorithm_inside_follow(net, weights, episode_of):
    inside, chain = build("irm"), build("irm+lp", head_share=0.5)
    assert len(chain.stages()) == 1 + len(inside.stages()) == 3
    assert [s for s, _ in chain.stages()] == [0.5, *(0.5 * s for s, _ in inside.stages())]
    assert end_stages(chain, 100)[0] == 50


NO_HEAD_AT_FIRST = ("d-mtae", "metareg")


@pytest.mark.parametrize("name", list_algorithms())
def test_the_head_that_learns_first_is_deployed(name):
    """Of `ensemble` and `fusion` the heads of all their copies are."""
    chain = build(f"{name}+lp")
    net = next(iter(build_nets(chain.needs_points).values()))
    if name in NO_HEAD_AT_FIRST:
        with pytest.raises(UsageError, match=r"the first stage of .* trains none that is deployed: drop \+lp"):
            chain.check(net, 3)
        return
    chain.check(net, 3)
    case = Case(chain, net, 3)
    params, probe = case.draw_weights(), case.stages[0]
    params, memory = probe.enter(net, params, chain.memory(net, params, 3))
    direction, _, memory = probe.step(net, params, memory, case.draw_episode())
    before = {n: w.clone() for n, w in chain.deploy(params, memory).items()}
    stepped = {n: w - 0.1 * direction[n] if n in direction else w for n, w in params.items()}
    after = chain.deploy(stepped, memory)
    changed = {n.removeprefix("branch.") for n, w in after.items() if not torch.equal(w, before[n])}
    assert changed & set(net.head_names)
    assert not changed & (set(net.names) - set(net.head_names))


@pytest.mark.parametrize("name", NO_HEAD_AT_FIRST)
def test_a_first_stage_without_the_deployed_head_is_refused_before_training(name, tmp_path):
    with pytest.raises(UsageError, match=r"drop \+lp, or choose another algorithm, such as agg\.$"):
        run("rotated-mnist", [f"{name}+lp"], trials=1, steps=2, out=tmp_path)


def test_what_an_algorithm_adds_learns_from_the_start_but_no_copy_of_the_body(net, weights, episode_of):
    chain = build("undo-bias+lp")
    params = chain.init(net, weights, 3, torch.Generator().manual_seed(0))
    direction, _, _ = chain.stages()[0][1].step(net, params, {}, episode_of(3))
    assert direction
    assert all(name.rpartition("2.")[2] in ("weight", "bias") and "0." not in name for name in direction)
    dann = build("dann+lp")
    params = dann.init(net, weights, 3, torch.Generator().manual_seed(0))
    direction, _, _ = dann.stages()[0][1].step(net, params, {}, episode_of(3))
    assert set(params) - set(direction) == set(net.names) - set(net.head_names)


def test_a_memory_goes_on_in_both_stages(net, weights, episode_of):
    chain = LinearProbingFirst(Remembers())
    memory = chain.memory(net, weights, 3)
    for _, stage in chain.stages():
        params, memory = stage.enter(net, weights, memory)
        before = memory["base.q"]
        _, _, memory = stage.step(net, params, memory, episode_of(3))
        assert not torch.equal(memory["base.q"], before)


def test_a_net_that_is_nothing_but_a_head_is_refused():
    net = Net(nn.Sequential(nn.Linear(3, 3)).double(), "none")
    with pytest.raises(UsageError, match=r"this net has nothing but a head, or none: drop \+lp"):
        build("agg+lp").check(net, 3)


@pytest.mark.parametrize("name", ["arm", "selfreg"])
def test_what_an_algorithm_adds_learns_whole_even_where_some_of_it_is_named_like_the_body(name, episode_of):
    body = (nn.Linear(3, 4), nn.Tanh(), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    net = Net(nn.Sequential(*body, nn.Linear(4, 3)).double(), "none")  # 0, 3 and 5
    chain = build(f"{name}+lp")
    params = chain.init(net, net.params(), 3, torch.Generator().manual_seed(0))
    direction, _, _ = chain.stages()[0][1].step(net, params, chain.memory(net, params, 3), episode_of(3))
    assert set(params) - set(direction) == {"0.weight", "0.bias", "3.weight", "3.bias"}

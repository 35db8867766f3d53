"""What holds for every wrapper, around algorithms with a path, stages, branches or a memory."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch.testing import assert_close

import seqdg
from seqdg import UsageError
from seqdg.algorithms.mixup import Mixup
from seqdg.bench.learners.contract import TRAINING
from seqdg.core import Averaging, collect_rules, find_wrapper, flatten_settings, list_layers
from seqdg.testing import Case, build_nets, check_algorithm, find_source_count

BASES = {name: seqdg.build(name) for name in ("agg", "fo-s-mldg", "metareg", "undo-bias", "group-dro")}
REFUSED = ("metareg+lp",)  # see test_lp.py
QUICK = ("agg+ema", "agg+mixup", "agg+sam", "agg+lp", "agg+lora", "agg+l2sp", "agg+wise")
SLOW = (
    "fo-s-mldg+lora",
    "metareg+lora",
    "undo-bias+lora",
    "metareg+wise",
    "fo-s-mldg+l2sp",
    "fo-s-mldg+mixup",
    "fo-s-mldg+sam",
    "metareg+sma",
    "undo-bias+lp",
    "group-dro+ema",
    "group-dro+swad",
)
WRAPPERS = [name for name in seqdg.list_wrappers() if find_wrapper(name).__module__.startswith("seqdg.")]


def list_chains():
    chains = {f"{base}+{wrapper}": (base, wrapper) for base in BASES for wrapper in WRAPPERS}
    quick = dict.fromkeys(QUICK, ())
    slow = dict.fromkeys([name for name in chains if name.startswith("agg+") or name in SLOW], pytest.mark.slow)
    marks = {**dict.fromkeys(chains, pytest.mark.soak), **slow, **quick}
    kept = {name: chain for name, chain in chains.items() if name not in REFUSED}
    return [pytest.param(*chain, marks=marks[name], id=name) for name, chain in kept.items()]


@pytest.mark.slow
@pytest.mark.parametrize(("base", "wrapper"), list_chains())
def test_a_wrapped_algorithm_keeps_the_contract(base, wrapper):
    check_algorithm(find_wrapper(wrapper)(BASES[base]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["agg+mixup+sam+lp+swad", pytest.param("fo-s-mldg+mixup+sagm+ema", marks=pytest.mark.soak)]
)
def test_a_long_chain_keeps_the_contract(name):
    check_algorithm(seqdg.build(name))


def test_the_wrappers_are_listed_in_the_order_of_a_chain():
    some = ["mixup", "l2sp", "sagm", "sam", "lp", "lora", "ema", "sma", "swad", "wise"]
    assert [name for name in WRAPPERS if name in some] == some


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_no_setting_of_a_wrapper_has_a_name_of_the_training_or_of_an_algorithm(wrapper):
    own = {f.name for f in fields(find_wrapper(wrapper))} - {"base"}
    assert own
    assert not own & set(TRAINING)
    for name in seqdg.list_algorithms():
        assert not own & set(flatten_settings(seqdg.build(name))), name


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_search_finds_settings_of_a_wrapper(wrapper):
    own = {f.name for f in fields(find_wrapper(wrapper))} - {"base"}
    searched = {name for name, (_, rule) in collect_rules(seqdg.build(f"agg+{wrapper}")).items() if rule["search"]}
    assert searched & own


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("base", BASES)
def test_a_wrapper_takes_over_what_its_base_declares(base, wrapper):
    chain, inside = find_wrapper(wrapper)(BASES[base]), BASES[base]
    for name in ("optimizer", "needs", "sums", "hard_labels", "together"):
        assert getattr(chain, name) == getattr(inside, name)
    assert list_layers(chain)[1] is inside
    assert len(chain.stages()) == len(inside.stages()) + (wrapper == "lp")


@pytest.mark.parametrize("name", [name for name in seqdg.list_algorithms() if not seqdg.build(name).hard_labels])
def test_mixup_gives_every_algorithm_labels_that_it_can_use(name):
    chain = Mixup(seqdg.build(name))
    net = next(iter(build_nets(with_points=chain.needs_points).values()))
    case = Case(chain, net, find_source_count(chain, net))
    params, episode = case.draw_weights(), case.draw_episode()
    for _, stage in chain.stages():
        memory = chain.memory(net, params, case.sources)
        other = episode._replace(y=(episode.y + torch.tensor([[1], *[[0]] * (case.sources - 1)])) % 3)
        losses = [stage.step(net, params, memory, e)[1] for e in (episode, other)]
        assert all(torch.isfinite(loss) for loss in losses)


@pytest.mark.parametrize("name", [name for name in seqdg.list_algorithms() if seqdg.build(name).hard_labels])
def test_mixup_refuses_what_reads_labels(name):
    with pytest.raises(UsageError, match=r"reads the label of each row, and mixup gives a row two: drop \+mixup"):
        seqdg.build(f"{name}+mixup").check(build_nets()["an MLP"], 3)


@pytest.mark.parametrize("wrapper", [w for w in WRAPPERS if issubclass(find_wrapper(w), Averaging)])
@pytest.mark.parametrize("base", BASES)
def test_an_average_changes_no_direction(base, wrapper):
    net, inside = build_nets()["an MLP"], BASES[base]
    case, chain = Case(inside, net, find_source_count(inside, net)), find_wrapper(wrapper)(inside)
    params, episode = case.draw_weights(), case.draw_episode()
    for (_, plain), (_, wrapped) in zip(inside.stages(), chain.stages(), strict=True):
        memory = inside.memory(net, params, case.sources)
        want, loss, kept = plain.step(net, params, memory, episode)
        got, value, remembered = wrapped.step(net, params, chain.memory(net, params, case.sources), episode)
        assert_close(got, want, rtol=0, atol=0)
        assert torch.equal(value, loss)
        assert {n.removeprefix("base.") for n in remembered if n.startswith("base.")} == set(kept)
        assert all(torch.equal(remembered[f"base.{n}"], m) for n, m in kept.items())

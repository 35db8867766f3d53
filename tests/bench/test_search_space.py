"""`--search-space domainbed` and `--sampler optuna` of `seqdg bench`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.bench import Request, load_benchmark
from seqdg.bench.search import Proposal, draw_from_domainbed
from seqdg.core import flatten_settings
from seqdg.results import open_run
from seqdg.training import Protocol

SMALL = ["--rows", 60, "--steps", 10, "--workers", 0]


def _draw(name, shape, count=400, fixed=()):
    first = Proposal(seqdg.build(name), 1e-3)
    return draw_from_domainbed(name, first, Protocol(optimizer="adam-l2"), "adam-l2", count, fixed, shape)


@pytest.mark.parametrize(
    ("shape", "lr", "decay", "batch"),
    [
        ((3, 224, 224), (1e-5, 10**-3.5), (1e-6, 1e-2), (8, 45)),
        ((1, 28, 28), (10**-4.5, 10**-2.5), (0.0, 0.0), (8, 511)),
    ],
    ids=["pictures for pretrained networks", "small pictures"],
)
def test_rate_decay_and_batch_have_domainbeds_distributions(shape, lr, decay, batch):
    first, *drawn = (d.protocol for d in _draw("agg", shape))
    assert first.lr == 1e-3
    rates = np.log([p.lr for p in drawn])
    assert np.log(lr[0]) <= rates.min() < rates.max() <= np.log(lr[1])
    share = (rates - np.log(lr[0])) / np.log(lr[1] / lr[0])
    np.testing.assert_allclose(np.quantile(share, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.08)  # log-uniform
    decays, batches = [p.weight_decay for p in drawn], [p.batch for p in drawn]
    assert decay[0] <= min(decays) <= max(decays) <= decay[1]
    assert batch[0] <= min(batches) < max(batches) <= batch[1]
    assert {d.dropout for d in _draw("agg", shape)[1:]} == {0.0, 0.1, 0.5}


@pytest.mark.parametrize(
    ("name", "setting", "low", "high"),
    [
        ("irm", "lam", 0.1, 1e5),
        ("vrex", "anneal", 1 / 5001, 0.9),
        ("coral", "gamma", 0.1, 10.0),
        ("agg+mixup", "mix", 0.1, 10.0),
        ("fishr", "keep", 0.9, 0.99),
        ("fo-s-mldg", "alpha", 0.001, 1.0),  # which DomainBed lacks: the method's own range
    ],
)
def test_settings_are_drawn_from_domainbeds_ranges_or_from_the_methods_own(name, setting, low, high):
    values = [flatten_settings(d.algorithm)[setting] for d in _draw(name, (3, 224, 224))[1:]]
    assert low * 0.999 <= min(values)
    assert max(values) <= high * 1.001
    assert max(values) / max(min(values), 1e-9) > 0.8 * high / low or high / low > 20
    assert len(set(values)) > 100


def test_a_longer_search_begins_with_the_shorter_and_what_the_user_fixes_moves_nothing_else():
    short, long = _draw("irm", (3, 224, 224), 3), _draw("irm", (3, 224, 224), 6)
    assert long[:3] == short
    fixed = _draw("irm", (3, 224, 224), 3, fixed={"weight_decay": "0", "dropout": ""})
    assert [d.dropout for d in fixed] == [None] * 3
    assert [d.protocol.batch for d in fixed] == [d.protocol.batch for d in short]
    assert [d.algorithm for d in fixed] == [d.algorithm for d in short]


def test_the_candidates_are_trials_whose_net_drops_what_was_drawn():
    benchmark = load_benchmark("rotated-mnist")
    benchmark = replace(benchmark, protocol=replace(benchmark.protocol, optimizer="adam-l2"))
    task = benchmark.make_task()
    choice = {"algorithms": ["agg"], "held_out": ["0"], "trials": 1}
    trials = benchmark.plan(task, Request(**choice, search=6, search_space="domainbed")).trials
    plain = benchmark.plan(task, Request(**choice)).trials
    assert trials[0].key == plain[0].key
    assert {t.net.dropout for t in trials} == {0.0, 0.1, 0.5}
    asked = benchmark.plan(task, Request(**choice, settings=["agg.dropout=0.1"])).trials
    assert asked[0].net.dropout == 0.1


def test_rates_for_adam_are_refused_where_another_optimizer_trains(tmp_path):
    code, _, err = command("bench", "--search", 2, "--search-space", "domainbed", "--out", tmp_path, *SMALL)
    assert code == 2
    assert "DomainBed's learning rates are for Adam, and agg trains with momentum here" in err


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"search_space": "domainbed"}, "there is no search: give --search 2 or more"),
        ({"search": 2, "search_space": "domainbd"}, "There is no search space 'domainbd'"),
        ({"search": 2, "sampler": "optun"}, "There is no sampler 'optun'"),
        ({"search": 2, "sampler": "optuna", "shard": "1/2"}, "does not go with --shard"),
        ({"search": 2, "sampler": "optuna", "select": "leave-one-out"}, "does not go with --select leave-one-out"),
        ({"search": 2, "sampler": "optuna", "search_space": "domainbed"}, "does not go with --search-space domainbed"),
    ],
)
def test_choices_that_do_not_go_together_are_refused_in_a_sentence(choice, said):
    with pytest.raises(UsageError, match=said):
        Request(**choice)


@pytest.mark.slow
def test_optuna_proposes_candidates_for_every_held_out_domain_and_seed_and_goes_on_where_it_stopped(tmp_path):
    pytest.importorskip("optuna")
    words = ["bench", "--algorithms", "fo-s-mldg", "--held-out", "0,75", "--trials", 1, "--sampler", "optuna"]
    code, out, err = command(*words, "--search", 10, "--out", tmp_path / "whole", *SMALL)
    assert code == 0, err
    assert "10 candidates" in out
    assert "proposed by Optuna from source validation" in out
    records = open_run(tmp_path / "whole").records()
    by_domain = {d: {r.key for r in records if r.held_out[0] == d} for d in ("0", "75")}
    assert [len(keys) for keys in by_domain.values()] == [10, 10]
    rates = [{r.description["protocol"]["lr"] for r in records if r.held_out[0] == d} for d in ("0", "75")]
    assert rates[0] & rates[1] and rates[0] != rates[1]  # noqa: PT018  the first as it is, others its own
    for count in (9, 10):  # of which the first stops within the second round
        assert command(*words, "--search", count, "--out", tmp_path / "again", *SMALL).returncode == 0
    assert {r.key for r in open_run(tmp_path / "again").records()} >= {r.key for r in records}

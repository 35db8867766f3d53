"""A rate that trains: where a loss is a sum over domains, a rate that nobody gave is divided by their number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from digits import BENCHMARK
from seqdg.bench import Benchmark, Request, list_benchmarks, load_benchmark
from seqdg.core import Sequential, build, list_algorithms

BARE = replace(BENCHMARK, tables={})
DOMAINS = [str(d) for d in range(0, 90, 15)]  # five to learn from


PAPER = (
    "agg", "mldg", "fo-mldg", "s-mldg", "fo-s-mldg", "ffo-s-mldg", "undo-bias", "s-undo-bias", "ensemble", "dann",
    "crossgrad", "metareg", "mmd-aae",
)  # fmt: skip


def choose_rate(name: str, *settings: str, benchmark: Benchmark = BARE) -> float:
    request = Request(algorithms=[name], settings=settings)
    return benchmark.list_candidates(request, DOMAINS)[0].protocol.lr


@pytest.mark.parametrize("name", ["undo-bias", "s-undo-bias", "s-mldg", "fo-s-mldg", "fo-s-mldg+ema", "s-coral+mixup"])
def test_a_sum_over_domains_has_the_rate_of_the_protocol_divided_by_their_number(name):
    assert choose_rate(name) == pytest.approx(0.2 / 5)
    assert choose_rate(name, f"{name}.optimizer=sgd") == pytest.approx(0.2 / 5)


@pytest.mark.parametrize("name", ["agg", "fo-mldg", "dann", "ffo-s-mldg", "agg+ema"])
def test_another_algorithm_has_the_rate_of_the_protocol(name):
    assert choose_rate(name) == 0.2


@pytest.mark.parametrize("optimizer", ["adam", "adam-l2"])
def test_adam_makes_up_for_a_sum_by_itself(optimizer):
    assert choose_rate("fo-s-mldg", f"fo-s-mldg.optimizer={optimizer}") == 0.2


def test_a_rate_that_is_given_is_taken_as_it_is():
    assert choose_rate("fo-s-mldg", "fo-s-mldg.lr=0.3") == 0.3
    assert choose_rate("fo-s-mldg+ema", "fo-s-mldg.lr=0.3") == 0.3
    assert choose_rate("fo-s-mldg+ema", "fo-s-mldg.lr=0.3", "fo-s-mldg+ema.lr=0.4") == 0.4
    table = replace(BARE, tables={"fo-s-mldg": {"lr": 0.07}})
    assert choose_rate("fo-s-mldg", benchmark=table) == 0.07
    assert choose_rate("fo-s-mldg+mixup+ema", benchmark=table) == 0.07
    assert choose_rate("s-mldg", benchmark=table) == pytest.approx(0.2 / 5)


def test_every_chained_algorithm_sums_and_undo_bias_does():
    assert build("undo-bias").sums
    chained = [name for name in list_algorithms() if isinstance(build(name), Sequential)]
    assert len(chained) > 3
    assert all(build(name).sums for name in chained)
    assert build("fo-s-mldg+mixup+ema").sums
    assert not build("agg+ema").sums


def test_other_candidates_of_a_search_are_multiples_of_that_rate():
    request = Request(algorithms=["fo-s-mldg"], search=4)
    rates = [c.protocol.lr for c in BARE.list_candidates(request, DOMAINS)]
    assert rates[0] == pytest.approx(0.04)
    assert all(0.0039 < rate < 0.081 for rate in rates)


@pytest.mark.parametrize("name", list_benchmarks())
def test_no_rate_of_a_shipped_benchmark_follows_from_the_rule(name):
    """What of the paper a benchmark runs, or has a table for, has the rate that its file says."""
    benchmark = load_benchmark(name)
    for algorithm in {*benchmark.algorithms, *benchmark.tables} & set(PAPER):
        wanted = benchmark.tables.get(algorithm, {}).get("lr", benchmark.protocol.lr)
        assert choose_rate(algorithm, benchmark=benchmark) == wanted, algorithm

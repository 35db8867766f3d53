"""The two studies that explain: their files say what they are meant to compare."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from seqdg.bench import load_benchmark
from seqdg.study import load_study
from seqdg.study.part_runner import make_benchmark

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WALKING = load_study(BENCHMARKS / "study-walking.toml")
PATH = load_study(BENCHMARKS / "study-path.toml")
PER_STEP = {  # how many domains a step sees
    "pacs-features": 3, "office-caltech10": 3, "digits": 5, "amazon-reviews": 3, "wisdm": 6, "beijing-air": 11,
}  # fmt: skip


@pytest.mark.parametrize("name", WALKING.sets)
def test_kinds_of_parts_differ_in_what_their_comparison_asks_for(name):
    n, parts = PER_STEP[name], {part.kind: part for part in WALKING.parts if part.set == name}
    few, protocol = parts["few"], load_benchmark(parts["few"].benchmark).protocol
    assert (protocol.domains_per_step or n) == n
    for kind in ("many", "small", "single", "plain-small"):
        assert parts[kind].steps == n * few.steps
    for kind in ("many", "single", "far", "plain"):
        assert parts[kind].batch == few.batch
    for kind in ("small", "plain-small"):
        assert parts[kind].batch == round(few.batch / n)
    assert parts["far"].lr == pytest.approx(n * few.lr)
    assert parts["single"].settings == ("agg.domains_per_step=1",)
    assert {parts[kind].lr for kind in ("few", "many", "small", "single")} == {0.001}
    assert "fish.alpha=0.001" in few.settings
    rate = parts["plain"].lr
    assert rate == parts["plain-small"].lr == protocol.lr
    assert parts["plain"].settings == ("ffo-s-mldg.lr=1.0", f"ffo-s-mldg.alpha={rate:g}")
    assert {part.held_out for part in parts.values()} == {few.held_out}


def test_the_family_has_every_combination_and_its_rates_go_by_the_number_of_sources():
    levels = (3, 6, 12), (0, 45, 90), ("0.0", "0.2", "0.4"), (20, 70, 240)
    expected = [
        (f"{d}-{r}-{q}-{k}/momentum", f"turned-digits:number={d},degrees={r},noise={q},rows={k}")
        for d, r, q, k in itertools.product(*levels)
    ]
    assert [(part.name, part.benchmark) for part in PATH.parts] == expected
    for part in PATH.parts:
        benchmark = make_benchmark(part, None)
        assert benchmark.protocol.lr == 0.15
        sources = benchmark.data["number"] - 1
        (setting,) = part.settings
        assert float(setting.removeprefix("fo-s-mldg.lr=")) == pytest.approx(0.15 / sources, rel=1e-3)

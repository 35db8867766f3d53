"""Records of trials that never ran, with chosen numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browsing import open_browser
from seqdg.results import DIVERGED, DONE, VERSION, Evaluation, Record

CRITERIA = ("accuracy", "balanced_accuracy", "log_loss", "calibration_error")


def record(algorithm: str, held_out: str, seed: int, value: float | None, **changes) -> Record:
    """A finished trial whose accuracy is `value` at its last step and 0.1 less halfway; None: it diverged."""
    reached = 0.5 if value is None else value
    history = [
        Evaluation(
            step=step,
            source={name: [reached - gap, reached - gap] for name in CRITERIA},
            held_out={name: [reached - gap] for name in CRITERIA},
        )
        for step, gap in ((50, 0.1), (100, 0.0))
    ]
    description = {
        "version": VERSION, "data": "f" * 64, "algorithm": algorithm, "settings": {}, "held_out": [held_out],
        "seed": seed, "augment": "",
        "net": {"name": "mlp", "hidden": [64, 32], "batchnorm": False, "weights": None},
        "protocol": {"split": "random", "validation": 0.3, "test": "split", "steps": 100},
    }  # fmt: skip
    values = {
        "key": f"{algorithm}/{held_out}/{seed}", "description": description,
        "status": DIVERGED if value is None else DONE, "history": history,
        "losses": [2.0 / (i + 1) for i in range(20)], "seconds": 1.5 + len(algorithm) / 10, "peak_memory": 10**8,
        "device": "cpu (x86_64)", "versions": {"seqdg": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        "commit": "0123456789ab",
    }  # fmt: skip
    return Record(**{**values, **changes})


@pytest.fixture
def run(make_run) -> Callable[..., list[Record]]:
    return make_run


@pytest.fixture(scope="session")
def make_run() -> Callable[..., list[Record]]:
    """`run({"agg": {"V": [0.6, 0.7]}})`: by algorithm and held-out domain, a value per seed."""

    def records(values: dict[str, dict[str, list[float | None]]], **changes) -> list[Record]:
        return [
            record(algorithm, domain, seed, value, **changes)
            for algorithm, domains in values.items()
            for domain, line in domains.items()
            for seed, value in enumerate(line)
        ]

    return records


@pytest.fixture
def payloads() -> dict[str, dict]:
    """What the store would hold of every analysis."""
    names = ["agg", "fo-mldg", "fo-s-mldg"]
    of = {
        "benchmark": "vlcs", "data": "f" * 64, "held_out": "V", "algorithms": names, "seeds": [0, 1, 2], "domain": None,
        "settings": {name: {"alpha": "0.1"} if name != "agg" else {} for name in names},
        "steps": dict.fromkeys(names, 100),
    }  # fmt: skip
    at = [0, 50, 100]
    curves = {name: {"at": at, "mean": [2.0, 1.0 - i / 10, 0.5 - i / 10], "spread": [0.1, 0.1, 0.1]}
              for i, name in enumerate(names)}  # fmt: skip
    values = {name: {"mean": 1.0 + i / 10, "spread": 0.05} for i, name in enumerate(names)}
    sorted_by_class = [[float(k), float(k % 3)] for k in range(12)]
    numbers = {
        "invariance": {"chance": 1.0986, "first": curves["agg"], "second": curves, "probe": values, "refused": {}},
        "tsne": {
            "classes": ["bird", "car", "<i>dog</i>"], "labels": [0, 1, 2] * 4, "perplexity": 3.0, "refused": {},
            "panels": {n: {"points": sorted_by_class, "score": 0.1 * i} for i, n in enumerate(["raw data", *names])},
        },
        "similarity": {
            "curves": {"undo-bias": {"at": at, "layers": {"one": curves["agg"], "head": curves["fo-mldg"]}}},
            "refused": {"agg": "agg has no domain-specific weights."},
        },
        "ranks": {
            "interest": "L", "by_place": {"fo-s-mldg": [curves[n] for n in names]}, "with_it_last": curves,
            "refused": {},
        },
        "alignment": {
            "pairs": [["L", "C"]], "refused": {},
            "curves": {
                n: {"at": at, "inner": [3.0, 2.0, 1.0], "inner_spread": None, "cosine": [0.9, 0.8, 0.7 + i / 10],
                    "cosine_spread": None, "loss": [2.0, 1.0, 0.5], "loss_spread": None}
                for i, n in enumerate(names)
            },
        },
        "line": {
            "curves": {
                n: {"at": [-0.5, 0.0, 0.5, 1.0, 1.5], "source": [3.0, 2.0, 1.0, 0.5 + i, 0.6], "source_spread": None,
                    "held_out": [3.0, 2.5, 2.0, 1.5, 1.6], "held_out_spread": None,
                    "accuracy": [50.0, 55.0, 60.0, 61.0, 59.0], "accuracy_spread": None, "distance": 1.5}
                for i, n in enumerate(names)
            },
            "between": {}, "refused": {},
        },
        "ensemble": {
            "cells": [
                {"algorithm": a, "held_out": d, "mean": 60.0 + i, "stderr": 0.5, "trials": 3}
                for i, a in enumerate(["ensemble", "undo-bias", "s-undo-bias"]) for d in ("V", "L", "average", "worst")
            ],
            "refused": {},
        },
        "cost": {
            "costs": {n: {"seconds": 0.01 * (i + 1), "gradients": 3.0, "memory": 10**6 * (i + 1)}
                      for i, n in enumerate(names)},
            "sources": 3, "device": "cpu", "stacked": 1, "refused": {},
        },
    }  # fmt: skip
    others = {"similarity": ["undo-bias", "agg"], "ensemble": ["ensemble", "undo-bias", "s-undo-bias"]}
    return {
        name: {"of": {**of, "algorithms": others.get(name, names)}, "numbers": n,
               "command": f"seqdg analyze {name} vlcs"}
        for name, n in numbers.items()
    }  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with open_browser() as started:
        yield started

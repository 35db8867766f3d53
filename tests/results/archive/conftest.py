"""A small real run, searched and with all that leave-one-out needs, and that run packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import seqdg
from seqdg.results import Store, open_run, pack


@pytest.fixture(scope="session")
def directory(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "run"
    words = ["--held-out", "0,75", "--trials", 2, "--steps", 12, "--search", 2, "--workers", 0, "--device", "cpu"]
    words += ["--select", "leave-one-out", "--out", folder]
    assert seqdg("bench", "--algorithms", "agg,fo-s-mldg", *words).returncode == 0
    store = Store.open(folder)
    cell = {"algorithm": "ensemble", "held_out": "0", "mean": 60.0, "stderr": 0.5, "trials": 3}
    numbers = {"cells": [cell, {**cell, "held_out": "average"}], "refused": {}}
    of = {
        "benchmark": "rotated-mnist", "data": "", "held_out": "0", "algorithms": ["ensemble"], "settings": {},
        "steps": {"ensemble": 12}, "seeds": [0], "domain": None,
    }  # fmt: skip
    store.add_analysis("ensemble", {"of": of, "numbers": numbers, "command": "seqdg analyze ensemble"})
    store.close()
    return folder


@pytest.fixture(scope="session")
def packed(directory, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "run"
    pack([(directory, open_run(directory))], path)
    return path

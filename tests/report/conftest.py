"""Records of trials that never ran, with chosen numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seqdg.record import DIVERGED, DONE, Evaluation, Record

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
        "version": 1, "data": "f" * 64, "algorithm": algorithm, "settings": {}, "held_out": [held_out], "seed": seed,
        "augment": "",
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
def run() -> Callable[..., list[Record]]:
    """`run({"agg": {"V": [0.6, 0.7]}})`: by algorithm and held-out domain, a value per seed."""

    def records(values: dict[str, dict[str, list[float | None]]], **changes) -> list[Record]:
        return [
            record(algorithm, domain, seed, value, **changes)
            for algorithm, domains in values.items()
            for domain, line in domains.items()
            for seed, value in enumerate(line)
        ]

    return records

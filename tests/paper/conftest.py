"""Small data sets with a known answer, and studies of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqdg.bench import RowsInMemory, Session, load_benchmark
from seqdg.data import Dataset
from seqdg.nets import NetSpec
from seqdg.paper import Study
from seqdg.training import Protocol

CLASSES, WIDTH, ROWS = 3, 12, 240


@pytest.fixture(scope="session")
def dataset() -> Callable[..., Dataset]:
    """`dataset(code=0.0)`: classes are told by the first three inputs; inputs 3 to 6 tell the domain by `code`."""

    def made(code: float = 0.0, noise: float = 1.0, domains: int = 4, seed: int = 0) -> Dataset:
        rng = np.random.default_rng(seed)
        n = ROWS * domains
        y, domain = rng.integers(0, CLASSES, n), np.repeat(np.arange(domains), ROWS)
        x = rng.normal(0, noise, (n, WIDTH))
        x[np.arange(n), y] += 3.0
        x[np.arange(n), CLASSES + domain] += code
        return Dataset(
            name="planted",
            domains=tuple("abcdefgh"[:domains]),
            classes=("x", "y", "z"),
            x=torch.from_numpy(x).float(),
            y=torch.from_numpy(y),
            domain=torch.from_numpy(domain),
            fingerprint=f"planted-{code}-{noise}-{domains}-{seed}",
        )

    return made


@pytest.fixture(scope="session")
def study() -> Callable[..., Study]:
    """A study of a data set with a small net."""

    def made(data: Dataset, algorithms: list[str], **changes) -> Study:
        benchmark = replace(
            load_benchmark("rotated-mnist"),
            name=f"planted {data.fingerprint}", net=NetSpec("mlp", hidden=(16, 8)), tables={},
            protocol=Protocol(test="split", steps=60, batch=16, evaluations=2, lr=0.05),
        )  # fmt: skip
        task = replace(benchmark.make_task(), rows=RowsInMemory(data))
        return Study(benchmark, Session(task), algorithms, data.domains[-1], **{"points": 4, **changes})

    return made

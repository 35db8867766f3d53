"""The command line, and small data for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import command
from command import Done

DOMAINS, CLASSES = ("art", "photo", "sketch"), ("cat", "dog")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a cache of its own."""
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def seqdg() -> Callable[..., Done]:
    return command.seqdg


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """A root with set/<domain>.npz: 8 features, labels 0 and 1."""
    (tmp_path / "root" / "set").mkdir(parents=True)
    for i, domain in enumerate(DOMAINS):
        draw = np.random.default_rng(i)
        np.savez(tmp_path / "root" / "set" / f"{domain}.npz", x=draw.normal(size=(20, 8)), y=np.arange(20) % 2)
    return tmp_path / "root"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A root with set/<domain>/<class>/<n>.png, four of each, of 8 x 8 pixels."""
    for d, domain in enumerate(DOMAINS):
        for c, name in enumerate(CLASSES):
            folder = tmp_path / "root" / "set" / domain / name
            folder.mkdir(parents=True)
            for i in range(4):
                pixels = np.random.default_rng(100 * d + 10 * c + i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "root"


@pytest.fixture
def benchmark_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes mine.toml: an mlp that is trained for a moment on what the [data] table names."""

    def write(data: str = 'path = "set"', net: str = 'name = "mlp"\nhidden = [4]', protocol: str = "") -> Path:
        path = tmp_path / "mine.toml"
        training = 'steps = 2\ntrials = 1\nbatch = 4\nalgorithms = ["agg"]'
        path.write_text(f"[data]\n{data}\n[net]\n{net}\n[protocol]\n{training}\n{protocol}\n")
        return path

    return write

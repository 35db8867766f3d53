"""What every test shares: one thread, the real data where it is, and no GPU test without a GPU."""

from __future__ import annotations

import importlib.util
import inspect
import os
import random
import signal
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# Before torch and numpy are imported, as their thread pools read it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# What a terminal or a build server may ask for: the commands under test write plain text, as wide as they like.
for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
    os.environ.pop(name, None)

# Ray gives its workers a low priority, and so hardly any time where other tests keep all cores busy.
os.environ.setdefault("RAY_worker_niceness", "0")

# What is started in the background ignores Ctrl-C, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, however busy the machine is.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets that are too large, or not ours, to ship."""
    folder = Path(os.environ.get("SEQDG_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"The real data are not in {folder}: set SEQDG_DATA to the folder that holds them.")
    return folder


@pytest.fixture(scope="session")
def published_runs() -> Path:
    """docs/results, with the records of every trial."""
    folder = Path(__file__).parents[1] / "docs" / "results"
    if not list(folder.glob("*/trials.parquet")):
        pytest.skip("The records of the published runs are not here: the source archive leaves them out.")
    return folder


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """A program of scripts/, by its name, as a module."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "scripts" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def has_cuda() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A CUDA build of torch without a driver warns; the answer is still no.
        return torch.cuda.is_available()


if not has_cuda():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton: its kernels then run without a GPU


@pytest.fixture
def triton() -> ModuleType:
    """Triton, which runs kernels on a GPU, and elsewhere in its interpreter, where that runs with this NumPy."""
    module: ModuleType = pytest.importorskip("triton", reason="The kernels are Triton's, and it is not installed here.")
    if not has_cuda():
        from triton.runtime import interpreter

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older ones of NumPy warn
            try:
                int(np.zeros(1))  # NumPy refuses from 2.4 on; Triton's interpreter does it up to 3.6 at least
            except TypeError:
                if "int(self.handle.data)" in inspect.getsource(interpreter):
                    pytest.skip("This Triton's interpreter does not run with this NumPy, and there is no GPU here.")
    return module


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module of tests draws as it is imported is the same whatever was imported before."""
    seed_everything(collector.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws, and has drawn for it, is the same whatever ran before."""
    seed_everything(f"run {item.nodeid}")


def seed_everything(name: str) -> None:
    seed = zlib.crc32(name.encode())
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not has_cuda():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="This test needs a CUDA device, and there is none here."))


@pytest.fixture(scope="session")
def hospitals() -> tuple[Any, Any, Any]:
    """A table like those that people have: X (odd scales, text, missing values), y (text), domains (text)."""
    import pandas as pd

    draw = np.random.default_rng(0)
    rows = 240
    site, ill = draw.integers(0, 4, rows), draw.integers(0, 2, rows)
    frame = pd.DataFrame(
        {
            "age": 50.0 + 12 * draw.standard_normal(rows) + 6 * ill,
            "pressure": 120 + 15 * draw.standard_normal(rows) + 4 * site,
            "taken": 1.6e9 + 1e5 * (draw.standard_normal(rows) + ill),
            "smoker": np.array(["no", "yes", "never"], dtype=object)[(ill + draw.integers(0, 2, rows)) % 3],
            "visits": draw.poisson(2 + 2 * ill),
        }
    )
    frame.loc[draw.random(rows) < 0.1, "age"] = np.nan
    frame.loc[draw.random(rows) < 0.1, "smoker"] = None
    return frame, np.array(["healthy", "ill"])[ill], np.array(["north", "east", "south", "west"])[site]


@pytest.fixture(scope="session")
def fitted(hospitals: tuple[Any, Any, Any]) -> Any:
    """An estimator trained on them; not to be changed."""
    import seqdg

    x, y, domains = hospitals
    return seqdg.DomainClassifier("fo-s-mldg", steps=60, hidden=(16, 8)).fit(x, y, domains=domains)


MISTAKEN = '''
from dataclasses import dataclass
from seqdg import Algorithm, register


@register("mistaken")
@dataclass(frozen=True)
class Mistaken(Algorithm):
    """Cannot be computed."""

    def gradient(self, net, params, episode):
        raise ArithmeticError("two and two is five")
'''


@pytest.fixture(scope="session")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """By its file and name, an algorithm all of whose trials fail; one file, as a process registers a name once."""
    file = tmp_path_factory.mktemp("algorithms") / "mistaken.py"
    file.write_text(MISTAKEN)
    return f"{file}:mistaken"

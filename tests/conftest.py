"""What every test shares: one thread, the real data where it is, and no GPU test without a GPU."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

# Before torch and numpy are imported, as their thread pools read it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

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


def has_cuda() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A CUDA build of torch without a driver warns; the answer is still no.
        return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not has_cuda():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="This test needs a CUDA device, and there is none here."))

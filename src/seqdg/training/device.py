"""Where training runs, and where numbers come from: device, precision, memory, versions, commit."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from seqdg.base import VERSION

PACKAGE = Path(__file__).resolve().parents[1]


def set_precision(precision: str) -> None:
    """Set how precisely a GPU multiplies, and choose kernels that give the same bits every time."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


@contextmanager
def use_serving_precision(precision: str) -> Iterator[None]:
    """Multiply as networks predict that train in a precision. Those that train in bf16 predict in tf32, which a GPU
    computes several times faster than float32, and which rounds less than bf16."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if precision == "bf16":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def name_device(device: torch.device) -> str:
    """Return the name of a device for records: on devices of one name, the same stack gives the same bits.

    CPUs of one architecture round differently by the instructions that torch uses (AVX2, AVX-512, ...).
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device) if torch.cuda.is_available() else "cuda"
    return f"cpu ({platform.machine()}, {torch.backends.cpu.get_cpu_capability().lower()})"


@cache
def list_versions() -> dict[str, str]:
    """Return the versions of seqdg, torch and Python."""
    return {"seqdg": VERSION, "torch": torch.__version__, "python": platform.python_version()}


@cache
def find_commit() -> str:
    """Return the commit of the source tree that runs, where it is a git checkout, with a + where it has changes.

    The environment variable SEQDG_COMMIT goes before it, for copies of a source tree without its history.
    """
    if "SEQDG_COMMIT" in os.environ:
        return os.environ["SEQDG_COMMIT"]
    if not (PACKAGE.parent.parent / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=PACKAGE, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def name_origin(device: torch.device) -> dict[str, Any]:
    """Name where a record comes from, as its fields: the device, the versions and the commit."""
    return {"device": name_device(device), "versions": list_versions(), "commit": find_commit()}


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak, so that the next one is that of the next group alone, where the system allows it."""
    if device.type == "cuda":
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # a worker may not have used its device yet
            torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def measure_peak_memory(device: torch.device) -> int:
    """Return the peak in bytes: of the device's memory, or on a CPU of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return kilobytes if sys.platform == "darwin" else kilobytes * 1024

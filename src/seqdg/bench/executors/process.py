"""How a process that trains is set up, whichever executor it belongs to."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

import torch

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def settle() -> None:
    """One thread, so that sums run in one order in every executor."""
    torch.set_num_threads(1)
    _keep_freed_memory()


@cache
def _keep_freed_memory() -> None:
    """For the next step: giving it back to the system and asking for it again can cost as much as the arithmetic."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # glibc; others have no such knob, and need none
            mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the most it accepts
            mallopt(_TRIM_THRESHOLD, 2**30)


def cores() -> int:
    """That this process may use: of its affinity, and of its container's share of time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, round(int(quota) / int(period))))

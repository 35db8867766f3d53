"""Set up a process that trains, for every executor alike."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import torch

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def prepare_process() -> None:
    """Use one thread, so that sums run in one order in every executor."""
    torch.set_num_threads(1)
    _keep_freed_memory()


@cache
def _keep_freed_memory() -> None:
    """Keep freed memory for the next step: to return it and ask for it again can cost as much as the arithmetic."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # glibc; others have no such knob, and need none
            mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the most it accepts
            mallopt(_TRIM_THRESHOLD, 2**30)

"""Set up a process that trains, for every executor alike."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from functools import cache

import torch
from torch.func import grad, vmap

EARLY = "SEQDG_START_EARLY"  # a variable of the environment
# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def prepare_process() -> None:
    """Use one thread, so that sums run in one order in every executor."""
    torch.set_num_threads(1)
    _keep_freed_memory()


def begins_early(device: str) -> bool:
    """Say whether workers are to start before it is known what they will do, and the lengths of stacks to be learned
    from those that end first: on a GPU, where the environment says so."""
    return os.environ.get(EARLY) == "1" and torch.device(device).type == "cuda"


def warm_up(device: str) -> None:
    """Import and start what the first step of a stack needs: torch's transforms, the device and its libraries."""
    with suppress(Exception):  # a group that needs them fails in its turn, and says why
        vmap(grad(lambda w: (w @ w).sum()))(torch.ones(2, 2, 2, device=device))


def freeze_modules() -> None:
    """Leave all that is alive now out of later searches for garbage: modules are most of it. Every graph of a step that
    is recorded begins with such a search, which otherwise takes as long as many steps."""
    gc.collect()
    gc.freeze()


@cache
def _keep_freed_memory() -> None:
    """Keep freed memory for the next step: to return it and ask for it again can cost as much as the arithmetic."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:  # glibc; others have no such knob, and need none
            mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the most it accepts
            mallopt(_TRIM_THRESHOLD, 2**30)

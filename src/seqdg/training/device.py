"""Which device to train on, and how precisely it multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seqdg.base import UsageError


def choose_device(wanted: str) -> str:
    """Choose the device to train on; `auto` is a GPU where there is one."""
    kind, colon, number = wanted.partition(":")
    if wanted != "auto" and (kind not in ("cpu", "cuda") or (colon and not number.isdigit())):
        raise UsageError(f"There is no device '{wanted}'. Choose auto, cpu, cuda or cuda:NUMBER.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return "cuda" if count else "cpu"
    if kind == "cuda" and not count:
        raise UsageError("There is no CUDA device here. Use --device cpu, or auto.")
    if kind == "cuda" and number and int(number) >= count:
        raise UsageError(f"There is no device '{wanted}': the last of the {count} CUDA devices is cuda:{count - 1}.")
    return kind if kind == "cpu" else wanted


def set_precision(precision: str) -> None:
    """Set how precisely a GPU multiplies, and choose kernels that give the same bits every time."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


@contextmanager
def use_serving_precision(precision: str) -> Iterator[None]:
    """Multiply as nets predict that train in a precision. Those that train in bf16 predict in tf32, which a GPU
    computes several times faster than float32, and which rounds less than bf16."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if precision == "bf16":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before

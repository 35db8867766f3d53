"""Which device to train on."""

from __future__ import annotations

import torch

from seqdg.base.errors import UsageError


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

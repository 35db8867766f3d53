"""Move rows of a data set to a device: all at once where they fit, or batch by batch from the memory map.

Both give the same values for the same row numbers. One background thread gathers the next batches while the device
computes with the last; for a GPU they go through pinned memory on a stream of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

AHEAD = 3  # batches gathered before they are asked for
SPARE = 0.5  # of the device's free memory: left to the net and its gradients


def gather_rows(x: Any, rows: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Return `x[rows]` on the device, of a tensor or a memory map. `rows` may have any shape; it comes first in the
    result."""
    return _upload(_gather(x, rows, torch.device(device)), torch.device(device))


def fits_on(x: Any, device: torch.device | str) -> bool:
    """Say whether all of x may stay on the device. On a CPU a memory map is best left where it is."""
    device = torch.device(device)
    if device.type != "cuda":
        return isinstance(x, Tensor)
    free, _ = torch.cuda.mem_get_info(device)
    return count_bytes(x) <= SPARE * free


def move_to_device(x: Any, device: torch.device | str, block: int = 1024) -> Tensor:
    """Copy all of x to the device, in blocks, so that main memory never holds it twice."""
    if isinstance(x, Tensor):
        return x.to(device)
    whole = torch.empty(tuple(x.shape), dtype=_find_dtype(x), device=device)
    for start in range(0, len(x), block):
        whole[start : start + block].copy_(torch.from_numpy(np.array(x[start : start + block])))
    return whole


def prefetch(
    x: Any, batches: Iterable[Tensor], device: torch.device | str = "cpu", ahead: int = AHEAD
) -> Iterator[Tensor]:
    """`gather_rows(x, rows, device)` for each batch, prepared before it is asked for.

    Row numbers are taken from `batches` in the caller's thread and in order, so random draws behind them stay the same.
    """
    device = torch.device(device)
    copies: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    waiting: deque[Future[tuple[Tensor, Any]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="seqdg-prefetch") as pool:
        for rows in batches:
            waiting.append(pool.submit(_gather_and_upload, x, rows, device, copies))
            if len(waiting) > ahead:
                yield _hand_over(*waiting.popleft().result())
        while waiting:
            yield _hand_over(*waiting.popleft().result())


def _gather_and_upload(x: Any, rows: Tensor, device: torch.device, copies: Any) -> tuple[Tensor, Any]:
    batch = _gather(x, rows, device)
    if copies is None:
        return _upload(batch, device), None
    with torch.cuda.stream(copies):
        return _upload(batch, device), copies.record_event()


def _hand_over(batch: Tensor, copied: Any) -> Tensor:
    """Make the consumer's stream wait for the copy, and keep the memory while that stream reads it."""
    if copied is not None:
        current = torch.cuda.current_stream(batch.device)
        current.wait_event(copied)
        batch.record_stream(current)
    return batch


def _gather(x: Any, rows: Tensor, device: torch.device) -> Tensor:
    """Gather on x's own device if it is a tensor, otherwise in (pinned) main memory."""
    pinned = device.type == "cuda"
    if isinstance(x, Tensor):
        batch = x.index_select(0, rows.reshape(-1).to(x.device)).reshape(*rows.shape, *x.shape[1:])
        return batch.pin_memory() if pinned and x.device.type == "cpu" else batch
    numbers = rows.cpu().numpy()
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < len(x)):
        raise IndexError(f"Rows {numbers.min()} to {numbers.max()} are not all among the {len(x)} of the data set.")
    batch = torch.empty((*numbers.shape, *x.shape[1:]), dtype=_find_dtype(x), pin_memory=pinned)
    np.take(x, numbers, axis=0, out=batch.numpy(), mode="clip")  # "raise" would go through a buffer
    return batch


def _upload(batch: Tensor, device: torch.device) -> Tensor:
    return batch.to(device, non_blocking=device.type == "cuda" and batch.is_pinned())


def _find_dtype(x: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, x.dtype)).dtype


def count_bytes(x: Any) -> int:
    """Count the bytes of a tensor or a memory map."""
    return int(x.numel() * x.element_size()) if isinstance(x, Tensor) else int(x.nbytes)

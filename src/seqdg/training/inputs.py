"""Rows of a data set as a net's inputs, on its device: all of them where they fit, or batch by batch.

Both give the same values for the same row numbers. One background thread gathers the next batches while the device
computes with the last; for a GPU they go through pinned memory on a stream of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqdg.base import GROUP, TARGET, VIEW, fold
from seqdg.data import ImageTransform, Scaling, scale_to_unit

SECOND_VIEW, OF_TARGET = 1, 2  # set their augmentation apart from that of the minibatches
AHEAD = 3  # batches gathered before they are asked for
SPARE = 0.5  # of the device's free memory: left to the net and its gradients


class Groups(NamedTuple):
    """The group of each row, where the data have groups beside their domains."""

    number: Tensor  # (trial, row) from 0, or (row,) of a whole data set
    total: int  # of groups in the whole data set


class TargetScale(NamedTuple):
    """Where the targets lie in each trial: mean and deviation over its own sources, (trial,) float64."""

    mean: Tensor
    deviation: Tensor

    def standardize(self, y: Tensor) -> Tensor:
        """Bring numbers (trial, ...) in the user's units to mean 0 and deviation 1."""
        return (y - _align(self.mean, y)) / _align(self.deviation, y)

    def restore(self, outputs: Tensor) -> Tensor:
        """Return what networks say, (trial, ...), in the user's units."""
        return outputs.double() * _align(self.deviation, outputs) + _align(self.mean, outputs)


def learn_target_scale(y: Tensor) -> tuple[float, float]:
    """Return mean and deviation of numbers (row,); the deviation is 1 where they never vary."""
    y = y.double()
    size = float(y.abs().max()) or 1.0  # so that squares of huge numbers are finite
    mean, deviation = float((y / size).mean()) * size, float((y / size).std(correction=0)) * size
    return mean, deviation if deviation > 1e-12 * size else 1.0


def _align(values: Tensor, like: Tensor) -> Tensor:
    """Return values (trial,) with as many axes as another tensor (trial, ...) has."""
    return values.reshape(-1, *(1,) * (like.dim() - 1))


class Inputs:
    """All rows: a tensor that is on the device, or anything that rows are read from as they are needed.

    scaling: constants of every trial of a stack, (trial, input), for rows whose numbers are not scaled yet.
    first_row: (trial,) where the rows of each trial begin, if x holds several versions of them one after the other.
    groups: of all rows, where the data have them.
    target: of every trial, for regression; training sees them standardized.
    weight: (row,) how much each row counts, in every metric and in training, which then sees targets (..., 2): y and
        the weight.
    prepared: all rows as they enter the net, on the device, as `prepare_rows` makes them; None: they are made from the
        stored ones whenever they are needed.
    """

    def __init__(
        self,
        x: Any,
        y: Tensor,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        transform: ImageTransform | None = None,
        scaling: Scaling | None = None,
        first_row: Tensor | None = None,
        groups: Groups | None = None,
        target: TargetScale | None = None,
        weight: Tensor | None = None,
    ) -> None:
        self.device, self.dtype, self.transform = device, dtype, transform
        self._scaling = None if scaling is None else Scaling(*(c.to(device, dtype) for c in scaling))
        self._first_row = None if first_row is None else first_row.to(device)
        self.y = y.to(device)
        self.target = None if target is None else TargetScale(*(c.to(device) for c in target))
        self._weight = None if weight is None else weight.to(device, dtype)
        self._groups = None if groups is None else groups._replace(number=groups.number.to(device))
        self._x = x.to(device, dtype if x.is_floating_point() else None) if isinstance(x, Tensor) else x
        self.prepared: Tensor | None = None

    @property
    def size(self) -> int:
        """Numbers in one stored row."""
        return int(prod(self._x.shape[1:]))

    def load_steps(self, rows: Tensor, key: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield x (*rows, *input) and y (*rows), or (*rows, 2) with weights, of every step.

        rows: (step, trial, domain, batch).   key: (step, trial).
        """
        if self.is_resident or self.prepared is not None:
            yield from (self.load_step(r, k) for r, k in zip(rows, key, strict=True))
            return
        for x, r, k in zip(prefetch(self._x, iter(rows.cpu()), self.device), rows, key, strict=True):
            yield self._augment(self._convert(x), k), self._gather_targets(r)

    def load_extras(self, uses: Sequence[str], data: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what an algorithm uses of a step beside its minibatches: another view of the same rows, rows of the
        held-out domain without their labels, the group of each row.

        data: rows (trial, domain, batch), target (trial, batch) and key (trial,) of the step.
        """
        extras = {}
        if VIEW in uses:
            extras[VIEW], _ = self.load_step(data["rows"], fold(data["key"], SECOND_VIEW))
        if TARGET in uses:
            extras[TARGET], _ = self.load_step(data[TARGET], fold(data["key"], OF_TARGET))
        if GROUP in uses:
            assert self._groups is not None  # as is checked before training
            extras[GROUP] = _take(self._groups.number, data["rows"])
        return extras

    def load_step(self, rows: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y of one step of data that are on the device; nothing in it waits for the host."""
        if self.prepared is None:
            return self._augment(self._gather(rows), key), self._gather_targets(rows)
        x = _take(self.prepared, rows)
        return to_channels_last(x.squeeze(0)).unsqueeze(0) if len(x) == 1 else x, self._gather_targets(rows)

    @property
    def is_resident(self) -> bool:
        """Whether all rows are on the device."""
        return isinstance(self._x, Tensor)

    def serve(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y of rows, for evaluation: targets in the user's units."""
        x = self._serve(rows) if self.prepared is None else _take(self.prepared, rows)
        return to_channels_last(x) if len(x) == 1 else x, _take(self.y, rows)

    def prepare_rows(self, together: int = 2**23) -> Tensor:
        """Return all rows as they enter the net. together: how many stored numbers are worked on at once."""
        block, count = max(1, together // self.size), len(self._x)
        shape = self._serve(torch.arange(min(1, count), device=self.device)).shape[1:]
        whole = torch.empty((count, *shape), dtype=self.dtype, device=self.device)
        for start in range(0, count, block):
            part = whole[start : start + block]
            part.copy_(self._serve(torch.arange(start, start + len(part), device=self.device)))
        return whole

    def _serve(self, rows: Tensor) -> Tensor:
        x = self._gather(rows)
        return x if self.transform is None else self.transform.serve(self._widen(x))

    def find_groups(self, rows: Tensor) -> Groups | None:
        """Return the groups of rows, where the data have them."""
        if self._groups is None:
            return None
        return self._groups._replace(number=_take(self._groups.number, rows.to(self.device)))

    def find_weights(self, rows: Tensor) -> Tensor | None:
        """Return how much rows count, where they do not count the same."""
        return None if self._weight is None else _take(self._weight, rows.to(self.device))

    def _augment(self, x: Tensor, key: Tensor) -> Tensor:
        if self.transform is None:
            return x
        if len(x) == 1:
            return to_channels_last(self.transform.train(self._widen(x).squeeze(0), key.squeeze(0))).unsqueeze(0)
        return torch.func.vmap(self.transform.train)(self._widen(x), key)

    def restore(self, outputs: Tensor) -> Tensor:
        """Return what networks say, (trial, row, output), as evaluation reads it: numbers in the user's units."""
        return outputs if self.target is None else self.target.restore(outputs)

    def _gather_targets(self, rows: Tensor) -> Tensor:
        """Return what training sees of labels or numbers."""
        y = _take(self.y, rows)
        y = y if self.target is None else self.target.standardize(y).to(self.dtype)
        weight = self.find_weights(rows)
        return y if weight is None else torch.stack([y.to(self.dtype), weight], -1)

    def _gather(self, rows: Tensor) -> Tensor:
        if not isinstance(self._x, Tensor):
            return self._convert(gather_rows(self._x, rows.cpu(), self.device))
        if self._first_row is not None:
            rows = rows + _align(self._first_row, rows)
        x = _take(self._x, rows)
        return x if self._scaling is None else self._scaling(x)

    def _widen(self, x: Tensor) -> Tensor:
        """Convert images to the net's precision before they are changed, where that is more than float32."""
        return scale_to_unit(x, self.dtype).to(self.dtype) if self.dtype == torch.float64 else x

    def _convert(self, x: Tensor) -> Tensor:
        return x.to(self.dtype) if x.is_floating_point() else x


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x[rows]`, for rows of any shape. `torch.func.vmap` has no rule for `x[rows]` itself."""
    return x.index_select(0, rows.flatten()).reshape(*rows.shape, *x.shape[1:])


def to_channels_last(x: Tensor) -> Tensor:
    """Return images, or the weights of a convolution, of 5 axes, in the order in which convolutions are fastest."""
    if x.dim() != 5:
        return x
    return x.flatten(0, 1).contiguous(memory_format=torch.channels_last).view(x.shape)


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
    return bool(x.nbytes <= SPARE * free)


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
        batch = _take(x, rows.to(x.device))
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

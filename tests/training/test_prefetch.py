"""Batches that come by streaming are those that indexing gives."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from seqdg.training.inputs import fits_on, gather_rows, move_to_device, prefetch


@pytest.fixture(params=["uint8 map", "float32 map", "tensor"])
def x(request, tmp_path):
    draws = np.random.default_rng(0)
    if request.param == "uint8 map":
        values = draws.integers(0, 256, (50, 3, 5, 5), dtype=np.uint8)
    else:
        values = draws.normal(size=(50, 7)).astype(np.float32)
    if request.param == "tensor":
        return torch.from_numpy(values)
    np.save(tmp_path / "x.npy", values)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def whole(x):
    return x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))


def batches(n=20, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(50, (3, 4), generator=generator) for _ in range(n)]


def test_gathered_rows_are_the_indexed_ones(x):
    for rows in (torch.tensor([4, 0, 49, 4]), torch.tensor([[1, 2], [3, 4]]), torch.empty(0, dtype=torch.int64)):
        got = gather_rows(x, rows)
        assert got.dtype == whole(x).dtype
        assert torch.equal(got, whole(x)[rows])


def test_prefetched_batches_are_the_indexed_ones_in_order(x):
    wanted = batches()
    got = list(prefetch(x, wanted))
    assert len(got) == len(wanted)
    for batch, rows in zip(got, wanted, strict=True):
        assert torch.equal(batch, whole(x)[rows])


def test_rows_are_drawn_in_the_callers_thread_so_a_random_stream_is_used_as_without_prefetching(x):
    generator = torch.Generator().manual_seed(3)
    threads = set()

    def drawn():
        for _ in range(20):
            threads.add(threading.get_ident())
            yield torch.randint(50, (3, 4), generator=generator)

    for batch, rows in zip(prefetch(x, drawn()), batches(), strict=True):
        assert torch.equal(batch, whole(x)[rows])
    assert threads == {threading.get_ident()}


def test_no_more_rows_are_drawn_than_are_worked_on_ahead(x):
    drawn = []

    def endless():
        while True:
            drawn.append(len(drawn))
            yield torch.tensor([0, 1])

    stream = prefetch(x, endless(), ahead=2)
    next(stream)
    assert len(drawn) == 3
    stream.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("seqdg-prefetch")]


def test_a_row_that_is_not_there_is_an_error_and_not_another_row(x):
    for rows in (torch.tensor([50]), torch.tensor([-1])):
        with pytest.raises(IndexError):
            gather_rows(x, rows)
        with pytest.raises(IndexError):
            list(prefetch(x, [rows]))


def test_all_rows_can_be_made_resident(x):
    assert torch.equal(move_to_device(x, "cpu", block=7), whole(x))
    assert fits_on(x, "cpu") == isinstance(x, torch.Tensor)


@pytest.mark.gpu
def test_a_gpu_gets_the_same_rows_however_they_come(x):
    device = torch.device("cuda")
    assert fits_on(x, device)
    there = move_to_device(x, device)
    for batch, rows in zip(prefetch(x, batches(200), device), batches(200), strict=True):
        assert batch.device.type == "cuda"
        assert torch.equal(batch.cpu(), whole(x)[rows])
        assert torch.equal(batch, gather_rows(there, rows.to(device), device))
        assert torch.equal(batch, gather_rows(x, rows, device))

"""What enters the net is the same whether the data set is resident or streamed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqdg.base import noise as draw
from seqdg.data import Dataset
from seqdg.training import Inputs, move_to_device


class Noise:
    """Adds numbers drawn from the key of the step."""

    def train(self, x, key):
        return x.float() + draw.uniform(key, x.shape)

    def serve(self, x):
        return x.float() / 255


@pytest.fixture
def dataset(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (40, 3, 4, 4), dtype=np.uint8)
    np.save(tmp_path / "x.npy", values)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    y, domain = torch.arange(40) % 5, torch.arange(40) // 20
    return Dataset("noise", ("a", "b"), tuple("01234"), x, y, domain, "-")


def drawn(trials):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(40, (9, trials, 2, 3), generator=generator)  # (step, trial, domain, batch)
    return rows, torch.randint(2**40, (9, trials), generator=generator)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("trials", [1, 2])
def test_every_step_is_the_same_resident_and_streamed(dataset, device, trials):
    there = torch.device(device)
    rows, key = (values.to(there) for values in drawn(trials))
    ways = [Inputs(x, dataset.y, there, transform=Noise()) for x in (move_to_device(dataset.x, there), dataset.x)]
    steps = list(zip(*(way.load_steps(rows, key) for way in ways), strict=True))
    assert len(steps) == 9
    for i, ((x, y), (x2, y2)) in enumerate(steps):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
        assert torch.equal(y.cpu(), dataset.y[rows[i].cpu()])
        floor = torch.from_numpy(dataset.x[rows[i].cpu().numpy()]).float()
        assert ((x.cpu() >= floor) & (x.cpu() < floor + 1)).all()


def test_evaluation_rows_are_the_same_resident_and_streamed(dataset):
    cpu = torch.device("cpu")
    rows = torch.arange(40).reshape(2, 20)
    ways = [
        Inputs(x, dataset.y, cpu, transform=Noise()).serve(rows) for x in (move_to_device(dataset.x, cpu), dataset.x)
    ]
    assert torch.equal(ways[0][0], ways[1][0])
    assert torch.equal(ways[0][0][1, 3], torch.from_numpy(dataset.x[23] / np.float32(255)))

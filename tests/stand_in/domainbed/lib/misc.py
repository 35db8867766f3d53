"""What its scripts and classes share."""

from __future__ import annotations

import hashlib
import sys

import torch


def seed_hash(*args):
    return int(hashlib.md5(str(args).encode()).hexdigest(), 16) % (2**31)


class MovingAverage:
    """Remembers dictionaries of tensors outside of any module."""

    def __init__(self, ema):
        self.ema, self.ema_data, self._updates = ema, {}, 0

    def update(self, values):
        old = self.ema_data or values
        self.ema_data = {k: (self.ema * old[k] + (1 - self.ema) * v).detach() for k, v in values.items()}
        self._updates += 1
        return self.ema_data


def split_dataset(dataset, n, seed=0):
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()
    return torch.utils.data.Subset(dataset, order[:n]), torch.utils.data.Subset(dataset, order[n:])


def accuracy(network, loader, weights, device):
    network.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            right += network.predict(x.to(device)).argmax(1).eq(y.to(device)).sum().item()
            total += len(y)
    network.train()
    return right / total


class Tee:
    def __init__(self, fname, mode="a"):
        self.stdout, self.file = sys.stdout, open(fname, mode)  # noqa: PTH123, SIM115

    def write(self, message):
        self.stdout.write(message)
        self.file.write(message)
        self.flush()

    def flush(self):
        self.stdout.flush()
        self.file.flush()

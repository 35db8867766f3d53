"""How much slower a step is when its images come from the memory map instead of the device's memory.

    python benchmarks/speed/streaming.py [--images 9991] [--side 227] [--steps 60]

ResNet-18, three domains of 32 images, plain SGD. Prints each way's time per step and its ratio to `resident`, measured
in one run, the ways taking turns. The images are noise: it is their size that counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from seqdg.nets import resnet18
from seqdg.training.inputs import gather_rows, move_to_device, prefetch


def write_noise(path: Path, images: int, side: int) -> np.ndarray:
    mapped = np.lib.format.open_memmap(path, "w+", np.uint8, (images, 3, side, side))
    for start in range(0, images, 512):
        block = mapped[start : start + 512]
        block[:] = np.random.default_rng(start).integers(0, 256, block.shape, dtype=np.uint8)
    mapped.flush()
    return np.load(path, mmap_mode="r")


def measure_step(net: nn.Module, batches: Iterator[Tensor], device: torch.device) -> float:
    optimizer, y = torch.optim.SGD(net.parameters(), lr=1e-3), torch.arange(96, device=device) % 7
    began, steps = time.perf_counter(), 0
    for x in batches:
        loss = nn.functional.cross_entropy(net(x.float().div_(255).contiguous(memory_format=torch.channels_last)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("images", 9991), ("side", 227), ("steps", 60), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    net = resnet18(7).to(device, memory_format=torch.channels_last)
    with tempfile.TemporaryDirectory() as folder:
        x = write_noise(Path(folder) / "x.npy", args.images, args.side)
        there = move_to_device(x, device)
        draws = torch.Generator().manual_seed(0)
        times: dict[str, list[float]] = {}
        for _ in range(args.rounds + 1):
            rows = [torch.randint(args.images, (96,), generator=draws) for _ in range(args.steps)]
            ways = {
                "resident": (gather_rows(there, r, device) for r in rows),
                "streamed": prefetch(x, rows, device),
                "not ahead": (gather_rows(x, r, device) for r in rows),
            }
            for name, batches in ways.items():
                times.setdefault(name, []).append(measure_step(net, batches, device))
    base = median(times["resident"][1:])  # the first round warms up
    for name, values in times.items():
        took = median(values[1:])
        print(f"{name:10} {1e3 * took:8.2f} ms per step  {took / base:5.2f} x resident")


if __name__ == "__main__":
    main()

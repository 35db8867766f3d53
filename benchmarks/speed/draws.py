"""How long the host is busy with drawing what a step sees, for stacks of many trials.

    python benchmarks/speed/draws.py
    python benchmarks/speed/draws.py --device cuda

Paths, minibatches and keys of many steps are drawn at once, as in a training. On a GPU the host only starts kernels;
the time with the GPU's work is shown beside. Rows are those of a data set like PACS, three sources and 32 rows of each,
every trial with a split of its own; in the last line 6 of 35 sources.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from seqdg.training import Sampler

STEPS = 192


def make_sampler(trials: int, sources: int, domains: int, device: str) -> Sampler:
    """Every trial has rows of its own: of 9,991 in all, seven tenths."""
    generator = torch.Generator().manual_seed(0)
    size = 6993 // sources
    rows = [
        [9991 // sources * s + torch.randperm(9991 // sources, generator=generator)[:size] for s in range(sources)]
        for _ in range(trials)
    ]
    return Sampler(range(trials), rows, 32, domains, device)


def measure(draw: Callable[[], object], device: str, repeats: int = 7) -> tuple[float, float]:
    """Return the milliseconds of the host, and of host and device, per step."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        draw()
        started = time.perf_counter()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append((started - began, time.perf_counter() - began))
    host, whole = (median(t) for t in zip(*times[1:], strict=True))
    return host / STEPS * 1e3, whole / STEPS * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {device}; milliseconds per step")
    for trials, sources, domains in ((1, 3, 3), (80, 3, 3), (240, 3, 3), (80, 35, 6)):
        sampler = make_sampler(trials, sources, domains, device)
        host, whole = measure(lambda sampler=sampler: sampler.draw(0, STEPS), device)  # type: ignore[misc]
        busy = "" if device == "cpu" else f", with the GPU's work {whole:.4f}"
        print(f"{trials:4} trials, {domains} of {sources} sources: host {host:.4f}{busy}")


if __name__ == "__main__":
    main()

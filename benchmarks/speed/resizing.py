"""How much sooner a run ends that resizes its images once, before training, instead of at every step.

    python benchmarks/speed/resizing.py [--stored 64] [--size 16] [--images 2000] [--steps 500] [--evaluations 10]

An mlp, three domains of 32 images; with --map the stored images are a memory map, as those of a folder are on a CPU.
Prints the seconds of whole runs, resizing included, the ways taking turns, and their ratio. Both must end with the same
weights, to the bit. The images are noise: it is their size that counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqdg.base import Params, prepare_process
from seqdg.bench import Group, RowsInMemory, Task, Trial, build_stack
from seqdg.bench import task as bench_task
from seqdg.core import build, format_settings
from seqdg.data import Dataset
from seqdg.nets import NetSpec
from seqdg.training import Protocol
from seqdg.training.trainer import evaluate_stack

NET = NetSpec("mlp", (64, 32))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=int, default=64, help="side of the stored images")
    parser.add_argument("--size", type=int, default=16, help="side of those that enter the net")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--evaluations", type=int, default=10)
    parser.add_argument("--trials", type=int, default=1, help="stacked")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--map", action="store_true", help="store the images in a file")
    return parser.parse_args()


def make_images(options: argparse.Namespace, folder: Path) -> Any:
    shape = options.images, 3, options.stored, options.stored
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    if not options.map:
        return torch.from_numpy(x)
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def run(x: Any, options: argparse.Namespace) -> tuple[float, Params]:
    """Return the seconds of a run on a data set of its own, for which nothing is resized yet, and its weights."""
    index = torch.arange(len(x))
    dataset = Dataset("noise", tuple("abcd"), tuple("0123456"), x, index % 7, index % 4, "noise")
    protocol = Protocol(steps=options.steps, batch=32, lr=1e-3, precision="float32")
    task = Task("noise", RowsInMemory(dataset), NET, "none", protocol, options.size)
    settings = tuple(sorted(format_settings(build("agg")).items()))
    trials = tuple(
        Trial("noise", NET, "none", None, "agg", settings, protocol, ("a",), seed, 3, options.size)
        for seed in range(options.trials)
    )
    began = time.perf_counter()
    stack = build_stack(Group(trials), task, torch.device("cpu"))
    state = stack.start()
    for i in range(options.evaluations):
        state = stack.advance(state, options.steps * (i + 1) // options.evaluations)
        evaluate_stack(stack, state, stack.deploy(state))
    return time.perf_counter() - began, state.params


def is_same(one: Params, other: Params) -> bool:
    pairs: list[tuple[Tensor, Tensor]] = [(w, other[name]) for name, w in one.items()]
    return all(torch.equal(a, b) for a, b in pairs)


def main() -> None:
    options = parse_options()
    prepare_process()
    kept = "a memory map" if options.map else "memory"
    print(f"{options.images} images of {options.stored} pixels in {kept}, resized to {options.size}; {options.trials} "
          f"trials, {options.steps} steps, {options.evaluations} evaluations; torch {torch.__version__}")  # fmt: skip
    limits = {"at every step": 0, "once": bench_task.READY}  # numbers that may be kept
    times: dict[str, list[float]] = {way: [] for way in limits}
    weights: dict[str, Params] = {}
    with tempfile.TemporaryDirectory() as folder:
        x = make_images(options, Path(folder))
        run(x, argparse.Namespace(**{**vars(options), "steps": options.evaluations}))  # warms up
        for _ in range(options.repeats):
            for way, bench_task.READY in limits.items():
                seconds, weights[way] = run(x, options)
                times[way].append(seconds)
    assert is_same(*weights.values()), "the weights differ"
    first, last = (median(times[way]) for way in limits)
    for way in limits:
        print(f"  {way:14} {median(times[way]):7.2f} s")
    print(f"  {first / last:.2f} times as fast, the same weights")


if __name__ == "__main__":
    main()

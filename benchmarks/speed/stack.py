"""How many times faster a stack of trials trains than the same trials one by one.

    python benchmarks/speed/stack.py [--trials 30] [--steps 50] [--algorithm agg]

Both train the net of the bundled benchmark from the same seeds in this process, with all cores, in float32; the
ratio is of times measured in one run, the two taking turns.
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

import torch

from seqdg.benchmark import Choice, load_benchmark, plan
from seqdg.data.rotated_mnist import load
from seqdg.place import Place, stack_of
from seqdg.trial import Group


def seconds(groups: list[Group], place: Place, steps: int) -> float:
    stacks = [stack_of(group, place) for group in groups]
    began = time.perf_counter()
    for stack in stacks:
        stack.advance(stack.start(), steps)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--algorithms", default="agg,fo-s-mldg,ffo-s-mldg")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dataset = load()
    place = Place(dataset, torch.device("cpu"))
    per_domain = -(-options.trials // len(dataset.domains))
    print(f"{options.trials} trials of {options.steps} steps, {options.threads} threads, torch {torch.__version__}")
    for name in options.algorithms.split(","):
        choice = Choice(algorithms=[name], trials=per_domain, steps=options.steps)
        trials = plan(load_benchmark("rotated-mnist"), dataset, choice)[: options.trials]
        together, apart = [Group(trials)], [Group((trial,)) for trial in trials]
        times = [(seconds(apart, place, options.steps), seconds(together, place, options.steps))
                 for _ in range(options.repeats)]  # fmt: skip
        ratio = median(one / all_ for one, all_ in times)
        print(f"{name}: one by one {times[-1][0]:.2f} s, stacked {times[-1][1]:.2f} s: {ratio:.1f} times faster")


if __name__ == "__main__":
    main()

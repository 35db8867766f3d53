"""How many times faster a stack of trials trains than the same trials one by one.

    python benchmarks/speed/stack.py                                               (the net of the bundled benchmark)
    python benchmarks/speed/stack.py --device cuda --hidden 1024,128 --inputs 4096 --trials 20    (that of VLCS)

All train from the same seeds in this process; on a CPU with all cores. On a GPU the trials are taken one by one both
kernel by kernel and each as a CUDA graph of its own. The ratio is of times measured in one run, taking turns.
"""

from __future__ import annotations

import argparse
import os
import time
from argparse import Namespace
from statistics import median

import steps
import torch

from seqdg.bench import Group, Request, Task, Trial, build_stack, load_benchmark

FIRST = 8  # steps before the clock starts: recording a graph is not part of a step


class Way:
    """To train all trials, in one stack or several."""

    def __init__(
        self, name: str, groups: list[tuple[Trial, ...]], task: Task, device: str, eager: bool = False
    ) -> None:
        self.name = name
        self.device = torch.device(device)
        self.stacks = [build_stack(Group(trials), task, self.device) for trials in groups]
        for stack in self.stacks:
            stack.captures &= not eager
        self.states = [stack.advance(stack.start(), FIRST) for stack in self.stacks]

    def measure_milliseconds(self, count: int) -> float:
        """A step of all trials."""
        began = time.perf_counter()
        self.states = [
            stack.advance(state, state.step + count) for stack, state in zip(self.stacks, self.states, strict=True)
        ]
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / count * 1e3


def list_ways(trials: tuple[Trial, ...], task: Task, device: str) -> list[Way]:
    """The last one is the stack."""
    apart = [(trial,) for trial in trials]
    alone = [Way("one by one", apart, task, device, eager=True)]
    if torch.device(device).type == "cuda":
        alone.append(Way("one by one, each a graph", apart, task, device))
    return [*alone, Way("stacked", [trials], task, device)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--algorithms", default="agg,fo-s-mldg,ffo-s-mldg")
    parser.add_argument("--hidden", default="", help="of a net on random inputs, in place of the bundled benchmark")
    parser.add_argument("--inputs", type=int, default=4096, help="of that net")
    parser.add_argument("--precision", default="tf32", help="of that net")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    made = Namespace(**vars(options), net="mlp", policy="none", domains=3, batch=32, size=0, augment="")
    benchmark = load_benchmark("rotated-mnist")
    task = steps.make_task(made) if options.hidden else benchmark.make_task()
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{options.threads} CPU threads"
    print(f"{options.trials} trials, a step of all; {where}, torch {torch.__version__}", flush=True)
    for name in options.algorithms.split(","):
        if options.hidden:
            trials = steps.make_trials(name, made)
        else:
            seeds = -(-options.trials // len(task.dataset().domains))
            request = Request(algorithms=[name], trials=seeds, steps=10_000)
            trials = benchmark.plan(task, request).trials[: options.trials]
        all_ways = list_ways(trials, task, options.device)
        rounds = [[way.measure_milliseconds(options.steps) for way in all_ways] for _ in range(options.repeats)]
        columns = list(zip(*rounds, strict=True))
        print(f"  {name}")
        for way, times in zip(all_ways, columns, strict=True):
            ratio = median(own / stacked for own, stacked in zip(times, columns[-1], strict=True))
            print(f"    {way.name:26} {median(times):8.2f} ms  {ratio:5.1f} x", flush=True)


if __name__ == "__main__":
    main()

"""Ways to train many trials on a CPU: one stack, one trial after the other, or a process of one thread for each core.

    python benchmarks/speed/cpu.py --data DIR [--benchmark office-caltech10] [--trials 5] [--steps 20] [--repeats 3]

All train the same trials of the benchmark's first algorithms. `seqdg bench` takes the packing that it would take for
these data, in one process of one thread for each core. Times are of training alone; that of several processes is the
longest of theirs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from seqdg.base import prepare_process
from seqdg.bench import STACK, Request, Task, build_stack, load_benchmark
from seqdg.bench.planning import count_together
from seqdg.bench.task import Group, group_trials


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--benchmark", default="office-caltech10")
    parser.add_argument("--algorithms", default="agg,fo-s-mldg,undo-bias")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3, help="of all ways in turn; the shortest time of each counts")
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)  # packing, threads, part, parts
    return parser.parse_args()


def measure_seconds(options: argparse.Namespace) -> float:
    """Of one process of one way."""
    packing, threads, part, parts = options.way.split(",")
    prepare_process()
    torch.set_num_threads(int(threads))
    benchmark = load_benchmark(options.benchmark)
    task = benchmark.make_task(options.data)
    total = 0.0
    for name in options.algorithms.split(","):
        plan = benchmark.plan(task, Request(algorithms=[name], trials=options.trials))
        size = {"stack": len(plan.trials), "alone": 1}.get(packing)
        size = size or count_together(plan.parameters, task.dataset(), "cpu")
        groups = group_trials(plan.trials, size, lambda trial: STACK.share(trial, task))
        total += sum(train(group, task, options.steps) for group in groups[int(part) :: int(parts)])
    return total


def train(group: Group, task: Task, steps: int) -> float:
    stack = build_stack(group, task, torch.device("cpu"))
    state = stack.advance(stack.start(), 1)
    began = time.perf_counter()
    stack.advance(state, 1 + steps)
    return time.perf_counter() - began


def measure_longest(options: argparse.Namespace, packing: str, threads: int, parts: int) -> float:
    """Of so many processes at once."""
    words = [sys.executable, __file__, "--benchmark", options.benchmark, "--algorithms", options.algorithms]
    words += ["--trials", str(options.trials), "--steps", str(options.steps)]
    words += ["--data", str(options.data)] if options.data else []
    started = [
        subprocess.Popen([*words, "--way", f"{packing},{threads},{i},{parts}"], stdout=subprocess.PIPE, text=True)
        for i in range(parts)
    ]
    return max(float(process.communicate()[0]) for process in started)


def main() -> None:
    options = parse_options()
    if options.way:
        print(measure_seconds(options))
        return
    cores = os.cpu_count() or 1
    ways = {
        f"one stack, {cores} threads": ("stack", cores, 1),
        f"one after the other, {cores} threads": ("alone", cores, 1),
        f"one after the other, {cores} processes of one thread": ("alone", 1, cores),
        "as `seqdg bench` packs them": ("bench", 1, cores),
    }
    print(f"{options.benchmark}, {options.algorithms}, {options.trials} trials, torch {torch.__version__}")
    rounds = [{name: measure_longest(options, *way) for name, way in ways.items()} for _ in range(options.repeats)]
    for name in ways:
        print(f"  {name:48} {min(times[name] for times in rounds):6.1f} s", flush=True)


if __name__ == "__main__":
    main()

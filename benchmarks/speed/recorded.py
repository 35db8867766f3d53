"""What a step of a stack costs on a CPU, as it is written and as it is recorded, and how many times the first one's.

    python benchmarks/speed/recorded.py
    python benchmarks/speed/recorded.py --algorithms s-mldg,mldg,crossgrad,undo-bias --steps 5

Trials of the bundled benchmark, in a stack as `seqdg bench` packs them. CPU time of one thread, all taking turns in
this process; the least of all turns, so that other work on the machine counts little. In brackets, what recording and
its check cost before, in steps. Below, matrix products alone: of the net's layers, forward and backward, on all rows at
once and on those of one source after the other.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from itertools import pairwise

import torch
from torch import Tensor

from seqdg.bench import Group, Request, build_stack, load_benchmark

NEVER = 10**9


class Way:
    """A stack in training."""

    def __init__(self, name: str, options: Namespace, recorded: bool) -> None:
        benchmark = load_benchmark("rotated-mnist")
        task = benchmark.make_task()
        seeds = -(-options.trials // len(task.dataset().domains))
        trials = benchmark.plan(task, Request(algorithms=[name], trials=seeds, steps=NEVER)).trials[: options.trials]
        self.stack = build_stack(Group(trials), task, torch.device("cpu"))
        self.stack.recorded_from = 1 if recorded else NEVER + 1
        self.state = self.stack.start()
        self.first = 2 * self._measure(2)  # a record is made and checked
        self.least = float("inf")

    def take_turn(self, steps: int) -> None:
        self.least = min(self.least, self._measure(steps))

    def _measure(self, steps: int) -> float:
        """Return milliseconds a step."""
        began = time.thread_time()
        self.state = self.stack.advance(self.state, self.state.step + steps)
        return (time.thread_time() - began) / steps * 1e3


def measure_products(options: Namespace, rows: int, times: int) -> float:
    """Return the milliseconds that the matrix products of a step take."""
    sizes, products = (196, 64, 32, 10), list[tuple[Tensor, Tensor, Tensor]]()
    for k, (inputs, outputs) in enumerate(pairwise(sizes)):
        x, w, y = (torch.ones(options.trials, *shape) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs)))
        products += [(x, w.mT, torch.empty_like(y)), (y.mT, x, torch.empty_like(w))]
        products += [(y, w, torch.empty_like(x))] if k else []
    turns = []
    for _ in range(8 * options.repeats):
        began = time.thread_time()
        for _ in range(times):
            for one, other, out in products:
                torch.bmm(one, other, out=out)
        turns.append(time.thread_time() - began)
    return min(turns) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", default="agg,fo-mldg,fo-s-mldg,ffo-s-mldg")
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="of a turn")
    parser.add_argument("--repeats", type=int, default=8, help="turns")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.algorithms.split(",")
    ways = {(name, recorded): Way(name, options, recorded) for name in names for recorded in (False, True)}
    for _ in range(options.repeats):
        for way in ways.values():
            way.take_turn(options.steps)
    print(f"{options.trials} trials, a step of all; one CPU thread, torch {torch.__version__}")
    print(f"  {'':16} {'written':>17} {'recorded':>17}")
    for name in names:
        cells = []
        for recorded in (False, True):
            way, base = ways[name, recorded], ways[names[0], recorded]
            cells.append(f"{way.least:7.2f} ms {way.least / base.least:5.2f} x")
        way = ways[name, True]
        print(f"  {name:16} {'  '.join(cells)}   ({(way.first - 2 * way.least) / way.least:.0f})")
    whole, parts = measure_products(options, 5 * 32, 1), measure_products(options, 32, 5)
    print(f"  matrix products: {whole:.2f} ms of 160 rows, {parts:.2f} ms of 32 rows five times, {parts / whole:.2f} x")


if __name__ == "__main__":
    main()

"""Seconds that a store of ten thousand trials takes: to add a group, to say how the run stands, to print its table,
and to find what is missing.

    python benchmarks/speed/store.py [--trials 10000] [--directory DIR]

Wall-clock and processor time of each, in this process: the start of Python and the import of torch are not in them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seqdg.bench import Request, Trial, load_benchmark
from seqdg.report import Results
from seqdg.results import DONE, Evaluation, Record, Store, pause_garbage_collection, read_status

CRITERIA = ("accuracy", "balanced_accuracy", "log_loss", "calibration_error")
EVALUATIONS, POINTS, STACK = 10, 200, 16


def make_record(trial: Trial, draw: random.Random) -> Record:
    """As a real one: ten evaluations on five sources and the held-out domain, a loss curve of 200 points."""
    history = [
        Evaluation(
            step=30 * (k + 1),
            source={c: [draw.random() for _ in range(5)] for c in CRITERIA},
            held_out={c: [draw.random()] for c in CRITERIA},
        )
        for k in range(EVALUATIONS)
    ]
    losses = [draw.random() for _ in range(POINTS)]
    return Record(trial.key, trial.description(), DONE, history, losses, seconds=1.0, device="cpu", weights="0" * 64)


def print_time(what: str, act: Callable[[], object]) -> None:
    wall, processor = time.perf_counter(), time.process_time()
    act()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{what:<36} {wall:7.3f} s   {processor:7.3f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="where to make the store; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        measure(Path(folder), options.trials)


def measure(directory: Path, count: int) -> None:
    benchmark = load_benchmark("rotated-mnist")
    task = benchmark.make_task()
    per_pair = -(-count // 36)  # six algorithms, six held-out domains
    request = Request(trials=per_pair)
    trials = benchmark.plan(task, request).trials[:count]
    draw = random.Random(0)
    store = Store.create(directory, "rotated-mnist")
    store.begin({trial.key: "group" for trial in trials})
    groups = [[make_record(t, draw) for t in trials[i : i + STACK]] for i in range(0, count, STACK)]
    began = time.perf_counter()
    for group in groups[:-1]:
        store.add(group)
    mean = 1000 * (time.perf_counter() - began) / max(1, len(groups) - 1)
    print(f"{count} trials; adding a group of {STACK}: {mean:.2f} ms on average")
    last = groups.pop()
    groups.clear()
    print_time("adding one record", lambda: store.add(last[:1]))
    print_time("adding the same again", lambda: store.add([replace(last[0], seconds=2.0)]))
    print_time("seqdg status", lambda: read_status(directory))
    print_time("seqdg table", lambda: format_table(directory))
    print_time("finding what is missing (keys)", lambda: {t.key for t in trials} - store.finished())
    print_time("the whole plan, and what is missing", lambda: benchmark.plan(task, request, "cpu", store.finished()))


def format_table(directory: Path) -> str:
    """As the command does it."""
    with pause_garbage_collection():
        return str(Results.open(directory).table())


if __name__ == "__main__":
    main()

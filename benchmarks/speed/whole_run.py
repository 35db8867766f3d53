"""Where the time of a whole table goes, from the start of Python to the printed table.

    python benchmarks/speed/whole_run.py                                            (the bundled benchmark, a few steps)
    python benchmarks/speed/whole_run.py --benchmark pacs-features --data DATA --trials 20 --steps 1500 --algorithms ALL

ALL stands for the 13 algorithms of the published table. Everything runs in this process. Each phase has the seconds
that were spent in it and in no phase inside it, and how often it was entered. On a GPU every phase ends when the device
has finished its work, so that each pays for what it starts; `--flow` leaves that out and gives the total as users see
it. `--profile FILE` also writes what cProfile saw, for `python -m pstats FILE`.

    python benchmarks/speed/whole_run.py --host --benchmark office-caltech10 --data DATA --algorithms ALL --trials 20 \\
        --steps 300 --search 3 --select leave-one-out --precision float64

`--host` trains nothing and needs no GPU: it gives the CPU seconds, on one thread, of what the host does for such a run
of stacks on a GPU. One stack of every kind is built, and not moved to a device; records are made of random predictions
and stored; then `seqdg bench` is asked for all of it, finds it done, and prints the table.
"""

import time

BEGAN = time.perf_counter()

import argparse  # noqa: E402  the clock runs from the first line on
import cProfile  # noqa: E402
import functools  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager, nullcontext  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

import seqdg.bench.learners.stack_learner  # noqa: E402
import seqdg.bench.running  # noqa: E402
import seqdg.training.trainer  # noqa: E402
from seqdg.base import choose_device  # noqa: E402
from seqdg.bench import (  # noqa: E402
    Benchmark,
    Group,
    Request,
    RowsOnDisk,
    Task,
    build_stack,
    load_benchmark,
    run,
)
from seqdg.bench.running import _Runner  # noqa: E402
from seqdg.report import Results  # noqa: E402
from seqdg.results import (  # noqa: E402
    DONE,
    Record,
    Store,
)
from seqdg.training import (  # noqa: E402
    DomainPredictions,
    Stack,
    measure_predictions,
)
from seqdg.training.step import CapturedStep  # noqa: E402
from seqdg.training.trainer import _Run  # noqa: E402

ALL = "agg,mldg,fo-mldg,s-mldg,fo-s-mldg,ffo-s-mldg,undo-bias,s-undo-bias,ensemble,dann,crossgrad,metareg,mmd-aae"
TIMED: dict[str, list[tuple[Any, str]]] = {  # a phase is what these functions do
    "reading the data": [(RowsOnDisk, "load")],
    "planning": [(Benchmark, "plan")],
    "timing each algorithm": [(seqdg.bench.running, "time_groups")],
    "building stacks": [(seqdg.bench.learners.stack_learner, "build_stack")],
    "  inputs": [(Task, "make_inputs")],
    "  first state": [(Stack, "start")],
    "steps": [(_Run, "_train")],
    "  drawing minibatches": [(Stack, "_draw_steps")],
    "  recording graphs": [(CapturedStep, "__init__")],
    "evaluations": [(_Run, "_evaluate")],
    "  deploying": [(Stack, "deploy")],
    "  predicting": [(Stack, "predict_domains")],
    "  metrics": [(seqdg.training.trainer, "measure_predictions")],
    "ends of groups": [(_Run, "finish")],
    "  making records": [(_Run, "_make_record")],
    "storing records": [(Store, "add")],
    "noting progress": [(Store, "note"), (Store, "begin")],
    "the rest of the run": [(_Runner, "finish")],
    "the table": [(Results, "table")],
}


class Clock:
    """Seconds by phase; those of a phase inside another are not counted twice."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait
        self.seconds: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self._open: list[str] = []
        self._last = time.perf_counter()

    @contextmanager
    def count(self, phase: str) -> Iterator[None]:
        self._turn()
        self._open.append(phase)
        self.times[phase] += 1
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def watch(self, phase: str, owner: Any, name: str) -> None:
        """Count what a function does as a phase."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self.count(phase):
                return function(*args, **kwargs)

        setattr(owner, name, counted)

    def _turn(self) -> None:
        """Give the time since the last turn to the phase that is open."""
        self.wait()
        now = time.perf_counter()
        self.seconds[self._open[-1] if self._open else "anything else"] += now - self._last
        self._last = now


def measure_host(options: argparse.Namespace, names: list[str]) -> None:
    """Print the CPU seconds of what the host does for a run on a GPU."""
    torch.set_num_threads(1)
    seconds: dict[str, float] = {}

    @contextmanager
    def count(phase: str) -> Iterator[None]:
        began = time.process_time()
        yield
        seconds[phase] = seconds.get(phase, 0.0) + time.process_time() - began

    benchmark = load_benchmark(options.benchmark)
    task, request = benchmark.make_task(options.data), make_request(options, names)
    with count("reading the data"):
        task.dataset()
    with count("planning"):
        groups = benchmark.plan(task, request, "cuda").groups
    kinds: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        kinds.setdefault((group.trials[0].algorithm, len(group.trials[0].held_out)), []).append(group)
    build_stack(groups[0], task, torch.device("cpu"))  # what only the first one pays does not count
    for alike in kinds.values():
        with count("building one stack of each kind"):
            build_stack(alike[0], task, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        store = Store.create(Path(folder), options.benchmark)
        store.begin({trial.key: group.key for group in groups for trial in group.trials})
        generator, classes = torch.Generator().manual_seed(0), task.dataset().outputs
        for group in groups:
            shape, domains = (len(group.trials), 20), len(task.dataset().domains)
            sources = domains - len(group.trials[0].held_out)
            mask = torch.ones(shape, dtype=torch.bool)
            predictions = [
                DomainPredictions(
                    torch.randn(*shape, classes, generator=generator),
                    torch.randint(classes, shape, generator=generator),
                    mask,
                    fifth=mask & (torch.arange(20) < 4) if i >= sources else None,
                )
                for i in range(domains)
            ]
            with count("measuring predictions"):
                steps = range(1, group.trials[0].protocol.evaluations + 1)
                histories = [measure_predictions(predictions, sources, step) for step in steps]
            records = [
                Record(trial.key, trial.description(), DONE, list(history), [0.0] * 200, 1.0, weights="0" * 64)
                for trial, history in zip(group.trials, zip(*histories, strict=True), strict=True)
            ]
            with count("storing records"):
                store.add(records, group.key)
        store.close()
        command = ["bench", options.benchmark, "--algorithms", ",".join(names), "--out", folder, "--device", "cpu"]
        for name in ("data", "trials", "steps", "search", "select", "precision"):
            value = getattr(options, name)
            command += [] if value is None else [f"--{name}", str(value)]
        before = os.times()
        subprocess.run([sys.executable, "-m", "seqdg", *command], check=True, capture_output=True)
        after = os.times()
        both = after.children_user - before.children_user, after.children_system - before.children_system
        seconds["`seqdg bench`, all done"] = sum(both)
    trials = sum(len(group.trials) for group in groups)
    print(f"{trials} trials in {len(groups)} groups of {len(kinds)} kinds, torch {torch.__version__}: CPU seconds")
    for phase, spent in seconds.items():
        print(f"  {phase:34} {spent:8.2f}")


def make_request(options: argparse.Namespace, names: list[str]) -> Request:
    return Request(
        algorithms=names, trials=options.trials, steps=options.steps, search=options.search, select=options.select,
        precision=options.precision,
    )  # fmt: skip


def main() -> None:
    imported = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="rotated-mnist")
    parser.add_argument("--data", type=Path, help="root folder of the data")
    parser.add_argument("--algorithms", default="agg,fo-s-mldg", help="ALL: those of the published table")
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--precision")
    parser.add_argument("--search", type=int, default=1)
    parser.add_argument("--select", default="source-val")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--flow", action="store_true", help="do not wait for the device between phases")
    parser.add_argument("--host", action="store_true", help="the CPU seconds of what a host does, without training")
    parser.add_argument("--profile", type=Path, help="file for what cProfile saw")
    options = parser.parse_args()
    names = (ALL if options.algorithms == "ALL" else options.algorithms).split(",")
    if options.host:
        measure_host(options, names)
        return
    device = choose_device(options.device)
    waits = device == "cuda" and not options.flow
    clock = Clock(torch.cuda.synchronize if waits else lambda: None)
    for phase, functions in TIMED.items():
        for owner, name in functions:
            clock.watch(phase, owner, name)
    with clock.count("starting the device"):
        torch.zeros(1, device=device)
    profile = cProfile.Profile() if options.profile else None
    with tempfile.TemporaryDirectory() as folder, profile or nullcontext():
        results = run(
            options.benchmark, names, trials=options.trials, steps=options.steps, data=options.data,
            precision=options.precision, search=options.search, select=options.select, device=device, workers=0,
            out=Path(folder) / "run", progress=False,
        )  # fmt: skip
        table = str(results.table())
        total, count = time.perf_counter() - BEGAN, len(results.records())
    if profile:
        profile.dump_stats(options.profile)
    print(table)
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"\n{count} trials on {where}, torch {torch.__version__}: {total:.2f} s")
    seconds = {"imports": imported - BEGAN, "starting the device": 0.0, **dict.fromkeys(TIMED, 0.0), **clock.seconds}
    for phase, spent in seconds.items():
        times = f"{clock.times[phase]:6d} x" if clock.times[phase] else ""
        print(f"  {phase:26} {spent:9.3f} s  {100 * spent / total:5.1f} %  {times}")


if __name__ == "__main__":
    main()

"""Where the time of a whole table goes, from the start of Python to the printed table.

    python benchmarks/speed/whole_run.py                                            (the bundled benchmark, a few steps)
    python benchmarks/speed/whole_run.py --benchmark pacs-features --data DATA --trials 20 --steps 1500 --algorithms ALL

ALL stands for the 13 algorithms of the published table. Everything runs in this process. Each phase has the seconds
that were spent in it and in no phase inside it, and how often it was entered. On a GPU every phase ends when the device
has finished its work, so that each pays for what it starts; `--flow` leaves that out and gives the total as users see
it. `--profile FILE` also writes what cProfile saw, for `python -m pstats FILE`.
"""

import time

BEGAN = time.perf_counter()

import argparse  # noqa: E402  the clock runs from the first line on
import cProfile  # noqa: E402
import functools  # noqa: E402
import tempfile  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager, nullcontext  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

import seqdg.bench.run  # noqa: E402
import seqdg.bench.stack_learner  # noqa: E402
import seqdg.training.run_stack  # noqa: E402
from seqdg.bench.benchmark import Benchmark  # noqa: E402
from seqdg.bench.run import _Runner  # noqa: E402
from seqdg.bench.task import RowsOnDisk, Task  # noqa: E402
from seqdg.report.results import Results  # noqa: E402
from seqdg.report.run import run  # noqa: E402
from seqdg.results.store import Store  # noqa: E402
from seqdg.training.capture import CapturedStep  # noqa: E402
from seqdg.training.device import choose_device  # noqa: E402
from seqdg.training.run_stack import _Run  # noqa: E402
from seqdg.training.stack import Stack  # noqa: E402

ALL = "agg,mldg,fo-mldg,s-mldg,fo-s-mldg,ffo-s-mldg,undo-bias,s-undo-bias,ensemble,dann,crossgrad,metareg,mmd-aae"
PLACES: dict[str, list[tuple[Any, str]]] = {  # a phase is what these functions do
    "reading the data": [(RowsOnDisk, "load")],
    "planning": [(Benchmark, "plan")],
    "timing each algorithm": [(seqdg.bench.run, "estimate_costs")],
    "building stacks": [(seqdg.bench.stack_learner, "build_stack")],
    "  inputs": [(Task, "make_inputs")],
    "  first state": [(Stack, "start")],
    "steps": [(_Run, "_train")],
    "  drawing minibatches": [(Stack, "_draw_steps")],
    "  recording graphs": [(CapturedStep, "__init__")],
    "evaluations": [(_Run, "_evaluate")],
    "  deploying": [(Stack, "deploy")],
    "  predicting": [(seqdg.training.run_stack, "predict_domains")],
    "  metrics": [(seqdg.training.run_stack, "measure_predictions")],
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
    parser.add_argument("--profile", type=Path, help="file for what cProfile saw")
    options = parser.parse_args()
    device = choose_device(options.device)
    waits = device == "cuda" and not options.flow
    clock = Clock(torch.cuda.synchronize if waits else lambda: None)
    for phase, places in PLACES.items():
        for owner, name in places:
            clock.watch(phase, owner, name)
    with clock.count("starting the device"):
        torch.zeros(1, device=device)
    profile = cProfile.Profile() if options.profile else None
    names = ALL if options.algorithms == "ALL" else options.algorithms
    with tempfile.TemporaryDirectory() as folder, profile or nullcontext():
        results = run(
            options.benchmark, names.split(","), trials=options.trials, steps=options.steps, data=options.data,
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
    seconds = {"imports": imported - BEGAN, "starting the device": 0.0, **dict.fromkeys(PLACES, 0.0), **clock.seconds}
    for phase, spent in seconds.items():
        times = f"{clock.times[phase]:6d} x" if clock.times[phase] else ""
        print(f"  {phase:26} {spent:9.3f} s  {100 * spent / total:5.1f} %  {times}")


if __name__ == "__main__":
    main()

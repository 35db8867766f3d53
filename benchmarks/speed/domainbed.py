"""DomainBed's classes and ours on a CPU: the same features and net, one trial and many, in one run.

    python benchmarks/speed/domainbed.py --domainbed DIR --data DIR [--benchmark pacs-features] [--steps 500]

Milliseconds of one CPU thread for each step of each trial, the least of several rounds in which the ways take turns. Of
DomainBed it is reading the data and `update` alone, with minibatches that are rows of a tensor: what its train.py adds
(loader processes, evaluations, files) is left out. Of ours it is all of `seqdg.run`: reading, planning, training, ten
evaluations and storing. Both train an MLP 256 wide and 3 deep with its linear classifier, by Adam, in float32; the
trials hold out domains in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

WAYS = {"ERM": "agg", "MLDG": "mldg", "Fish": "fish"}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domainbed", type=Path, default=Path("DomainBed"), help="a checkout")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--benchmark", default="pacs-features")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--trials", type=int, default=20, help="beside a single one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)  # ours or theirs, algorithm, trials
    return parser.parse_args()


def measure_theirs(options: argparse.Namespace, name: str, trials: int) -> float:
    import torch

    from seqdg.bench import load_benchmark

    sys.path.insert(0, str(options.domainbed))
    for name_of_package in ("torchvision", "torchvision.models", "timm"):  # of which an MLP needs nothing
        sys.modules.setdefault(name_of_package, ModuleType(name_of_package))
    from domainbed import algorithms, hparams_registry

    def load() -> Any:
        return load_benchmark(options.benchmark).make_task(options.data).dataset()

    dataset = load()
    hparams: dict[str, Any] = hparams_registry.default_hparams(name, "RotatedMNIST")
    hparams.update(mlp_width=256, mlp_depth=3, mlp_dropout=0.0, batch_size=32)
    rows = {domain: (dataset.x[dataset.rows(domain)], dataset.y[dataset.rows(domain)]) for domain in dataset.domains}

    def train(trial: int, steps: int) -> None:
        torch.manual_seed(trial)
        held_out = dataset.domains[trial % len(dataset.domains)]
        sources = [rows[domain] for domain in dataset.domains if domain != held_out]
        algorithm = algorithms.get_algorithm_class(name)(dataset.shape, len(dataset.classes), len(sources), hparams)
        algorithm.train()
        for _ in range(steps):
            drawn = [(x, y, torch.randint(len(y), (32,))) for x, y in sources]
            algorithm.update([(x[i], y[i]) for x, y, i in drawn], None)

    train(0, 10)
    began = time.process_time()
    load()
    for trial in range(trials):
        train(trial, options.steps)
    return time.process_time() - began


def measure_ours(options: argparse.Namespace, name: str, trials: int) -> float:
    import seqdg
    from seqdg.bench import load_benchmark

    domains = load_benchmark(options.benchmark).make_task(options.data).dataset().domains
    held_out = list(domains[: min(trials, len(domains))])
    settings = ["net.hidden=256,256,256", f"{name}.optimizer=adam-l2", f"{name}.lr=0.001"]

    def train(steps: int, folder: str) -> None:
        seqdg.run(
            options.benchmark, [name], held_out=held_out, trials=-(-trials // len(held_out)), steps=steps, workers=0,
            data=options.data, out=folder, device="cpu", settings=settings,
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        train(2, f"{folder}/first")
        began = time.process_time()
        train(options.steps, f"{folder}/run")
        return time.process_time() - began


def measure(options: argparse.Namespace, side: str, name: str, trials: int) -> float:
    """Measure milliseconds of a step of a trial, in a process of one thread."""
    words = [sys.executable, __file__, "--way", f"{side},{name},{trials}", "--steps", str(options.steps)]
    words += ["--domainbed", str(options.domainbed), "--benchmark", options.benchmark]
    words += ["--data", str(options.data)] if options.data else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return 1000 * float(done.stdout.split()[-1]) / (options.steps * trials)


def main() -> None:
    options = parse_options()
    if options.way:
        side, name, trials = options.way.split(",")
        way = {"theirs": measure_theirs, "ours": measure_ours}[side]
        print(way(options, name, int(trials)))
        return
    ways = [
        (side, name, trials)
        for theirs, ours in WAYS.items()
        for trials in (1, options.trials)
        for side, name in (("theirs", theirs), ("ours", ours))
    ]
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(options.rounds):
        for way in ways:
            least[way] = min(least[way], measure(options, *way))
    print(f"{options.benchmark}, {options.steps} steps, one thread; CPU milliseconds a step and trial")
    pairs = deque(ways)
    while pairs:
        theirs, ours = pairs.popleft(), pairs.popleft()
        print(
            f"  {theirs[1]:6}{theirs[2]:4} trials  DomainBed {least[theirs]:6.2f}  ours {least[ours]:6.2f}"
            f"  {least[theirs] / least[ours]:5.2f} x"
        )


if __name__ == "__main__":
    main()

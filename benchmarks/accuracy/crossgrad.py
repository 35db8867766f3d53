"""How far should CrossGrad move its inputs? Chosen by validation rows of the sources alone.

    python benchmarks/accuracy/crossgrad.py --data ../shared/data
    python benchmarks/accuracy/crossgrad.py --sets digits --steps 100

Each held-out domain is only predicted, to count predictions that differ from AGG's: its labels are not read. For every
set and candidate the table has, as means over the held-out domains (seed 0):

    moved    how far an input of the label net moves, in % of its length
    loss     by how much the label loss of validation rows rises on the way, in %
    val      accuracy on the sources' validation rows at the last step, in %
    differ   predictions on the held-out domain that differ from AGG's, in %

The pixels of PACS are taken at 64 x 64 by a ResNet-18 from ImageNet, for few steps: a check that the unit carries over
to such a net, and no selection on the full training.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqdg.algorithms.crossgrad import CrossGrad, measure_length
from seqdg.base import Episode, Params
from seqdg.bench import Benchmark, Session, load_benchmark
from seqdg.paper import Study
from seqdg.training import Stack, State

RELATIVE = (0.01, 0.03, 0.1, 0.3, 1.0)
WEIGHTS = (0.25, 0.75)  # beside 0.5, at the epsilon that is best of all sets
ROWS = 48  # of each source's validation, on which a move is measured


class Set(NamedTuple):
    benchmark: str
    steps: int
    held_out: tuple[str, ...]
    lr: float | None = None  # None: the benchmark's
    batch: int | None = None  # likewise
    path: str | None = None  # of the data, where it is not the benchmark's
    size: int | None = None  # of a picture, likewise
    weights: str | None = None  # ImageNet's, beside the data


PACS = ("cartoon", "sketch")
SETS = {
    "digits": Set("rotated-mnist-conv", 200, ("15", "75")),
    "lite0": Set("pacs-features", 150, PACS),
    "dinov2": Set("pacs-features", 150, PACS, path="pacs_dinov2_vits14.npz"),
    "pixels": Set("pacs", 10, ("sketch",), lr=0.001, batch=8, size=64, weights="resnet18_imagenet.safetensors"),
}


def list_candidates(rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """List what is tried with minibatches of so many rows in all."""
    yield "clipped 1 / rows, clip 0.1 rows", clipped(1.0 / rows, 0.1 * rows)
    yield "clipped 10 / rows, clip 0.1 rows", clipped(10.0 / rows, 0.1 * rows)
    yield "clipped 1, clip 0.1", clipped(1.0, 0.1)
    for epsilon in RELATIVE:
        yield f"relative {epsilon:g}", relative(epsilon, 0.5)


def clipped(epsilon: float, clip: float) -> dict[str, Any]:
    return {"epsilon_label": epsilon, "epsilon_domain": epsilon, "clip": clip, "length": "clipped"} | weigh(0.5)


def relative(epsilon: float, weight: float) -> dict[str, Any]:
    return {"epsilon_label": epsilon, "epsilon_domain": epsilon, "length": "relative"} | weigh(weight)


def weigh(weight: float) -> dict[str, Any]:
    return {"alpha_label": weight, "alpha_domain": weight}


def load_set(chosen: Set, root: Path) -> Benchmark:
    """Load the benchmark of a set, changed as the set says."""
    weights = None if chosen.weights is None else root / chosen.weights
    benchmark = load_benchmark(chosen.benchmark).with_weights(weights)
    data = dict(benchmark.data)
    if chosen.path is not None:
        data["path"] = chosen.path
        data.pop("fingerprint", None)
    if chosen.size is not None:
        data["size"] = chosen.size
    protocol = replace(benchmark.protocol, steps=chosen.steps)
    if chosen.lr is not None:
        protocol = replace(protocol, lr=chosen.lr)
    if chosen.batch is not None:
        protocol = replace(protocol, batch=chosen.batch)
    return replace(benchmark, data=data, size=chosen.size or benchmark.size, protocol=protocol, tables={})


def train(study: Study, name: str) -> tuple[Stack, State]:
    stack = study.build_stack(name)
    return stack, stack.advance(stack.start(), stack.bounds[-1])


def measure_accuracy(stack: Stack, state: State) -> float:
    """Return the mean accuracy on the validation rows of the sources."""
    deployed, accuracies = stack.deploy(state), []
    for rows in stack.jobs[0].split.validation:
        logits, y = stack.predict(deployed, rows.unsqueeze(0))
        accuracies.append(float((logits.argmax(-1) == y).double().mean()))
    return fmean(accuracies)


def predict(stack: Stack, state: State) -> Tensor:
    """Return the predicted classes of the held-out domain's rows."""
    return stack.predict(stack.deploy(state), stack.jobs[0].split.test[0].unsqueeze(0))[0].argmax(-1).flatten()


def pick_rows(stack: Stack, state: State) -> tuple[CrossGrad, Params, Episode]:
    """Return the algorithm, its weights and validation rows of every source."""
    algorithm = stack.jobs[0].algorithm
    assert isinstance(algorithm, CrossGrad)
    x, y = stack.inputs.serve(torch.stack([rows[:ROWS] for rows in stack.jobs[0].split.validation]))
    episode = Episode(x, y, torch.arange(len(x)), torch.tensor(1.0), torch.tensor(0))
    return algorithm, {name: w[0] for name, w in state.params.items()}, episode


def measure_move(stack: Stack, state: State) -> tuple[float, float]:
    """Return how far inputs of the label net move, over their length, and by how much the label loss rises."""
    algorithm, params, episode = pick_rows(stack, state)
    moved, _ = algorithm.move_inputs(stack.net, params, episode)
    with torch.no_grad():
        there = stack.net.losses(params, episode).mean()
        on = stack.net.losses(params, episode._replace(x=moved)).mean()
    share = (measure_length(moved - episode.x) / measure_length(episode.x)).mean()
    return float(share), float(on / there) - 1.0


def run_set(name: str, data: Path, candidates: Sequence[tuple[str, dict[str, Any]]] | None, steps: int | None) -> Any:
    """Return a row of means for every candidate, by its name."""
    chosen = SETS[name] if steps is None else SETS[name]._replace(steps=steps)
    benchmark = load_set(chosen, data)
    session = Session(benchmark.make_task(data))
    sources = len(session.task.dataset().domains) - 1
    rows: dict[str, list[tuple[float, ...]]] = {}
    for held_out in chosen.held_out:
        stack, state = train(Study(benchmark, session, ["agg"], held_out), "agg")
        base = predict(stack, state)
        rows.setdefault("agg", []).append((0.0, 0.0, measure_accuracy(stack, state), 0.0))
        for label, settings in candidates or list(list_candidates(sources * benchmark.protocol.batch)):
            texts = [f"crossgrad.{key}={value}" for key, value in settings.items()]
            study = Study(benchmark, session, ["crossgrad"], held_out, settings=texts)
            stack, state = train(study, study.names[0])
            differ = float((predict(stack, state) != base).double().mean())
            rows.setdefault(label, []).append((*measure_move(stack, state), measure_accuracy(stack, state), differ))
            print(name, held_out, label, rows[label][-1], file=sys.stderr, flush=True)
    return {label: [fmean(column) for column in zip(*values, strict=True)] for label, values in rows.items()}


def format_rows(name: str, rows: dict[str, list[float]]) -> str:
    lines = [f"| {name} | moved | loss | val | differ |", "|---|---:|---:|---:|---:|"]
    for label, (moved, loss, val, differ) in rows.items():
        lines.append(f"| {label} | {100 * moved:.2f} | {100 * loss:+.1f} | {100 * val:.2f} | {100 * differ:.1f} |")
    return "\n".join(lines)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", default=",".join(SETS), help="names, with commas between")
    parser.add_argument("--steps", type=int, default=None, help="if not those of the set")
    parser.add_argument(
        "--weights-at", type=float, default=None, metavar="EPSILON", help="try weights at this one alone"
    )
    return parser.parse_args()


def main() -> None:
    options, at = parse_options(), None
    if options.weights_at is not None:
        epsilon = options.weights_at
        at = [(f"relative {epsilon:g}, weight {w:g}", relative(epsilon, w)) for w in (*WEIGHTS, 0.5)]
    for name in options.sets.split(","):
        began = time.perf_counter()
        print(format_rows(name, run_set(name, options.data, at, options.steps)))
        print(f"({time.perf_counter() - began:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()

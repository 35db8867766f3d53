"""What is averaging's, what is the learning rate's, what is the path's: a factorial on the bundled digits.

    python benchmarks/accuracy/factorial.py --trials 10 --out runs/factorial

Five algorithms, each plain, with a learning rate that falls to 0 (cosine), and with the weights averaged (`+ema`,
`+sma`). Plain and averaged weights are of one training. Effects are differences paired over held-out domain and seed;
their standard error is over seeds, of the mean over the held-out domains. Steps are selected by source validation.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from statistics import mean, stdev

import seqdg
from seqdg.results.select import select_outcomes

ALGORITHMS = ("agg", "coral", "fo-s-mldg", "ffo-s-mldg", "s-coral")
VARIANTS = ("plain", "cosine", "ema", "sma")
PAIRS = (("coral", "agg"), ("fo-s-mldg", "agg"), ("ffo-s-mldg", "agg"), ("s-coral", "coral"))
Cells = dict[tuple[str, str], dict[int, float]]  # accuracy in % by algorithm and variant, then by seed


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--steps", type=int, default=None, help="if not the benchmark's")
    parser.add_argument("--out", type=Path, default=Path("runs/factorial"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=None)
    return parser.parse_args()


def run_cells(options: argparse.Namespace) -> Cells:
    """Run what is missing, and return the mean accuracy over the held-out domains of every seed."""
    names = [name + ending for name in ALGORITHMS for ending in ("", "+ema", "+sma")]
    cosine = [f"{name}.schedule=cosine" for name in ALGORITHMS]
    cells: Cells = {}
    for part, algorithms, settings in (("plain", names, []), ("cosine", list(ALGORITHMS), cosine)):
        results = seqdg.run(
            "rotated-mnist", algorithms, trials=options.trials, steps=options.steps, settings=settings,
            out=options.out / part, device=options.device, workers=options.workers,
        )  # fmt: skip
        by_seed: dict[tuple[str, str], dict[int, list[float]]] = {}
        for outcome in select_outcomes(results.records(), "source-val", "accuracy"):
            base, _, average = outcome.algorithm.partition("+")
            if outcome.value is not None:
                cell = by_seed.setdefault((base, average or part), {})
                cell.setdefault(outcome.record.seed, []).append(100 * outcome.value)
        cells |= {cell: {seed: mean(values) for seed, values in seeds.items()} for cell, seeds in by_seed.items()}
    return cells


def format_mean(values: list[float], sign: str = "") -> str:
    """Format mean ± standard error."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{mean(values):{sign}.1f} ± {error:.1f}"


def format_difference(cells: Cells, first: tuple[str, str], second: tuple[str, str]) -> str:
    seeds = sorted(cells[first].keys() & cells[second].keys())
    return format_mean([cells[first][seed] - cells[second][seed] for seed in seeds], "+")


def print_tables(cells: Cells) -> None:
    print(f"| accuracy | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}")
    for name in ALGORITHMS:
        print(f"| `{name}` | {' | '.join(format_mean(list(cells[name, v].values())) for v in VARIANTS)} |")
    print("\n| against plain, the same algorithm | cosine | ema | sma |\n|---|---|---|---|")
    for name in ALGORITHMS:
        changes = [format_difference(cells, (name, v), (name, "plain")) for v in VARIANTS[1:]]
        print(f"| `{name}` | {' | '.join(changes)} |")
    print(f"\n| against its base, the same variant | {' | '.join(VARIANTS)} |\n|---|{'---|' * len(VARIANTS)}")
    for name, base in PAIRS:
        changes = [format_difference(cells, (name, v), (base, v)) for v in VARIANTS]
        print(f"| `{name}` - `{base}` | {' | '.join(changes)} |")


if __name__ == "__main__":
    print_tables(run_cells(parse_options()))

"""What is averaging's, what is the learning rate's, what is the path's: a factorial on the bundled digits.

    python benchmarks/accuracy/factorial.py --trials 10 --out runs/factorial
    python benchmarks/accuracy/factorial.py --read docs/results/digits-factorial docs/results/digits-factorial-cosine

Five algorithms, each plain, with a learning rate that falls to 0 (cosine), and with the weights averaged (`+ema`,
`+sma`). Plain and averaged weights are of one training. Effects are differences paired over held-out domain and seed;
their standard error is over seeds, of the mean over the held-out domains. Steps are selected by source validation.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import seqdg
from seqdg import Results
from seqdg.results import select_outcomes

ALGORITHMS = ("agg", "coral", "fo-s-mldg", "ffo-s-mldg", "s-coral")
VARIANTS = ("plain", "cosine", "ema", "sma")
PAIRS = (("coral", "agg"), ("fo-s-mldg", "agg"), ("ffo-s-mldg", "agg"), ("s-coral", "coral"))
Cells = dict[tuple[str, str], dict[int, float]]  # accuracy in % by algorithm and variant, then by seed


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--steps", type=int, default=None, help="if not the benchmark's")
    parser.add_argument("--out", type=Path, default=Path("runs/factorial"))
    parser.add_argument(
        "--read", type=Path, nargs=2, metavar=("PLAIN", "COSINE"), help="runs to read, in place of running"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=None)
    return parser.parse_args()


def run_both(options: argparse.Namespace) -> tuple[Results, Results]:
    """Run what is missing."""
    names = [name + ending for name in ALGORITHMS for ending in ("", "+ema", "+sma")]
    cosine = [f"{name}.schedule=cosine" for name in ALGORITHMS]

    def run(part: str, algorithms: Sequence[str], settings: Sequence[str]) -> Results:
        return seqdg.run(
            "rotated-mnist", algorithms, trials=options.trials, steps=options.steps, settings=settings,
            out=options.out / part, device=options.device, workers=options.workers,
        )  # fmt: skip

    return run("plain", names, []), run("cosine", ALGORITHMS, cosine)


def collect_cells(plain: Results, cosine: Results) -> Cells:
    """Return the mean accuracy over the held-out domains of every seed."""
    cells: Cells = {}
    for part, results in (("plain", plain), ("cosine", cosine)):
        by_seed: dict[tuple[str, str], dict[int, list[float]]] = {}
        for outcome in select_outcomes(results.records(), "source-val", "accuracy"):
            base, _, average = outcome.algorithm.partition("+")
            if outcome.value is not None:
                cell = by_seed.setdefault((base, average or part), {})
                cell.setdefault(outcome.seed, []).append(100 * outcome.value)
        cells |= {cell: {seed: mean(values) for seed, values in seeds.items()} for cell, seeds in by_seed.items()}
    return cells


def format_mean(values: list[float], sign: str = "") -> str:
    """Format mean ± standard error."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{mean(values):{sign}.1f} ± {error:.1f}"


def format_difference(cells: Cells, first: tuple[str, str], second: tuple[str, str]) -> str:
    seeds = sorted(cells[first].keys() & cells[second].keys())
    return format_mean([cells[first][seed] - cells[second][seed] for seed in seeds], "+")


def format_tables(cells: Cells) -> str:
    """Format the three tables as Markdown."""
    lines = [f"| accuracy | {' | '.join(VARIANTS)} |", f"|---|{'---|' * len(VARIANTS)}"]
    for name in ALGORITHMS:
        lines.append(f"| `{name}` | {' | '.join(format_mean(list(cells[name, v].values())) for v in VARIANTS)} |")
    lines += ["", "| against plain, the same algorithm | cosine | ema | sma |", "|---|---|---|---|"]
    for name in ALGORITHMS:
        changes = [format_difference(cells, (name, v), (name, "plain")) for v in VARIANTS[1:]]
        lines.append(f"| `{name}` | {' | '.join(changes)} |")
    lines += ["", f"| against its base, the same variant | {' | '.join(VARIANTS)} |", f"|---|{'---|' * len(VARIANTS)}"]
    for name, base in PAIRS:
        changes = [format_difference(cells, (name, v), (base, v)) for v in VARIANTS]
        lines.append(f"| `{name}` - `{base}` | {' | '.join(changes)} |")
    return "\n".join(lines)


def main() -> None:
    options = parse_options()
    plain, cosine = [Results.open(path) for path in options.read] if options.read else run_both(options)
    print(format_tables(collect_cells(plain, cosine)))


if __name__ == "__main__":
    main()

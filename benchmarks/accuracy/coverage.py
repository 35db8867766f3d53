"""How often the interval for the next domain holds its score, on simulated domains.

    python benchmarks/accuracy/coverage.py                  # the table of docs/choosing.md
    python benchmarks/accuracy/coverage.py --domains 3 --rows 60 --draws 4000

The log-odds of domains are normal with a spread (their standard deviation) around those of an accuracy; the score of a
domain is a binomial share of its rows. The interval is made from the scores of the known domains, and then the next
domain is drawn. A cell is: how many in 100 intervals hold the next domain's score, and their median width in points.
The same draws serve every version of the interval. With --rmse, errors are normal, and the logarithm of their deviation
differs between domains by the spread; widths are then in percent of the median RMSE.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from seqdg.results import predict_next_domain

SPREADS = (0.0, 0.5, 1.0, 1.5, 2.5)
LEAST, WITHIN, FROM = 85.0, 1.5, 60  # the coverage in every cell up to this spread and from so many rows on
LOG_SPREADS = (0.0, 0.2, 0.4, 0.6)


class Cell(NamedTuple):
    domains: int
    rows: int
    accuracy: float | None  # None: an RMSE
    spread: float
    covered: float  # in percent
    width: float  # the median, in points, or in percent of an RMSE


def simulate(domains: int, rows: int, accuracy: float | None, spread: float, draws: int, seed: int = 0) -> Cell:
    """Simulate intervals from so many domains of so many rows."""
    draw, held, widths = np.random.default_rng([seed, domains, rows, round(100 * (accuracy or 0))]), 0, []
    for _ in range(draws):
        differ = spread * draw.standard_normal(domains + 1)
        if accuracy is None:
            scores = np.exp(differ) * np.sqrt(draw.chisquare(rows, domains + 1) / rows)
        else:
            scores = draw.binomial(rows, expit(logit(accuracy) + differ)) / rows
        *known, ahead = scores.tolist()
        found = predict_next_domain(known, [rows] * domains, "rmse" if accuracy is None else "accuracy")
        held += found.low - 1e-9 <= ahead <= found.high + 1e-9
        widths.append(found.width)
    return Cell(domains, rows, accuracy, spread, 100 * held / draws, 100 * float(np.median(widths)))


def simulate_all(options: argparse.Namespace) -> Iterator[list[Cell]]:
    spreads = LOG_SPREADS if options.rmse else SPREADS
    for domains, rows, accuracy in product(options.domains, options.rows, options.accuracy):
        share = None if options.rmse else accuracy / 100
        yield [simulate(domains, rows, share, spread, options.draws) for spread in spreads]


def format_row(cells: Sequence[Cell]) -> str:
    of = cells[0]
    scores = ["RMSE"] if of.accuracy is None else [f"{100 * of.accuracy:.0f} %"]
    return (
        "| "
        + " | ".join([str(of.domains), str(of.rows), *scores, *(f"{c.covered:.0f} ({c.width:.0f})" for c in cells)])
        + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, nargs="+", default=[3, 4, 6, 10])
    parser.add_argument("--rows", type=int, nargs="+", default=[60, 300, 2000])
    parser.add_argument("--accuracy", type=float, nargs="+", default=[60, 80, 95], help="in percent")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--rmse", action="store_true", help="of numbers, in place of shares")
    options = parser.parse_args()
    if options.rmse:
        options.accuracy = [0]
    spreads = LOG_SPREADS if options.rmse else SPREADS
    print("| domains | rows | score |" + "".join(f" spread {spread:g} |" for spread in spreads))
    print("|---:|---:|---:|" + "---:|" * len(spreads))
    short: list[Cell] = []
    for cells in simulate_all(options):
        print(format_row(cells), flush=True)
        short += [c for c in cells if c.covered < LEAST and c.spread <= WITHIN and c.rows >= FROM]
    print(f"\n{len(short)} cells up to a spread of {WITHIN:g} and from {FROM} rows on are below {LEAST:g} %.")


if __name__ == "__main__":
    main()

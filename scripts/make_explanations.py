"""Draw why walking helps under small rates, and when the path pays, from the published records of the two studies.

python scripts/make_explanations.py             (writes docs/pictures/walking.svg and docs/pictures/path-map.svg)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import cache
from itertools import product
from math import log, log2
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import altair as alt
import numpy as np

from seqdg.report import Figure, Panel, Style, draw_rows, make_row, write_figures
from seqdg.results import (
    Outcome,
    Pooled,
    SetDifference,
    average_set,
    correct_by_holm,
    find_levels,
    open_run,
    select_outcomes,
)
from seqdg.study import answer_study, load_study

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs/results/turned-digits"
PICTURES = ROOT / "docs/pictures"

# Why walking helps ---------------------------------------------------------------------------------------------------

SET, ALL = "a set, 95 % interval", "all six, 95 % interval, not corrected"
TERMS = {  # of the sum: the two sides of each, of which the file of the study compares all
    "number of steps (many − few)": ("agg (many)", "agg (few)"),
    "+ batch (small − many)": ("agg (small)", "agg (many)"),
    "+ path (single − small)": ("agg (single)", "agg (small)"),
    "+ going half of the way (Fish − single)": ("fish (few)", "agg (single)"),
    "= Fish − AGG (Fish − few)": ("fish (few)", "agg (few)"),
}


class Term(NamedTuple):
    """One term of the sum, on every set and over all of them."""

    sets: tuple[SetDifference, ...]
    whole: Pooled


@cache
def measure_terms() -> dict[str, Term]:
    """Return the terms, which add up on every set; pooled they need not, as each weighs the sets by its own errors."""
    answers = answer_study(load_study(ROOT / "benchmarks/study-walking.toml"), None).answers
    known = {
        (str(p.comparison.better), str(p.comparison.worse)): p for a in answers for p in (a.main, *a.beside) if p.pooled
    }
    return {name: Term(known[sides].sets, known[sides].pooled) for name, sides in TERMS.items()}


def draw_walking() -> Figure:
    looks, panels = {SET: Style("c6"), ALL: Style("c1", "diamond")}, []
    ends = [end for term in measure_terms().values() for s in (*term.sets, term.whole) for end in s.find_interval()]
    for name, term in measure_terms().items():
        rows = [make_row(s.name, s.mean, *s.find_interval(), look=SET) for s in term.sets]
        rows.append(make_row("all", term.whole.mean, *term.whole.find_interval(), look=ALL))
        limits = min(ends), max(ends)
        panels.append(draw_rows(rows, "difference in accuracy (points)", looks, name, zero=True, limits=limits))
    return Figure("walking", "Fish minus AGG as a sum of four differences", panels, looks=looks)


# When the path pays --------------------------------------------------------------------------------------------------

LEVELS = {"number": (3, 6, 12), "degrees": (0, 45, 90), "noise": (0.0, 0.2, 0.4), "rows": (20, 70, 240)}
COLUMNS = {"number": log2, "degrees": float, "noise": float, "rows": log}  # what each factor counts as
SLOPES = {"number": "domains", "degrees": "degrees", "noise": "noise", "rows": "rows"}
AHEAD, BEHIND = "FO-S-MLDG ahead", "AGG ahead"
CELL_WIDTH, CELL_HEIGHT = 80, 26

Place = tuple[float, ...]  # number, degrees, noise, rows


class Slope(NamedTuple):
    """By how many points the difference changes from a factor's lowest level to its highest."""

    value: float
    low: float  # the interval after Holm's correction over the four
    high: float
    p: float  # corrected


@cache
def read_sets() -> dict[Place, list[Outcome]]:
    """Read the trials of every set, at the step that source validation chooses."""
    sets = {}
    for place in product(*LEVELS.values()):
        with closing(open_run(RECORDS / "-".join(map(str, place)) / "momentum")) as run:
            sets[place] = select_outcomes(list(run.records("accuracy")), "source-val", "accuracy")
    return sets


@cache
def measure_sets() -> dict[Place, SetDifference]:
    """Return the difference on every set, a mean over its held-out domains, with the error of its seeds."""
    differences = {}
    for place, outcomes in read_sets().items():
        values = {(o.algorithm, o.held_out, o.seed): 100 * o.value for o in outcomes if o.value is not None}
        by_seed: dict[int, list[float]] = {}
        for (algorithm, held_out, seed), value in values.items():
            if algorithm == "fo-s-mldg+ema":
                by_seed.setdefault(seed, []).append(value - values["agg+ema", held_out, seed])
        average = average_set("", {("all", seed): fmean(pair) for seed, pair in by_seed.items()})
        assert average is not None
        differences[place] = average
    return differences


def measure_slopes() -> tuple[float, dict[str, Slope]]:
    """Explain the differences by the four factors, by ordinary least squares; and return R² with the slopes."""
    from scipy import stats

    sets = measure_sets()
    y = np.array([s.mean for s in sets.values()])
    columns = [[COLUMNS[name](place[i]) for place in sets] for i, name in enumerate(LEVELS)]
    x = np.array([[1.0] * len(y), *columns]).T
    x[:, 1:] = (x[:, 1:] - x[:, 1:].min(0)) / np.ptp(x[:, 1:], axis=0)
    slopes, (squares,), *_ = np.linalg.lstsq(x, y, rcond=None)
    degrees = len(y) - x.shape[1]
    errors = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * squares / degrees)
    ps = [float(2 * stats.t.sf(abs(b) / e, degrees)) for b, e in zip(slopes[1:], errors[1:], strict=True)]
    found = {}
    for i, (name, level, p) in enumerate(zip(LEVELS, find_levels(ps), correct_by_holm(ps), strict=True), 1):
        reach = stats.t.ppf(1 - level / 2, degrees) * errors[i]
        found[name] = Slope(float(slopes[i]), float(slopes[i] - reach), float(slopes[i] + reach), p)
    return float(1 - squares / ((y - y.mean()) ** 2).sum()), found


def average_levels() -> Mapping[str, Mapping[float, float]]:
    """Return the mean difference over all sets of each level."""
    sets = measure_sets()
    return {
        name: {level: fmean(s.mean for place, s in sets.items() if place[i] == level) for level in levels}
        for i, (name, levels) in enumerate(LEVELS.items())
    }


def is_clear(one: SetDifference) -> bool:
    """Whether the set's interval for other seeds leaves out 0."""
    low, high = one.find_interval()
    return low > 0 or high < 0


def draw_map_of(number: float, noise: float) -> Panel:
    sets = {p: s for p, s in measure_sets().items() if (p[0], p[2]) == (number, noise)}
    most = max(abs(s.mean) for s in measure_sets().values())
    rows = [
        {
            "look": AHEAD if s.mean > 0 else BEHIND, "degrees": f"{place[1]}°", "rows": f"{place[3]} rows",
            "strength": abs(s.mean) / most, "clear": is_clear(s), "text": f"{round(s.mean, 1) + 0.0:+.1f}",
        }
        for place, s in sets.items()
    ]  # fmt: skip
    axis = {"grid": False, "labelFontSize": 11, "labelAngle": 0}
    base = alt.Chart().encode(
        x=alt.X("degrees:N", sort=None, title=None, axis=alt.Axis(**axis)),
        y=alt.Y("rows:N", sort=None, title=None, axis=alt.Axis(**axis)),
    )
    cell = base.mark_rect().encode(
        color=alt.Color(
            "look:N", legend=None, scale=alt.Scale(domain=[AHEAD, BEHIND], range=["var(--c1)", "var(--c0)"])
        ),
        opacity=alt.Opacity("strength:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.05, 0.85])),
    )
    words = [
        base.transform_filter(f"{'' if clear else '!'}datum.clear")
        .mark_text(fontSize=12, fontWeight="bold" if clear else "normal", color="var(--text)")
        .encode(text="text:N")
        for clear in (True, False)
    ]
    chart = alt.layer(cell, *words).properties(width=3 * CELL_WIDTH, height=3 * CELL_HEIGHT)
    heading = f"{number} domains, noise {noise:g}"
    said = ", ".join(f"{row['degrees']} {row['rows']} {row['text']}" for row in rows)
    return Panel(chart, rows, heading, f"{heading}: FO-S-MLDG minus AGG, both averaged, in points. {said}.")


def draw_map() -> Figure:
    panels = [draw_map_of(number, noise) for number in LEVELS["number"] for noise in LEVELS["noise"]]
    found, look = measure_slopes()[1], {"slope": Style("c1", "diamond")}
    rows = [make_row(SLOPES[name], s.value, s.low, s.high, look="slope") for name, s in found.items()]
    panels.append(
        draw_rows(rows, "change of the difference (points)", look, "Slopes, lowest to highest level", zero=True)
    )
    return Figure("path-map", "FO-S-MLDG minus AGG on 81 sets of turned digits", panels, looks=look)


if __name__ == "__main__":
    for name, term in measure_terms().items():
        each = ", ".join(f"{s.name} {s.mean:+.2f}" for s in term.sets)
        low, high = term.whole.find_interval()
        print(f"{name}: {term.whole.mean:+.2f} ({low:+.2f} to {high:+.2f}); {each}")
    explained, slopes = measure_slopes()
    print(f"R² {explained:.2f}; sets whose interval leaves out 0: {sum(map(is_clear, measure_sets().values()))}")
    for name, slope in slopes.items():
        levels = ", ".join(f"{level:g}: {mean:+.2f}" for level, mean in average_levels()[name].items())
        print(f"{name}: {slope.value:+.2f} ({slope.low:+.2f} to {slope.high:+.2f}), p = {slope.p:.2g}; means {levels}")
    write_figures([draw_walking(), draw_map()], PICTURES, ["svg"])

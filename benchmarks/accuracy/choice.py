"""How good is what `seqdg.compare` combines, beside what one would take instead? On nine real sets, or on your own.

    python benchmarks/accuracy/choice.py --data DATA --out runs/choice
    python benchmarks/accuracy/choice.py --folder TABLES --out runs/mine     (CSV files with columns label and domain)
    python benchmarks/accuracy/choice.py --out runs/choice --read            (print the tables again)

Fixed before the run. Each set is cut to at most five domains, evenly spread in their order, and 1,000 rows, of every
class of every domain in proportion. Every domain is held out in turn, and every pair; the usual candidates of `compare`
train as it trains them, with three seeds. What is judged on a domain d is decided without d:

    pick      the candidate that the rule `both-near` chooses
    uniform   the mean of all candidates' calibrated probabilities (of their numbers)
    greedy    greedy selection with replacement by the log loss (squared error) on sources that were held out
    shrunk    half greedy, half uniform over the candidates that are not far behind: `weighted-ensemble`
    always X  one candidate, whatever the scores say

Calibration, selection and "far behind" are those of `seqdg.estimator.weighting`, with no constant changed after the
first run. The score of a case, a set and a domain, is accuracy in %, or 100 R^2 against the variance of the whole set,
averaged over seeds. Sets count the same, and so do the domains of a set. Differences are paired over domains; their
90 % interval is  mean ± 1.645 sqrt(sum over sets of variance / domains) / sets.

What is trained is kept in OUT, and the same call goes on where it stopped: first one seed of every set, then two, ...
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import numpy as np

SETS = ("thyroid", "office", "life", "parkinsons", "reviews", "adult", "wisdm", "beijing", "pacs")
TABLES = ("adult", "thyroid", "life")
ROWS, DOMAINS, SEEDS = 1000, 5, 3  # of a set, at most
AIR = ("month", "hour", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
RULE = "both-near"
COMBINED = ("uniform", "greedy", "shrunk")


# The sets ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    x: Any  # a data frame, or (row, number) with nan for missing values
    y: Any
    domains: Any  # (row,) names


def list_sets(options: argparse.Namespace) -> dict[str, Callable[[], Rows]]:
    """Return what reads each set, by its name."""
    if options.folder is None:
        return {name: lambda name=name: READERS[name](options.data) for name in options.sets}
    files = sorted(options.folder.glob("*.csv"))
    if not files:
        raise SystemExit(f"There is no CSV file in {options.folder}.")
    return {file.stem: lambda file=file: _load_table(file) for file in files}


def _load_table(file: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(file)
    if not {"label", "domain"} <= set(table.columns):
        raise SystemExit(f"{file} needs a column 'label' and a column 'domain'.")
    table = table.dropna(subset=["label", "domain"])
    return Rows(table.drop(columns=["label", "domain"]), table["label"].to_numpy(), table["domain"].astype(str))


def _load_wisdm(data: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(data / "wisdm.csv")
    x = table.drop(columns=["user", "class"]).to_numpy(np.float32)
    return Rows(x, table["class"].to_numpy(str), table["user"].astype(str).to_numpy(str))


def _load_parkinsons(data: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(data / "parkinsons_updrs.csv")
    x = table.drop(columns=["subject#", "motor_UPDRS", "total_UPDRS", "test_time"]).to_numpy(np.float32)
    return Rows(x, table["total_UPDRS"].to_numpy(float), table["subject#"].astype(str).to_numpy(str))


def _load_beijing(data: Path) -> Rows:
    """Return 600 hours of each of twelve stations, evenly spread; neither year nor day nor the other particles."""
    import pandas as pd

    table = pd.read_parquet(data / "beijing_air.parquet").dropna(subset=["PM2.5"])
    parts = [part for _, part in table.groupby("station", observed=True, sort=True)]
    table = pd.concat([part.iloc[np.linspace(0, len(part) - 1, 600).astype(int)] for part in parts])
    wind = pd.get_dummies(table["wd"].astype(str)).to_numpy(np.float32)
    x = np.concatenate([table[list(AIR)].to_numpy(np.float32), wind], 1)
    return Rows(x, table["PM2.5"].to_numpy(float), table["station"].astype(str).to_numpy(str))


def _load_arrays(file: str, names: Sequence[str]) -> Callable[[Path], Rows]:
    def load(data: Path) -> Rows:
        with np.load(data / file) as arrays:
            return _join({name: (arrays[f"{name}_x"], arrays[f"{name}_y"]) for name in names})

    return load


def _load_office(data: Path) -> Rows:
    """Return counts of visual words as shares of each picture."""
    from scipy.io import loadmat

    parts = {}
    for path in sorted((data / "office_caltech10_surf").glob("*.mat")):
        file = loadmat(path)
        counts = file["fts"].astype(np.float32)
        parts[path.stem.partition("_")[0]] = (counts / counts.sum(1, keepdims=True), file["labels"].ravel())
    return _join(parts)


def _join(parts: Mapping[str, tuple[Any, Any]]) -> Rows:
    domains = np.repeat(list(parts), [len(y) for _, y in parts.values()])
    x = np.concatenate([x.astype(np.float32) for x, _ in parts.values()])
    return Rows(x, np.concatenate([y for _, y in parts.values()]), domains)


READERS: dict[str, Callable[[Path], Rows]] = {
    **{name: lambda data, name=name: _load_table(data / f"{name}_domains.csv") for name in TABLES},
    "wisdm": _load_wisdm, "parkinsons": _load_parkinsons, "beijing": _load_beijing, "office": _load_office,
    "reviews": _load_arrays("amazon_reviews_hash2048.npz", ("books", "dvd", "electronics", "kitchen")),
    "pacs": _load_arrays("pacs_efficientnet_lite0.npz", ("art_painting", "cartoon", "photo", "sketch")),
}  # fmt: skip


def cut(rows: Rows, domains: int) -> Rows:
    """Keep at most so many domains, evenly spread in their order."""
    names = np.asarray(rows.domains).astype(str)
    every = sorted(set(names.tolist()), key=lambda name: (len(name), name))
    if len(every) <= domains:
        return rows
    kept = {every[i] for i in np.linspace(0, len(every) - 1, domains).astype(int)}
    mask = np.array([name in kept for name in names])
    return Rows(rows.x[mask], rows.y[mask], names[mask])


# Training and judging ------------------------------------------------------------------------------------------------


def make_sweep(rows: Rows, options: argparse.Namespace, seeds: int) -> Any:
    """Make what trains on a set, with every domain and every pair of domains held out."""
    from seqdg.estimator.compare.folds import Sweep
    from seqdg.estimator.domain_estimator import choose_estimator
    from seqdg.estimator.recipe import adapt_recipe
    from seqdg.estimator.user_data import draw_rows, make_user_data

    quick = {"steps": 60, "evaluations": 3} if options.quick else {}
    recipe = choose_estimator(rows.y).set_params(algorithm="agg", device="cpu", **quick).make_recipe()
    user_data = make_user_data(rows.x, rows.y, rows.domains, recipe, keep_missing=True)
    if (some := draw_rows(user_data, options.rows, recipe.seed)) is not None:
        user_data = user_data.take(some, recipe)
    return Sweep(user_data, adapt_recipe(recipe, user_data.dataset), range(seeds), within=True)


def judge_set(name: str, rows: Rows, options: argparse.Namespace, seeds: int) -> list[dict[str, Any]]:
    """Train every candidate on a set, and return what each way of deciding reaches on each domain."""
    from seqdg.estimator.compare.combining import judge_ensemble
    from seqdg.estimator.compare.comparing import choose_learners, make_searches
    from seqdg.estimator.compare.comparison import CHOSEN
    from seqdg.estimator.compare.folds import KeptRecords

    sweep = make_sweep(cut(rows, options.domains), options, seeds)
    criterion = sweep.recipe.criterion
    learners, _ = choose_learners(options.candidates, None, sweep)
    searches = make_searches(learners, {}, 1, "random", sweep.recipe)
    sweep.sink = KeptRecords(options.out / name, name, criterion=criterion)
    targets = [(d,) for d in sweep.domains]
    try:
        sweep.run(searches, targets, RULE)
        y = sweep.user_data.dataset.y.double()
        whole = float(y.var(correction=0)) if criterion == "rmse" else 1.0
        names, cases = list(learners), []
        ways: dict[str, Callable[[Any], Sequence[float]]] = {
            "uniform": lambda weights: [1 / len(weights.names)] * len(weights.names),
            "greedy": lambda weights: weights.greedy,
            "shrunk": lambda weights: weights.shrunk,
        }
        for target in targets:
            reached = {"pick": sweep.select_outcomes(target, names, RULE, CHOSEN)}
            reached |= {way: judge_ensemble(sweep, target, names, RULE, weigh) for way, weigh in ways.items()}
            for candidate in names:
                label = "linear" if candidate in ("logistic", "ridge") else candidate
                reached[f"always {label}"] = sweep.select_outcomes(target, [candidate], RULE)
            weights = sweep.weigh(target, sweep.choose_members(target, names, RULE))[0]
            for way, outcomes in reached.items():
                known = [o.value for o in outcomes if o.value is not None]
                value = fmean(known) if known else math.nan
                points = 100 * (1 - fmean(v**2 for v in known) / whole) if criterion == "rmse" else 100 * value
                cases.append({"set": name, "domain": target[0], "way": way, "points": points, "seeds": seeds})
                if way == "shrunk":
                    cases[-1]["weights"] = dict(zip(weights.names, weights.shrunk, strict=True))
                if way.startswith("always"):
                    cases[-1]["seconds"] = fmean(o.record.seconds for o in outcomes)
    finally:
        sweep.sink.close()
    return cases


def run(options: argparse.Namespace) -> None:
    """Judge every set with one seed, then with two, ...; append what is done to OUT/cases.jsonl."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "cases.jsonl"
    done = {(case["set"], case["seeds"]) for case in read_cases(file)}
    for seeds in range(1, options.seeds + 1):
        for name, load in list_sets(options).items():
            if (name, seeds) in done:
                continue
            began = time.perf_counter()
            cases = judge_set(name, load(), options, seeds)
            with file.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(case) + "\n" for case in cases)
            print(f"{name}, {seeds} seeds: {time.perf_counter() - began:.0f} s", flush=True)


# The tables ----------------------------------------------------------------------------------------------------------


def read_cases(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def keep_latest(cases: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return points by way, set and domain, of each set those with most seeds."""
    most: dict[str, int] = {}
    for case in cases:
        most[case["set"]] = max(case["seeds"], most.get(case["set"], 0))
    points: dict[str, dict[str, dict[str, float]]] = {}
    for case in cases:
        if case["seeds"] == most[case["set"]]:
            points.setdefault(case["way"], {}).setdefault(case["set"], {})[case["domain"]] = case["points"]
    return points


def compare_ways(one: Mapping[str, Mapping[str, float]], other: Mapping[str, Mapping[str, float]]) -> tuple[float, ...]:
    """Return the mean difference of two ways over sets, and the ends of its 90 % interval, paired over domains."""
    gaps = {s: [one[s][d] - other[s][d] for d in one[s]] for s in one if s in other}
    mean = fmean(fmean(its) for its in gaps.values())
    noise = math.sqrt(sum(variance(its) / len(its) for its in gaps.values() if len(its) > 1)) / len(gaps)
    return mean, mean - 1.645 * noise, mean + 1.645 * noise


def format_table(cases: Sequence[Mapping[str, Any]]) -> str:
    """Format every way's mean over sets, and by how much `shrunk` exceeds it."""
    points = keep_latest(cases)
    sets = list(points["shrunk"])
    rows = []
    for way, by_set in points.items():
        means = {s: fmean(by_set[s].values()) for s in by_set}
        gap, low, high = compare_ways(points["shrunk"], by_set)
        behind = "" if way == "shrunk" else f"{gap:+.2f} ({low:+.2f} to {high:+.2f})"
        cells = [f"{means[s]:.1f}" if s in means else "-" for s in sets]
        rows.append(
            (len(means) < len(sets), -fmean(means.values()), [way, f"{fmean(means.values()):.2f}", behind, *cells])
        )
    head = ["way", "mean", "shrunk is ahead by (90 %)", *sets]
    lines = [head, ["---"] * len(head), *(row for *_, row in sorted(rows))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the directory of the nine sets")
    parser.add_argument("--folder", type=Path, help="CSV files with columns label and domain, in place of the nine")
    parser.add_argument("--sets", type=_split, default=SETS, metavar="A,B", help=", ".join(SETS))
    parser.add_argument("--candidates", type=_split, metavar="A,B", help="the usual ones by default")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a set, at most")
    parser.add_argument("--domains", type=int, default=DOMAINS, help="of a set, at most")
    parser.add_argument("--out", type=Path, default=Path("runs/choice"))
    parser.add_argument("--quick", action="store_true", help="60 steps: to see that it runs")
    parser.add_argument("--read", action="store_true", help="print the table of what is there, and end")
    return parser.parse_args()


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def main() -> None:
    options = parse_options()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not options.read:
        run(options)
    cases = read_cases(options.out / "cases.jsonl")
    print(format_table(cases) if cases else "Nothing is finished yet.")


if __name__ == "__main__":
    main()

"""How a net is best trained on a table: one change at a time from the estimator's parameters, on six real sets.

    python benchmarks/accuracy/defaults.py --data ../shared/data --out runs/defaults --workers 16
    python benchmarks/accuracy/defaults.py --sets reviews,pacs --device cuda
    python benchmarks/accuracy/defaults.py --out runs/defaults --read        # the table of what is there

No domain that is left aside (ASIDE) is read. Of the others each, or each part of many, is held out in turn. A variant
has two scores: on validation rows of the sources (`val`), and on the sources that were held out (`out`), both after the
step that validation rows choose. Classes: accuracy in %. Numbers: 100 (1 - RMSE / deviation). The table has the mean
over algorithms, folds and seeds of the difference from the first variant. Records are kept in --out: what is there is
not trained again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from seqdg.bench import InProcess, MemorySink, Session, Trial, Workers, execute, find_learner, plan_trials
from seqdg.core import adapt_to_path, describe_settings
from seqdg.estimator import DomainClassifier, DomainRegressor
from seqdg.estimator.fitting import make_task
from seqdg.estimator.user_data import make_user_data
from seqdg.nets import NetSpec
from seqdg.results import FAILED, Record, average_finite, select_step

ALGORITHMS = ("agg", "agg+ema", "agg+ema.grows=False", "fo-s-mldg", "fo-s-mldg+ema", "fo-s-mldg+ema.grows=False")
BASE: dict[str, Any] = {"steps": 500, "hidden": (64, 32), "lr": 0.003, "evaluations": 5, "scaling": "quantile"}
VARIANTS: dict[str, dict[str, Any]] = {
    "64,32; 500 steps; lr 0.003; quantiles": {},
    "standard scaling": {"scaling": "standard"},
    "hidden 32": {"hidden": (32,)},
    "hidden 128,64": {"hidden": (128, 64)},
    "hidden 256,128": {"hidden": (256, 128)},
    "1000 steps": {"steps": 1000},
    "2000 steps": {"steps": 2000},
    "4000 steps": {"steps": 4000},
    "256,128; 2000 steps": {"hidden": (256, 128), "steps": 2000},
    "lr 0.001": {"lr": 0.001},
    "lr 0.01": {"lr": 0.01},
    "4 members": {"members": 4},
    "8 members": {"members": 8},
    "4 domains a step": {"domains_per_step": 4},
    "4 members; hidden 32": {"members": 4, "hidden": (32,)},
    "4 members; lr 0.001": {"members": 4, "lr": 0.001},
    "4 members; hidden 32; lr 0.001": {"members": 4, "hidden": (32,), "lr": 0.001},
    "4 members; hidden 128; lr 0.001": {"members": 4, "hidden": (128,), "lr": 0.001},
    "4 members; 256,128; 5000 steps": {"members": 4, "hidden": (256, 128), "steps": 5000},
    "4 members; 256,128; 5000 steps; lr 0.001": {"members": 4, "hidden": (256, 128), "steps": 5000, "lr": 0.001},
}
QUICK = ("standard scaling", "hidden 128,64", "4 members")
SOME = 8  # domains that a step meets of many
MANY = 8  # domains, above which they are held out in parts, and a step meets some of them
PARTS = 4
ASIDE = {
    "wisdm": ("3", "7", "12", "13", "18", "19", "20", "27", "31", "36"),
    "reviews": ("kitchen",),
    "beijing": ("Changping", "Huairou", "Tiantan"),
    "parkinsons": ("1", "5", "9", "13", "17", "21", "25", "29", "33", "37", "41"),
    "office": ("webcam",),
    "pacs": ("sketch",),
}


class Rows(NamedTuple):
    x: Any
    y: Any
    domains: Any


def read_wisdm(folder: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(folder / "wisdm.csv")
    return Rows(table.drop(columns=["user", "class"]), table["class"], table["user"])


def read_arrays(path: Path) -> Rows:
    with np.load(path) as arrays:
        names = [name[: -len("_x")] for name in arrays if name.endswith("_x")]
        parts = [(arrays[f"{name}_x"].astype(np.float32), arrays[f"{name}_y"]) for name in names]
    domains = np.repeat(names, [len(y) for _, y in parts])
    return Rows(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), domains)


def read_beijing(folder: Path) -> Rows:
    import pandas as pd

    table = pd.read_parquet(folder / "beijing_air.parquet")
    table = table[table["PM2.5"].notna()]
    y = np.digitize(table["PM2.5"], [35.0, 75.0, 150.0], right=True)
    others = ["No", "year", "day", "PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "station"]
    return Rows(table.drop(columns=[c for c in others if c in table]), y, table["station"].astype(str))


def read_parkinsons(folder: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(folder / "parkinsons_updrs.csv")
    x = table.drop(columns=["subject#", "motor_UPDRS", "total_UPDRS", "test_time"])
    return Rows(x, table["total_UPDRS"].to_numpy(float), table["subject#"])


def read_office(folder: Path) -> Rows:
    from scipy.io import loadmat

    parts = {}
    for path in sorted((folder / "office_caltech10_surf").glob("*.mat")):
        content = loadmat(path)
        counts = content["fts"].astype(np.float32)
        parts[path.stem.split("_")[0]] = (
            counts / np.maximum(counts.sum(1, keepdims=True), 1),
            content["labels"].ravel(),
        )
    domains = np.repeat(list(parts), [len(y) for _, y in parts.values()])
    return Rows(np.concatenate([x for x, _ in parts.values()]), np.concatenate([y for _, y in parts.values()]), domains)


SETS: dict[str, Callable[[Path], Rows]] = {
    "wisdm": read_wisdm,
    "reviews": lambda folder: read_arrays(folder / "amazon_reviews_hash2048.npz"),
    "beijing": read_beijing,
    "parkinsons": read_parkinsons,
    "office": read_office,
    "pacs": lambda folder: read_arrays(folder / "pacs_efficientnet_lite0.npz"),
}


@dataclass(frozen=True)
class Wanted:
    """A trial, and of what."""

    variant: str
    algorithm: str
    trial: Trial


class Lines(MemorySink):
    """Keeps the scores of every trial as a line of JSON."""

    def __init__(self, path: Path, wanted: Mapping[str, list[Wanted]], criterion: str, deviation: float) -> None:
        super().__init__()
        self.path, self.wanted, self.criterion, self.deviation = path, wanted, criterion, deviation

    def add(self, records: Iterable[Record], group: str = "") -> None:
        with self.path.open("a") as file:
            for record in records:
                if record.status == FAILED:
                    raise RuntimeError(record.error)
                for one in self.wanted[record.key]:
                    file.write(json.dumps(self.describe(one, record)) + "\n")

    def describe(self, one: Wanted, record: Record) -> dict[str, Any]:
        chosen = select_step(record.history, self.criterion)
        evaluation = record.history[-1 if chosen is None else chosen[1]]
        val, out = (
            self.rate(average_finite(part[self.criterion])) for part in (evaluation.source, evaluation.held_out)
        )
        return {
            "key": record.key, "variant": one.variant, "algorithm": one.algorithm, "held_out": one.trial.held_out,
            "seed": one.trial.seed, "status": record.status, "step": evaluation.step, "val": val, "out": out,
            "seconds": record.seconds,
        }  # fmt: skip

    def rate(self, value: float) -> float:
        return 100 * (1 - value / self.deviation) if self.deviation else 100 * value


def run_set(name: str, options: argparse.Namespace, path: Path) -> None:
    """Train what is missing of one set."""
    began = time.perf_counter()
    x, y, domains = leave_aside(SETS[name](options.data), ASIDE[name])
    regression = np.asarray(y).dtype.kind == "f"
    criterion = "rmse" if regression else "accuracy"
    template = DomainRegressor if regression else DomainClassifier
    chosen = QUICK if options.quick else options.variants.split("|") if options.variants else VARIANTS
    variants = {v: c for v, c in VARIANTS.items() if not c or v in chosen}
    wanted: list[Wanted] = []
    count = len(set(np.asarray(domains).astype(str)))
    first = template(device=options.device, **BASE).make_recipe()
    user_data = make_user_data(x, y, domains, first, keep_missing=True)
    task, net, _ = make_task(user_data, first, scaled=False)
    for variant, changes in variants.items():
        if "domains_per_step" in changes and count <= MANY:
            continue
        parameters = {**BASE, **{k: v for k, v in changes.items() if k != "domains_per_step"}}
        if options.quick:
            parameters["steps"] //= 5
        recipe = template(device=options.device, **parameters).make_recipe()
        some = changes.get("domains_per_step", SOME if count > MANY else 0)
        protocol = replace(recipe.protocol, domains_per_step=some)
        for algorithm in ALGORITHMS:
            chain, _, constant = algorithm.partition(".")
            if constant and changes:
                continue
            built = find_learner(chain).build_settings(chain, **({"grows": False} if constant else {}))
            for held_out in list_folds(user_data.dataset.domains):
                settings = describe_settings(adapt_to_path(built, count, count - 1))
                for seed in range(options.seeds):
                    trial = task.make_trial(chain, settings, protocol, held_out, seed)
                    wanted.append(Wanted(variant, algorithm, replace(trial, net=NetSpec("mlp", hidden=recipe.hidden))))
    by_key: dict[str, list[Wanted]] = {}
    for one in wanted:
        by_key.setdefault(one.trial.key, []).append(one)
    finished = {line["key"] for line in read_lines(path)}
    plan = plan_trials(task, [one.trial for one in wanted], net, first.device, finished)
    sink = Lines(path, by_key, criterion, float(np.asarray(y).std()) if regression else 0.0)
    executor = Workers(options.workers) if options.workers else InProcess()
    print(f"{name}: {len(x)} rows, {count} domains, {sum(len(g.trials) for g in plan.missing)} of {len(wanted)} trials")
    execute(plan, Session(task, first.device), executor, sink)
    print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def leave_aside(rows: Rows, aside: Sequence[str]) -> Rows:
    keep = ~np.isin(np.asarray(rows.domains).astype(str), aside)
    assert not keep.all(), f"none of {aside} is there"
    x = rows.x[keep] if isinstance(rows.x, np.ndarray) else rows.x.loc[keep].reset_index(drop=True)
    return Rows(x, np.asarray(rows.y)[keep], np.asarray(rows.domains)[keep])


def list_folds(domains: Sequence[str]) -> list[tuple[str, ...]]:
    """List what is held out together: every domain alone, or of many a quarter at a time."""
    if len(domains) <= MANY:
        return [(domain,) for domain in domains]
    return [tuple(domains[i::PARTS]) for i in range(PARTS)]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # cut short


def print_tables(out: Path, names: Sequence[str]) -> None:
    cells: dict[str, dict[tuple[str, str], dict[tuple[Any, ...], tuple[float, float]]]] = {}
    for name in names:
        for line in read_lines(out / f"{name}.jsonl"):
            fold = (tuple(line["held_out"]), line["seed"])
            scores = cells.setdefault(name, {}).setdefault((line["variant"], line["algorithm"]), {})
            scores[fold] = (line["val"], line["out"])
    names = [name for name in names if name in cells]
    base = next(iter(VARIANTS))
    print("\nalgorithms, as they are in the first variant: val / out, in points\n")
    print_rows(names, ALGORITHMS, lambda name, a: average(cells[name].get((base, a), {}).values()))
    print("\nvariants, with +ema: difference from the first in val / out, and the standard error of the latter\n")
    wrapped = [a for a in ALGORITHMS if a.endswith("+ema")]
    print_rows(names, list(VARIANTS), lambda name, v: compare_variant(cells[name], v, base, wrapped))
    print()


def print_rows(names: Sequence[str], rows: Sequence[str], find: Callable[[str, str], str]) -> None:
    print("| | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for row in rows:
        print(f"| {row} | " + " | ".join(find(name, row) for name in names) + " |")


def average(values: Iterable[tuple[float, float]]) -> str:
    known = list(values)
    return f"{fmean(v for v, _ in known):.1f} / {fmean(o for _, o in known):.1f}" if known else ""


def compare_variant(found: Mapping[tuple[str, str], Any], variant: str, base: str, algorithms: Sequence[str]) -> str:
    every = [
        (values[0] - before[0], values[1] - before[1])
        for a in algorithms
        for fold, values in found.get((variant, a), {}).items()
        if (before := found.get((base, a), {}).get(fold)) is not None
    ]
    if variant == base:
        return average(v for a in algorithms for v in found.get((base, a), {}).values())
    if len(every) < 2:
        return ""
    pairs = [pair for pair in every if all(map(math.isfinite, pair))]
    lost = f", {len(every) - len(pairs)} diverged" if len(pairs) < len(every) else ""
    error = stdev(o for _, o in pairs) / len(pairs) ** 0.5
    return f"{fmean(v for v, _ in pairs):+.1f} / {fmean(o for _, o in pairs):+.1f} ({error:.1f}{lost})"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--sets", default=",".join(SETS), help="names, with commas between")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--variants", default="", help="those to train beside the first, with | between")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: this one")
    parser.add_argument("--quick", action="store_true", help="few variants, a fifth of the steps, to see that it runs")
    parser.add_argument("--read", action="store_true", help="print the table of what is there, and train nothing")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.sets.split(",")
    for name in [] if options.read else names:
        run_set(name, options, options.out / f"{name}.jsonl")
    print_tables(options.out, names)


if __name__ == "__main__":
    main()

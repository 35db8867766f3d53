"""How good is what `seqdg.compare` combines, beside what one would take instead? On nine real sets, or on your own.

    python benchmarks/accuracy/choice.py --data DATA --out runs/choice --processes 12 --minutes 9
    python benchmarks/accuracy/choice.py --folder TABLES --out runs/mine     (CSV files with columns label and domain)
    python benchmarks/accuracy/choice.py --out runs/choice --read            (print the table of what is there)
    python benchmarks/accuracy/choice.py --out runs/choice --gains           (what each candidate is worth, and costs)
    python benchmarks/accuracy/choice.py --out runs/choice --intervals       (how often the interval holds)
    python benchmarks/accuracy/choice.py --out runs/choice --read --candidates A,B     (the same, of these alone)

Fixed before the run. Each set is cut to at most five domains, evenly spread in their order, and 1,000 rows, of every
class of every domain in proportion. Every domain is held out in turn, and every pair; the usual candidates of `compare`
train as it trains them. What is judged on a domain d is decided without d, by trainings that held out d and one source
more, and each of the three seeds decides by itself:

    pick      the candidate that the rule `both-near` chooses
    uniform   the mean of all candidates' calibrated probabilities (of their numbers)
    greedy    greedy selection with replacement by the log loss (squared error) on sources that were held out
    shrunk    half greedy, half uniform over the candidates that are not far behind: `weighted-ensemble`
    always X  one candidate, whatever the scores say
    best      the candidate that is best on d itself: a bound, and no rule

Calibration, selection and "far behind" are those of `seqdg.estimator.weighting`, with no constant changed after the
first run. What did change, once seed 0 had been read: "far behind" meant behind in every fold, and means behind
over all of them (with five patients of Parkinson's, a poor member is lucky with one). docs/choosing.md has both; other
seeds are of the same sets and domains, and no independent test.

The score of a case, a set and a domain, is accuracy in %, or 100 R^2 against the variance of the whole set, averaged
over seeds. Sets count the same, and so do the domains of a set. Differences are paired over domains; their
90 % interval is  mean ± 1.645 sqrt(sum over sets of variance / domains) / sets.

OUT has a file for each seed, with what every training says of what it held out; tables are made of these alone. What
is trained is kept in --work, and the same call goes on where it stopped: first one seed of every set, then the next.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, variance
from typing import Any

import numpy as np

# From the one that takes longest on, so that processes end at about the same time.
SETS = ("office", "pacs", "reviews", "thyroid", "wisdm", "adult", "beijing", "parkinsons", "life")
TABLES = ("adult", "thyroid", "life")
ROWS, DOMAINS, SEEDS = 1000, 5, (0, 1, 2)  # rows and domains of a set, at most
MOST_CLASSES = 20  # that numbers in a column of labels may stand for; more are a regression target
AIR = ("month", "hour", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
RULE = "both-near"
Target = tuple[str, ...]


# The sets ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    x: Any  # a data frame, or (row, number) with nan for missing values
    y: Any
    domains: Any  # (row,) names
    is_number: bool = False  # whether y is a regression target, which may be whole


def list_sets(options: argparse.Namespace) -> dict[str, Callable[[], Rows]]:
    """Return what reads each set, by its name."""
    if options.folder is None:
        if wrong := [name for name in options.sets if name not in READERS]:
            raise SystemExit(f"There is no set {wrong[0]}. There are: {', '.join(SETS)}.")
        return {name: partial(READERS[name], options.data) for name in options.sets}
    files = sorted(options.folder.glob("*.csv"))
    if not files:
        raise SystemExit(f"There is no CSV file in {options.folder}.")
    return {file.stem: partial(_load_table, file) for file in files}


def _load_table(file: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(file)
    if not {"label", "domain"} <= set(table.columns):
        raise SystemExit(f"{file} needs a column 'label' and a column 'domain'.")
    table = table.dropna(subset=["label", "domain"])
    y = table["label"]
    is_number = pd.api.types.is_numeric_dtype(y) and y.nunique() > MOST_CLASSES
    return Rows(table.drop(columns=["label", "domain"]), y.to_numpy(), table["domain"].astype(str), is_number)


def _load_domains(file: str, data: Path) -> Rows:
    return _load_table(data / file)


def _load_wisdm(data: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(data / "wisdm.csv")
    x = table.drop(columns=["user", "class"]).to_numpy(np.float32)
    return Rows(x, table["class"].to_numpy(str), table["user"].astype(str).to_numpy(str))


def _load_parkinsons(data: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(data / "parkinsons_updrs.csv")
    x = table.drop(columns=["subject#", "motor_UPDRS", "total_UPDRS", "test_time"]).to_numpy(np.float32)
    return Rows(x, table["total_UPDRS"].to_numpy(float), table["subject#"].astype(str).to_numpy(str), True)


def _load_beijing(data: Path) -> Rows:
    """Return 600 hours of each of twelve stations, evenly spread; neither year nor day nor the other particles."""
    import pandas as pd

    file = data / "beijing_air.csv"  # where pyarrow is lacking: the same table, or 600 rows of each station
    table = pd.read_csv(file) if file.exists() else pd.read_parquet(data / "beijing_air.parquet")
    table = table.dropna(subset=["PM2.5"])
    parts = [part for _, part in table.groupby("station", observed=True, sort=True)]
    table = pd.concat([part.iloc[np.linspace(0, len(part) - 1, 600).astype(int)] for part in parts])
    wind = pd.get_dummies(table["wd"].astype(str)).to_numpy(np.float32)
    x = np.concatenate([table[list(AIR)].to_numpy(np.float32), wind], 1)
    return Rows(x, table["PM2.5"].to_numpy(float), table["station"].astype(str).to_numpy(str), True)


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
    **{name: partial(_load_domains, f"{name}_domains.csv") for name in TABLES},
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
    return Rows(rows.x[mask], rows.y[mask], names[mask], rows.is_number)


# Training ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Candidates that share a training, on one set with one seed."""

    seed: int
    set: str
    candidates: tuple[str, ...]


def make_sweep(rows: Rows, options: argparse.Namespace, seed: int) -> Any:
    """Make what trains on a set, with every domain and every pair of domains held out."""
    from seqdg import DomainClassifier, DomainRegressor
    from seqdg.estimator.compare.folds import Sweep
    from seqdg.estimator.recipe import adapt_recipe
    from seqdg.estimator.user_data import draw_rows, make_user_data

    quick = {"steps": 60, "evaluations": 3} if options.quick else {}
    kind = DomainRegressor if rows.is_number else DomainClassifier
    recipe = kind(algorithm="agg", device="cpu", **quick).make_recipe()
    user_data = make_user_data(rows.x, rows.y, rows.domains, recipe, keep_missing=True)
    if (some := draw_rows(user_data, options.rows, recipe.seed)) is not None:
        user_data = user_data.take(some, recipe)
    return Sweep(user_data, adapt_recipe(recipe, user_data.dataset), range(seed, seed + 1), within=True)


def list_jobs(name: str, rows: Rows, options: argparse.Namespace) -> list[Job]:
    """List what is trained on a set for each seed, the slowest first."""
    from seqdg.core import shorten
    from seqdg.estimator.compare.comparing import choose_learners
    from seqdg.estimator.compare.folds import list_rounds

    sweep = make_sweep(rows, options, 0)
    if len(sweep.domains) < 4:
        print(f"{name} is left out: pairs of domains are held out, and it has {len(sweep.domains)} domains.")
        return []
    learners, notes = choose_learners(options.candidates, None, sweep)
    print(*(f"{name}: {note}\n" for note in notes), sep="", end="", flush=True)
    rounds = sorted(list_rounds(learners), key=lambda names: -learners[names[0]].rank_cost(shorten(names[0])))
    return [Job(seed, name, tuple(names)) for seed in options.seeds for names in rounds]


def train_job(job: Job, options: argparse.Namespace) -> tuple[Job, dict[str, Any], dict[str, Any]]:
    """Train, with every domain and every pair held out; return what is known of the candidates, and what they say."""
    from seqdg.bench import find_learner, find_learner_of
    from seqdg.core import shorten
    from seqdg.estimator.compare.comparing import make_searches
    from seqdg.estimator.compare.folds import Contender, KeptRecords
    from seqdg.results import score, select_evaluation

    sweep = make_sweep(_read_set(job.set, options), options, job.seed)
    criterion, data = sweep.recipe.criterion, sweep.user_data.dataset
    learners = {name: find_learner(name) for name in job.candidates}
    searches = make_searches(learners, {}, 1, "random", sweep.recipe)
    identity = f"{job} {options.rows} rows {options.domains} domains {'quick' if options.quick else ''}"
    folder = options.work / f"seed-{job.seed}" / job.set / job.candidates[0]
    sweep.sink = KeptRecords(folder, identity, criterion=criterion)
    try:
        sweep.run(searches, [(d,) for d in sweep.domains], RULE)
        about: dict[str, Any] = {
            "domains": sweep.domains, "criterion": criterion, "candidates": {},
            "variance": float(data.y.double().var(correction=0)) if criterion == "rmse" else 1.0,
        }  # fmt: skip
        arrays = {f"y/{i}": sweep.take_labels(d)[0] for i, d in enumerate(sweep.domains)}
        for name, search in searches.items():
            contender = Contender(name, *search.first)
            validated, reached, seconds = {}, {}, []
            for held_out in list_held_out(sweep.domains):
                places = "-".join(str(sweep.domains.index(d)) for d in held_out)
                (record,) = sweep.list_records(held_out, contender)
                seconds.append(record.seconds)
                chosen = select_evaluation(record, criterion)
                if chosen is not None:
                    validated[places] = [score(value, criterion) for value in chosen.source[criterion]]
                    reached[places] = [score(value, criterion) for value in chosen.held_out[criterion]]
                for d in held_out:
                    told = sweep.predict(held_out, contender, d)
                    kind = np.float32 if told.ndim == 1 else np.float16
                    arrays[f"{name}/{places}/{sweep.domains.index(d)}"] = told.astype(kind)
            learner = find_learner_of(sweep.make_trials((), contender)[0])
            about["candidates"][name] = {
                "simplicity": learner.rank_simplicity(shorten(name)), "seconds": fmean(seconds),
                "validated": validated, "reached": reached,
            }  # fmt: skip
    finally:
        sweep.sink.close()
    return job, about, arrays


def list_held_out(domains: Sequence[str]) -> list[Target]:
    """List every domain, and every pair of them in their order."""
    return [*((d,) for d in domains), *combinations(domains, 2)]


def _read_set(name: str, options: argparse.Namespace) -> Rows:
    return cut(list_sets(options)[name](), options.domains)


def _begin() -> None:
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def _try_job(job: Job, options: argparse.Namespace) -> tuple[Job, float, Any]:
    """Train a job; return its seconds, and what came of it or the error."""
    began = time.perf_counter()
    try:
        found: Any = train_job(job, options)[1:]
    except Exception:
        found = traceback.format_exc()
    return job, time.perf_counter() - began, found


def train(options: argparse.Namespace) -> None:
    """Train what OUT does not have, in processes, until the time is over; write a file for each seed as it goes."""
    until = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    _begin()
    files = {seed: SeedFile(options.out / f"seed-{seed}.npz") for seed in options.seeds}
    jobs: list[Job] = []
    for name in list_sets(options):
        try:
            jobs += list_jobs(name, _read_set(name, options), options)
        except (ImportError, FileNotFoundError) as error:
            print(f"{name} is left out: {error}", flush=True)
    for seed, file in files.items():
        for name in {job.set for job in jobs}:
            file.expect(name, [c for job in jobs if (job.seed, job.set) == (seed, name) for c in job.candidates])
    todo = [job for job in jobs if not files[job.seed].has(job)]
    todo.sort(key=lambda job: job.seed)
    print(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are done already.", flush=True)
    with multiprocessing.get_context("spawn").Pool(options.processes, _begin) as pool:
        results = pool.imap_unordered(partial(_try_job, options=options), todo)
        for done in range(1, len(todo) + 1):
            try:
                job, seconds, found = results.next(max(0.01, min(until - time.monotonic(), 1e6)))
            except multiprocessing.TimeoutError:
                print(f"The time is over: {len(todo) - done + 1} jobs are left for the same call.", flush=True)
                break
            what = f"seed {job.seed}, {job.set}, {', '.join(job.candidates)}: {seconds:.1f} s"
            if isinstance(found, str):
                print(f"{what}, failed\n{found}", flush=True)
                continue
            files[job.seed].add(job, *found)
            print(f"{done}/{len(todo)} {what}", flush=True)
        pool.terminate()
    for file in files.values():
        file.write()


class SeedFile:
    """What the trainings of one seed said, by set."""

    def __init__(self, path: Path) -> None:
        self.path, self.about, self.arrays = path, dict[str, Any](), dict[str, Any]()
        self._written = time.monotonic()
        if path.exists():
            with np.load(path) as held:
                self.about = json.loads(str(held["about"]))
                self.arrays = {key: held[key] for key in held.files if key != "about"}

    def expect(self, name: str, candidates: Sequence[str]) -> None:
        """Note which candidates are wanted of a set."""
        self.about.setdefault(name, {"candidates": {}})["wanted"] = list(candidates)

    def has(self, job: Job) -> bool:
        return set(job.candidates) <= set(self.about.get(job.set, {"candidates": {}})["candidates"])

    def add(self, job: Job, about: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        mine = self.about[job.set]
        mine |= {**about, "candidates": {**mine["candidates"], **about["candidates"]}}
        self.arrays |= {f"{job.set}/{key}": value for key, value in arrays.items()}
        if time.monotonic() - self._written > 10:
            self.write()

    def write(self) -> None:
        if not self.arrays:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        other = self.path.with_name(f"{self.path.stem}.part.npz")
        np.savez_compressed(other, about=np.array(json.dumps(self.about)), **self.arrays)
        other.replace(self.path)
        self._written = time.monotonic()

    def list_sets(self) -> Iterator[SetRecords]:
        """Yield the sets of which every candidate is there."""
        for name, about in self.about.items():
            if set(about["wanted"]) <= set(about["candidates"]):
                yield SetRecords(name, about, self.arrays)


# Judging -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetRecords:
    """What all trainings of one seed said of a set."""

    name: str
    about: Mapping[str, Any]
    arrays: Mapping[str, Any]

    @property
    def domains(self) -> list[str]:
        return list(self.about["domains"])

    @property
    def candidates(self) -> list[str]:
        """From the simplest on, as the rule breaks ties."""
        its = self.about["candidates"]
        return sorted(its, key=lambda name: (its[name]["simplicity"], self.about["wanted"].index(name)))

    def take_labels(self, domain: int) -> Any:
        return self.arrays[f"{self.name}/y/{domain}"]

    def predict(self, candidate: str, held_out: Sequence[int], domain: int) -> Any:
        """Return what a training without some domains says of one of them, as float64."""
        places = "-".join(map(str, sorted(held_out)))
        return self.arrays[f"{self.name}/{candidate}/{places}/{domain}"].astype(np.float64)

    def score_sources(self, candidate: str, target: int) -> list[float] | None:
        """Score a candidate on every source without the target, as the rule `both` does; None: training diverged."""
        its, sources = self.about["candidates"][candidate], self._list_sources(target)
        inner = {s: "-".join(map(str, sorted((target, s)))) for s in sources}
        if str(target) not in its["validated"] or not set(inner.values()) <= set(its["reached"]):
            return None
        validated = its["validated"][str(target)]
        held_out = [its["reached"][inner[s]][sorted((target, s)).index(s)] for s in sources]
        return [fmean(pair) for pair in zip(validated, held_out, strict=True)]

    def weigh(self, target: int, among: Sequence[str]) -> Any:
        """Weigh candidates by what they say of each source without it and the target."""
        from seqdg.estimator.weighting import Fold, find_weights

        said = {c: [self.predict(c, (target, s), s) for s in self._list_sources(target)] for c in among}
        able = [
            c for c in among if all(np.isfinite(part).all() for part in (*said[c], self.predict(c, [target], target)))
        ]
        folds = [
            Fold(self.take_labels(s), np.stack([said[c][i] for c in able]))
            for i, s in enumerate(self._list_sources(target))
        ]
        return find_weights(able, folds)

    def measure(self, target: int, outputs: Any) -> float:
        """Measure probabilities or numbers for the rows of a domain, in points."""
        y = self.take_labels(target)
        if self.about["criterion"] == "rmse":
            return 100 * (1 - float(np.mean((outputs - y) ** 2)) / float(self.about["variance"]))
        return 100 * float(np.mean(outputs.argmax(1) == y))

    def _list_sources(self, target: int) -> list[int]:
        return [s for s in range(len(self.domains)) if s != target]


def judge(records: SetRecords, among: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield what each way of deciding reaches on each domain."""
    for target, domain in enumerate(records.domains):
        for way, points in judge_target(records, target, among or records.candidates).items():
            yield {"set": records.name, "domain": domain, "way": way, "points": points}


def judge_target(records: SetRecords, target: int, among: Sequence[str]) -> dict[str, float]:
    from seqdg.estimator.compare.comparison import choose, split_rule

    alone = {c: records.measure(target, records.predict(c, [target], target)) for c in among}
    choice = choose([records.score_sources(c, target) for c in among], split_rule(RULE)[1])
    found = judge_ensembles(records, target, among)
    found["pick"] = math.nan if choice is None else alone[among[choice.index]]
    found["best"] = max(alone.values())
    for candidate, points in alone.items():
        found[f"always {'linear' if candidate in ('logistic', 'ridge') else candidate}"] = points
    return found


def judge_ensembles(records: SetRecords, target: int, among: Sequence[str]) -> dict[str, float]:
    """Return what ensembles that are weighed without a domain reach on it."""
    from seqdg.estimator.weighting import combine

    weights = records.weigh(target, among)
    outputs = np.stack([records.predict(c, [target], target) for c in weights.names])
    count = len(weights.names)
    ways = {"shrunk": weights.shrunk, "greedy": weights.greedy, "uniform": [1 / count] * count}
    return {w: records.measure(target, combine(outputs, its, weights.temperatures)) for w, its in ways.items()}


def read_records(out: Path) -> list[tuple[int, SetRecords]]:
    """Return the finished sets of every seed."""
    files = sorted(out.glob("seed-*[0-9].npz"))
    return [(int(f.stem.partition("-")[2]), records) for f in files for records in SeedFile(f).list_sets()]


# The tables ----------------------------------------------------------------------------------------------------------

Points = dict[str, dict[str, dict[str, float]]]  # by way, set and domain


def average_seeds(cases: Iterable[Mapping[str, Any]]) -> Points:
    """Return the mean over seeds by way, set and domain."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for case in cases:
        values.setdefault((case["way"], case["set"], case["domain"]), []).append(case["points"])
    points: Points = {}
    for (way, name, domain), its in values.items():
        points.setdefault(way, {}).setdefault(name, {})[domain] = fmean(its)
    return points


def compare_ways(one: Mapping[str, Mapping[str, float]], other: Mapping[str, Mapping[str, float]]) -> tuple[float, ...]:
    """Return the mean difference of two ways over sets, and the ends of its 90 % interval, paired over domains."""
    gaps = {s: [one[s][d] - other[s][d] for d in one[s]] for s in one if s in other}
    mean = fmean(fmean(its) for its in gaps.values())
    noise = math.sqrt(sum(variance(its) / len(its) for its in gaps.values() if len(its) > 1)) / len(gaps)
    return mean, mean - 1.645 * noise, mean + 1.645 * noise


def average_sets(by_set: Mapping[str, Mapping[str, float]]) -> float:
    return fmean(fmean(its.values()) for its in by_set.values())


def format_table(points: Points) -> str:
    """Format every way's mean over sets, and by how much `shrunk` exceeds it; what not all sets have comes last."""
    sets = list(points["shrunk"])
    rows = []
    for way, by_set in points.items():
        gap, low, high = compare_ways(points["shrunk"], by_set)
        behind = "" if way == "shrunk" else f"{gap:+.2f} ({low:+.2f} to {high:+.2f})"
        cells = [f"{fmean(by_set[s].values()):.1f}" if s in by_set else "-" for s in sets]
        mean = average_sets(by_set)
        rows.append((len(by_set) < len(sets), -mean, [way, f"{mean:.2f}", behind, *cells]))
    head = ["way", "mean", "shrunk is ahead by (90 %)", *sets]
    return _draw([head, *(row for *_, row in sorted(rows))])


def format_gains(records: Sequence[tuple[int, SetRecords]]) -> str:
    """Format what each candidate costs, what the ensemble loses without it, and in which order candidates gain most by
    the second. Linear models count as one candidate; costs are those of a training, the mean over sets."""
    names = sorted({_shorten(c) for _, r in records for c in r.candidates})
    seconds = {
        n: fmean(r.about["candidates"][c]["seconds"] for _, r in records for c in r.candidates if _shorten(c) == n)
        for n in names
    }
    reached = cache(partial(_reach_together, tuple(records)))
    whole = reached(frozenset(names))
    lines = [["candidate", "seconds a training", "alone", "the ensemble without it"]]
    for n in sorted(names, key=seconds.__getitem__):
        alone, without = reached(frozenset([n])), reached(frozenset(names) - {n})
        lines.append([n, f"{seconds[n]:.2f}", f"{alone:.2f}", f"{without - whole:+.2f}"])
    steps, team, before = [["added", "points", "gain", "seconds in all"]], frozenset[str](), None
    while len(team) < len(names):
        gains = {n: reached(team | {n}) - (before or 0) for n in names if n not in team}
        best = max(gains, key=lambda n: gains[n] if before is None else gains[n] / seconds[n])
        team, before = team | {best}, reached(team | {best})
        steps.append([best, f"{before:.2f}", f"{gains[best]:+.2f}", f"{sum(seconds[n] for n in team):.2f}"])
    return f"All together: {whole:.2f}\n\n{_draw(lines)}\n\n{_draw(steps)}"


def format_intervals(records: Sequence[tuple[int, SetRecords]]) -> str:
    """Format how often the 90 % interval for a domain holds its score: for every candidate and domain, the interval is
    made from the scores on the others, of trainings that held out the domain and the other one."""
    lines, held = [["set", "known domains", "cases", "within, in %", "median width"]], list[bool]()
    for name in dict.fromkeys(its.name for _, its in records):
        found = [each for _, its in records if its.name == name for each in _list_intervals(its)]
        widths = [width for _, width in found]
        held += [holds for holds, _ in found]
        about = next(its.about for _, its in records if its.name == name)
        unit = "% of the RMSE" if about["criterion"] == "rmse" else "points"
        share = f"{100 * fmean(holds for holds, _ in found):.1f}"
        lines.append([name, str(len(about["domains"]) - 1), str(len(found)), share, f"{median(widths):.1f} {unit}"])
    return _draw([*lines, ["all", "", str(len(held)), f"{100 * fmean(held):.1f}", ""]])


def _list_intervals(records: SetRecords) -> Iterator[tuple[bool, float]]:
    """Yield of every candidate and domain whether the interval holds the score, and its width."""
    from seqdg.results import predict_next_domain

    criterion, count = records.about["criterion"], len(records.domains)
    sign = -1 if criterion == "rmse" else 1  # records hold more as better
    rows = [len(records.take_labels(d)) for d in range(count)]
    for candidate in records.candidates:
        reached = records.about["candidates"][candidate]["reached"]
        for target in range(count):
            sources = [s for s in range(count) if s != target]
            pairs = {s: sorted((target, s)) for s in sources}
            keys = [str(target), *("-".join(map(str, pair)) for pair in pairs.values())]
            if not set(keys) <= set(reached):
                continue
            scores = [sign * reached["-".join(map(str, pair))][pair.index(s)] for s, pair in pairs.items()]
            ahead = predict_next_domain(scores, [rows[s] for s in sources], criterion)
            truth = sign * reached[str(target)][0]
            whole = fmean(scores) if criterion == "rmse" else 1.0
            yield ahead.low <= truth <= ahead.high, 100 * ahead.width / whole


def _shorten(candidate: str) -> str:
    return "linear" if candidate in ("logistic", "ridge") else candidate


def _reach_together(records: Sequence[tuple[int, SetRecords]], names: frozenset[str]) -> float:
    """Return the mean over sets of what the ensemble of some candidates reaches; a set that has none is left out."""
    cases = []
    for _, its in records:
        if among := [c for c in its.candidates if _shorten(c) in names]:
            for target, domain in enumerate(its.domains):
                points = judge_ensembles(its, target, among)["shrunk"]
                cases.append({"set": its.name, "domain": domain, "way": "shrunk", "points": points})
    return average_sets(average_seeds(cases)["shrunk"])


def _draw(lines: Sequence[Sequence[str]]) -> str:
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the directory of the nine sets")
    parser.add_argument("--folder", type=Path, help="CSV files with columns label and domain, in place of the nine")
    parser.add_argument("--sets", type=_split, default=SETS, metavar="A,B", help=", ".join(SETS))
    parser.add_argument("--candidates", type=_split, metavar="A,B", help="to train or read; the usual ones by default")
    parser.add_argument("--seeds", type=_split_numbers, default=SEEDS, metavar="S,T", help="0,1,2 by default")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a set, at most")
    parser.add_argument("--domains", type=int, default=DOMAINS, help="of a set, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="of one thread each")
    parser.add_argument("--minutes", type=float, help="after which it ends; the same call goes on")
    parser.add_argument("--out", type=Path, default=Path("runs/choice"), help="a file for each seed")
    parser.add_argument("--work", type=Path, help="what is trained; OUT/work by default")
    parser.add_argument("--quick", action="store_true", help="60 steps: to see that it runs")
    parser.add_argument("--read", action="store_true", help="print the table of what is there, and end")
    parser.add_argument("--gains", action="store_true", help="print what each candidate is worth, and end")
    parser.add_argument("--intervals", action="store_true", help="print how often the 90 %% interval holds, and end")
    options = parser.parse_args(arguments)
    options.work = options.work or options.out / "work"
    return options


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _split_numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _split(text)))


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # before torch is imported
    if not (options.read or options.gains or options.intervals):
        train(options)
    records = read_records(options.out)
    if not records:
        print("Nothing is finished yet.")
    elif options.gains:
        print(format_gains(records))
    elif options.intervals:
        print(format_intervals(records))
    else:
        wanted = options.candidates
        among = [[c for c in its.candidates if wanted is None or c in wanted] for _, its in records]
        pairs = zip(records, among, strict=True)
        cases = [{**case, "seed": seed} for (seed, its), names in pairs for case in judge(its, names)]
        text = "".join(json.dumps(case) + "\n" for case in cases)
        (options.out / "cases.jsonl").write_text(text, encoding="utf-8")
        print(format_table(average_seeds(cases)))


if __name__ == "__main__":
    main()

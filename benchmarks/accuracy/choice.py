"""How good is what `compare` chooses, and how often does the next domain lie in its interval? On six real sets.

    python benchmarks/accuracy/choice.py --data DATA --out runs/choice --workers 15
    python benchmarks/accuracy/choice.py --data DATA --pack sets.npz     (what is needed of the sets, in one file)
    python benchmarks/accuracy/choice.py --data sets.npz --out runs/choice --workers 13 --device cuda --minutes 8
    python benchmarks/accuracy/choice.py --read runs/choice              (print the tables again, and draw the picture)

Every domain is held out in turn (of many, ten or twelve), and every pair of these. A choice for a domain sees nothing
of it: it goes by validation rows of its sources, and by scores on each source of trainings without the source and
without the domain. So does the interval: its scores are those of trainings that the domain had no part in.

Nets train as stacks, on the GPU where there is one; models without a net in worker processes. What is trained is kept
in OUT/records.jsonl, and a second call trains what is missing.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from seqdg.bench import find_learner
from seqdg.estimator.compare import ALL_USUAL
from seqdg.estimator.compare.comparison import DEFAULT, RULES, STOPPED, choose, split_rule

SETS = ("pacs", "beijing", "wisdm", "parkinsons", "reviews", "office")  # the longest first
NUMBERS = ("beijing", "parkinsons")  # whose labels are numbers
OTHERS = ("hist-gradient-boosting", "svc", "random-forest", "extra-trees", "logistic", "ridge", "knn")  # likewise
LINEAR = ("logistic", "ridge")
AVERAGES = ("+ema", "+sma", "+swad")
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)  # of the scale of the prior
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
AIR = ("month", "hour", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
Target = tuple[str, ...]


# The sets ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    x: Any  # (row, number), with nan where a value is missing
    y: Any
    domains: Any  # (row,) names
    held_out: tuple[str, ...]  # domains that are held out in turn


def load_rows(name: str, data: Path) -> Rows:
    """Load a set from the directory of the original files, or from the file that `--pack` wrote."""
    if data.suffix == ".npz":
        with np.load(data) as packed:
            part = {key: packed[f"{name}_{key}"] for key in ("x", "y", "domains", "held_out")}
        return Rows(part["x"].astype(np.float32), part["y"], part["domains"], tuple(part["held_out"].tolist()))
    return READERS[name](data)


def _load_wisdm(data: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(data / "wisdm.csv")
    held_out = ("3", "7", "12", "13", "18", "19", "20", "27", "31", "36")  # as in the benchmark `wisdm`
    x = table.drop(columns=["user", "class"]).to_numpy(np.float32)
    return Rows(x, table["class"].to_numpy(str), table["user"].astype(str).to_numpy(str), held_out)


def _load_parkinsons(data: Path) -> Rows:
    import pandas as pd

    table = pd.read_csv(data / "parkinsons_updrs.csv")
    domains = table["subject#"].astype(str).to_numpy(str)
    x = table.drop(columns=["subject#", "motor_UPDRS", "total_UPDRS", "test_time"]).to_numpy(np.float32)
    held_out = tuple(str(i) for i in range(2, 42, 4))  # every fourth patient: 2, 6, ..., 38
    return Rows(x, table["total_UPDRS"].to_numpy(float), domains, held_out)


def _load_beijing(data: Path) -> Rows:
    """Return 600 hours of each of twelve stations, evenly spread; neither year nor day nor the other particles."""
    import pandas as pd

    table = pd.read_parquet(data / "beijing_air.parquet").dropna(subset=["PM2.5"])
    kept = []
    for _, part in table.groupby("station", observed=True, sort=True):
        kept.append(part.iloc[np.linspace(0, len(part) - 1, 600).astype(int)])
    table = pd.concat(kept)
    wind = pd.get_dummies(table["wd"].astype(str)).to_numpy(np.float32)
    x = np.concatenate([table[list(AIR)].to_numpy(np.float32), wind], 1)
    domains = table["station"].astype(str).to_numpy(str)
    return Rows(x, table["PM2.5"].to_numpy(float), domains, tuple(sorted(set(domains.tolist()))))


def _load_reviews(data: Path) -> Rows:
    names = ("books", "dvd", "electronics", "kitchen")
    with np.load(data / "amazon_reviews_hash2048.npz") as file:
        return _join({name: (file[f"{name}_x"], file[f"{name}_y"]) for name in names})


def _load_pacs(data: Path) -> Rows:
    """Return every other row, so that trees on 1,280 features end in time."""
    names = ("art_painting", "cartoon", "photo", "sketch")
    with np.load(data / "pacs_efficientnet_lite0.npz") as file:
        return _join({name: (file[f"{name}_x"][::2], file[f"{name}_y"][::2]) for name in names})


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
    return Rows(x, np.concatenate([y for _, y in parts.values()]), domains, tuple(parts))


READERS = {
    "wisdm": _load_wisdm, "parkinsons": _load_parkinsons, "beijing": _load_beijing, "reviews": _load_reviews,
    "pacs": _load_pacs, "office": _load_office,
}  # fmt: skip


def pack_sets(names: Sequence[str], data: Path, out: Path) -> None:
    arrays: dict[str, Any] = {}
    for name in names:
        rows = load_rows(name, data)
        small = name in ("pacs", "reviews", "office")  # whose features are stored in half precision, or are shares
        arrays[f"{name}_x"] = rows.x.astype(np.float16 if small else np.float32)
        arrays |= {f"{name}_y": rows.y, f"{name}_domains": rows.domains, f"{name}_held_out": np.array(rows.held_out)}
    np.savez_compressed(out, **arrays)


# Training ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Candidates that train together, with these domains held out."""

    set: str
    candidates: tuple[str, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class How:
    data: Path
    device: str
    seeds: int
    quick: bool


def list_targets(held_out: Sequence[str]) -> list[Target]:
    return [*((d,) for d in held_out), *combinations(sorted(held_out), 2)]


def list_jobs(name: str, candidates: Sequence[str], targets: Sequence[Target]) -> Iterator[Job]:
    """List a job for each net, with the averages that share its training, and one per fit of anything else."""
    nets: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate in OTHERS:
            for target in targets:
                yield Job(name, (candidate,), (target,))
        else:
            base = next((candidate.removesuffix(a) for a in AVERAGES if candidate.endswith(a)), candidate)
            nets.setdefault(base, []).append(candidate)
    for together in nets.values():
        yield Job(name, tuple(together), tuple(targets))


@lru_cache(maxsize=2)
def make_sweep(name: str, how: How) -> Any:
    """Make what trains on a set, once per process."""
    import torch

    from seqdg.estimator import DomainClassifier, DomainRegressor
    from seqdg.estimator.compare.folds import Sweep
    from seqdg.estimator.recipe import adapt_recipe
    from seqdg.estimator.user_data import make_user_data

    if how.device == "cpu":
        torch.set_num_threads(1)
    rows = load_rows(name, how.data)
    quick = {"steps": 60, "evaluations": 3} if how.quick else {}
    kind = DomainRegressor if name in NUMBERS else DomainClassifier
    estimator = kind("agg", device=how.device, **quick)
    recipe = estimator.make_recipe()
    user_data = make_user_data(rows.x, rows.y, rows.domains, recipe, keep_missing=True)
    recipe = adapt_recipe(recipe, user_data.dataset)
    return Sweep(user_data, recipe, range(how.seeds), within=True)


def train(job: Job, how: How) -> list[dict[str, Any]]:
    """Train a job; return what is kept of each training. A candidate that the set cannot train gives its reason."""
    from seqdg.base import UsageError
    from seqdg.estimator.compare.folds import Contender

    warnings.simplefilter("ignore")
    sweep = make_sweep(job.set, how)
    order = {d: i for i, d in enumerate(sweep.domains)}
    targets = [tuple(sorted(target, key=order.__getitem__)) for target in job.targets]
    kept: list[dict[str, Any]] = []
    contenders = []
    for name in job.candidates:
        try:
            contender = Contender(name, find_learner(name).build_settings(name), sweep.recipe.protocol.lr)
            if not sweep.check(contender):
                raise UsageError("two held-out domains leave too few.")
            contenders.append(contender)
        except UsageError as error:
            kept.append({"set": job.set, "candidate": name, "left_out": str(error)})
    sweep.train_together(contenders, targets)
    for contender in contenders:
        for target in targets:
            kept += [_keep(job.set, contender.name, record, sweep) for record in sweep.list_records(target, contender)]
    return kept


def _keep(name: str, candidate: str, record: Any, sweep: Any) -> dict[str, Any]:
    """Keep the curves of a record by domain."""
    criterion = sweep.recipe.criterion
    sources = [d for d in sweep.domains if d not in record.held_out]
    curves = record.history if record.status == "done" else []
    return {
        "set": name,
        "candidate": candidate,
        "held_out": list(record.held_out),
        "seed": record.seed,
        "source": {d: [_round(e.source[criterion][i]) for e in curves] for i, d in enumerate(sources)},
        "reached": {d: [_round(e.held_out[criterion][i]) for e in curves] for i, d in enumerate(record.held_out)},
        "seconds": round(record.seconds, 3),
        "device": record.device,
    }


def _round(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def run(options: argparse.Namespace) -> None:
    """Train what is missing: nets in a few processes where there is a GPU, all else in the workers."""
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "records.jsonl"
    device = _choose_device(options.device)
    nets, others = (How(options.data, d, options.seeds, options.quick) for d in (device, "cpu"))
    done = {(r["set"], r["candidate"], *r.get("held_out", ())) for r in read_records(file) if "candidate" in r}
    jobs = []
    with file.open("a", encoding="utf-8") as out:
        for name in options.sets:
            rows = load_rows(name, options.data)
            held_out = rows.held_out[:4] if options.quick else rows.held_out
            counts = {d: int((rows.domains == d).sum()) for d in held_out}
            about = {"set": name, "rows": counts, "criterion": "rmse" if name in NUMBERS else "accuracy"}
            variance = {"variance": float(np.var(rows.y))} if name in NUMBERS else {}
            _write(out, [{**about, **variance}])
            for job in list_jobs(name, _list_candidates(name, options.candidates), list_targets(held_out)):
                missing = tuple(
                    t for t in job.targets
                    if not all((name, c, *d) in done or (name, c) in done for c in job.candidates for d in [_sort(t)])
                )  # fmt: skip
                if missing:
                    jobs.append(Job(name, job.candidates, missing))
        on_gpu = [job for job in jobs if device != "cpu" and job.candidates[0] not in OTHERS]
        on_gpu.sort(key=lambda job: ("s-mldg" not in job.candidates[0], -len(job.targets)))  # the longest first
        rest = [job for job in jobs if job not in on_gpu]
        rest.sort(key=lambda job: OTHERS.index(job.candidates[0]) if job.candidates[0] in OTHERS else -1)
        print(
            f"{len(jobs)} jobs: {len(on_gpu)} stacks on {device}, {len(rest)} in {options.workers} workers", flush=True
        )
        _run_jobs(on_gpu, nets, rest, others, options, out)


def _run_jobs(
    on_gpu: Sequence[Job], nets: How, rest: Sequence[Job], others: How, options: argparse.Namespace, out: Any
) -> None:
    began, spawn = time.monotonic(), multiprocessing.get_context("spawn")
    ends = began + 60 * options.minutes if options.minutes else math.inf
    gpu = ProcessPoolExecutor(options.stacks, spawn) if on_gpu else None
    pool = ProcessPoolExecutor(options.workers, spawn)
    waiting: dict[Future[list[dict[str, Any]]], Job] = {pool.submit(train, job, others): job for job in rest}
    if gpu is not None:
        waiting |= {gpu.submit(train, job, nets): job for job in on_gpu}
    total, finished = len(waiting), 0
    while waiting and time.monotonic() < ends:
        ready, _ = wait(waiting, timeout=5, return_when=FIRST_COMPLETED)
        for future in ready:
            job = waiting.pop(future)
            finished += 1
            try:
                _write(out, future.result())
            except Exception as error:  # a fit that fails must not end the others
                print(f"{job.set}, {'/'.join(job.candidates)}, {job.targets[0]}: {error!r}"[:400], flush=True)
            if finished % 50 == 0 or len(job.targets) > 1:
                passed = time.monotonic() - began
                print(f"{passed:5.0f} s: {finished} of {total}; {job.set} {'/'.join(job.candidates)}", flush=True)
    if waiting:
        print(f"Out of time: {len(waiting)} jobs are left for another call.", flush=True)
    for crew in filter(None, (gpu, pool)):
        crew.shutdown(wait=not waiting, cancel_futures=True)
    for child in multiprocessing.active_children() if waiting else ():
        child.terminate()


def _list_candidates(name: str, wanted: Sequence[str]) -> list[str]:
    """List those that make sense: a linear model of its own for classes and for numbers."""
    wrong = "logistic" if name in NUMBERS else "ridge"
    return [candidate for candidate in wanted if candidate != wrong]


def _sort(target: Target) -> Target:
    return tuple(sorted(target))


def _choose_device(wanted: str) -> str:
    from seqdg.base import choose_device

    return choose_device(wanted)


def _write(out: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        if "held_out" in row:
            row = {**row, "held_out": sorted(row["held_out"])}
        out.write(json.dumps(row) + "\n")
    out.flush()


def read_records(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]  # the last may have been cut short


# Choosing ------------------------------------------------------------------------------------------------------------


class Outcomes:
    """What was measured on one set. A score is the criterion with its sign turned so that more is better."""

    def __init__(self, records: Sequence[Mapping[str, Any]], name: str) -> None:
        own = [r for r in records if r["set"] == name]
        about = [r for r in own if "rows" in r][-1]
        self.name, self.rows, self.criterion = name, about["rows"], about["criterion"]
        self.variance = about.get("variance", 1.0)
        self.sign = -1.0 if self.criterion == "rmse" else 1.0
        self.domains = sorted(self.rows)
        self.trained: dict[tuple[str, Target], list[Mapping[str, Any]]] = {}
        self.steps: dict[int, int] = {}  # by record
        for r in own:
            if "held_out" in r and any(r["source"].values()):
                self.trained.setdefault((r["candidate"], tuple(r["held_out"])), []).append(r)
        targets = [_sort(t) for t in list_targets(self.domains)]
        tried = sorted({c for c, _ in self.trained}, key=lambda c: (find_learner(c).rank_simplicity(c), c))
        self.candidates = [c for c in tried if all((c, t) in self.trained for t in targets)]
        self.unfinished = [c for c in tried if c not in self.candidates]
        self.left_out = {r["candidate"]: r["left_out"] for r in own if "left_out" in r}

    def reach(self, candidate: str, target: Target, domain: str, step: int | None = None) -> float:
        """Return the mean over seeds of the criterion on a held-out domain, at the step that validates best."""
        values = [
            r["reached"][domain][self._find_step(r) if step is None else step]
            for r in self.trained[candidate, _sort(target)]
        ]
        return fmean(math.nan if v is None else v for v in values)

    def score(self, candidate: str, domain: str, base: str, nested: bool = True) -> tuple[list[float], int | None]:
        """Return the scores of a candidate on the sources of a domain by what a rule looks at, and its step."""
        others = [s for s in self.domains if s != domain]
        held = {s: _sort((s, domain)) if nested else (s,) for s in others}
        if base == STOPPED:
            curves = np.mean(
                [[np.array(r["reached"][s], float) for r in self.trained[candidate, held[s]]] for s in others], axis=1
            )  # (source, step)
            step = int(np.argmax(self.sign * curves.mean(0)))
            return [self.sign * float(v) for v in curves[:, step]], step
        apart = [self.sign * self.reach(candidate, held[s], s) for s in others]
        if base == "leave-one-out":
            return apart, None
        outer = self.trained[candidate, (domain,)]
        sources = others if base == "both" else list(outer[0]["source"])
        validated = [fmean(self.sign * r["source"][s][self._find_step(r)] for r in outer) for s in sources]
        if base == "both":
            validated = [(v + h) / 2 for v, h in zip(validated, apart, strict=True)]
        return validated, None

    def choose(self, domain: str, rule: str, nested: bool = True) -> tuple[str, float]:
        """Return what a rule chooses for a domain, and the criterion that it reaches there."""
        base, leaning = split_rule(rule)
        scores = [self.score(c, domain, base, nested) for c in self.candidates]
        choice = choose([s for s, _ in scores], leaning)
        assert choice is not None
        chosen = self.candidates[choice.index]
        return chosen, self.reach(chosen, (domain,), domain, scores[choice.index][1])

    def to_points(self, value: float) -> float:
        """Return percent; of an RMSE, 100 R^2 against the variance of all rows of the set: a patient's own is small."""
        return 100 * (1 - value**2 / self.variance) if self.criterion == "rmse" else 100 * value

    def average(self, candidate: str) -> float:
        return fmean(self.to_points(self.reach(candidate, (d,), d)) for d in self.domains)

    def _find_step(self, record: Mapping[str, Any]) -> int:
        if id(record) not in self.steps:
            self.steps[id(record)] = self._validate(record)
        return self.steps[id(record)]

    def _validate(self, record: Mapping[str, Any]) -> int:
        """Return the index of the step that is best on source validation."""
        curves = np.array(list(record["source"].values()), float)
        return int(np.nanargmax(self.sign * np.nanmean(curves, 0)))


def rank(values: Sequence[float], value: float) -> float:
    """Return the rank of a value, 1 for the most; those alike share theirs."""
    above, alike = sum(v > value + 1e-9 for v in values), sum(abs(v - value) <= 1e-9 for v in values)
    return above + (alike + 1) / 2


@dataclass(frozen=True)
class Case:
    chosen: str
    points: float
    regret: float
    rank: float


def format_choices(sets: Sequence[Outcomes]) -> str:
    """Format how good the choices of each rule are: points are percent, or 100 R^2 for numbers."""
    head = ["rule", "mean rank", "mean regret", "behind the best of the set", "most", *(s.name for s in sets)]
    lines = [head, ["---"] * len(head)]
    found: dict[str, dict[str, list[Case]]] = {}
    for rule, nested in [*((r, True) for r in RULES), (DEFAULT, False)]:
        label = f"`{rule}`" if nested else f"`{rule}`, almost nested"
        by_set = {}
        for s in sets:
            cases = [_judge(s, d, *s.choose(d, rule, nested)) for d in s.domains]
            by_set[s.name] = cases
        found[label] = by_set
        lines.append([label, *_summarize(sets, list(by_set.values()))])
    for name in dict.fromkeys("linear" if c in LINEAR else c for s in sets for c in s.candidates):
        same = LINEAR if name == "linear" else (name,)
        with_it = [s for s in sets if any(c in s.candidates for c in same)]
        always = {s: next(c for c in same if c in s.candidates) for s in with_it}
        cases = [[_judge(s, d, always[s], s.reach(always[s], (d,), d)) for d in s.domains] for s in with_it]
        summary = iter(_summarize(with_it, cases))
        cells = [next(summary) for _ in range(4)]
        lines.append([f"always {name}", *cells, *(next(summary) if s in with_it else "-" for s in sets)])
    chosen = [
        f"`{DEFAULT}` took on {name}: " + ", ".join(f"{c} {n}" for c, n in _count(case.chosen for case in cases))
        for name, cases in found[f"`{DEFAULT}`"].items()
    ]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", *(f"- {line}" for line in chosen)])


def _judge(s: Outcomes, domain: str, chosen: str, reached: float) -> Case:
    """Judge what was chosen for a domain: its points, how far they are behind the best candidate there, its rank."""
    every = [s.to_points(s.reach(c, (domain,), domain)) for c in s.candidates]
    points = s.to_points(reached)
    return Case(chosen, points, max(every) - points, rank(every, points))


def _summarize(sets: Sequence[Outcomes], cases: Sequence[Sequence[Case]]) -> list[str]:
    """Format mean rank, mean regret, how far behind the best candidate of the whole set, the most of this, and the mean
    of each set. Sets count the same."""
    means = [fmean(case.points for case in own) for own in cases]
    behind = [max(map(s.average, s.candidates)) - mean for s, mean in zip(sets, means, strict=True)]
    ranks, regrets = ([fmean(getattr(case, what) for case in own) for own in cases] for what in ("rank", "regret"))
    return [f"{value:.2f}" for value in (fmean(ranks), fmean(regrets), fmean(behind), max(behind), *means)]


def _count(names: Any) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return sorted(counts.items(), key=lambda pair: -pair[1])


# The interval --------------------------------------------------------------------------------------------------------


def judge_intervals(s: Outcomes, level: float, known: int | None, factor: float = 1.0) -> list[tuple[bool, float]]:
    """Return for each candidate and domain whether its score lies in the interval, and how wide that is: in points, of
    an RMSE in percent of the mean.

    known: how many other domains the interval is of; None: all. Fewer are evenly spread choices of them, three each.
    factor: of the scale of the prior.
    """
    from seqdg.results.next_domain import find_limits, get_scale

    scale = get_scale(s.criterion)
    scale = replace(scale, prior=factor * scale.prior)

    cases = []
    for candidate in s.candidates:
        for d in s.domains:
            others = [o for o in s.domains if o != d]
            groups = [tuple(others)]
            if known is not None and known < len(others):
                every = list(combinations(others, known))
                groups = [every[i] for i in np.linspace(0, len(every) - 1, 3).astype(int)]
            for group in groups:
                scores = [s.reach(candidate, (o, d), o) for o in group]
                low, high = find_limits(tuple(zip(scores, (s.rows[o] for o in group), strict=True)), scale, level)
                value = s.reach(candidate, (d,), d)
                unit = 100.0 if s.criterion != "rmse" else 100 / fmean(scores)
                cases.append((low <= value <= high, unit * (high - low)))
    return cases


def format_intervals(sets: Sequence[Outcomes]) -> str:
    head = ["set", "known domains", "cases", "in the 90 % interval", "median width"]
    lines = [head, ["---"] * len(head)]
    for known in (3, None):
        total, shares = [], []
        for s in sets:
            cases = judge_intervals(s, 0.9, known)
            total += cases
            shares += [w for _, w in cases] if s.criterion != "rmse" else []
            unit = "points" if s.criterion != "rmse" else "% of the RMSE"
            count = known or len(s.domains) - 1
            lines.append([s.name, str(count), *_describe(cases), f"{median(w for _, w in cases):.1f} {unit}"])
        width = f"{median(shares):.1f} points of accuracy" if shares else "-"
        lines.append(["**all**", str(known or "all others"), *_describe(total), width])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def format_priors(sets: Sequence[Outcomes]) -> str:
    """Format what another scale of the prior would give, from three known domains."""
    head = ["scale of the prior", "in the 90 % interval", "fewest of a set", "median width"]
    lines = [head, ["---"] * len(head)]
    for factor in FACTORS:
        by_set = {s: judge_intervals(s, 0.9, 3, factor) for s in sets}
        inside = {s: fmean(i for i, _ in cases) for s, cases in by_set.items()}
        widths = [w for s, cases in by_set.items() if s.criterion != "rmse" for _, w in cases]
        every = fmean(i for cases in by_set.values() for i, _ in cases)
        fewest = min(inside, key=lambda s: inside[s])
        width = f"{median(widths):.1f} points of accuracy" if widths else "-"
        share = f"{100 * inside[fewest]:.1f} % ({fewest.name})"
        lines.append([f"{factor:g} times", f"{100 * every:.1f} %", share, width])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _describe(cases: Sequence[tuple[bool, float]]) -> list[str]:
    return [str(len(cases)), f"{100 * fmean(inside for inside, _ in cases):.1f} %"]


def calibrate(sets: Sequence[Outcomes]) -> dict[str, list[dict[str, float]]]:
    """Return by set how often the interval of each level holds the next domain, from three known domains."""
    curves = {}
    for s in sets:
        curve = []
        for level in LEVELS:
            cases = judge_intervals(s, level, 3)
            curve.append({"level": level, "inside": fmean(i for i, _ in cases), "width": median(w for _, w in cases)})
        curves[s.name] = curve
    return curves


def draw_calibration(curves: Mapping[str, Sequence[Mapping[str, float]]], folder: Path) -> None:
    """Draw how often intervals hold the next domain against how often they should, and how wide they are."""
    from seqdg.report import MISSING, Figure, can_draw, draw_lines, make_styles, write_figures

    if not can_draw():
        print(MISSING)
        return
    exact = "as it says"
    levels = [100 * level for level in LEVELS]
    inside = {name: (levels, [100 * p["inside"] for p in curve]) for name, curve in curves.items()}
    widths = {name: (levels, [p["width"] for p in curve]) for name, curve in curves.items() if name not in NUMBERS}
    looks, label = make_styles([*curves, exact]), "interval of, in %"
    inside[exact] = levels, levels
    panels = [draw_lines(inside, label, "holds the next domain, in %", looks, "Coverage", limits=(30.0, 100.0))]
    if widths:
        panels.append(draw_lines(widths, label, "median width in points", looks, "Width", limits=(0.0, 100.0)))
    title = "The interval of the next domain, from three known ones"
    figure = Figure("calibration", title, panels, looks=looks, has_legend=True)
    write_figures([figure], folder, ["svg"])


# The command ---------------------------------------------------------------------------------------------------------


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the sets, or what --pack wrote")
    parser.add_argument("--sets", type=_split, default=SETS, metavar="A,B", help=", ".join(SETS))
    parser.add_argument("--candidates", type=_split, default=ALL_USUAL, metavar="A,B", help="the usual ones by default")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/choice"))
    parser.add_argument("--device", default="auto", help="of the nets: auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stacks", type=int, default=3, help="processes that share the GPU, where there is one")
    parser.add_argument("--minutes", type=float, default=0.0, help="train no longer than this, and print what is there")
    parser.add_argument("--quick", action="store_true", help="60 steps, and four domains of many: to see that it runs")
    parser.add_argument("--pack", type=Path, help="write the sets to this .npz, and end")
    parser.add_argument("--read", type=Path, metavar="OUT", help="print the tables of what is there, and end")
    return parser.parse_args()


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def report(out: Path, names: Sequence[str]) -> None:
    """Print the tables, and write them with the picture."""
    records = read_records(out / "records.jsonl")
    sets = [Outcomes(records, name) for name in names if any(r["set"] == name and "held_out" in r for r in records)]
    sets = [s for s in sets if len(s.candidates) > 1]
    parts = []
    for s in sets:
        notes = [f"unfinished: {', '.join(s.unfinished)}"] if s.unfinished else []
        notes += [f"{name} left out ({why})" for name, why in s.left_out.items()]
        parts.append(f"{s.name}: {len(s.domains)} domains, {len(s.candidates)} candidates. {'; '.join(notes)}".strip())
    if not sets:
        print("Nothing is finished yet.")
        return
    parts += [format_choices(sets), format_intervals(sets), format_priors(sets)]
    text = "\n\n".join(parts) + "\n"
    print(text)
    (out / "choice.md").write_text(text, encoding="utf-8")
    curves = calibrate(sets)
    (out / "coverage.json").write_text(json.dumps(curves, indent=1), encoding="utf-8")
    draw_calibration(curves, out)


def main() -> None:
    options = parse_options()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the workers
    if options.pack:
        pack_sets(options.sets, options.data, options.pack)
    elif options.read:
        report(options.read, options.sets)
    else:
        run(options)
        report(options.out, options.sets)


if __name__ == "__main__":
    main()

"""Run a study: part by part, first the search of each, then the trials with the settings that it chose.

Every part is a benchmark with some fields changed, so that planning, grouping, training and storing are those of
`seqdg bench`. Trials in the published records of a part count as done: they are copied into its run directory.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from seqdg import bench, results
from seqdg.base import Folder, UsageError, align_columns, count_files, format_duration
from seqdg.core import build, describe_settings
from seqdg.nets import Net, get_published_dropout
from seqdg.study.definition import (
    COSINE,
    CRITERION,
    LEADER,
    PLAIN,
    SEARCH,
    Part,
    Study,
    collect_records,
    find_runs,
    score_source,
)
from seqdg.training import Saving

SOURCES = 6  # up to so many, the accuracy on each source is kept; above, their mean
TRAININGS = (
    "Trainings: at most so many, as plain and averaged weights share one where the search chooses the same for both."
)
RECORDS = "Records: one for the plain weights of a training and one for each of their averages; done are those in --out"
TIME = (
    "Time left: by the mean of the trainings of the part that are done, where there are some, in as many processes as"
)
Fold = tuple[str, ...]  # held-out domains
Choice = tuple[str, str, str, Fold]  # an algorithm, a schedule, plain or averaged weights, a fold

TOGETHER = 512  # trials of small networks in a stack, at most
CHECKPOINT = 60.0  # seconds between checkpoints of a group; workers that are sent away write one, too


@dataclass(frozen=True)
class StudyWhere:
    """Where a study reads, trains and writes, and for how long."""

    out: Path
    data: Path | None = None
    device: str = "auto"
    workers: int | None = None
    minutes: float = math.inf

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise UsageError(f"--minutes is {self.minutes:g}. Give a positive number of minutes.")


@dataclass
class Clock:
    """The time that is left.

    Groups in this process end before it is over: it allows for as long as the longest took. Workers stop when it is
    over, and their groups go on from a checkpoint.
    """

    minutes: float
    slots: int = 1  # groups that run side by side
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)
    longest: float = 0.0

    def check_after_group(self) -> None:
        """Raise `OutOfTime` where another group may not end in time."""
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now
        self._check(now + self.longest if self.slots == 1 else now)

    def check_meanwhile(self) -> None:
        """Raise `OutOfTime` where the time of workers is over."""
        if self.slots > 1:
            self._check(time.monotonic())

    def start_group(self) -> None:
        """Count from now: what came before was no group."""
        self.last = time.monotonic()

    def _check(self, then: float) -> None:
        if then - self.began > 60 * self.minutes:
            raise OutOfTime


class OutOfTime(Exception):
    """The time has elapsed; what is stored stays, and the rest can follow."""


def run_study(study: Study, parts: Sequence[Part], where: StudyWhere) -> list[results.Record]:
    """Run what is missing of these parts; return the records that failed. `OutOfTime` says that not all was run."""
    executor, device = bench.choose_executor(bench.ExecutorChoice(workers=where.workers), where.device)
    clock = Clock(where.minutes, executor.slots)
    _refuse_changed_code(study, parts, where.out)
    failed: list[results.Record] = []
    for part in parts:
        with results.lock_directory(where.out / part.name), ExitStack() as stack:
            stores = {f: stack.enter_context(closing(open_store(study, part, f, where))) for f in part.folders}
            failed += PartRunner(part, where, stores, executor, device, clock).run()
    return failed


def _refuse_changed_code(study: Study, parts: Sequence[Part], out: Path) -> None:
    """Refuse code of the user's own that has changed since any part got trials of it, as answers compare parts."""
    codes = bench.read_codes(name for part in parts for name in part.list_algorithms())
    for directory in [out / part.name / folder for part in study.parts for folder in part.folders if codes]:
        if (directory / results.FILE).is_file():
            with closing(results.Store.open(directory)) as store:
                bench.refuse_changed(store, directory, codes)


def open_store(study: Study, part: Part, folder: str, where: StudyWhere) -> results.Store:
    """Open a run directory of a part, and copy what it lacks from the published records, with its groups."""
    directory = where.out / part.name / folder
    store = results.Store.create(directory, make_benchmark(part, where.data).name)
    bench.check_versions(store, directory)
    published = None if study.published is None else study.published / part.name / folder
    if published is not None and (published / results.TRIALS).is_file():
        archive, done = results.open_run(published), store.finished()
        groups, new = archive.groups(), [record for record in archive.records() if record.key not in done]
        if new:
            store.begin({record.key: groups.get(record.key, "") for record in new})
            store.add(new)
    return store


@dataclass(frozen=True)
class PartRunner:
    """Plans and runs one part. stores: those of its run directories, by folder."""

    part: Part
    where: StudyWhere
    stores: Mapping[str, results.Store]
    executor: bench.Executor
    device: str
    clock: Clock

    def run(self) -> list[results.Record]:
        """Search, choose, and run the trials; return the records that failed."""
        benchmark = make_benchmark(self.part, self.where.data)
        task = benchmark.make_task(self.where.data, held_out=self.part.held_out or None)
        with count_files("reading images") as on_progress:
            dataset = task.dataset(on_progress)
        for store in self.stores.values():
            store.set_meta(results.CLASSES, json.dumps([str(name) for name in dataset.classes]))
            store.set_meta(results.DOMAINS, json.dumps(list(dataset.domains)))
        maker = TrialMaker(self.part, benchmark, task)
        failed: list[results.Record] = []
        chosen: Mapping[Choice, bench.Candidate] = {}
        if self.part.searches:
            searched = maker.list_search()
            failed = self._train(searched, task, maker.net)
            chosen = maker.choose(searched, self.stores[SEARCH].records(CRITERION))
        return failed + self._train(maker.list_trials(chosen), task, maker.net)

    def _train(self, entries: Sequence[Entry], task: bench.Task, net: Net) -> list[results.Record]:
        if not entries:
            return []
        for folder, store in self.stores.items():
            directory = self.where.out / self.part.name / folder
            bench.check_code(store, directory, [e.trial for e in entries if e.folder == folder])
        finished = {key for store in self.stores.values() for key in store.finished()}
        planned = bench.plan_trials(task, [e.trial for e in entries], net, self.device, finished, most=TOGETHER)
        order = {trial.key: i for i, trial in enumerate(planned.trials)}  # seed by seed; groups come by algorithm
        missing = sorted(planned.missing, key=lambda group: order[group.trials[0].key])
        planned = bench.choose_compiled(replace(planned, missing=tuple(missing)), self.device)
        left = sum(len(g.trainings) for g in planned.missing)
        total = sum(len(g.trainings) for g in planned.groups)
        what = "search" if entries[0].folder == SEARCH else "trials"
        say(f"{self.part.name}, {what}: {total} trainings, {left} to run in {len(planned.missing)} groups.")
        if not planned.missing:
            return []
        self.clock.start_group()
        sink = Routed(self.stores, {e.trial.key: e.folder for e in entries}, self.clock)
        files = Folder((self.where.out / self.part.name).resolve())
        bench.remove_checkpoints(files, finished)
        saving = Saving(files=files, checkpoint=CHECKPOINT, digests=False, criteria=(CRITERION,))
        session = bench.Session(task, self.device, saving)
        with bench.show_progress(self.part.name) as on_progress:
            return bench.execute(planned, session, self.executor, sink, on_progress=on_progress)


@dataclass(frozen=True)
class Routed:
    """A sink that puts each record into the run directory that it belongs to, until time has elapsed."""

    stores: Mapping[str, results.Store]
    folders: Mapping[str, str]  # of trials, by key
    clock: Clock

    def begin(self, planned: Mapping[str, str]) -> None:
        for folder, store in self.stores.items():
            mine = {key: group for key, group in planned.items() if self.folders[key] == folder}
            if mine:
                store.begin(mine)

    def note(self, run: results.RunProgress, running: Iterable[results.RunningGroup]) -> None:
        next(iter(self.stores.values())).note(run, running)
        self.clock.check_meanwhile()

    def add(self, records: Iterable[results.Record], group: str = "") -> None:
        by_folder: dict[str, list[results.Record]] = {}
        for record in records:
            by_folder.setdefault(self.folders[record.key], []).append(make_lean(record))
        for folder, some in by_folder.items():
            self.stores[folder].add(some, group)
        self.clock.check_after_group()


@dataclass(frozen=True)
class Entry:
    """A trial of a part, and the run directory that its record belongs to."""

    trial: bench.Trial
    folder: str
    name: str  # of its algorithm, without an average
    view: str = PLAIN  # or the average
    draw: int = 0

    @property
    def choice(self) -> Choice:
        """For what a candidate is chosen."""
        return self.name, self.trial.protocol.schedule, self.view, self.trial.held_out


class TrialMaker:
    """Makes the trials of a part."""

    def __init__(self, part: Part, benchmark: bench.Benchmark, task: bench.Task) -> None:
        self.part, self.task = part, task
        dataset = task.dataset()
        fixed = benchmark.fix_split(dataset)
        shape = (dataset.shape[0], task.size, task.size) if dataset.is_image and task.size else dataset.shape
        request = bench.Request(
            part.algorithms, part.held_out or None, part.trials, part.steps or None, settings=part.settings,
            search=part.draws, precision=part.precision or None,
        )  # fmt: skip
        candidates = fixed.list_candidates(request, dataset.domains, shape)
        self.folds, self.seeds = fixed.list_held_out(request, dataset.domains), fixed.list_seeds(request)
        self.candidates: dict[str, list[bench.Candidate]] = {}  # by algorithm
        for candidate in candidates:
            self.candidates.setdefault(candidate.name, []).append(candidate)
        if part.rates:
            self.candidates = {
                name: [_change(some[0], lr=some[0].protocol.lr * rate) for rate in part.rates]
                for name, some in self.candidates.items()
            }
        first = candidates[0]
        trial = task.make_trial(first.name, dict(first.settings), first.protocol, self.folds[0], 0)
        built = task.find_net(trial)
        self.weights, self.net = built.weights_sha256, Net(built.module, task.batchnorm)

    def list_search(self) -> list[Entry]:
        """List the trials of the search: every draw with every fold, on a seed of its own."""
        part = self.part
        return [
            Entry(self._make(_change(candidate, evaluations=part.search_evaluations), schedule, view, fold,
                             part.search_seed), SEARCH, name, view, draw)
            for name in part.algorithms
            for schedule in part.schedules
            for draw, candidate in enumerate(self.candidates[name])
            for fold in self.folds
            for view in ((PLAIN, LEADER) if part.averages and schedule == "constant" else (PLAIN,))
        ]  # fmt: skip

    def choose(self, searched: Sequence[Entry], records: Sequence[results.Record]) -> dict[Choice, bench.Candidate]:
        """Choose a candidate for each algorithm, schedule, view and fold, by the fold's own source validation.

        Another fold's would have rows of this one's held-out domain. Where trials of an algorithm failed, nothing is
        chosen for it.
        """
        by_key = {record.key: record for record in records if record.status != results.FAILED}
        failed = {entry.name for entry in searched if entry.trial.key not in by_key}
        for name in failed:
            say(f"{self.part.name}: the search of {name} failed, and its trials are left out.")
        scores: dict[Choice, dict[int, float]] = {}
        for entry in searched:
            if entry.name not in failed:
                record = by_key[entry.trial.key]
                score = score_source(record) if record.status == results.DONE else -1.0
                scores.setdefault(entry.choice, {})[entry.draw] = score
        return {
            choice: self.candidates[choice[0]][max(by_draw, key=lambda draw: (by_draw[draw], -draw))]
            for choice, by_draw in scores.items()
        }

    def list_trials(self, chosen: Mapping[Choice, bench.Candidate]) -> list[Entry]:
        """List the trials: plain weights with the settings chosen by plain records, averages with those chosen by
        averaged ones. Seed by seed, so that a part that is cut short has whole seeds."""
        entries, known = [], {choice[0] for choice in chosen} if self.part.searches else set(self.part.algorithms)
        for seed in self.seeds:
            for name in (name for name in self.part.algorithms if name in known):
                for variant in self.part.variants:
                    for fold in self.folds:
                        schedule, folder = (COSINE, COSINE) if variant == COSINE else ("constant", ".")
                        view, leader = (variant, LEADER) if variant in self.part.averages else (PLAIN, PLAIN)
                        best = chosen.get((name, schedule, leader, fold), self.candidates[name][0])
                        entries.append(Entry(self._make(best, schedule, view, fold, seed), folder, name, view))
        return entries

    def _make(self, candidate: bench.Candidate, schedule: str, view: str, fold: Fold, seed: int) -> bench.Trial:
        """Make a trial of a candidate under a schedule, with plain or averaged weights."""
        name, settings = candidate.name, dict(candidate.settings)
        if view != PLAIN:
            name = f"{name}+{view}"
            settings = {**describe_settings(build(name)), **settings}
        protocol = replace(candidate.protocol, schedule=schedule)
        return self.task.make_trial(name, settings, protocol, fold, seed, weights=self.weights, net=candidate.net)


def _change(candidate: bench.Candidate, **fields: Any) -> bench.Candidate:
    return replace(candidate, protocol=replace(candidate.protocol, **fields))


def make_benchmark(part: Part, data: Path | None) -> bench.Benchmark:
    """Make the benchmark that a part runs: its own, with what the part says in place of what it says."""
    benchmark = bench.load_benchmark(part.benchmark)
    names = ("evaluations", "batch", "optimizer", "lr", "path")
    changes = {name: getattr(part, name) for name in names if getattr(part, name)}
    if part.weight_decay >= 0:
        changes["weight_decay"] = part.weight_decay
    # Rates and optimizers of algorithms are for the benchmark's own.
    dropped = {"evaluations", "lr", "optimizer"} & changes.keys()
    tables = {a: {k: v for k, v in table.items() if k not in dropped} for a, table in benchmark.tables.items()}
    net = benchmark.net
    if part.net:
        net = replace(net, name=part.net, dropout=get_published_dropout(part.net))
    if part.weights:
        if data is None:
            raise UsageError(f"{part.name} starts from {part.weights}: give the folder that holds it with --data.")
        net = replace(net, weights=data / part.weights)
    return replace(benchmark, protocol=replace(benchmark.protocol, **changes), net=net, tables=tables)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def make_lean(record: results.Record) -> results.Record:
    """Keep what tables and curves of a study need: per evaluation the criteria on the held-out domain and their means
    over the sources; the two parts of the held-out rows after the last step alone; no loss curve."""

    def shorten(source: Mapping[str, list[float]]) -> dict[str, list[float]]:
        whole = {c: v for c, v in source.items() if c == CRITERION and len(v) <= SOURCES}
        return {c: whole.get(c, [results.average_finite(v)]) for c, v in source.items()}

    def keep(e: results.Evaluation, is_last: bool) -> results.Evaluation:
        lean = replace(e, source=shorten(e.source))
        return lean if is_last else replace(lean, held_out_fifth={}, held_out_rest={})

    last = len(record.history) - 1
    return replace(record, history=[keep(e, i == last) for i, e in enumerate(record.history)], losses=[])


def publish_parts(study: Study, parts: Sequence[Part], out: Path) -> Iterator[str]:
    """Pack what there is of these parts, and yield a sentence for each file: of criteria, accuracy alone is kept.

    What was published before and is in no run directory stays: a run copies it first.
    """
    if study.published is None:
        raise UsageError(f"{study.path} does not say where its records are published: published = 'FOLDER'.")
    for part in parts:
        for folder in part.folders:
            directory, target = out / part.name / folder, study.published / part.name / folder
            if not (directory / results.FILE).is_file():
                continue
            run = results.open_run(directory)
            if run.statuses():
                results.pack([(directory, run)], target, criteria=[CRITERION])
                size = sum((target / name).stat().st_size for name in (results.TRIALS, results.EVALUATIONS)) / 1e6
                yield f"{len(run.statuses())} trials of {part.name} ({folder}) in {target}, {size:.2f} MB."
            run.close()


def count_wanted(part: Part, folds: int) -> dict[str, tuple[int, int]]:
    """Count the trainings (at most) and the records of each run directory of a part."""
    trials = len(part.algorithms) * folds * part.trials
    tried = (len(part.rates) or part.draws) * folds * len(part.algorithms)
    averaged = tried if part.averages and "constant" in part.schedules else 0
    constant = [v for v in part.variants if v != COSINE]
    trainings = 2 if part.searches and part.averages and PLAIN in part.variants else 1
    counts = {
        ".": (trials * trainings, trials * len(constant)),
        COSINE: (trials, trials),
        SEARCH: (tried * len(part.schedules), tried * len(part.schedules) + averaged),
    }
    return {folder: counts[folder] for folder in part.folders}


def describe_plan(study: Study, parts: Sequence[Part], out: Path | None, data: Path | None, workers: int = 1) -> str:
    """Say of every part how many trainings and steps it takes, how many records are there, and how long the rest
    takes with so many workers, where some are."""
    rows, sums = [("part", "trainings", "million steps", "records done", "of", "time left")], [0, 0.0, 0, 0]
    for part in parts:
        benchmark = make_benchmark(part, data or Path())
        wanted = count_wanted(part, _count_folds(part, benchmark))
        records = {f: collect_records(find_runs(study, part, f, out), CRITERION) for f in part.folders}
        trainings, total = (sum(counts[i] for counts in wanted.values()) for i in (0, 1))
        steps = trainings * (part.steps or benchmark.protocol.steps) / 1e6
        done = sum(map(len, records.values()))
        left = sum(wanted[f][0] * max(0.0, 1 - len(records[f]) / wanted[f][1]) for f in part.folders)  # trainings
        time = _estimate_time(left / max(1, workers), part, [r for some in records.values() for r in some.values()])
        rows.append((part.name, str(trainings), f"{steps:.2f}", str(done), str(total), time))
        sums = [a + b for a, b in zip(sums, (trainings, steps, done, total), strict=True)]
    rows.append(("all", str(sums[0]), f"{sums[1]:.2f}", str(sums[2]), str(sums[3]), ""))
    published = "" if study.published is None else " and those that are published"
    head = [study.title, "", *align_columns(rows), "", TRAININGS]
    return "\n".join([*head, f"{RECORDS}{published}.", f"{TIME} --workers says: {max(1, workers)}."])


def _count_folds(part: Part, benchmark: bench.Benchmark) -> int:
    """Count the domains that are held out: those that are named, or all, by their counts or the rows themselves."""
    named = part.held_out or benchmark.held_out or benchmark.data.get("domains") or benchmark.data.get("counts")
    return len(named or benchmark.make_task(None).dataset().domains)


def _estimate_time(left: float, part: Part, records: Sequence[results.Record]) -> str:
    """Say how long the trainings that are left to each process take, by the mean of those that are done.

    A training that diverged ended early. One that gives plain and averaged weights has a record of each, with the
    same seconds: the plain one counts, where there are plain ones.
    """
    if not left:
        return "none"
    done = [r for r in records if r.status == results.DONE]
    plain = [r for r in done if r.algorithm.rpartition("+")[2] not in part.averages]
    return format_duration(left * fmean(r.seconds for r in plain or done)) if done else "unknown"

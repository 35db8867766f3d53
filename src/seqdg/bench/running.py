"""Run a benchmark into a directory: `seqdg.run`, and `seqdg bench` by the same way."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from seqdg.base import (
    DOMAINBED,
    Folder,
    UsageError,
    count_files,
    count_things,
    format_duration,
    set_checkout,
    trust_only,
)
from seqdg.bench.benchmark import NET_SETTING, Benchmark, Request, load_requested, split_settings
from seqdg.bench.execution import (
    Executor,
    InProcess,
    estimate_makespan,
    execute,
    remove_checkpoints,
    show_progress,
    sort_longest_first,
)
from seqdg.bench.executors import choose_executor, is_short
from seqdg.bench.learners.stack_learner import StackLearner, find_learner
from seqdg.bench.planning import (
    Kind,
    Plan,
    Shard,
    choose_compiled,
    note_part,
    parse_shard,
    plan_further,
    take_shard,
    time_groups,
)
from seqdg.bench.reruns import check_code
from seqdg.bench.search import TrialSearch, list_reused
from seqdg.bench.task import Session, Trial, collect_by
from seqdg.data import Dataset
from seqdg.report import Exporter, Results, draw_table
from seqdg.results import (
    CLASSES,
    DOMAINS,
    FILES,
    LOSS_POINTS,
    VERSION,
    Record,
    RunningGroup,
    RunProgress,
    Store,
    add_command,
    find_usual_criterion,
    has_run,
    lock_directory,
    make_directory,
)
from seqdg.training import CHOSEN, Saving, measure_peak_memory, name_device

DESCRIPTION, CRITERIA_EACH = 4_000, 8  # bytes of a record beside its numbers; numbers of each evaluation and domain


class FailedTrials(UserWarning):
    """Some trials of a run failed."""


def run(
    benchmark: str = "rotated-mnist",
    algorithms: Sequence[str] | None = None,
    *,
    held_out: Sequence[str] | None = None,
    trials: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | Sequence[str] = (),
    search: int = 1,
    search_space: str = "usual",
    sampler: str = "random",
    reuse: bool = False,
    settings_from: str | Path | None = None,
    select: str = "source-val",
    precision: str | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    executor: str = "local",
    workers: int | None = 0,
    gpus_per_worker: float | None = None,
    address: str | None = None,
    compile: str = "auto",
    checkpoint: float = 60.0,
    save_weights: bool | str = False,
    save_predictions: bool = False,
    net: str | None = None,
    weights: str | Path | None = None,
    allow_partial: bool = False,
    domainbed: str | Path | None = None,
    log: Sequence[str] = (),
    trust: Sequence[str] = (),
    shard: str | None = None,
    held_out_together: int | None = None,
    single_source: bool = False,
    rows: int | None = None,
    quick: bool = False,
    progress: bool = True,
    command: str | None = None,
) -> Results:
    """Compare algorithms on a benchmark: run what is missing, and return the results of what was asked for.

    Each trial trains on all domains but one and is tested on that one. Interrupt it whenever you like: the same call
    again does only what is missing. It does what the command `seqdg bench` does.

    Parameters
    ----------
    benchmark : str
        A name from `seqdg list benchmarks`, or your own .toml file.
    algorithms : sequence of str, optional
        Names from `seqdg list algorithms`, your own as "file.py:name". None: those of the benchmark.
    held_out : sequence of str, optional
        Domains to hold out, one at a time. None: every domain.
    trials : int, optional
        Seeds of each algorithm and held-out domain. None: as many as the benchmark says.
    steps : int, optional
        Training steps. None: as many as the benchmark says.
    seed : int
        The seed of the first trial; the others follow.
    settings : mapping of str to mapping or sequence of str
        Settings by algorithm, such as {"fo-s-mldg": {"alpha": (0.05, 0.6), "lr": 0.1}}, or as text, such as
        ["fo-s-mldg.alpha=0.05,0.6"].
    search : int
        Candidates of each algorithm. The first has its settings as they are; of the others, settings and learning rate
        are drawn.
    search_space : str
        Where candidates come from: "usual", settings from their ranges and rates around the benchmark's; or
        "domainbed", what DomainBed's sweeps draw, from the same distributions.
    sampler : str
        "random", or "optuna": proposed for each held-out domain and seed from the source validation of those before.
    reuse : bool
        Search on the first seed alone, and use what `select` chooses there, for each held-out domain, on the others.
    settings_from : str or Path, optional
        A file with [algorithms.NAME] tables, as `seqdg table --settings-out` writes. It comes before the benchmark's.
    select : str
        How the settings and the step that count are chosen. "leave-one-out" also runs the trials that it needs.
    precision : str, optional
        "float32", "tf32", "bf16" or "float64". None: the benchmark's.
    data : str or Path, optional
        Root folder of the data.
    out : str or Path, optional
        The run directory. None: runs/BENCHMARK.
    device : str
        "auto", "cpu", "cuda" or a device such as "cuda:1".
    executor : str
        "local" or "ray".
    workers : int, optional
        Worker processes; 0: this process; None: one for each core or GPU. A script that asks for more than this process
        needs `if __name__ == "__main__":`.
    gpus_per_worker : float, optional
        Share of a GPU for each worker; 0.25 puts four on one.
    address : str, optional
        Address of a running Ray cluster, or "auto". None: start Ray on this machine.
    compile : str
        Whether steps are compiled: "auto", "on" or "off".
    checkpoint : float
        Seconds between checkpoints of trials that take longer; 0: none.
    save_weights : bool or str
        True or "last" keeps the deployed weights of every trial; "chosen" also those of the step that source validation
        chose.
    save_predictions : bool
        Keep what every trial predicts of its held-out rows.
    net : str, optional
        The network in place of the benchmark's: a name, or a function of your own as "file.py:build", which is called
        as build(input_shape, classes) and returns an nn.Module. `settings` with the name "net" set its settings.
    weights : str or Path, optional
        Weight file that the net starts from.
    allow_partial : bool
        Continue if the data differ from the published counts, and note it in the records.
    domainbed : str or Path, optional
        A checkout of DomainBed, whose classes run as "domainbed:CORAL". None: where SEQDG_DOMAINBED says.
    log : sequence of str
        Tools that the curves and the table are written to as well: "tensorboard", "mlflow", "wandb".
    trust : sequence of str
        Files and modules whose code may run because a file names them, such as the function `encode` of a benchmark of
        your own. Those that `algorithms` names need not be here.
    shard : str, optional
        "3/8" trains the third of eight parts of the plan, in the folder shard-3-of-8 of `out`; "auto/8" asks the job
        array that runs it. `seqdg merge` joins them.
    held_out_together : int, optional
        Hold out so many domains at once, every choice of so many in turn; a row of the table is their mean. None: as
        the benchmark says, mostly 1.
    single_source : bool
        Train on one domain, each in turn, and test on all others.
    rows : int, optional
        Train and test on so many rows of every domain: a fixed sample, of every class in proportion. None: all.
    quick : bool
        Run everything once, for two steps, on a few rows of every domain, to see that it works.
    progress : bool
        Show on the console how far the run is.
    command : str, optional
        What the report says made the run. None: the command that asks for the same trials.

    Returns
    -------
    Results
        The results of the trials that were asked for. A warning, `FailedTrials`, says if some of them failed.

    Examples
    --------
    >>> import tempfile
    >>> import seqdg
    >>> out = tempfile.mkdtemp()
    >>> results = seqdg.run("rotated-mnist", ["agg"], held_out=["0"], trials=2, steps=5, out=out, progress=False)
    >>> [record.seed for record in results.records()]
    [0, 1]
    """
    options = {name: value for name, value in locals().items() if name not in ("benchmark", "progress", "command")}
    request = Request(**options)
    with trust_only((*(request.algorithms or ()), request.net or ""), request.trust):
        command = command or request.write_command(benchmark)
        results = run_benchmark(load_requested(benchmark, request), request, command, quiet=not progress)
    if results.failures():
        warnings.warn(describe_failures(results), FailedTrials, stacklevel=2)
    return results


def describe_failures(results: Results) -> str:
    """Say how many trials failed, why the last one did, and what to do."""
    failed = results.failures()
    last = failed[-1].error.strip().splitlines()[-1]
    names = ", ".join(dict.fromkeys(record.algorithm for record in failed))
    return (
        f"{count_things(len(failed), 'trial')} failed ({last}), of {names}. `seqdg status {results.path} --errors` "
        "shows where; running the command again retries them."
    )


def run_benchmark(chosen: Benchmark, request: Request, command: str, quiet: bool = False) -> Results:
    """Run what is missing of a request, store it, and return its results. The same call again does only what is then
    missing.

    chosen: as `load_requested` gives it.   command: what the user typed, for the report.   quiet: say nothing on the
    console.
    """
    set_checkout(DOMAINBED, request.domainbed)
    executor, device = choose_executor(request, request.device)
    shard = None if request.shard is None else parse_shard(request.shard)
    directory = request.find_directory(chosen)
    make_directory(directory)
    saving = Saving(
        files=Folder(directory.resolve()),
        checkpoint=request.checkpoint,
        weights=bool(request.save_weights),
        chosen=request.save_weights == "chosen",
        predictions=request.save_predictions,
    )
    session = Session(
        chosen.make_task(request.data, request.allow_partial, request.held_out, request.rows), device, saving
    )
    on_message = (lambda text: None) if quiet else _say
    with lock_directory(directory), ExitStack() as stack:
        store = stack.enter_context(closing(Store.create(directory, chosen.name)))
        check_versions(store, directory)
        sink = TrackedStore(store, Exporter(request.log, directory, chosen.name, on_message), on_message)
        runner = _Runner(chosen, request, session, executor, directory, store, sink, shard, quiet)
        planned = runner.finish(command)
        stack.pop_all()  # the results read on from the store, which was found whole and need not be again
    return Results(directory, store, [trial.key for trial in planned.trials])


def _say(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class _Runner:
    benchmark: Benchmark
    request: Request
    session: Session
    executor: Executor
    directory: Path
    store: Store
    sink: TrackedStore
    shard: Shard | None
    quiet: bool

    def finish(self, command: str) -> Plan:
        """Train what is missing, and return the plan of all that was asked for."""
        store, request, session, task = self.store, self.request, self.session, self.session.task
        with count_files("reading images", self.quiet) as on_progress:
            dataset = task.dataset(on_progress)
        if others := store.fingerprints() - {dataset.fingerprint}:
            raise UsageError(
                f"{self.directory} holds trials on other rows of {dataset.name} (fingerprint {min(others)[:12]}, and "
                f"here {dataset.fingerprint[:12]}): they do not belong in one table. Give --out another directory."
            )
        for note in dataset.notes:
            self.sink.on_message(f"note: {note}")
        seeds = self.benchmark.list_seeds(request)
        first = replace(request, trials=1) if request.reuse else request
        proposes = request.sampler == "optuna"
        first = replace(first, search=1, sampler="random") if proposes else first
        planned = self.benchmark.plan(task, first, session.device, store.finished())
        if self.shard is not None:
            note_part(store, planned, self.shard)
            planned = take_shard(planned, self.shard)
        check_code(store, self.directory, planned.trials)
        store.set_meta(CLASSES, json.dumps([str(name) for name in dataset.classes]))
        store.set_meta(DOMAINS, json.dumps(list(dataset.domains)))
        if request.save_predictions and dataset.files:
            store.set_meta(FILES, json.dumps(dataset.files))
        for note in dict.fromkeys(n for t in planned.trials for n in find_learner(t.algorithm).caution(t)):
            self.sink.on_message(f"note: {note}")
        wanted = [trial.description() for trial in planned.trials]
        again = seeds if request.reuse else []
        add_command(store, command, [*wanted, *({**d, "seed": s} for d in wanted for s in again)], request.draws)
        search = self._make_search(planned.trials) if proposes else None
        failed = self._train(planned)
        while search is not None and not failed:
            search.tell(store.records(), find_usual_criterion(store))
            proposed = search.ask()
            if not proposed:
                break
            planned = plan_further(task, [*planned.trials, *proposed], session.device, store.finished())
            failed = self._train(planned)
        if request.reuse and not failed:
            more = list_reused(planned.trials, store.records(find_usual_criterion(store)), request.select, seeds[1:])
            if more:
                planned = plan_further(task, [*planned.trials, *more], session.device, store.finished())
                self._train(planned)
        if request.log:
            self.sink.show_table({trial.key for trial in planned.trials}, request.select)
        return planned

    def _make_search(self, trials: Sequence[Trial]) -> TrialSearch:
        for trial in trials:
            if not isinstance(find_learner(trial.algorithm), StackLearner):
                raise UsageError(
                    f"--sampler optuna searches algorithms that train a network, and {trial.short_name} does not: "
                    "search it in a run of its own, without --sampler."
                )
        settings = [s for s in self.request.settings if not s.startswith(NET_SETTING)]
        fixed = split_settings(settings, list(dict.fromkeys(trial.algorithm for trial in trials)))
        low, high = self.benchmark.lr_search
        return TrialSearch(trials, self.request.search, fixed, (low, high))

    def _train(self, planned: Plan) -> list[Record]:
        """Train what a plan lacks, and return the records that failed."""
        session, task, executor = self.session, self.session.task, self.executor
        planned = choose_compiled(planned, session.device, self.request.compile)
        finished = self.store.finished()
        assert isinstance(session.saving.files, Folder)
        remove_checkpoints(session.saving.files, finished)
        pace = self.store.pace(name_device(torch.device(session.device)))
        with count_files("timing each algorithm", self.quiet) as on_progress:
            known = time_groups(planned.missing, task, session.device, pace, on_progress)
        if self.request.is_open and is_short([known.get(group.key) for group in planned.missing]):
            executor = InProcess()
        self.sink.on_message(
            _describe(task.title, planned, known, min(executor.slots, len(planned.missing)), self.directory)
        )
        for text in _list_unsaved(planned, finished, session.saving, self.directory):
            self.sink.on_message(text)
        with show_progress(task.name, self.quiet) as on_progress:
            return execute(planned, session, executor, self.sink, known, on_progress)


class TrackedStore:
    """A sink that stores records first, and then hands them to what exports them to other tools.

    What the store has and a tool lacks, because of a crash or because it was not asked for, is written when a run
    begins.
    """

    def __init__(self, store: Store, exporter: Exporter, on_message: Callable[[str], None]) -> None:
        self._store, self._exporter, self.on_message = store, exporter, on_message

    def begin(self, planned: Mapping[str, str]) -> None:
        self._store.begin(planned)
        if missing := self._exporter.find_missing(self._store.finished() & planned.keys()):
            self._exporter.add(r for r in self._store.records() if r.key in missing)

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        self._store.note(run, running)

    def add(self, records: Iterable[Record], group: str = "") -> None:
        records = [replace(r, finished=r.finished or time.time()) for r in records]
        self._store.add(records, group)
        self._exporter.add(records)

    def show_table(self, keys: Collection[str], rule: str) -> None:
        """Write the table of the trials with these keys."""
        self._exporter.show_table([r for r in self._store.records() if r.key in keys], rule)


def preview_run(chosen: Benchmark, request: Request) -> str:
    """Say what a request would train, and about how long it would take and how much memory and disk; train nothing but
    a few steps, to time them, and write nothing."""
    set_checkout(DOMAINBED, request.domainbed)
    executor, device = choose_executor(request, request.device)
    directory = request.find_directory(chosen)
    task = chosen.make_task(request.data, request.allow_partial, request.held_out, request.rows)
    with count_files("reading images") as on_progress:
        dataset = task.dataset(on_progress)
    finished, pace = set[str](), dict[Kind, float]()
    if has_run(directory):
        with closing(Store.open(directory)) as store:
            finished, pace = store.finished(), store.pace(name_device(torch.device(device)))
    planned = chosen.plan(task, request, device, finished)
    if request.shard is not None:
        planned = take_shard(planned, parse_shard(request.shard))
    with count_files("timing each algorithm") as on_progress:
        known = time_groups(planned.missing, task, device, pace, on_progress)
    slots = min(executor.slots, len(planned.missing))
    lines = [["algorithm", "trials", "missing", "groups", "seconds of one worker"]]
    left = {trial.key for group in planned.missing for trial in group.trials}
    for name, trials in collect_by(planned.trials, lambda trial: trial.short_name).items():
        groups = [g for g in planned.missing if g.trials[0].short_name == name]  # a shared training is the first one's
        seconds = f"{sum(known[g.key] for g in groups):.0f}" if all(g.key in known for g in groups) else "-"
        missing = sum(trial.key in left for trial in trials)
        lines.append([name, str(len(trials)), str(missing), str(len(groups)), seconds])
    memory = measure_peak_memory(torch.device(device))
    disk = sum(_estimate_bytes(trial, dataset, planned.parameters, request) for trial in planned.trials)
    machine = "the GPU" if device.startswith("cuda") else "each worker" if slots > 1 else "this process"
    return "\n".join(
        [
            _describe(task.title, planned, known, slots, directory),
            "",
            *draw_table(lines),
            "",
            f"Memory: about {_write_size(memory)} of {machine}, the most that a few steps took.",
            f"Disk: about {_write_size(disk)}"
            + (" with the weights." if request.save_weights else "; trained weights are not kept (--save-weights)."),
        ]
    )


def _estimate_bytes(trial: Trial, dataset: Dataset, parameters: int, request: Request) -> int:
    """Estimate what a trial takes on disk: its record, and what is kept of it."""
    numbers = trial.protocol.evaluations * len(dataset.domains) * CRITERIA_EACH + LOSS_POINTS
    copies = {"": 0, "last": 1, "chosen": 2}[request.save_weights]
    outputs = sum(len(dataset.rows(d)) for d in trial.held_out) * dataset.outputs if request.save_predictions else 0
    return 8 * numbers + DESCRIPTION + 4 * (copies * parameters + outputs)


def _write_size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{max(1, round(size / 2**20))} MiB"


def check_versions(store: Store, directory: Path) -> None:
    """Refuse to add to a run of an older version: a table would mix trials that mean different things."""
    old = [version for version in store.versions() if version != VERSION]
    if old:
        raise UsageError(
            f"{directory} holds trials of another version of seqdg (description {old[0]}; today's is {VERSION}), and "
            "methods have changed since: they and new ones do not belong in one table. Give --out another directory. "
            f"`seqdg table {directory}` shows what is there."
        )


def _describe(title: str, planned: Plan, costs: Mapping[str, float], slots: int, directory: Path) -> str:
    """Say what is going to be done, and how long that takes."""
    left = sum(len(g.trials) for g in planned.missing)
    done = f"{count_things(len(planned.trials), 'trial')}, {len(planned.trials) - left} of them done"
    words = [f"{done}; {left} to run in {count_things(len(planned.missing), 'group')}"]
    if planned.missing and len(costs) == len(planned.missing):
        seconds = estimate_makespan([costs[g.key] for g in sort_longest_first(planned.missing, costs)], slots)
        words.append(f", {format_duration(seconds)} with {count_things(slots, 'worker')}")
    return f"{title}\n{''.join(words)}. Results in {directory}."


def _list_unsaved(planned: Plan, finished: Container[str], saving: Saving, directory: Path) -> list[str]:
    """Say what was not kept of finished trials, which are never repeated, not even for their weights or predictions."""
    wanted = {
        "weights": ("weights/{}.safetensors", saving.weights),
        "weights of the chosen step": (f"weights/{{}}.{CHOSEN}.safetensors", saving.chosen),
        "predictions": (f"predictions/{{}}.{CHOSEN}.safetensors", saving.predictions),
    }
    done = [t.key for t in planned.trials if t.key in finished]
    sentences = []
    for what, (path, is_wanted) in wanted.items():
        if is_wanted and (lost := sum(not (directory / path.format(key)).exists() for key in done)):
            were = f"{count_things(lost, 'trial')} that {'was' if lost == 1 else 'were'}"
            sentences.append(f"Of {were} done before, no {what} were kept.")
    return sentences

"""From a benchmark and what is asked of it to a store that holds the answer."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from seqdg.base.errors import UsageError
from seqdg.base.files import Folder
from seqdg.bench.benchmark import Benchmark, Choice, plan
from seqdg.bench.cost import longest_first
from seqdg.bench.executors.context import Context, Executor
from seqdg.bench.progress import Progress
from seqdg.bench.trial import Group, Trial, group
from seqdg.data import Dataset
from seqdg.nets.net import Net
from seqdg.results.record import FAILED, Record
from seqdg.results.store import Store
from seqdg.training.checkpoint import FOLDER, header_of, name_of
from seqdg.training.place import net_of

NOTED = 5.0  # seconds between notes in the store of how far a run is


@dataclass(frozen=True)
class Plan:
    """All that a command asks for, and what of it is missing from the store."""

    trials: tuple[Trial, ...]
    groups: tuple[Group, ...]
    missing: tuple[Group, ...]
    parameters: int  # of the net

    @property
    def work(self) -> int:
        return sum(g.work for g in self.missing)


def make_plan(context: Context, choice: Choice, finished: Iterable[str] = ()) -> Plan:
    """Checked: every algorithm can train this net on these domains."""
    dataset, benchmark = context.dataset(), context.benchmark
    trials = plan(benchmark, dataset, choice)
    built = net_of(trials[0], dataset)
    net = Net(built.module, benchmark.batchnorm)
    trials = tuple(replace(trial, weights=built.weights_sha256) for trial in trials)
    _check(trials, net, dataset)
    parameters = sum(p.numel() for p in net.params().values())
    wide = any(trial.protocol.precision == "float64" for trial in trials)
    groups = group(trials, capacity(2 * parameters if wide else parameters, dataset, context.device))
    done = set(finished)
    left = [tuple(t for t in g.trials if t.key not in done) for g in groups]
    return Plan(trials, groups, tuple(Group(ts) for ts in left if ts), parameters)


def _check(trials: Sequence[Trial], net: Net, dataset: Dataset) -> None:
    seen = set()
    for trial in trials:
        case = (trial.algorithm, trial.settings, len(trial.held_out))
        if case not in seen:
            seen.add(case)
            trial.built().check(net, len(dataset.domains) - len(trial.held_out))


def capacity(parameters: int, dataset: Dataset, device: str) -> int:
    """How many trials a stack holds: images train alone, small nets together."""
    if dataset.is_image:
        return 1
    if device == "cpu":  # enough for the gain of stacking, and so few that several workers have some each
        return max(1, min(16, 1_000_000 // parameters))
    return max(1, min(256, 200_000_000 // parameters))


def fill(
    store: Store,
    made: Plan,
    context: Context,
    executor: Executor,
    costs: Mapping[str, float] | None = None,
    show: Callable[[Progress], None] = lambda progress: None,
) -> list[Record]:
    """Runs what is missing, the longest first, and stores it group by group; the records that failed.

    costs: seconds by group, as far as they are known.   show: hears how far the run is.
    """
    place = {trial.key: g.key for g in (*made.groups, *made.missing) for trial in g.trials}
    store.begin({trial.key: place[trial.key] for trial in made.trials})
    progress = Progress(made, costs or {})

    def tell(group: Group, step: int) -> None:
        progress.at(group, step)
        if step == 0 or progress.quiet() > NOTED:
            with suppress(UsageError):  # on a full disk it is the next record that counts
                store.note(progress.noted(), progress.running())
        show(progress)

    failed = []
    with closing(executor(longest_first(made.missing, costs or {}), context, tell)) as results:
        for group, records in results:
            store.add(records, group.key)
            if isinstance(context.keep.files, Folder):
                context.keep.files.remove(name_of(group.key))
            progress.done(group)
            show(progress)
            failed += [r for r in records if r.status == FAILED]
    return failed


def sweep(files: Folder, finished: Container[str]) -> None:
    """Removes checkpoints of groups that were stored just before a crash, and what is none."""
    for name in files.names(FOLDER):
        try:
            trials = header_of(files.read(name) or b"")["trials"]
        except ValueError:
            trials = []
        if all(key in finished for key in trials):
            files.remove(name)


def default_out(benchmark: Benchmark) -> Path:
    return Path("runs") / benchmark.name

"""Curves and tables of a run in the tools that people watch them with: TensorBoard, MLflow, Weights & Biases.

A tracker is handed records when they are stored, as any reader of the store could be. So nothing in training knows of
it, and what a crash kept from a tracker is written when the run goes on. What a tool keeps on this machine is below the
run directory.
"""

from __future__ import annotations

import math
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

from seqdg.base import UsageError, replace_folder, unknown
from seqdg.results.criteria import CRITERIA, find_unit
from seqdg.results.record import Record, find_usual_criterion_in, list_ends
from seqdg.results.select import average_finite, select_outcomes
from seqdg.results.summary import AVERAGE, Cell, format_cell, summarize

TABLE = "table"
KEY, RUN = "seqdg.key", "seqdg.run"  # tags of MLflow: the key of a trial, and the run directory
MOST = 1000  # metrics that MLflow takes at once


class Point(NamedTuple):
    """The values of all curves at one step, by their names, such as `held_out/accuracy`."""

    step: int
    time: float  # seconds since 1970, as if all steps took the same time
    values: dict[str, float]


@dataclass(frozen=True)
class Table:
    """The table of a run: means and standard errors by held-out domain and algorithm."""

    title: str
    cells: Sequence[Cell]
    digits: int

    @property
    def averages(self) -> dict[str, float]:
        """The average over held-out domains, by the name of its curve."""
        return {f"average/{c.algorithm}": c.mean for c in self.cells if c.held_out == AVERAGE and c.mean is not None}

    def list_rows(self) -> list[list[str]]:
        """List the names of the columns, then a row for each held-out domain."""
        algorithms = list(dict.fromkeys(c.algorithm for c in self.cells))
        texts = {(c.held_out, c.algorithm): format_cell(c, self.digits) for c in self.cells}
        domains = dict.fromkeys(c.held_out for c in self.cells)
        return [["held out", *algorithms], *([d, *(texts.get((d, a), "-") for a in algorithms)] for d in domains)]

    def write_markdown(self) -> str:
        head, *rows = self.list_rows()
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + ["", self.title, ""])


def make_table(records: Sequence[Record], rule: str) -> Table:
    """Return the table of these records, as the rule selects."""
    criterion = find_usual_criterion_in(records)
    unit = CRITERIA[criterion]
    cells = summarize(select_outcomes(records, rule, criterion), unit.factor, unit.higher_is_better)
    title = f"{unit.title} on the held-out domain: mean ± standard error, selected by {rule}."
    return Table(title, cells, find_unit(criterion, [cell.mean for cell in cells]).digits)


def list_points(record: Record) -> list[Point]:
    """List the training loss, the criteria on each held-out domain, and their means over the sources, by step."""
    last = record.history[-1].step if record.history else len(record.losses)
    ends = list_ends(last, len(record.losses)) if record.losses else []
    steps = {end: {"loss": loss} for end, loss in zip(ends, record.losses, strict=True)}
    for e in record.history:
        values = steps.setdefault(e.step, {})
        values |= {f"source/{name}": average_finite(v) for name, v in e.source.items()}
        for i, domain in enumerate(record.held_out):
            part = "held_out" if len(record.held_out) == 1 else f"held_out/{_make_safe(domain)}"
            values |= {f"{part}/{name}": v[i] for name, v in e.held_out.items()}
    start = _find_start(record)
    return [Point(step, start + record.seconds * step / last, steps[step]) for step in sorted(steps)]


def _find_start(record: Record) -> float:
    return record.finished - record.seconds


def name_trial(record: Record) -> str:
    """`agg/photo/seed-0-1f3a5b7c`: its key tells candidates of a search apart."""
    names = (_make_safe(name) for name in (record.algorithm, "+".join(record.held_out)))
    return "/".join([*names, f"seed-{record.seed}-{record.key[:8]}"])


def _describe(record: Record) -> dict[str, Any]:
    """Return what a trial is of, and its settings and those of its training, by name."""
    about = record.description
    names = {"algorithm": record.algorithm, "held_out": "+".join(record.held_out), "seed": record.seed}
    return {**names, **about["protocol"], **about.get("settings", {})}


def _make_safe(name: str) -> str:
    """Return a name that any tool takes as part of a path."""
    return "".join(ch if ch.isalnum() or ch in "+-_." else "_" for ch in name).strip(".") or "_"


class Tracker(ABC):
    """Writes trials and the table of a run to a tool."""

    name: str
    title: str

    @abstractmethod
    def __init__(self, directory: Path, benchmark: str) -> None: ...

    @abstractmethod
    def list_known(self) -> set[str]:
        """Return the keys of the trials that the tool has whole."""

    @abstractmethod
    def add(self, record: Record) -> None:
        """Write a trial. What an interrupted call left of it is replaced."""

    @abstractmethod
    def show(self, table: Table) -> None:
        """Write the table in place of the one before."""


class TensorBoardTracker(Tracker):
    """`tensorboard --logdir DIR/tensorboard` shows a run for each trial, its settings as hyperparameters.

    The event files of a trial are a folder, written whole or not at all.
    """

    name, title = "tensorboard", "TensorBoard"

    def __init__(self, directory: Path, benchmark: str) -> None:
        import tensorboard.summary.writer.event_file_writer  # noqa: F401  fails now, not after the training

        self._folder = directory / self.name

    def list_known(self) -> set[str]:
        return {path.read_text() for path in self._folder.glob("*/*/*/key.txt") if not path.parent.name.startswith(".")}

    def add(self, record: Record) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        plain = (bool, int, float, str)
        about = {name: x if isinstance(x, plain) else str(x) for name, x in _describe(record).items()}
        start = _find_start(record)
        events = [(0, start, hparams_pb(about, record.key, start))]
        events += [(step, time, _make_scalars(values)) for step, time, values in list_points(record)]
        self._write(name_trial(record), events, record.key)

    def show(self, table: Table) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._write(
            TABLE, [(0, None, text_pb(TABLE, table.write_markdown())), (0, None, _make_scalars(table.averages))]
        )

    def _write(self, name: str, events: Iterable[tuple[int, float | None, Any]], key: str = "") -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_folder(path) as folder:
            writer = EventFileWriter(str(folder))
            for step, at, summary in events:
                writer.add_event(Event(step=step, wall_time=at, summary=summary))
            writer.close()
            if key:
                (folder / "key.txt").write_text(key)


def _make_scalars(values: dict[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])


class MLflowTracker(Tracker):
    """`mlflow ui --backend-store-uri DIR/mlflow` shows a run for each trial, and one with the table.

    They are in an experiment with the name of the benchmark, in the store that MLFLOW_TRACKING_URI names, or else in
    files below the directory.
    """

    name, title = "mlflow", "MLflow"

    def __init__(self, directory: Path, benchmark: str) -> None:
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 would rather have a database
            uri = (directory.resolve() / self.name).as_uri()
        self._client, self._directory = MlflowClient(tracking_uri=uri), str(directory.resolve())
        known = self._client.get_experiment_by_name(benchmark)
        self._experiment = self._client.create_experiment(benchmark) if known is None else known.experiment_id
        self._runs: dict[str, list[str]] = {}  # of earlier calls, by the key of the trial

    def list_known(self) -> set[str]:
        known: set[str] = set()
        token: str | None = ""
        while token is not None:
            page = self._client.search_runs(
                [self._experiment], f"tags.`{RUN}` = '{self._directory}'", max_results=MOST, page_token=token or None
            )
            for run in page:
                key = run.data.tags[KEY]
                self._runs.setdefault(key, []).append(run.info.run_id)
                known |= {key} if run.info.status == "FINISHED" else set()
            token = page.token or None
        return known

    def _create(self, key: str, name: str, started: float | None = None, **tags: str) -> str:
        """Make a run in place of any of this key."""
        for identity in self._runs.pop(key, []):
            self._client.delete_run(identity)
        at = None if started is None else round(1000 * started)
        run = self._client.create_run(self._experiment, at, {KEY: key, RUN: self._directory, **tags}, name)
        return str(run.info.run_id)

    def add(self, record: Record) -> None:
        from mlflow.entities import Metric, Param

        about = {name: str(value) for name, value in _describe(record).items()}
        tags = {name: about[name] for name in ("algorithm", "held_out", "seed")}
        run = self._create(record.key, name_trial(record), _find_start(record), status=record.status, **tags)
        metrics = [
            Metric(name, value, round(1000 * time), step)
            for step, time, values in list_points(record)
            for name, value in values.items()
            if math.isfinite(value)
        ]
        self._client.log_batch(run, params=[Param(name, value) for name, value in about.items()])
        for start in range(0, len(metrics), MOST):
            self._client.log_batch(run, metrics[start : start + MOST])
        self._client.set_terminated(run, end_time=round(1000 * record.finished))

    def show(self, table: Table) -> None:
        import pandas as pd
        from mlflow.entities import Metric

        run = self._create(TABLE, TABLE)
        self._client.log_text(run, table.write_markdown(), "table.md")
        cells = pd.DataFrame(map(asdict, table.cells)).drop(columns="diverged")
        self._client.log_text(run, cells.to_csv(index=False), "table.csv")
        self._client.log_batch(run, [Metric(name, value, 0, 0) for name, value in table.averages.items()])
        self._client.set_terminated(run)


class WandbTracker(Tracker):
    """`wandb sync DIR/wandb/offline-run-*` sends a run for each trial, in a group named as the run directory.

    They are written offline, in a project with the name of the benchmark; WANDB_MODE=online sends them at once.
    """

    name, title = "wandb", "Weights & Biases"

    def __init__(self, directory: Path, benchmark: str) -> None:
        import wandb  # noqa: F401  fails now, not after the training

        self._directory, self._benchmark = directory.resolve(), benchmark
        self._folder = self._directory / self.name
        self._list = self._folder / "seqdg-trials.txt"  # keys of the trials that were written whole

    def list_known(self) -> set[str]:
        return set(self._list.read_text().split()) if self._list.is_file() else set()

    def _begin(self, key: str, name: str, config: dict[str, Any], kind: str) -> Any:
        """Begin a run in place of what was written of it before: an identity is sent once."""
        import wandb

        self._folder.mkdir(exist_ok=True)
        for earlier in self._folder.glob(f"offline-run-*-{escape(key)}"):
            shutil.rmtree(earlier)
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT") or self._benchmark,
            group=os.environ.get("WANDB_RUN_GROUP") or self._directory.name,
            id=key,
            name=name,
            job_type=kind,
            config=config,
            dir=str(self._directory),
            mode=os.environ.get("WANDB_MODE") or "offline",  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", save_code=False, disable_git=True),
        )

    def add(self, record: Record) -> None:
        run = self._begin(
            record.key, name_trial(record), {**_describe(record), "status": record.status}, record.algorithm
        )
        for step, _, values in list_points(record):
            run.log(values, step=step)
        run.finish()
        with self._list.open("a") as file:
            file.write(f"{record.key}\n")

    def show(self, table: Table) -> None:
        import wandb

        run = self._begin(f"{self._directory.name}-{TABLE}", TABLE, {}, TABLE)
        head, *rows = table.list_rows()
        run.log({TABLE: wandb.Table(columns=head, data=rows)})
        run.summary.update(table.averages)
        run.finish()


TOOLS = {tool.name: tool for tool in (TensorBoardTracker, MLflowTracker, WandbTracker)}


def open_trackers(names: Sequence[str], directory: Path, benchmark: str) -> list[Tracker]:
    """Open these tools for a run of a benchmark."""
    for name in names:
        if name not in TOOLS:
            raise unknown("tool to log to", name, TOOLS)
    trackers: list[Tracker] = []
    for name in dict.fromkeys(names):
        title = TOOLS[name].title
        try:
            trackers.append(TOOLS[name](directory, benchmark))
        except ImportError as error:
            raise UsageError(f"--log {name} needs {title}: pip install 'seqdg[{name}]' ({error}).") from None
        except Exception as error:  # whatever the tool raises: no server, no right to write
            first = (str(error).splitlines() or [""])[0]
            raise UsageError(f"{title} cannot be written to ({first}). Leave out --log {name}, or fix it.") from None
    return trackers

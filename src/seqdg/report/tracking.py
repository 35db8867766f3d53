"""The curves and the table of a run in the tools that people watch them with: TensorBoard, MLflow, Weights & Biases.

Trials are exported when they are stored, as any reader of the store could do, so training knows nothing of it. The
file `exported.txt` of a run directory lists what each tool has whole. What is not in it is written in place of anything
that the tool has of it: no export leaves a value twice, be it interrupted or repeated.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from glob import escape
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import ClassVar

from seqdg.base import UsageError, make_file_name, refuse_broken, unknown
from seqdg.report.sheet import Sheet, build_sheet
from seqdg.report.table import render
from seqdg.results import AVERAGE, FAILED, Cell, Record, average_finite, find_usual_criterion_in, list_ends

TABLE = "table"
KEY, DIRECTORY = "seqdg.key", "seqdg.run"  # tags of MLflow
MOST = 1000  # metrics that MLflow takes at once
Row = tuple[int, str, float]  # step, name such as `held_out/accuracy`, and value


@dataclass(frozen=True)
class Export:
    """What a tool shows as one run: a trial, or the table."""

    key: str
    name: str
    rows: Sequence[Row]
    settings: dict[str, bool | float | str] = field(default_factory=dict)
    seconds: float = 0.0
    finished: float = field(default_factory=time.time)
    sheet: Sheet | None = None


def list_rows(record: Record) -> list[Row]:
    """List the training loss, the criteria on each held-out domain, and their means over the sources, by step."""
    last = record.history[-1].step if record.history else len(record.losses)
    ends = list_ends(last, len(record.losses)) if record.losses else []
    rows = [(step, "loss", loss) for step, loss in zip(ends, record.losses, strict=True)]
    for e in record.history:
        rows += [(e.step, f"source/{name}", average_finite(values)) for name, values in e.source.items()]
        for i, domain in enumerate(record.held_out):
            part = "held_out" if len(record.held_out) == 1 else f"held_out/{domain}"
            rows += [(e.step, f"{part}/{name}", values[i]) for name, values in e.held_out.items()]
    return sorted((row for row in rows if isfinite(row[2])), key=lambda row: row[0])


def name_trial(record: Record) -> str:
    """`agg/photo/seed-0-1f3a5b7c`: its key tells candidates of a search apart."""
    names = map(make_file_name, (record.algorithm, "+".join(record.held_out)))
    return "/".join([*names, f"seed-{record.seed}-{record.key[:8]}"])


def _export_trial(record: Record) -> Export:
    about = record.description
    settings = {
        "algorithm": record.algorithm, "held_out": "+".join(record.held_out), "seed": record.seed,
        "status": record.status, **about["protocol"], **about.get("settings", {}),
    }  # fmt: skip
    plain = {name: x if isinstance(x, (bool, int, float, str)) else str(x) for name, x in settings.items()}
    return Export(record.key, name_trial(record), list_rows(record), plain, record.seconds, record.finished)


@dataclass
class Tool(ABC):
    """Writes exports, each in place of any of the same key."""

    directory: Path  # of the run
    benchmark: str
    target: str  # where it writes to, in `exported.txt`
    title: ClassVar[str]

    @abstractmethod
    def write(self, export: Export) -> None: ...


class TensorBoard(Tool):
    """`tensorboard --logdir DIR/tensorboard` shows a run for each trial, its settings as hyperparameters."""

    title = "TensorBoard"

    def write(self, export: Export) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self.directory / self.target / export.name
        shutil.rmtree(folder, ignore_errors=True)
        summaries = [(0, hparams_pb(export.settings, export.key))] if export.settings else []
        summaries += [(0, text_pb(TABLE, render(export.sheet, "markdown")))] if export.sheet else []
        summaries += [
            (step, Summary(value=[Summary.Value(tag=name, simple_value=value)])) for step, name, value in export.rows
        ]
        writer = EventFileWriter(str(folder))
        for step, summary in summaries:
            writer.add_event(Event(step=step, wall_time=export.finished, summary=summary))
        writer.close()


@dataclass
class MLflow(Tool):
    """`mlflow ui --backend-store-uri DIR/mlflow` shows a run for each trial, and one with the table.

    They are in an experiment with the name of the benchmark, in the store that MLFLOW_TRACKING_URI names, or else in
    files below the directory.
    """

    title = "MLflow"

    def __post_init__(self) -> None:
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI")
        self.target = uri or self.target
        if not uri:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 would rather have a database
            uri = (self.directory / "mlflow").as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(self.benchmark)
        self._experiment = self._client.create_experiment(self.benchmark) if known is None else known.experiment_id
        self._delete("attributes.status = 'RUNNING'")  # an export that was interrupted

    def _delete(self, condition: str) -> None:
        condition += f" and tags.`{DIRECTORY}` = '{self.directory}'"
        for run in self._client.search_runs([self._experiment], condition):
            self._client.delete_run(run.info.run_id)

    def write(self, export: Export) -> None:
        from mlflow.entities import Metric, Param

        end = round(1000 * export.finished)
        if export.sheet:
            self._delete(f"tags.`{KEY}` = '{export.key}'")
        tags = {KEY: export.key, DIRECTORY: str(self.directory)}
        run = self._client.create_run(self._experiment, end - round(1000 * export.seconds), tags, export.name)
        identity = run.info.run_id
        self._client.log_batch(identity, params=[Param(name, str(x)) for name, x in export.settings.items()])
        # a name has no other characters there, such as the plus sign of a chain
        metrics = [Metric(re.sub(r"[^\w/. -]", "_", name), value, end, step) for step, name, value in export.rows]
        for start in range(0, len(metrics), MOST):
            self._client.log_batch(identity, metrics[start : start + MOST])
        if export.sheet:
            self._client.log_text(identity, render(export.sheet, "markdown"), "table.md")
            self._client.log_text(identity, render(export.sheet, "csv"), "table.csv")
        self._client.set_terminated(identity, end_time=end)


class WeightsAndBiases(Tool):
    """`wandb sync DIR/wandb/offline-run-*` sends a run for each trial, in a group named as the run directory.

    They are written offline, in a project with the name of the benchmark; WANDB_MODE=online sends them at once.
    """

    title = "Weights & Biases"

    def write(self, export: Export) -> None:
        import wandb

        folder = self.directory / "wandb"
        folder.mkdir(exist_ok=True)
        for earlier in folder.glob(f"offline-run-*-{escape(export.key)}"):
            shutil.rmtree(earlier)
        with wandb.init(
            project=os.environ.get("WANDB_PROJECT") or self.benchmark,
            group=os.environ.get("WANDB_RUN_GROUP") or self.directory.name,
            id=export.key,
            name=export.name,
            config=export.settings,
            dir=str(self.directory),
            mode=os.environ.get("WANDB_MODE") or "offline",  # type: ignore[arg-type]
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", save_code=False, disable_git=True),
        ) as run:
            for step, name, value in export.rows:
                run.log({name: value}, step=step)
            if export.sheet:
                cells = [list(astuple(cell)) for cell in export.sheet.cells]
                run.log({TABLE: wandb.Table(columns=[f.name for f in fields(Cell)], data=cells)}, step=0)


TOOLS: dict[str, type[Tool]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases}


def _open_tool(name: str, directory: Path, benchmark: str) -> Tool:
    if name not in TOOLS:
        raise unknown("tool to log to", name, TOOLS)
    title = TOOLS[name].title
    # It fails now, not after the training, whatever the tool raises: no server, no right to write.
    with refuse_broken(f"{title} cannot be written to", f". Leave out --log {name}, or fix it."):
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError(f"--log {name} needs {title}: pip install 'seqdg[{name}]' ({error}).") from None
        return TOOLS[name](directory.resolve(), benchmark, name)


class Exporter:
    """Writes trials and the table of a run to these tools. One that fails is left out from then on: training goes on,
    and the next run makes up for it."""

    def __init__(
        self, names: Sequence[str], directory: Path, benchmark: str, on_message: Callable[[str], None]
    ) -> None:
        self._tools = {name: _open_tool(name, directory, benchmark) for name in names}
        self._table, self._on_message = f"{directory.resolve().name}-{TABLE}", on_message
        self._file = directory / "exported.txt"
        self._exported = set(self._file.read_text().splitlines()) if self._file.is_file() else set()

    def find_missing(self, keys: Iterable[str]) -> set[str]:
        """Find the trials that some tool lacks."""
        targets = [tool.target for tool in self._tools.values()]
        return {key for key in keys if any(f"{target} {key}" not in self._exported for target in targets)}

    def add(self, records: Iterable[Record]) -> None:
        """Write the trials that tables show to every tool that lacks them."""
        for record in records:
            if record.status != FAILED and record.is_tabled and self.find_missing([record.key]):
                self._write(_export_trial(record))

    def show_table(self, records: Sequence[Record], rule: str) -> None:
        """Write the table of these trials in place of the one before."""
        try:
            sheet = build_sheet(records, rule, find_usual_criterion_in(records))
        except UsageError as error:  # nothing is finished, or the rule has nothing to choose by
            self._on_message(f"note: no table is logged: {error}")
            return
        averages = {c.algorithm: c.mean for c in sheet.cells if c.held_out == AVERAGE}
        rows = [(0, f"average/{name}", mean) for name, mean in averages.items() if mean is not None]
        self._write(Export(self._table, TABLE, rows, sheet=sheet))

    def _write(self, export: Export) -> None:
        for name, tool in tuple(self._tools.items()):
            line = f"{tool.target} {export.key}"
            if line in self._exported:
                continue
            try:
                tool.write(export)
            except Exception as error:
                del self._tools[name]
                self._on_message(
                    f"note: nothing more is logged to {tool.title} ({type(error).__name__}: {error}). The run "
                    "goes on; the same command later logs what is missing."
                )
            else:
                if export.sheet is None:  # the table is written again by every call
                    self._exported.add(line)
                    with self._file.open("a") as file:
                        file.write(f"{line}\n")

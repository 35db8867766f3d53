"""Event files for TensorBoard: a folder for each trial, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from seqdg.base import replace_folder
from seqdg.results.tracking.tracker import Table, TrackedTrial

FOLDER, TABLE = "tensorboard", "table"


def open_tracker(directory: Path, benchmark: str) -> TensorBoardTracker:
    return TensorBoardTracker(directory / FOLDER)


class TensorBoardTracker:
    """`tensorboard --logdir DIR/tensorboard` shows a run for each trial, its settings as hyperparameters."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_known(self) -> set[str]:
        return {path.read_text() for path in self._folder.glob("*/*/*/key.txt") if not path.parent.name.startswith(".")}

    def add(self, trial: TrackedTrial) -> None:
        settings = {name: value if isinstance(value, (bool, int, float, str)) else str(value)
                    for name, value in trial.settings.items()}  # fmt: skip
        about = {"algorithm": trial.algorithm, "held_out": trial.held_out, "seed": trial.seed, **settings}
        start = trial.find_time(0)
        events = [Event(wall_time=start, step=0, summary=hparams_pb(about, trial.key, start))]
        for step, values in trial.list_points():
            scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            events.append(Event(wall_time=trial.find_time(step), step=step, summary=Summary(value=scalars)))
        self._write(trial.path, events, trial.key)

    def show(self, table: Table) -> None:
        events = [Event(step=0, summary=text_pb("table", table.write_markdown()))]
        means = [Summary.Value(tag=f"average/{name}", simple_value=value) for name, value in table.averages.items()]
        self._write(TABLE, [*events, Event(step=0, summary=Summary(value=means))])

    def _write(self, name: str, events: Iterable[Any], key: str = "") -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_folder(path) as folder:
            writer = EventFileWriter(str(folder))
            for event in events:
                writer.add_event(event)
            writer.close()
            if key:
                (folder / "key.txt").write_text(key)

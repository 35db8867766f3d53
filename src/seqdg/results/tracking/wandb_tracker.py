"""Runs of Weights & Biases: one for each trial, in a project with the name of the benchmark.

They are written offline, below the run directory, and `wandb sync` sends them; WANDB_MODE=online sends them at once.
"""

from __future__ import annotations

import os
import shutil
from glob import escape
from pathlib import Path
from typing import Any

import wandb

from seqdg.results.tracking.tracker import Table, TrackedTrial

FOLDER, LIST, TABLE = "wandb", "seqdg-trials.txt", "table"


def open_tracker(directory: Path, benchmark: str) -> WandbTracker:
    return WandbTracker(directory.resolve(), benchmark)


class WandbTracker:
    """`wandb sync DIR/wandb/offline-run-*` sends a run for each trial, in a group named as the run directory."""

    name = "wandb"

    def __init__(self, directory: Path, benchmark: str) -> None:
        self._directory, self._benchmark = directory, benchmark
        self._list = directory / FOLDER / LIST  # keys of the trials that were written whole

    def list_known(self) -> set[str]:
        return set(self._list.read_text().split()) if self._list.is_file() else set()

    def _begin(self, key: str, name: str, config: dict[str, Any], kind: str) -> Any:
        """Begin a run in place of what was written of it before: an identity is sent once."""
        (self._directory / FOLDER).mkdir(exist_ok=True)
        for earlier in (self._directory / FOLDER).glob(f"offline-run-*-{escape(key)}"):
            shutil.rmtree(earlier)
        settings = wandb.Settings(silent=True, console="off", save_code=False, disable_git=True)
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
            settings=settings,
        )

    def add(self, trial: TrackedTrial) -> None:
        about = {"algorithm": trial.algorithm, "held_out": trial.held_out, "seed": trial.seed, "status": trial.status}
        run = self._begin(trial.key, trial.path, {**about, **trial.settings}, trial.algorithm)
        for step, values in trial.list_points():
            run.log(values, step=step)
        run.finish()
        with self._list.open("a") as file:
            file.write(f"{trial.key}\n")

    def show(self, table: Table) -> None:
        run = self._begin(f"{self._directory.name}-{TABLE}", TABLE, {}, TABLE)
        head, *rows = table.list_rows()
        run.log({TABLE: wandb.Table(columns=head, data=rows)})
        for name, value in table.averages.items():
            run.summary[f"average/{name}"] = value
        run.finish()

"""Runs of MLflow: one for each trial, in an experiment with the name of the benchmark."""

from __future__ import annotations

import math
import os
from pathlib import Path

from mlflow.entities import Metric, Param, ViewType
from mlflow.tracking import MlflowClient

from seqdg.results.tracking.tracker import Table, TrackedTrial

FOLDER, KEY, PLACE, TABLE = "mlflow", "seqdg.key", "seqdg.run", "table"
MOST = 1000  # metrics that MLflow takes at once


def open_tracker(directory: Path, benchmark: str) -> MLflowTracker:
    """Open the store that MLFLOW_TRACKING_URI names, or else files below the directory."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 would rather have a database
        uri = (directory.resolve() / FOLDER).as_uri()
    return MLflowTracker(MlflowClient(tracking_uri=uri), benchmark, str(directory.resolve()))


class MLflowTracker:
    """`mlflow ui --backend-store-uri DIR/mlflow` shows a run for each trial, and one with the table."""

    name = "mlflow"

    def __init__(self, client: MlflowClient, benchmark: str, place: str) -> None:
        known = client.get_experiment_by_name(benchmark)
        self._client, self._place = client, place
        self._runs: dict[str, list[str]] = {}  # of earlier calls, by the key of the trial
        self._experiment = client.create_experiment(benchmark) if known is None else known.experiment_id

    def list_known(self) -> set[str]:
        known, token = set(), None
        while True:
            page = self._client.search_runs(
                [self._experiment], f"tags.`{PLACE}` = '{self._place}'", ViewType.ACTIVE_ONLY, MOST, page_token=token
            )
            for run in page:
                key = run.data.tags[KEY]
                self._runs.setdefault(key, []).append(run.info.run_id)
                known |= {key} if run.info.status == "FINISHED" else set()
            token = page.token
            if not token:
                return known

    def _create(self, key: str, name: str, started: float | None = None, **tags: str) -> str:
        """Make a run in place of any of this key."""
        for identity in self._runs.pop(key, []):
            self._client.delete_run(identity)
        at = None if started is None else round(1000 * started)
        run = self._client.create_run(self._experiment, at, {KEY: key, PLACE: self._place, **tags}, name)
        return str(run.info.run_id)

    def add(self, trial: TrackedTrial) -> None:
        about = {"algorithm": trial.algorithm, "held_out": trial.held_out, "seed": str(trial.seed)}
        run = self._create(trial.key, trial.path, trial.find_time(0), status=trial.status, **about)
        params = [Param(name, str(value)) for name, value in {**about, **trial.settings}.items()]
        metrics = [
            Metric(name, value, round(1000 * trial.find_time(step)), step)
            for name, curve in trial.series.items()
            for step, value in curve
            if math.isfinite(value)
        ]
        for start in range(0, max(1, len(metrics)), MOST):
            self._client.log_batch(run, metrics[start : start + MOST], () if start else params)
        self._client.set_terminated(run, end_time=round(1000 * trial.finished))

    def show(self, table: Table) -> None:
        run = self._create(TABLE, TABLE)
        self._client.log_text(run, table.write_markdown(), "table.md")
        self._client.log_text(run, table.write_csv(), "table.csv")
        self._client.log_batch(run, [Metric(f"average/{name}", x, 0, 0) for name, x in table.averages.items()])
        self._client.set_terminated(run)

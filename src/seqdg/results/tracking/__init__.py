"""Curves and tables of a run in the tools that people watch them with: TensorBoard, MLflow, Weights & Biases.

A tracker hears of trials when their records are stored, as any reader of the store could. So nothing in training knows
of it, and what a crash kept from a tracker is written when the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from seqdg.base import UsageError, unknown
from seqdg.results.tracking.tracker import Tracker

TOOLS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "Weights & Biases"}

__all__ = ["TOOLS", "Tracker", "open_trackers"]


def open_trackers(names: Sequence[str], directory: Path, benchmark: str) -> list[Tracker]:
    """Open these tools for a run of a benchmark; what they keep on this machine is below the directory."""
    for name in names:
        if name not in TOOLS:
            raise unknown("tool to log to", name, TOOLS)
    trackers: list[Tracker] = []
    for name in dict.fromkeys(names):
        try:
            module = import_module(f"seqdg.results.tracking.{name}_tracker")
        except ImportError as error:
            raise UsageError(f"--log {name} needs {TOOLS[name]}: pip install 'seqdg[{name}]' ({error}).") from None
        try:
            trackers.append(module.open_tracker(directory, benchmark))
        except Exception as error:  # whatever the tool raises: no server, no right to write
            first = (str(error).splitlines() or [""])[0]
            raise UsageError(
                f"{TOOLS[name]} cannot be written to ({first}). Leave out --log {name}, or mend it."
            ) from None
    return trackers

"""The common parts of analyses of a model: read it back to fit it anew, and write frames and a picture."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqdg.data import TableWriter
from seqdg.estimator.classifier import DomainClassifier
from seqdg.estimator.estimator import DomainEstimator
from seqdg.estimator.regressor import DomainRegressor
from seqdg.report import MISSING, Figure, can_draw, write_figures
from seqdg.results import make_directory


def load_estimator(path: Path, device: str = "auto") -> DomainEstimator:
    """Read a saved model as the estimator that it was: a classifier or a regressor."""
    from seqdg.estimator.model_file import read_description

    kind = DomainClassifier if "class_weight" in read_description(path)["facts"]["parameters"] else DomainRegressor
    loaded: DomainEstimator = kind.load(path, device=device)
    return loaded


def write_analysis(folder: Path, frames: Mapping[str, Any], figure: Figure) -> list[Path]:
    """Write each frame as NAME.csv and, where Altair is installed, the figure as SVG, and return the paths."""
    make_directory(folder, "--out")
    paths = []
    for name, frame in frames.items():
        paths.append(folder / f"{name}.csv")
        rows = frame if isinstance(frame, list) else frame.to_dict("records")
        with TableWriter(paths[-1]) as writer:
            writer.write({column: np.array([row[column] for row in rows]) for column in rows[0]})
    if not can_draw():
        print(f"There is no picture. {MISSING}", file=sys.stderr)
        return paths
    return [*paths, *write_figures([figure], folder, ["svg"])]

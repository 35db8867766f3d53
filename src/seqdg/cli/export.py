"""`seqdg export`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options as given


def export(
    model: given.Model,
    onnx: Annotated[Path, typer.Option(metavar="FILE", help="The ONNX file to write.")],
) -> None:
    """Write a model as one ONNX file, its preprocessing inside, checked against onnxruntime.

    seqdg export model --onnx model.onnx
    """
    from seqdg.estimator.model_file import read_model
    from seqdg.estimator.onnx import export as written
    from seqdg.estimator.onnx import signature

    loaded = read_model(model)
    gap = written(loaded, onnx)
    typer.echo(f"{onnx}: reads {signature(loaded)}; gives logits and probabilities (row, {len(loaded.classes)}).")
    typer.echo(f"Checked against onnxruntime: probabilities agree to {max(gap, 1e-16):.0e}.")

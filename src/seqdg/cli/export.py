"""`seqdg export`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqdg.cli import options


def export(
    model: options.Model,
    onnx: Annotated[Path, typer.Option("--onnx", "--out", metavar="FILE", help="The ONNX file to write.")],
) -> None:
    """Write a model and its preprocessing as one ONNX file, and check it with onnxruntime.

    seqdg export model --onnx model.onnx
    """
    from seqdg.estimator import describe_signature, export_onnx, list_outputs, read_model

    loaded = read_model(model)
    gap = export_onnx(loaded, onnx)
    shape = "(row,)" if loaded.is_regression else f"(row, {len(loaded.classes)})"
    typer.echo(f"{onnx}: reads {describe_signature(loaded)}; gives {' and '.join(list_outputs(loaded))} {shape}.")
    what, unit = ("predictions", " deviations") if loaded.is_regression else ("probabilities", "")
    typer.echo(f"Checked against onnxruntime: {what} agree to {max(gap, 1e-16):.0e}{unit}.")

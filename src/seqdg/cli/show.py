"""`seqdg show`"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seqdg.cli import options as given


def show(
    model: given.Model,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show a model's card: what it was trained on, how it was chosen, what to expect, by which versions."""
    from seqdg.estimator import read_description, read_model, render_card

    text = read_description(model)
    if text["net"] is not None:
        read_model(model)  # also the weights are whole and as they were saved
    typer.echo(json.dumps(text, indent=1) if as_json else render_card(text), nl=as_json)

"""`seqdg show`"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seqdg.cli import options


def show(
    model: options.Model,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show a model's card: what it was trained on, how it was chosen, what to expect, and which versions made it."""
    from seqdg.estimator import read_description, read_model, render_card

    description = read_description(model)
    if description.get("net") is not None or "learner" in description:
        read_model(model)  # which checks that the weights are complete and unchanged
    typer.echo(json.dumps(description, indent=1) if as_json else render_card(description), nl=as_json)

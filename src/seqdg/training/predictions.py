"""Predictions of the trials of a stack for the rows of a domain, and how they are saved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from seqdg.training.metrics import Groups

FOLDER = "predictions"
CHOSEN, LAST = "chosen", "last"  # the step that source validation chose, and the last one


class DomainPredictions(NamedTuple):
    """Predictions of a stack for one domain of each trial, with the labels. Only rows that the mask keeps count."""

    logits: Tensor  # (trial, row, class); (trial, row, 1) of numbers, in the user's units
    y: Tensor  # (trial, row)
    mask: Tensor  # (trial, row) bool
    rows: Tensor | None = None  # (trial, row) their numbers in the data set
    fifth: Tensor | None = None  # (trial, row) bool, of a held-out domain: whether `oracle-split` chooses by the row
    groups: Groups | None = None  # where the data have them
    weight: Tensor | None = None  # (trial, row) how much each row counts; None: all the same


def name_predictions(trial: str, step: str) -> str:
    """Return the file name of the predictions of a trial, at its chosen or last step."""
    return f"{FOLDER}/{trial}.{step}.safetensors"


def encode_predictions(
    held_out: Sequence[DomainPredictions], i: int, step: int, key: str, description: Mapping[str, Any]
) -> bytes:
    """Encode the predictions of the i-th trial for its held-out rows as bytes, in the order of the data set."""
    is_regression = any(domain.y.is_floating_point() for domain in held_out)
    kind = "prediction" if is_regression else "probability"
    parts: dict[str, list[Tensor]] = {"domain": [], "row": [], "label": [], kind: []}
    for place, domain in enumerate(held_out):
        assert domain.rows is not None
        keep = domain.mask[i].cpu()
        rows = domain.rows[i].cpu()[keep]
        order = rows.argsort()
        parts["domain"].append(torch.full_like(rows, place))
        parts["row"].append(rows[order])
        parts["label"].append(domain.y[i].cpu()[keep][order])
        outputs = domain.logits[i].double()
        outputs = outputs.squeeze(-1) if is_regression else outputs.softmax(-1).float()
        parts[kind].append(outputs.cpu()[keep][order])
    about = {"trial": key, "step": str(step), "description": json.dumps(description)}
    return save({name: torch.cat(values).contiguous() for name, values in parts.items()}, about)

"""What a run keeps of its trials beside their records: weights, predictions, checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from safetensors.torch import save

from seqdg.base.episode import Params
from seqdg.base.files import Files
from seqdg.results.criteria import choose_usual
from seqdg.results.record import Evaluation
from seqdg.results.select import select_step
from seqdg.training.predictions import CHOSEN, LAST, DomainPredictions, encode_predictions, name_predictions
from seqdg.training.stack import View


@dataclass(frozen=True)
class Keep:
    """What a run keeps beside its records."""

    files: Files | None = None  # where to
    checkpoint: float = 0.0  # seconds between checkpoints of a group; 0: none
    weights: bool = False  # the deployed weights of every trial
    chosen: bool = False  # those of the step that source validation chose, too
    predictions: bool = False  # what every trial says of its held-out rows, at the chosen and at the last step
    digests: bool = True  # in each record, a hash of the deployed weights
    criteria: tuple[str, ...] = ()  # the criteria that are measured, the losses always among them; empty: all

    @property
    def along(self) -> dict[str, str]:
        """What is kept along the way, in words: a checkpoint of a run that kept less cannot be continued."""
        names = [name for name in ("chosen", "predictions") if getattr(self, name)]
        return {"keeps": " ".join(names)} if names else {}


def keep_weights(keep: Keep, view: View, weights: Params, step: int) -> None:
    """Write the weights that a trial deploys after its last step, where they are kept."""
    if keep.weights and keep.files is not None:
        keep.files.write(f"weights/{view.key}.safetensors", _encode_weights(weights, view, step))


def keep_step(
    keep: Keep,
    view: View,
    history: Sequence[Evaluation],
    is_last: bool,
    get_weights: Callable[[], Params],
    get_held_out: Callable[[], Sequence[DomainPredictions]],
    i: int = 0,
) -> None:
    """Write the weights and predictions of the last evaluation of a history, where source validation chooses it.

    i: the trial's place in the predictions.   is_last: no evaluation follows, so its predictions are kept anyway.
    """
    if keep.files is None or not (keep.chosen or keep.predictions):
        return
    step, is_best = history[-1].step, is_best_so_far(history)
    if keep.chosen and is_best:
        keep.files.write(f"weights/{view.key}.{CHOSEN}.safetensors", _encode_weights(get_weights(), view, step))
    if keep.predictions and (is_best or is_last):
        data = encode_predictions(get_held_out(), i, step, view.key, view.description)
        for name in ([CHOSEN] if is_best else []) + ([LAST] if is_last else []):
            keep.files.write(name_predictions(view.key, name), data)


def _encode_weights(weights: Params, view: View, step: int) -> bytes:
    """Write the weights of one trial after so many steps as bytes."""
    about = {"trial": view.key, "step": str(step), "description": json.dumps(view.description)}
    return save({name: value.contiguous().clone() for name, value in weights.items()}, about)


def is_best_so_far(history: Sequence[Evaluation]) -> bool:
    """Whether source validation chooses the last of these evaluations; without validation rows, any is."""
    best = select_step(history, choose_usual(history[-1].source))
    return best is None or best[1] == len(history) - 1


def hash_weights(params: Params) -> str:
    """Return the sha256 of weights and their names."""
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(params[name].contiguous().numpy().data)
    return digest.hexdigest()

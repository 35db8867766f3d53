"""Save what a run keeps of its trials beside their records: weights and predictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from safetensors.torch import save

from seqdg.base import Files, Params
from seqdg.results import Evaluation, choose_usual, select_step
from seqdg.training.predictions import CHOSEN, LAST, DomainPredictions, encode_predictions, name_predictions
from seqdg.training.stack import View


@dataclass(frozen=True)
class Saving:
    """Which files a run writes beside its records, where, and what its records hold."""

    files: Files | None = None  # where files are written; None: nowhere
    checkpoint: float = 0.0  # seconds between checkpoints of a group; 0: none
    weights: bool = False  # save the deployed weights of every trial after its last step
    chosen: bool = False  # also save those of the step that source validation chose
    predictions: bool = False  # save the predictions for held-out rows, at the chosen step and at the last
    digests: bool = True  # put a hash of the deployed weights into each record
    criteria: tuple[str, ...] = ()  # the criteria to measure, beside the losses; empty: all

    @property
    def checkpoint_facts(self) -> dict[str, str]:
        """What a checkpoint says of files that are saved during training: a run that saves more of them cannot go on
        from it."""
        names = [name for name in ("chosen", "predictions") if getattr(self, name)]
        return {"keeps": " ".join(names)} if names else {}


def save_weights(saving: Saving, view: View, weights: Params, step: int) -> None:
    """Save the weights that a trial deploys after its last step, if weights are saved."""
    if saving.weights and saving.files is not None:
        saving.files.write(f"weights/{view.key}.safetensors", _encode_weights(weights, view, step))


def save_step(
    saving: Saving,
    view: View,
    history: Sequence[Evaluation],
    is_last: bool,
    get_weights: Callable[[], Params],
    get_held_out: Callable[[], Sequence[DomainPredictions]],
    i: int = 0,
) -> None:
    """Save the weights and predictions of the latest evaluation if source validation chooses it.

    i: the trial's place in the predictions.   is_last: no evaluation follows, so its predictions are saved anyway.
    """
    if saving.files is None or not (saving.chosen or saving.predictions):
        return
    step, is_best = history[-1].step, is_best_so_far(history)
    if saving.chosen and is_best:
        saving.files.write(f"weights/{view.key}.{CHOSEN}.safetensors", _encode_weights(get_weights(), view, step))
    if saving.predictions and (is_best or is_last):
        data = encode_predictions(get_held_out(), i, step, view.key, view.description)
        for name in ([CHOSEN] if is_best else []) + ([LAST] if is_last else []):
            saving.files.write(name_predictions(view.key, name), data)


def _encode_weights(weights: Params, view: View, step: int) -> bytes:
    """Encode the weights of one trial after so many steps as bytes."""
    about = {"trial": view.key, "step": str(step), "description": json.dumps(view.description)}
    return save({name: value.contiguous().clone() for name, value in weights.items()}, about)


def is_best_so_far(history: Sequence[Evaluation]) -> bool:
    """Say whether source validation chooses the latest evaluation. Without validation rows, each is the best so far."""
    best = select_step(history, choose_usual(history[-1].source))
    return best is None or best[1] == len(history) - 1


def hash_weights(params: Params) -> str:
    """Return the sha256 of weights and their names."""
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(params[name].contiguous().numpy().data)
    return digest.hexdigest()

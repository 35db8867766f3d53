"""Records of a comparison, kept in a directory: after an interruption the same comparison goes on from there."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from seqdg.base import Folder, count_things
from seqdg.bench import MemorySink, remove_checkpoints
from seqdg.estimator.recipe import Recipe
from seqdg.estimator.user_data import UserData
from seqdg.results import FAILED, FILE, Record, RunningGroup, RunProgress, Store, lock_directory
from seqdg.training import FOLDER, Saving, list_versions

NAME = "compare"  # of the run, in its store
IDENTITY = "identity"
SERVING = "serving"  # seconds to predict 1,000 rows, by trial, which the records of a store do not hold
CHECKPOINT = 30.0  # seconds between checkpoints of a group that takes longer


class KeptRecords(MemorySink):
    """A sink in memory whose records also go to a store, group by group. It begins with those that the store has."""

    def __init__(self, directory: Path, identity: str, say: Callable[[str], None] = lambda sentence: None) -> None:
        """Open the directory, or make it. identity: what the records depend on; those of another are removed."""
        super().__init__()
        self._open = ExitStack()
        self._open.enter_context(lock_directory(directory))
        if (directory / FILE).exists() and _read_identity(directory) != identity:
            say(f"What was trained in {directory} was of other data, options or code: starting anew.")
            for path in (*directory.glob(f"{FILE}*"), directory / FOLDER):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self.store = Store.create(directory, NAME)
        self._open.callback(self.store.close)
        self.store.set_meta(IDENTITY, identity)
        files = Folder(directory.resolve())
        self.saving = Saving(files=files, checkpoint=CHECKPOINT)
        self.serving: dict[str, float] = json.loads(self.store.meta(SERVING) or "{}")
        known = [replace(r, serving=self.serving.get(r.key, 0.0)) for r in self.store.records() if r.status != FAILED]
        self.records = {r.key: r for r in known}
        remove_checkpoints(files, self.records)
        if self.records:
            say(f"Going on from {count_things(len(self.records), 'training')} that {directory} holds.")

    def begin(self, planned: Mapping[str, str]) -> None:
        self.store.begin(planned)

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        self.store.note(run, running)

    def add(self, records: Iterable[Record], group: str = "") -> None:
        records = list(records)
        self.store.add([r for r in records if r.status != FAILED], group)
        self.serving |= {r.key: r.serving for r in records}
        self.store.set_meta(SERVING, json.dumps(self.serving))
        super().add(records, group)

    def close(self) -> None:
        self._open.close()


def remove_kept(directory: Path) -> None:
    """Remove what a comparison kept, and the directory where nothing else is in it."""
    for path in (*directory.glob(f"{FILE}*"), directory / FOLDER, directory / "lock"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def identify_comparison(user_data: UserData, recipe: Recipe, how: Sequence[Any]) -> str:
    """Return the identity of a comparison: its rows, how they are trained on, and how it was asked for."""
    data, net = user_data.dataset, recipe.net if recipe.net is not None else "by the kind of input"
    rows = [part for part in (data.x, data.y, data.domain, data.validation, data.weight) if part is not None]
    about = [data.domains, data.classes, user_data.input.describe(), recipe.describe(), recipe.device]
    return identify(*rows, *user_data.input.tensors.values(), net, about, list(how), list_versions())


def identify(*parts: Any) -> str:
    """Return the hash of everything that a comparison's numbers depend on: arrays, nets, and values of any kind."""
    digest = hashlib.sha256()
    for part in parts:
        for text in _list_bytes(part):
            digest.update(text)
    return digest.hexdigest()


def _list_bytes(part: Any) -> Iterable[bytes]:
    if isinstance(part, Tensor):
        part = part.detach().cpu().numpy()
    if isinstance(part, np.ndarray):
        yield f"{part.dtype}{part.shape}".encode()
        yield np.ascontiguousarray(part).tobytes()
    elif isinstance(part, nn.Module):
        yield repr(part).encode()
        for name, value in part.state_dict().items():
            yield name.encode()
            yield from _list_bytes(value)
    elif hasattr(part, "shape"):  # images in a file
        yield str(part.shape).encode()
        for i in range(len(part)):
            yield from _list_bytes(np.asarray(part[i]))
    else:
        yield json.dumps(part, default=repr, sort_keys=True).encode()


def _read_identity(directory: Path) -> str | None:
    store = Store.open(directory)
    try:
        return store.meta(IDENTITY)
    finally:
        store.close()

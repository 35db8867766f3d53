"""Flip bits in every kind of file that seqdg writes and reads back, and count what comes of it.

    PYTHONPATH=src:tests python tests/soak/flips.py --flips 1000 --out flips.jsonl

A flip is `named` (a sentence says which file is damaged), `harmless` (all that is read is the same as without it), or
`silent`: it changed what is read, and nobody said so. A file that is made again after it was named must give the same
as before, or else the flip is `wrong`; anything but a sentence is a `crash`. Each outcome is a line of --out. A second
run with the same --out goes on after the last line.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from torch import nn

from command import seqdg as command
from digits import TASK, make_plan, train
from seqdg.base import Folder, UsageError
from seqdg.bench import Request, Session, merge_shards
from seqdg.bench.soup import mix_run
from seqdg.data import Dataset, DataSpec, Features, extract_features, load_dataset
from seqdg.estimator import DomainClassifier
from seqdg.estimator.recipe import WeightedEnsemble, Winner
from seqdg.report import Results
from seqdg.results import FILE, Record, RecordSource, Store, open_run, pack, write_predictions
from seqdg.training import Saving

NAMED, HARMLESS, SILENT, WRONG, CRASH = "named", "harmless", "silent", "wrong", "crash"
GOOD = (NAMED, HARMLESS)
ENDS = 4096  # bytes at each end of a file


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    make: writes an example into a folder and returns the files.   read: returns all that the program gives of the
    folder.   is_made_again: what is damaged is computed again, so that `read` gives the same as before.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[Path], object]
    is_made_again: bool = False


@dataclass(frozen=True)
class Flip:
    kind: str
    file: str
    bit: int
    outcome: str
    said: str = ""


# What is written and read ---------------------------------------------------------------------------------------------

GROUP = make_plan(Request(algorithms=["fo-s-mldg+ema"], held_out=["0", "75"], trials=1, steps=12)).groups[0]


def _tell(record: Record) -> tuple[object, ...]:
    """What training gave, without what the clock says."""
    return record.key, record.status, record.weights, record.history, record.losses, record.description


def _stop(at: int, step: int) -> None:
    if step >= at:
        raise KeyboardInterrupt


def make_checkpoint(folder: Path) -> list[Path]:
    with contextlib.suppress(KeyboardInterrupt):
        train(GROUP, partial(_stop, 8), Saving(Folder(folder), 3600.0))
    return list((folder / "checkpoints").iterdir())


def read_checkpoint(folder: Path) -> object:
    return [_tell(r) for r in train(GROUP, saving=Saving(Folder(folder), 3600.0))]


@cache
def _train_run() -> tempfile.TemporaryDirectory[str]:
    """Return the directory of a small run; it is removed when the process ends."""
    folder = tempfile.TemporaryDirectory()
    words = ["--algorithms", "agg,fo-s-mldg", "--held-out", "0,75", "--trials", 1, "--steps", 8, "--search", 2]
    keep = ["--save-weights", "--save-predictions", "--workers", 0, "--device", "cpu", "--out", folder.name]
    done = command("bench", *words, *keep)
    assert done.returncode == 0, done.stderr
    store = Store.open(Path(folder.name))
    store.add_analysis("ensemble", {"numbers": {"cells": [{"mean": 60.0, "trials": 3}]}})
    store.close()
    return folder


def make_run(folder: Path) -> list[Path]:
    shutil.copytree(_train_run().name, folder, dirs_exist_ok=True)
    return [folder / FILE]


def read_run(folder: Path) -> object:
    return _read_all(folder, open_run(folder))


def write_to_run(folder: Path) -> object:
    """What the next run finds: it opens the store to write."""
    Store.create(folder, "rotated-mnist").close()
    return _read_all(folder, open_run(folder))


def _read_all(folder: Path, run: RecordSource) -> object:
    with contextlib.closing(run):
        facts = [run.meta(name) for name in ("benchmark", "classes", "domains", "commands")]
        kept = [list(run.planned().items()), list(run.groups().items()), run.statuses(), run.analyses()]
        table = Results(folder, run).table(format="json")
        quick = [(r.key, r.status, r.description, r.history) for r in run.records("accuracy")]
        return facts, kept, table, quick, run.records()


def make_packed(folder: Path) -> list[Path]:
    run = Path(_train_run().name)
    pack([(run, open_run(run))], folder)
    return list(folder.iterdir())


def make_weights(folder: Path) -> list[Path]:
    make_run(folder)
    return list((folder / "weights").iterdir())


def read_weights(folder: Path) -> object:
    added = mix_run(folder, lambda name, saving, held_out: Session(TASK, "cpu", saving), "uniform")
    return [_tell(r) for r in added], [(folder / f"weights/{r.key}.safetensors").read_bytes() for r in added]


def make_predictions(folder: Path) -> list[Path]:
    make_run(folder)
    return list((folder / "predictions").glob("*.chosen.*"))


def read_predictions(folder: Path) -> object:
    write_predictions(folder, folder / "all.csv")
    return (folder / "all.csv").read_text()


def _draw_table() -> tuple[pd.DataFrame, list[str], list[str]]:
    draw = np.random.default_rng(0)
    site, ill = np.arange(60) % 3, draw.integers(0, 2, 60)
    age, smoker = 50 + 12 * draw.standard_normal(60) + 6 * ill, np.array(["yes", "no", None])[draw.integers(0, 3, 60)]
    return pd.DataFrame({"age": age, "smoker": smoker}), [f"c{i}" for i in ill], [f"d{i}" for i in site]


def make_model(name: str, folder: Path) -> list[Path]:
    x, y, domains = _draw_table()
    small: Any = {"steps": 3, "hidden": (4,)} if name == "agg+ema" else {}
    DomainClassifier(name, **small).fit(x, y, domains=domains).save(folder)
    return [folder / "model.json", folder / "model.safetensors"]


def read_model(folder: Path) -> object:
    model = DomainClassifier.load(folder)
    return model.predict_proba(_draw_table()[0]).tolist(), model.predict(_draw_table()[0]).tolist(), model.get_params()


def make_ensemble(folder: Path) -> list[Path]:
    x, y, domains = _draw_table()
    members = (Winner("agg", 0.25, 1.0), Winner("logistic", 0.75, 1.5))
    DomainClassifier(WeightedEnsemble(members), steps=3, hidden=(4,), members=1).fit(x, y, domains=domains).save(folder)
    return [*folder.rglob("model.json"), *folder.rglob("model.safetensors")]


@cache
def _train_shards() -> tempfile.TemporaryDirectory[str]:
    """Return the directory of a run in two shards; it is removed when the process ends."""
    folder = tempfile.TemporaryDirectory()
    words = ["--algorithms", "agg", "--held-out", "0", "--trials", 2, "--steps", 4, "--workers", 0, "--device", "cpu"]
    for number in ("1/2", "2/2"):
        done = command("bench", *words, "--shard", number, "--out", folder.name)
        assert done.returncode == 0, done.stderr
    return folder


def make_shards(folder: Path) -> list[Path]:
    shutil.copytree(_train_shards().name, folder, dirs_exist_ok=True)
    return list(folder.rglob(FILE))


def read_shards(folder: Path) -> object:
    merged = merge_shards(sorted(folder.glob("shard-*")), folder / "merged")
    return merged, read_run(folder / "merged")


def _tell_data(data: Dataset) -> object:
    return {f.name: np.asarray(v).tolist() if hasattr(v := getattr(data, f.name), "shape") else v for f in fields(data)}


PICTURES = DataSpec("mine", path=("set",))


def make_cache(read: Callable[[Path], object], folder: Path) -> list[Path]:
    """The pictures lie beside the folder of the cache, and stay as they are while it is copied."""
    draw = np.random.default_rng(0)
    for number in range(12):
        path = folder.with_name("pictures") / f"set/d{number % 3}/c{number % 2}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    read(folder)
    return [path for path in folder.rglob("*") if path.is_file()]


def read_cache(folder: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQDG_CACHE", str(folder))
        return _tell_data(load_dataset(PICTURES, folder.with_name("pictures")))


MEAN = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()).eval()  # a frozen backbone


def extract(folder: Path) -> Features:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQDG_CACHE", str(folder))
        return extract_features(folder.with_name("pictures") / "set", MEAN, size=4)


def read_extracted(folder: Path) -> object:
    return _tell_features(extract(folder))


def make_features(folder: Path) -> list[Path]:
    draw, names = np.random.default_rng(0), np.array(["a", "b", "c"])
    x, y, validation = draw.standard_normal((12, 5), np.float32), names[np.arange(12) % 2], np.arange(12) % 4 == 0
    about = {"backbone": "mine", "weights_sha256": "", "preprocessing": {"size": 4}}
    paths = tuple(f"{number}.png" for number in range(12))
    Features(x, about, y, names[np.arange(12) % 3], paths, ("a", "b"), validation).save(folder / "rows.safetensors")
    return [folder / "rows.safetensors"]


def read_features(folder: Path) -> object:
    return _tell_features(Features.load(folder / "rows.safetensors"))


def _tell_features(features: Features) -> object:
    arrays = (features.x, features.y, features.domains, features.validation)
    return [a if a is None else a.tolist() for a in arrays], features.about, features.paths, features.classes


KINDS = {
    "checkpoint": Kind(make_checkpoint, read_checkpoint, is_made_again=True),
    "store, read": Kind(make_run, read_run),
    "store, written": Kind(make_run, write_to_run),
    "packed records": Kind(make_packed, read_run),
    "kept weights": Kind(make_weights, read_weights),
    "predictions": Kind(make_predictions, read_predictions),
    "model of a network": Kind(partial(make_model, "agg+ema"), read_model),
    "model of an estimator": Kind(partial(make_model, "logistic"), read_model),
    "ensemble": Kind(make_ensemble, read_model),
    "shards, merged": Kind(make_shards, read_shards),
    "cache of pictures": Kind(partial(make_cache, read_cache), read_cache, is_made_again=True),
    "cache of features": Kind(partial(make_cache, extract), read_extracted, is_made_again=True),
    "features": Kind(make_features, read_features),
}


# Flips ----------------------------------------------------------------------------------------------------------------


class Flipper:
    """Makes one example of each kind, and flips bits in copies of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pristine: dict[str, tuple[list[str], str]] = {}  # by kind: its files, and what it gives

    def flip(self, kind: str, draw: random.Random) -> Flip:
        files, whole = self._make(kind)
        copy = self._copy(kind)
        name = draw.choice(files)
        data = bytearray((copy / name).read_bytes())
        bit = _draw_bit(draw, len(data))
        data[bit // 8] ^= 1 << bit % 8
        (copy / name).write_bytes(data)
        result, said, outcome = _read(KINDS[kind], copy)
        if outcome is None and result != whole:
            outcome = WRONG if said and KINDS[kind].is_made_again else None if said else SILENT
        return Flip(kind, name, bit, outcome or (NAMED if said else HARMLESS), said)

    def _make(self, kind: str) -> tuple[list[str], str]:
        if kind not in self._pristine:
            place = self.folder / kind
            place.mkdir()
            files = [str(path.relative_to(place)) for path in KINDS[kind].make(place)]
            result, said, outcome = _read(KINDS[kind], self._copy(kind))
            assert not said, said
            assert outcome is None
            self._pristine[kind] = files, result
        return self._pristine[kind]

    def _copy(self, kind: str) -> Path:
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(self.folder / kind, copy))


def _draw_bit(draw: random.Random, size: int) -> int:
    """Draw a bit of a file: every second one lies at an end of it, where most formats keep their structure."""
    place = draw.choice(("anywhere", "anywhere", "start", "end"))
    near = 8 * min(size, ENDS)
    return draw.randrange(8 * size - near if place == "end" else 0, near if place == "start" else 8 * size)


def _read(kind: Kind, folder: Path) -> tuple[str, str, str | None]:
    """Return what is read, what was said meanwhile, and how the flip ended where that is already clear."""
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stderr(io.StringIO()) as err:
        warnings.simplefilter("always")
        try:
            result = repr(kind.read(folder))
        except UsageError as refusal:
            return "", str(refusal), NAMED
        except Exception as failure:  # whatever it is, it is no sentence
            return "", f"{type(failure).__name__}: {failure}", CRASH
    return result, " ".join([err.getvalue(), *(str(w.message) for w in warned)]).strip(), None


def flip_all(folder: Path, flips: int, known: int = 0) -> Iterator[Flip]:
    """Flip as many bits, each kind in turn. known: how many of them were made before."""
    flipper = Flipper(folder)
    for number in range(known, flips):
        yield flipper.flip(list(KINDS)[number % len(KINDS)], random.Random(number))


def count_outcomes(flips: list[Flip]) -> str:
    """Return a table of the outcomes by kind."""
    counts = Counter((flip.kind, flip.outcome) for flip in flips)
    names = (NAMED, HARMLESS, SILENT, WRONG, CRASH)
    rows = [["", *names, "all"]]
    rows += [[k, *(str(counts[k, n]) for n in names), str(sum(counts[k, n] for n in names))] for k in KINDS]
    rows.append(["all", *(str(sum(counts[k, n] for k in KINDS)) for n in names), str(len(flips))])
    return "\n".join(f"{row[0]:<20}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("flips.jsonl"))
    asked = parser.parse_args()
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    flips = [Flip(**json.loads(line)) for line in lines]
    with tempfile.TemporaryDirectory() as folder, asked.out.open("a") as file:
        for flip in flip_all(Path(folder), asked.flips, len(flips)):
            flips.append(flip)
            print(json.dumps(asdict(flip)), file=file, flush=True)
    print(count_outcomes(flips))
    bad = [flip for flip in flips if flip.outcome not in GOOD]
    for flip in bad:
        print(flip)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

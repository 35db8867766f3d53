"""Files that others wrote, changed at random: bytes, cells, values and members of archives, from a fixed seed.

`FORMATS` has every format with a sound file of it, the command or function that reads it, and, where that is cheap, an
independent reading of what it must hold. `try_case` changes one file and reads it: all is well if it is read, and holds
what is there, or if a `UsageError` says what is wrong.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import gzip
import io
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.io
import torch
from PIL import Image
from pyarrow import parquet
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file

from command import seqdg
from digits import make_plan, make_session, train
from seqdg import DomainClassifier, Features, Results, UsageError
from seqdg.base import Folder, save_sealed
from seqdg.bench import Group, Request, load_benchmark
from seqdg.bench.execution import train_group
from seqdg.data import DataSpec, load_dataset, read_rows
from seqdg.estimator.model import read_model
from seqdg.estimator.model_card import hash_description
from seqdg.estimator.recipe import WeightedEnsemble, Winner
from seqdg.nets.weights import read_weights
from seqdg.results import DONE, Store, open_run, pack
from seqdg.results.record import make_seal
from seqdg.results.runs import SEAL
from seqdg.results.store import _list_texts, _read_record
from seqdg.study import load_study
from seqdg.training import Saving, name_checkpoint

SECONDS, WAIT = 20, 600  # of a processor that a case may take, and of the clock, as a machine may have other work
DOMAINS, CLASSES = ("east", "north", "south"), ("ill", "well")
LABELED = ("--label", "state", "--domain", "place")

# Changes --------------------------------------------------------------------------------------------------------------

BYTES = [
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b'"',
    b"\n",
    b"\r",
    b",",
    b"\xc3",
    b"\xed\xb0\x80",
    b"'",
    b"{",
    b"}",
    b"[[",
    b"=",
    b"-",
]
VALUES: list[Any] = [
    None, True, False, [], {}, "", "x", "../../climbed", "nan", "\ud800", "\0", -1, 0, 1, 2, 50, 1.5, 1e-320, -1e308,
    10**30, 2**63, math.nan, math.inf, -math.inf, [[1]], [None], {"a": None}, "9" * 400, [1, "2"], -0.0, 10**4400,
]  # fmt: skip
CELLS = [
    "",
    "x",
    "../../climbed",
    "nan",
    "inf",
    "-1",
    "1e999",
    "9" * 400,
    "NULL",
    '"',
    "a\0b",
    "50",
    "-",
    "[1]",
    "é",
    "true",
]
TOML = [
    "1e20", "100000000000000000000", "1000000000", "-1", "0", "nan", "-inf", '""', '"x"', "[]", "{}", "true",
    "[1000000000]", '["a", 1]', "9" * 5000, "[" * 400, '"../../climbed"', "2020-01-01", "{ a = { b = 1 } }", "[[1]]",
    "0.5", '"/dev/zero"',
]  # fmt: skip


def change_bytes(content: bytes, draw: random.Random) -> bytes:
    """Change bytes: flip, cut, leave out, double, insert."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(data) + 1)
        if draw.random() < 0.3:  # heads and ends of files say most
            at = draw.choice((min(len(data), draw.randrange(64)), max(0, len(data) - draw.randrange(64))))
        end = min(len(data), at + draw.choice((1, 2, 8, 64, 4096)))
        kind = draw.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            data[at:at] = data[at:end] * draw.choice((1, 1, 50))
        elif kind == 4:
            data[at:at] = draw.choice(BYTES) * draw.choice((1, 1, 2, 3000))
        else:
            data[at:end] = draw.randbytes(end - at)
    return bytes(data)


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List where in a value of JSON something lies."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from list_places(item, (*place, key))


def change_json(text: str, draw: random.Random) -> str:
    """Change a value of JSON, or leave it out; of lines of JSON, in one of them."""
    lines = text.splitlines() if text.count("\n{") else [text]
    which = draw.randrange(len(lines))
    value = copy.deepcopy(json.loads(lines[which]))
    *above, last = draw.choice(list(list_places(value)))
    owner = value
    for key in above:
        owner = owner[key]
    kind = draw.random()
    if kind < 0.15:
        del owner[last]
    elif kind < 0.2 and isinstance(owner, dict):
        owner[f"{last}x"] = owner.pop(last)
    elif kind < 0.25 and isinstance(owner, list):
        owner.append(owner[last])
    else:
        owner[last] = draw.choice(VALUES)
    with contextlib.suppress(ValueError):  # of more digits than Python writes
        lines[which] = json.dumps(value)
    return "\n".join(lines) + "\n"


def change_csv(text: str, draw: random.Random) -> str:
    """Change a cell, or leave out or double a cell or a line."""
    mark = "\t" if "\t" in text else ","
    rows = [line.split(mark) for line in text.splitlines()]
    row = draw.choice(rows[:2] if draw.random() < 0.3 else rows)
    at, kind = draw.randrange(len(row)), draw.randrange(8)
    if kind == 0:
        del row[at]
    elif kind == 1:
        row.insert(at, row[at])
    elif kind == 2:
        rows.insert(draw.randrange(len(rows)), list(row))
    elif kind == 3:
        rows.remove(row)
    elif kind == 4:  # a whole column
        for one in rows[1:]:
            one[min(at, len(one) - 1)] = draw.choice(CELLS)
    else:
        row[at] = draw.choice(CELLS)
    return "\n".join(mark.join(row) for row in rows) + "\n"


def change_toml(text: str, draw: random.Random) -> str:
    """Change a value or a name, or leave out or double a line."""
    lines = text.splitlines()
    which = draw.choice([i for i, line in enumerate(lines) if line.strip()])
    name, equals, _ = lines[which].partition("=")
    kind = draw.random()
    if kind < 0.1:
        del lines[which]
    elif kind < 0.15:
        lines.insert(draw.randrange(len(lines)), lines[which])
    elif kind < 0.2 or not equals:
        lines[which] = re.sub(r"\w+", "x", lines[which], count=1)
    else:
        lines[which] = f"{name}= {draw.choice(TOML)}"
    return "\n".join(lines) + "\n"


def change_zip(content: bytes, draw: random.Random) -> bytes:
    """Change a member of a zip, such as an array of an .npz, so that its checksum is right."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        which = draw.choice(source.namelist())
        for name in source.namelist():
            data, kind = source.read(name), draw.random()
            if name == which and kind < 0.1:
                continue
            wrong = (
                draw.choice(("../x.png", "/x", "a/b/c.png", ".", "x" * 300, "c/é/\udc80.png")) if kind < 0.2 else name
            )
            if name == which and data[:6] == b"\x93NUMPY" and kind < 0.6:
                digits = [m.span() for m in re.finditer(rb"\d+|<\w\d|False|\(", data[10:120])]
                start, end = draw.choice(digits)
                new = draw.choice((b"1000000000000", b"-3", b"|O", b"True", b"0", b"(" * 99, b"<U9", b"9" * 19))
                data = data[: 10 + start] + new + data[10 + end :]
            elif name == which:
                data = change_bytes(data, draw)
            with contextlib.suppress(UnicodeError):
                target.writestr(wrong if name == which else name, data)
    return made.getvalue()


def change_gzip(content: bytes, draw: random.Random) -> bytes:
    inner = gzip.decompress(content)
    changed = change_csv(inner.decode(), draw).encode() if draw.random() < 0.5 else change_bytes(inner, draw)
    return gzip.compress(changed, 1)


def change_safetensors(content: bytes, draw: random.Random) -> bytes:
    size = int.from_bytes(content[:8], "little")
    head = change_json(content[8 : 8 + size].decode(), draw).encode()
    return len(head).to_bytes(8, "little") + head + content[8 + size :]


def change_model(content: bytes, draw: random.Random) -> bytes:
    """Change a description of a model, and its hash with it: a file that somebody made up."""
    text = json.loads(change_json(content.decode(), draw))
    with contextlib.suppress(ValueError, TypeError):
        text["sha256"] = hash_description(text)
    return json.dumps(text).encode()


def change_features(content: bytes, draw: random.Random) -> bytes:
    """Change what a file of features says of its rows, with a seal that is right."""
    size = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + size])["__metadata__"]
    text.pop("seqdg.sha256")
    return save_sealed(load_tensors(content), {**text, "about": change_json(text["about"], draw)})


def change_checkpoint(content: bytes, draw: random.Random) -> bytes:
    """Change what a checkpoint says of itself, with a seal that is right."""
    size = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + size])["__metadata__"]["seqdg"]
    return save_sealed(load_tensors(content), {"seqdg": change_json(text, draw).strip()})


def change_store(content: bytes, draw: random.Random) -> bytes:
    """Change a value of a store, or a part of one that is JSON, with every digest and sum made anew."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results.sqlite"
        path.write_bytes(content)
        with contextlib.closing(Store(path)) as store:
            table = draw.choice(("meta", "trials", "trials", "planned"))
            row = draw.choice(store._query(f"SELECT rowid AS at, * FROM {table}"))
            name = draw.choice([key for key in row.keys() if key != "at"])  # noqa: SIM118  of SQLite
            value: Any = draw.choice([v for v in VALUES if isinstance(v, float | str) or v in (None, 0, 1, 50)])
            if (
                draw.random() < 0.8
                and isinstance(row[name], str)
                and row[name][:1] in ("[", "{")
                and row[name] not in ("[]", "{}")
            ):
                value = change_json(row[name], draw)
            with contextlib.suppress(sqlite3.Error, UnicodeError):  # what no table takes stays as it was
                store._db.execute(f'UPDATE {table} SET "{name}" = ? WHERE rowid = ?', (value, row["at"]))
            for row in store._query("SELECT * FROM trials"):
                with contextlib.suppress(Exception):  # of a row that is no record any more
                    digest = _read_record(row, [], json.loads).make_digest(
                        row["shape"], row["evaluations"] + row["error"].encode()
                    )
                    store._db.execute("UPDATE trials SET digest = ? WHERE key = ?", (digest, row["key"]))
            store._sign(_list_texts(store._db))
        return path.read_bytes()


def change_facts(content: bytes, draw: random.Random) -> bytes:
    """Change what a packed run says of itself, with a seal that is right."""
    table = parquet.read_table(io.BytesIO(content))
    known = {name.decode(): text.decode() for name, text in table.schema.metadata.items()}
    (name,) = (name for name, text in known.items() if text.startswith("{") and "evaluations" in text)
    text = change_json(known[name], draw).strip()
    out = io.BytesIO()
    rows = table.select(["digest", "group", "latest"]).to_pylist()
    with contextlib.suppress(UnicodeError):
        known |= {name: text, SEAL: make_seal(text, rows)}
    parquet.write_table(table.replace_schema_metadata(known), out)
    return out.getvalue()


def in_text(change: Callable[[str, random.Random], str]) -> Callable[[bytes, random.Random], bytes]:
    return lambda content, draw: change(content.decode(), draw).encode(errors="surrogatepass")


# Sound files ----------------------------------------------------------------------------------------------------------


@cache
def make_rows() -> pd.DataFrame:
    draw = random.Random(0)
    rows = [(f"{draw.gauss(0, 1):.3f}", draw.randrange(90), draw.choice(["a", "b c", "d"])) for _ in range(48)]
    frame = pd.DataFrame(rows, columns=["x", "age", "kind"])
    return frame.assign(state=[CLASSES[i % 2] for i in range(48)], place=[DOMAINS[i % 3] for i in range(48)])


def write_table(path: Path) -> None:
    frame = make_rows()
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")


def write_arrays(path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {}
    for name in DOMAINS:
        arrays |= {f"{name}_x": draw.normal(size=(12, 3)).astype(np.float32), f"{name}_y": np.arange(12) % 2}
    np.savez(path, **arrays)


def write_mat(path: Path) -> None:
    for i, name in enumerate(DOMAINS):
        draw = np.random.default_rng(i)
        arrays = {"fts": draw.normal(size=(12, 3)), "labels": (np.arange(12) % 2 + 1).reshape(-1, 1)}
        scipy.io.savemat(path.with_name(f"{name}.mat"), arrays)


def write_pictures(folder: Path) -> list[tuple[str, str, str]]:
    draw, names = np.random.default_rng(0), []
    for domain in DOMAINS:
        for label in CLASSES:
            for i in range(2):
                path = folder / domain / label / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(draw.integers(0, 255, (5, 4, 3), dtype=np.uint8)).save(path)
                names.append((f"{domain}/{label}/{i}.png", label, domain))
    return names


def write_zip(path: Path) -> None:
    folder = path.parent / "unpacked"
    write_pictures(folder)
    with zipfile.ZipFile(path, "w") as file:
        for one in sorted(folder.rglob("*.png")):
            file.write(one, one.relative_to(folder))


def write_list(path: Path) -> None:
    rows = [dict(zip(("file", "label", "domain"), names, strict=True)) for names in write_pictures(path.parent)]
    frame = pd.DataFrame(rows)
    path.write_text(frame.to_json(orient="records")) if path.suffix == ".json" else frame.to_csv(path, index=False)


BENCHMARK = """title = "Rows"
source = "made"
[data]
path = ["rows.csv"]
format = "table"
domain_column = "place"
label_column = "state"
ignore = ["kind"]
domains = ["east", "north", "south"]
classes = ["ill", "well"]
scale = true
[data.counts]
east = 16
[net]
name = "mlp"
hidden = [8, 4]
batchnorm = true
dropout = 0.1
policy = "none"
[protocol]
trials = 2
steps = 3
batch = 4
lr = 0.1
evaluations = 2
validation = 0.3
optimizer = "sgd"
algorithms = ["agg", "fo-s-mldg+ema"]
held_out = ["east"]
lr_search = [0.1, 2.0]
[algorithms.agg]
lr = 0.2
[algorithms.fo-s-mldg]
alpha = 0.05
steps = 4
"""
STUDY = """title = "A study"
published = "results"
[defaults]
benchmark = "rotated-mnist"
trials = 2
[[parts]]
name = "digits/plain"
algorithms = ["agg", "ffo-s-mldg"]
variants = ["plain", "ema"]
lr = 0.1
rates = [0.3, 1.0]
[[parts]]
name = "digits/momentum"
algorithms = ["agg"]
steps = 9
settings = ["agg.lr=0.1"]
[[hypotheses]]
name = "H1"
says = "It helps."
better = "plain: ffo-s-mldg"
worse = "plain: agg"
margin = 0.5
beside = [["plain: agg+ema", "plain: agg"]]
"""
CHOSEN = '[algorithms."agg"]  # trial 1\nsteps = 7\nlr = 0.1\n[algorithms.fo-s-mldg]\nalpha = 0.05\nlr = 0.01\n'


def write_benchmark(path: Path) -> None:
    write_table(path.with_name("rows.csv"))
    path.write_text(BENCHMARK)


def write_sweep(path: Path) -> None:
    """Write a training of a sweep: each of two seeds with an environment held out."""
    for i in range(3):
        folder = path.parent.parent / f"training-{i}" if i else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        args = {
            "algorithm": "ERM", "dataset": "Debug28", "test_envs": [i], "trial_seed": 0, "hparams_seed": 0,
            "steps": 101, "holdout_fraction": 0.2,
        }  # fmt: skip
        lines = []
        for step in (0, 100):
            measured = {f"env{e}_{part}_acc": 0.5 + e / 10 for e in range(3) for part in ("in", "out")}
            hparams = {"lr": 1e-4, "batch_size": 32, "weight_decay": 0.0, "resnet18": True}
            more = {"step": step, "loss": 1.5, "step_time": 0.5, "mem_gb": 1.5, "args": args, "hparams": hparams}
            lines.append(json.dumps({**measured, **more}))
        (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "done").write_text("done")


@cache
def make_run() -> Path:
    """Make a packed run, by importing a sweep."""
    root = Path(mkdtemp())
    write_sweep(root / "sweep" / "training-0" / "results.jsonl")
    done = seqdg("import-domainbed", root / "sweep", "--out", root / "run")
    assert done.returncode == 0, done
    run = open_run(root / "run")
    pack([(root / "run", run)], root / "packed")
    run.close()
    return root / "packed"


@cache
def make_model() -> Path:
    path = Path(mkdtemp()) / "model"
    rows = make_rows()
    model = DomainClassifier(algorithm="agg", steps=2, hidden=(4,), device="cpu")
    model.fit(rows[["x", "age", "kind"]].astype({"x": float}), rows["state"], domains=rows["place"]).save(path)
    return path


@cache
def make_ensemble() -> Path:
    path = Path(mkdtemp()) / "model"
    members = (Winner("agg", 0.25, 1.0, lr=0.01), Winner("logistic", 0.75, 1.5))
    rows = make_rows()
    model = DomainClassifier(WeightedEnsemble(members), steps=2, hidden=(4,), members=1, device="cpu")
    model.fit(rows[["x", "age", "kind"]].astype({"x": float}), rows["state"], domains=rows["place"]).save(path)
    return path


@cache
def make_shards() -> Path:
    root = Path(mkdtemp())
    words = ["--algorithms", "agg", "--held-out", "0", "--trials", 2, "--steps", 4, "--rows", 60, "--workers", 0]
    for number in ("1/2", "2/2"):
        done = seqdg("bench", *words, "--shard", number, "--out", root)
        assert done.returncode == 0, done
    return root


def write_features(path: Path) -> None:
    rows = make_rows()
    about = {"backbone": "mine", "weights_sha256": "", "preprocessing": {"size": 4}}
    x = np.random.default_rng(0).normal(size=(len(rows), 3)).astype(np.float32)
    y, domains = (rows[name].to_numpy() for name in ("state", "place"))
    validation, paths = np.arange(len(rows)) % 4 == 0, tuple(f"{i}.png" for i in range(len(rows)))
    Features(x, about, y, domains, paths, CLASSES, validation).save(path)


@cache
def make_checkpoint() -> tuple[Group, Path]:
    """Return a group that was interrupted, and the folder with its checkpoint."""
    root, (group,) = Path(mkdtemp()), make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=6)).groups

    def stop(step: int) -> None:
        if step >= 4:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        train(group, stop, Saving(Folder(root), 3600.0))
    (made,) = (root / "checkpoints").iterdir()
    made.rename(root / "checkpoints" / "one.safetensors")
    return group, root / "checkpoints"


def write_arff(path: Path) -> None:
    rows, kinds = make_rows(), {"x": "numeric", "age": "numeric", "kind": "{a,bc,d}"}
    kinds |= {"state": f"{{{','.join(CLASSES)}}}", "place": f"{{{','.join(DOMAINS)}}}"}
    head = ["@relation rows", *(f"@attribute {name} {kind}" for name, kind in kinds.items()), "@data"]
    lines = [",".join(str(cell).replace(" ", "") for cell in row) for row in rows.to_numpy()]
    path.write_text("\n".join([*head, *lines]) + "\n")


def copy_from(make: Callable[[], Path]) -> Callable[[Path], None]:
    return lambda path: shutil.copytree(make(), path.parent, dirs_exist_ok=True) and None


def write_weights(path: Path) -> None:
    tensors = {"layer.weight": torch.ones(3, 4), "layer.bias": torch.zeros(3)}
    save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)


# What reads them ------------------------------------------------------------------------------------------------------


def read_table(path: Path) -> object:
    return read_rows(path, "state", "place")


def load(form: str, *names: str) -> Callable[[Path], object]:
    """Return what loads features or pictures. names: the files below the folder, or its own."""

    def load_one(path: Path) -> object:
        return load_dataset(DataSpec("some", names or (path.name,), format=form), path.parent)

    return load_one


def run_command(*words: str, codes: tuple[int, ...] = (0,)) -> Callable[[Path], object]:
    """Return what runs a command on a file. words: FILE, DIR and ABOVE stand for it, its folder and the one above.

    codes: with which it may end where it read the file.
    """

    def run(path: Path) -> object:
        places = {"FILE": path, "DIR": path.parent, "ABOVE": path.parent.parent, "OUT": path.parent.parent / "out"}
        done = seqdg(*(places.get(word, word) for word in words))
        if done.returncode == 2 and "Traceback" not in done.stderr:
            raise UsageError(done.stderr + done.stdout)
        assert done.returncode in codes, done
        return done.stdout

    return run


def read_store(path: Path) -> object:
    """Let every command that reads a run read this one."""
    out = path.parent.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    other = str(path.parent.with_name("shard-2-of-2"))
    commands = [["table", "DIR"], ["status", "DIR"], ["rerun", "DIR", "--list"], ["pack", "DIR", "--out", "OUT"]]
    commands += [["merge", "DIR", other, "--out", "OUT"]]
    words = commands[sum(path.read_bytes()[-9999:]) % len(commands)]  # one of them, as the file decides
    return run_command(*words, codes=(0, 1))(path)  # 1: records are missing


def go_on(path: Path) -> object:
    """Train the group of a checkpoint to its end; refuse the checkpoint where a warning says that it starts anew."""
    group, _ = make_checkpoint()
    path.rename(path.parent.parent / name_checkpoint(group.key))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        records = train_group(group, make_session(Saving(Folder(path.parent.parent), 3600.0)), lambda step: None)
    assert all(record.status == DONE for record in records)
    if refused := [str(one.message) for one in said if "start anew" in str(one.message)]:
        raise UsageError(refused[0])
    return records


def plan_benchmark(path: Path) -> object:
    benchmark = load_benchmark(str(path))
    task = benchmark.make_task(path.parent)
    return benchmark.plan(task, Request())


def read_settings_from(path: Path) -> object:
    chosen = load_benchmark("rotated-mnist").with_settings(path)
    return chosen.list_candidates(Request(algorithms=("agg", "fo-s-mldg")), ("a", "b", "c"), (784,))


def count_table(path: Path) -> Counter[tuple[str, str]] | None:
    """Count the rows of every class and domain as plain text has them; None: that is not so plain."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = content.decode("utf-8")
    if any(mark in text for mark in "\"\0\r;|'") or not text.isascii():
        return None
    head, *rows = [row for row in csv.reader(io.StringIO(text), delimiter="\t" if "\t" in text else ",") if row]
    at = [head.index(name) for name in ("state", "place")]
    pairs = [(row[at[0]].strip(), row[at[1]].strip()) for row in rows]
    plain = all(len(row) == len(head) for row in rows) and all(word.isalpha() for pair in pairs for word in pair)
    return Counter(pairs) if plain else None


def compare_table(path: Path, rows: Any) -> None:
    with contextlib.suppress(UnicodeError, ValueError, csv.Error):
        expected = count_table(path)
        if expected is not None:
            assert Counter(zip(map(str, rows.y), map(str, rows.domains), strict=True)) == expected


def compare_arrays(path: Path, dataset: Any) -> None:
    with np.load(path) as file:
        counts = {name: len(file[f"{name}_y"]) for name in dataset.domains}
        assert {name: len(dataset.rows(name)) for name in dataset.domains} == counts
        assert all(
            np.array_equal(dataset.x[dataset.rows(n)].numpy(), file[f"{n}_x"].astype("f4"), True) for n in counts
        )


def compare_list(path: Path, dataset: Any) -> None:
    rows = (
        json.loads(path.read_text()) if path.suffix == ".json" else list(csv.DictReader(path.open(encoding="latin-1")))
    )
    assert len(dataset.y) == len(rows)


def compare_run(path: Path, printed: Any) -> None:
    """Compare with the run that is whole: it has hashes of all that counts."""
    found, whole = (
        sorted((r.key, repr(r.history)) for r in Results.open(at).records()) for at in (path.parent, make_run())
    )
    assert found == whole


def compare_sweep(path: Path, printed: Any) -> None:
    """Compare every number of every evaluation with what the lines have under the names of its environments."""
    lines = []
    for file in path.parents[1].rglob("results.jsonl"):
        for text in file.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # the last line may be half a line
                lines.append(json.loads(text))
    told = [(line["step"], [line.get(f"env{e}_in_acc") for e in line["args"]["test_envs"]]) for line in lines]
    for record in Results.open(path.parents[1] / "out").records():
        for e in record.history:
            assert (e.step, e.held_out["accuracy"]) in told
            assert all(0 <= x <= 1 for x in e.source["accuracy"])
    assert not list(path.parents[2].glob("climbed"))


class Format(NamedTuple):
    """A format. name: of its file, in a folder of its own. changes: besides those of bytes."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    changes: tuple[Callable[[bytes, random.Random], bytes], ...] = ()
    compare: Callable[[Path, Any], None] = lambda path, found: None


CSV, JSON, IN_TOML = in_text(change_csv), in_text(change_json), in_text(change_toml)
TABLE = run_command("check", "FILE", *LABELED)
CHECK = run_command("check", "FILE", "--data", "DIR")
IMPORT = run_command("import-domainbed", "ABOVE", "--out", "OUT", "--allow-partial")
FORMATS = {
    "csv": Format("rows.csv", write_table, read_table, (CSV,), compare_table),
    "csv.gz": Format("rows.csv.gz", write_table, read_table, (change_gzip,), compare_table),
    "tsv": Format("rows.tsv", write_table, read_table, (CSV,), compare_table),
    "checked csv": Format("rows.csv", write_table, TABLE, (CSV,)),
    "parquet": Format("rows.parquet", write_table, TABLE),
    "arff": Format("rows.arff", write_arff, TABLE, (CSV,)),
    "xlsx": Format("rows.xlsx", write_table, TABLE, (change_zip,)),
    "npz": Format("features.npz", write_arrays, load("features"), (change_zip,), compare_arrays),
    "mat": Format("east.mat", write_mat, load("features", ".")),
    "weights": Format("net.safetensors", write_weights, read_weights, (change_safetensors,)),
    "weights of torch": Format("net.pth", write_weights, read_weights, (change_zip,)),
    "list": Format("list.csv", write_list, load("list"), (CSV,), compare_list),
    "json list": Format("list.json", write_list, load("list"), (JSON,), compare_list),
    "zip": Format("pictures.zip", write_zip, load("images"), (change_zip,)),
    "picture": Format("east/ill/0.png", lambda path: write_pictures(path.parents[2]), load("images", "../..")),
    "benchmark": Format("bench.toml", write_benchmark, plan_benchmark, (IN_TOML, IN_TOML)),
    "checked benchmark": Format("bench.toml", write_benchmark, CHECK, (IN_TOML,)),
    "study": Format("study.toml", lambda path: path.write_text(STUDY), load_study, (IN_TOML, IN_TOML)),
    "settings": Format("chosen.toml", lambda path: path.write_text(CHOSEN), read_settings_from, (IN_TOML, IN_TOML)),
    "sweep": Format("sweep/training-0/results.jsonl", write_sweep, IMPORT, (JSON, JSON, JSON), compare_sweep),
    "trials": Format("trials.parquet", copy_from(make_run), run_command("table", "DIR"), (), compare_run),
    "evaluations": Format("evaluations.parquet", copy_from(make_run), run_command("table", "DIR"), (), compare_run),
    "facts": Format("trials.parquet", copy_from(make_run), run_command("table", "DIR"), (change_facts,) * 9),
    "store": Format(
        "shard-1-of-2/results.sqlite", lambda path: shutil.copytree(make_shards(), path.parents[1], dirs_exist_ok=True),
        read_store, (change_store,) * 9,
    ),
    "checkpoint": Format(
        "checkpoints/one.safetensors", copy_from(lambda: make_checkpoint()[1]), go_on, (change_checkpoint,) * 9
    ),
    "features": Format(
        "rows.safetensors", write_features, load("features"), (change_safetensors, *[change_features] * 3),
    ),
    "ensemble": Format(
        "model.json", copy_from(make_ensemble), lambda path: read_model(path.parent), (change_model,) * 3
    ),
    "member": Format(
        "members/1/model.json",
        lambda path: shutil.copytree(make_ensemble(), path.parents[2], dirs_exist_ok=True),
        lambda path: read_model(path.parents[2]),
        (JSON, change_model),
    ),
    "model": Format("model.json", copy_from(make_model), lambda path: read_model(path.parent), (JSON, change_model)),
    "reported run": Format("trials.parquet", copy_from(make_run), run_command("report", "DIR"), (change_facts,) * 9),
    "shown model": Format("model.json", copy_from(make_model), run_command("show", "DIR"), (change_model,)),
}  # fmt: skip

# Cases ----------------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    kind: str  # read, refused or wrong
    text: str


def _give_up(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of a processor, or {WAIT} s")


@contextlib.contextmanager
def limit_time() -> Iterator[None]:
    timers = {signal.ITIMER_PROF: (signal.SIGPROF, SECONDS), signal.ITIMER_REAL: (signal.SIGALRM, WAIT)}
    before = {kind: signal.signal(kind, _give_up) for kind, _ in timers.values()}
    for timer, (_, seconds) in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for kind, handler in before.items():
            signal.signal(kind, handler)


def try_case(number: int, folder: Path) -> Outcome:
    """Change a file of one of the formats in turn, and read it. The number says all that is drawn."""
    names = list(FORMATS)
    form, draw = FORMATS[names[number % len(names)]], random.Random(number)
    path = folder / "case" / form.name
    shutil.rmtree(folder / "case", ignore_errors=True)
    path.parent.mkdir(parents=True)
    os.environ["SEQDG_CACHE"] = str(folder / "case" / "cache")
    form.write(path)
    change = draw.choice((change_bytes, *form.changes))
    path.write_bytes(change(path.read_bytes(), draw))
    try:
        with limit_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = form.read(path)
            form.compare(path, found)
    except UsageError as error:
        if not str(error).strip() or len(str(error)) > 25_000:  # a hundred long names
            return Outcome("wrong", f"no sentence: {str(error)[:300]}")
        return Outcome("refused", str(error))
    except Exception:
        return Outcome("wrong", traceback.format_exc())
    return Outcome("read", "")

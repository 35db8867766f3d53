"""Shards of a plan, each trained into a directory of its own, become one run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqdg.base import Folder, UsageError, count_things, list_some, refuse_broken
from seqdg.bench.planning import SHARD, Part
from seqdg.bench.reruns import META as CODE
from seqdg.bench.reruns import read_noted
from seqdg.results import CLASSES, COMMANDS, DOMAINS, FAILED, FILES, Record, Store, lock_directory, make_directory

MOST_SHARDS = 10**6
KEPT = ("weights", "predictions")  # folders of a run, whose files are named by trials


@dataclass(frozen=True)
class Merged:
    """What a merge found. absent: shards that were not given.   left: trials that have no result yet."""

    benchmark: str
    trials: int
    planned: int
    shards: int
    absent: tuple[int, ...]
    unfinished: Mapping[int, int]  # trials without a result, by shard that was given

    @property
    def left(self) -> int:
        return self.planned - self.trials


def merge_shards(paths: Sequence[Path], out: Path) -> Merged:
    """Join the shards of one plan in the run directory `out`; a second call adds what has finished since.

    Parameters
    ----------
    paths : sequence of Path
        Directories of shards, as `seqdg bench --shard` makes them.
    out : Path
        The run directory, which may hold some of the trials already.
    """
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(Store.open(path))) for path in paths]
        parts = [_read_part(path, store) for path, store in zip(paths, stores, strict=True)]
        _check_parts(paths, stores, parts)
        positions = {key: i for part in parts for key, i in part.positions.items()}
        groups = {key: group for store in stores for key, group in store.groups().items()}
        benchmark = stores[0].benchmark
        with _open_out(out, benchmark) as target:
            for name in (CLASSES, DOMAINS, FILES):
                target.set_meta(name, next(filter(None, (store.meta(name) for store in stores)), "[]"))
            target.set_meta(CODE, json.dumps({k: v for s in stores for k, v in read_noted(s).items()}))
            target.set_meta(COMMANDS, json.dumps(_join_commands(target, stores)))
            target.begin({key: groups[key] for key in sorted(positions, key=positions.__getitem__)})
            finished = target.finished()
            for path, store in zip(paths, stores, strict=True):
                new = [r for r in store.records() if r.key in positions and r.key not in finished]
                _copy_files(path, out, new)
                target.add(new)
            done = target.finished() & positions.keys()
    return Merged(
        benchmark=benchmark,
        trials=len(done),
        planned=parts[0].trials,
        shards=parts[0].count,
        absent=tuple(sorted({*range(1, parts[0].count + 1)} - {part.index for part in parts})),
        unfinished={p.index: n for p in sorted(parts, key=lambda p: p.index) if (n := len(p.positions.keys() - done))},
    )


@contextmanager
def _open_out(out: Path, benchmark: str) -> Iterator[Store]:
    make_directory(out)
    with lock_directory(out), closing(Store.create(out, benchmark)) as store:
        if store.meta(SHARD) is not None:
            raise UsageError(f"{out} is a shard itself: give --out another directory.")
        for folder in KEPT:
            Folder(out.resolve()).remove_unfinished(folder)
        yield store


def _read_part(path: Path, store: Store) -> Part:
    text = store.meta(SHARD)
    if text is None:
        raise UsageError(f"{path} is no shard: `seqdg bench --shard 1/8` makes one. `seqdg pack` joins whole runs.")
    with refuse_broken(f"{path} does not say which part of its plan it is", ": its store is damaged."):
        part = Part(**json.loads(text))
        numbers = [part.index, part.count, part.trials, *part.positions.values()]
        if not all(isinstance(n, int) for n in numbers) or not 1 <= part.index <= part.count <= MOST_SHARDS:
            raise ValueError("its numbers are none")
    return part


def _check_parts(paths: Sequence[Path], stores: Sequence[Store], parts: Sequence[Part]) -> None:
    """Refuse what is not of one plan, and a shard that is given twice."""
    first, seen = parts[0], dict[int, Path]()
    code: dict[str, tuple[str, Path]] = {}
    versions: dict[Any, Path] = {}
    for path, store, part in zip(paths, stores, parts, strict=True):
        if store.benchmark != stores[0].benchmark:
            raise UsageError(f"{paths[0]} is of {stores[0].benchmark}, and {path} is of {store.benchmark}.")
        if (part.plan, part.count) != (first.plan, first.count):
            raise UsageError(
                f"{paths[0]} and {path} are shards of different plans. The shards of one plan come from one command "
                "that differs in --shard alone, on one kind of device."
            )
        if part.index in seen:
            raise UsageError(
                f"{seen[part.index]} and {path} are both shard {part.index} of {part.count}: give one of them."
            )
        seen[part.index] = path
        for name, digest in read_noted(store).items():
            if code.setdefault(name, (digest, path))[0] != digest:
                raise UsageError(
                    f"{code[name][1]} and {path} were trained with different code of {name}. Train one of them again."
                )
        for version in {r.versions.get("seqdg") for r in store.records("accuracy") if r.status != FAILED}:
            versions.setdefault(version, path)
        if part.positions.keys() - store.groups().keys():
            raise UsageError(f"{path} lost its plan when it was damaged: run its command again, which plans it anew.")
    if len(versions) > 1:
        (one, path), (other, second) = list(versions.items())[:2]
        raise UsageError(
            f"{path} was trained by seqdg {one} and {second} by seqdg {other}: train one of them again, with the "
            "version of the other."
        )


def _join_commands(target: Store, stores: Sequence[Store]) -> list[dict[str, Any]]:
    """List the commands of all shards without their --shard, each once, with all that it asked for."""
    joined = {entry["command"]: entry for entry in target.read_commands()}
    for entry in (entry for store in stores for entry in store.read_commands()):
        command = _drop_shard(entry["command"])
        known = joined.setdefault(command, {**entry, "command": command})
        for name in ("algorithms", "held_out"):
            known[name] = list(dict.fromkeys([*known[name], *entry[name]]))
        known["seeds"] = sorted({*known["seeds"], *entry["seeds"]})
    return list(joined.values())


def _drop_shard(command: str) -> str:
    words = shlex.split(command)
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before != "--shard" and word != "--shard" and not word.startswith("--shard=")
    ]
    return shlex.join(kept)


def _copy_files(shard: Path, out: Path, records: Sequence[Record]) -> None:
    """Copy the weights and predictions of these records."""
    keys = {record.key for record in records}
    source, target = Folder(shard.resolve()), Folder(out.resolve())
    for folder in KEPT:
        for name in source.list_names(folder):
            if Path(name).name.split(".")[0] in keys and (data := source.read(name)) is not None:
                target.write(name, data)


def describe_merge(merged: Merged, out: Path) -> list[str]:
    """Say what was merged, and what is missing."""
    trials = count_things(merged.trials, "trial")
    sentences = [f"{trials} of {merged.planned} of {merged.benchmark} are in {out}."]
    if merged.absent:
        names = list_some([str(i) for i in merged.absent])
        sentences.append(f"{count_things(len(merged.absent), 'shard')} of {merged.shards} not given: {names}.")
    sentences += [f"Shard {i} lacks {count_things(n, 'trial')}." for i, n in merged.unfinished.items()]
    if merged.left:
        sentences.append(
            f"Merge again when they have finished, or run the command without --shard and with --out {out}: it trains "
            "what is missing."
        )
    return sentences

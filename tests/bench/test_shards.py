"""A plan that is trained in shards gives the records of one run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench.merging import merge_shards
from seqdg.bench.planning import ARRAYS, parse_shard
from seqdg.results import Store, is_locked, open_run

WORDS = ["bench", "--algorithms", "agg,agg+ema,fo-s-mldg", "--held-out", "0,75", "--trials", 2, "--steps", 20]
WORDS = [*WORDS, "--rows", 60, "--workers", 0]


def exact(directory: Path) -> list[Any]:
    """All that is known of the records, but how long they took and when, in their order."""
    records = open_run(directory).records()
    return [replace(r, seconds=0.0, finished=0.0, peak_memory=0) for r in records]


def read_files(directory: Path) -> dict[str, tuple[dict[str, str], dict[str, bytes]]]:
    """Facts and tensors of each file that was kept of a trial; its seal depends on the order of the facts."""
    files = {}
    for path in [path for name in ("weights", "predictions") for path in sorted((directory / name).glob("*"))]:
        with safe_open(path, "numpy") as file:
            facts = {name: fact for name, fact in file.metadata().items() if not name.endswith("sha256")}
            files[path.name] = facts, {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
    return files


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert seqdg(*WORDS, "--save-weights", "last", "--save-predictions", "--out", out).returncode == 0
    return out


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("parts")
    for i in (1, 2):
        code, _, err = seqdg(*WORDS, "--save-weights", "last", "--save-predictions", "--out", out, "--shard", f"{i}/2")
        assert code == 0, err
    return [out / "shard-1-of-2", out / "shard-2-of-2"]


@pytest.mark.slow
def test_merged_shards_are_the_run_byte_for_byte(whole: Path, shards: list[Path], tmp_path: Path) -> None:
    assert all(Store.open(path).finished() for path in shards)
    code, out, _ = seqdg("merge", *reversed(shards), "--out", tmp_path / "all")
    assert (code, out) == (0, f"12 trials of 12 of rotated-mnist are in {tmp_path / 'all'}.\n")
    assert exact(tmp_path / "all") == exact(whole)
    assert Store.open(tmp_path / "all").groups() == Store.open(whole).groups()
    assert read_files(tmp_path / "all") == read_files(whole)
    assert len(read_files(whole)) == 36
    assert seqdg("table", tmp_path / "all")[1] == seqdg("table", whole)[1]
    (command,) = Store.open(tmp_path / "all").read_commands()
    assert "--shard" not in command["command"]
    assert command["seeds"] == [0, 1]


def test_what_a_killed_merge_left_half_written_goes_and_what_a_shard_is_writing_stays(
    whole: Path, shards: list[Path], tmp_path: Path
) -> None:
    left, writing = (path / "weights" / ".a.safetensors.0.part" for path in (tmp_path / "all", shards[0]))
    for path in (left, writing):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    try:
        assert seqdg("merge", *shards, "--out", tmp_path / "all").returncode == 0
        assert writing.exists()
    finally:
        writing.unlink(missing_ok=True)
    assert not left.exists()
    assert read_files(tmp_path / "all") == read_files(whole)


def test_what_is_missing_is_named_and_the_command_trains_it(whole: Path, shards: list[Path], tmp_path: Path) -> None:
    code, out, _ = seqdg("merge", shards[1], "--out", tmp_path)
    assert code == 1
    assert "1 shard of 2 not given: 1." in out
    assert f"--out {tmp_path}" in out
    known = {r.key: r for r in open_run(tmp_path).records()}
    assert 0 < len(known) < 12
    assert seqdg(*WORDS, "--out", tmp_path).returncode == 0
    assert {r.key: r for r in exact(tmp_path)} == {r.key: r for r in exact(whole)}
    assert all(r in open_run(tmp_path).records() for r in known.values())
    code, out, _ = seqdg("merge", *shards, "--out", tmp_path)
    assert (code, out) == (0, f"12 trials of 12 of rotated-mnist are in {tmp_path}.\n")


@pytest.mark.slow
def test_shards_that_do_not_belong_together_are_refused(whole: Path, shards: list[Path], tmp_path: Path) -> None:
    def refuse(*paths: Path, out: Path = tmp_path / "out") -> str:
        code, _, err = seqdg("merge", *paths, "--out", out)
        assert code == 2
        assert not (tmp_path / "out").exists()
        return err

    assert "are both shard 1 of 2" in refuse(shards[0], shards[0])
    assert "is no shard" in refuse(shards[0], whole)
    assert "is a shard itself" in refuse(shards[0], out=shards[1])
    other = [*WORDS[:-4], "--rows", 61, "--workers", 0, "--out", tmp_path, "--shard", "2/2"]
    assert seqdg(*other).returncode == 0
    assert "shards of different plans" in refuse(shards[0], tmp_path / "shard-2-of-2")
    store = Store.open(tmp_path / "shard-2-of-2")
    for record in store.records():
        store.add([replace(record, versions={**record.versions, "seqdg": "0.0.1"})])
    part = Store.open(shards[1]).meta("shard")
    assert part is not None
    store.set_meta("shard", part)
    assert "lost its plan when it was damaged" in refuse(shards[0], tmp_path / "shard-2-of-2")
    store.begin(Store.open(shards[1]).groups())
    assert "by seqdg 0.0.1" in refuse(shards[0], tmp_path / "shard-2-of-2")
    for text in ("[]", "[" * 100_000, part.replace('"count": 2', '"count": "many"')):
        store.set_meta("shard", text)
        with pytest.raises(UsageError, match="does not say which part"):
            merge_shards([tmp_path / "shard-2-of-2"], tmp_path / "out")
    store.set_meta("shard", "[]")
    with pytest.raises(UsageError, match="does not say which part"):
        merge_shards([tmp_path / "shard-2-of-2"], tmp_path / "out")


def test_a_shard_is_named_by_number_or_by_the_task_of_a_job_array() -> None:
    assert parse_shard("3/8").folder == "shard-3-of-8"
    for name, first in ARRAYS.items():
        assert [parse_shard("auto/8", {name: str(first + i)}).index for i in (0, 7)] == [1, 8]
    for text in ("0/8", "9/8", "3", "a/8", "-1/8", "3/0"):
        with pytest.raises(UsageError, match="--shard"):
            parse_shard(text)
    with pytest.raises(UsageError, match="this task of the job array is number 9"):
        parse_shard("auto/8", {"SLURM_ARRAY_TASK_ID": "9"})
    with pytest.raises(UsageError, match="none of SLURM_ARRAY_TASK_ID"):
        parse_shard("auto/8", {"SGE_TASK_ID": "undefined"})


def test_more_shards_than_groups_leave_some_with_nothing(shards: list[Path], tmp_path: Path) -> None:
    groups = len(set(Store.open(shards[0]).groups().values()) | set(Store.open(shards[1]).groups().values()))
    code, out, err = seqdg(*WORDS, "--out", tmp_path, "--shard", f"{groups + 1}/{groups + 1}")
    assert (code, out) == (0, "")
    assert "0 trials" in err


@pytest.mark.slow
def test_killed_shards_in_other_folders_continue_to_the_same_records(tmp_path: Path) -> None:
    """240 trials as 8 shards in 8 processes, two of them killed."""
    words = ["bench", "--algorithms", "agg,agg+ema,fo-s-mldg,coral", "--held-out", "0,45,75", "--trials", 20]
    words = [*words, "--steps", 20, "--rows", 60, "--workers", 0]
    assert seqdg(*words, "--out", tmp_path / "whole").returncode == 0
    running = []
    for i in range(1, 9):
        folder = tmp_path / f"worker{i}"
        folder.mkdir()
        task = {**os.environ, "SLURM_ARRAY_TASK_ID": str(i)}
        command = [sys.executable, "-c", "from seqdg.cli import main; main()", *map(str, words), "--checkpoint", "0.1"]
        command += ["--shard", "auto/8", "--out", str(tmp_path / "parts")]
        running.append((command, folder, task, subprocess.Popen(command, cwd=folder, env=task, stderr=subprocess.PIPE)))
    shards = [tmp_path / "parts" / f"shard-{i}-of-8" for i in range(1, 9)]
    for (_, _, _, process), shard in list(zip(running, shards, strict=True))[2:4]:
        until = time.monotonic() + 120
        while not is_locked(shard) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    for _, _, _, process in running:
        process.communicate()
    assert merge_shards(shards[4:], tmp_path / "early").absent == (1, 2, 3, 4)
    for command, folder, task, _ in running[2:4]:
        subprocess.run(command, cwd=folder, env=task, check=True, capture_output=True)
    merged = merge_shards(shards, tmp_path / "all")
    assert (merged.trials, merged.planned, merged.left) == (240, 240, 0)
    assert exact(tmp_path / "all") == exact(tmp_path / "whole")
    seqdg("pack", tmp_path / "all", "--out", tmp_path / "packed")
    assert len(open_run(tmp_path / "packed").records()) == 240

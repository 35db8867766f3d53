"""Whatever happens to a run, its store opens, and running it again gives what an uninterrupted run gives."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.results import Store, is_locked

ALGORITHMS = ["agg", "mldg", "fo-mldg", "fo-s-mldg", "ffo-s-mldg"]
WORDS = ["bench", "--algorithms", ",".join(ALGORITHMS), "--held-out", "0,75", "--trials", "2", "--steps", "250"]


def started(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from seqdg.cli import main; main()", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def times(directory: Path) -> dict[str, float]:
    """By trial, when its record was stored. The store opens, whatever happened, if there is one yet."""
    try:
        store = Store.open(directory)
    except UsageError as error:
        if "There are no results" in str(error):
            return {}
        raise
    return {r.key: r.finished for r in store.records()}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Of an uninterrupted run: as printed, and with all digits."""
    directory = tmp_path_factory.mktemp("whole")
    code, out, err = seqdg(*WORDS, "--workers", 0, "--out", directory)
    assert code == 0, err
    return out, seqdg("table", directory, "--format", "json")[1]


def killed_at_random(directory: Path, moment: random.Random, workers: int) -> None:
    """Before its run begins, or some time after."""
    run = started(*WORDS, "--workers", workers, "--checkpoint", 0.2, "--out", directory)
    before = moment.random() < 0.2
    until = time.monotonic() + (moment.uniform(0, 3) if before else 120)
    while not is_locked(directory) and run.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    if not before:
        time.sleep(moment.uniform(0, 2 + 4 * workers))
    run.kill()
    run.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_random_moments_a_run_gives_the_same_table_and_repeats_nothing(
    tmp_path: Path, table: tuple[str, str], kills: int
) -> None:
    moment, known = random.Random(20), {}
    tmp_path = tmp_path / "run"
    for i in range(kills):
        killed_at_random(tmp_path, moment, workers=2 if i % 7 == 3 else 0)
        now = times(tmp_path)
        assert len(now) % 4 == 0, "groups are stored whole or not at all"
        assert known.items() <= now.items(), "what was stored stays as it was"
        known = now
    code, out, err = seqdg(*WORDS, "--workers", 0, "--out", tmp_path)
    assert code == 0, err
    assert out == table[0]
    assert seqdg("table", tmp_path, "--format", "json")[1] == table[1]
    assert known.items() <= times(tmp_path).items(), "no finished trial ran twice"
    assert len(times(tmp_path)) == 20
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if not sys.platform.startswith("linux") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("No small disk can be mounted here; SQLite's own limit is tested in its place.")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_stops_the_run_with_a_sentence_and_room_lets_it_go_on(
    small_disk: Path, table: tuple[str, str]
) -> None:
    directory, ballast = small_disk / "run", small_disk / "ballast"
    words = [*WORDS, "--workers", 0, "--checkpoint", 0.2, "--out", directory]
    code, out, err = seqdg(*WORDS[:2], "agg", *WORDS[3:], "--workers", 0, "--out", directory)
    assert code == 0, err
    known = times(directory)
    ballast.write_bytes(b"x" * (_free(small_disk) - 40_000))
    code, out, err = seqdg(*words)
    assert code == 2, err
    sentence = [line for line in err.splitlines() if line.startswith("seqdg: Nothing more can be written")]
    assert len(sentence) == 1
    assert "Traceback" not in err
    assert not out
    assert known.items() <= times(directory).items()
    ballast.unlink()
    code, out, err = seqdg(*words)
    assert code == 0, err
    assert out == table[0]
    assert known.items() <= times(directory).items()


def _free(disk: Path) -> int:
    return shutil.disk_usage(disk).free

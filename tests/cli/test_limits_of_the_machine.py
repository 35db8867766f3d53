"""Where the machine gives less than is needed, a sentence says what, and nothing that was stored is lost."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import Done
from command import seqdg as run
from seqdg.base import UsageError
from seqdg.data.pictures import find_cache_folder
from seqdg.results import Store

MAIN = [sys.executable, "-c", "from seqdg.cli import main; main()"]
TRIAL = ["bench", "--algorithms", "agg", "--held-out", "0", "--trials", 1, "--steps", 5, "--device", "cpu"]
BENCH = [*TRIAL, "--workers", 0]
ONE_BY_ONE = """
import json, sys
from seqdg.cli import main
for words in json.loads(sys.argv[1]):  # in one process, as starting one takes longer than most commands
    sys.argv = ["seqdg", *words]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
"""
FIT = ["fit", "table.csv", "--label", "ill", "--domain", "site", "--algorithm", "agg", "--steps", 2, "--hidden", 2]
FIT += ["--members", 1, "--seeds", 1, "--device", "cpu"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the user is, with a table."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    rows = [f"{i * 37 % 101},{i * 53 % 97},{(i * 37 % 101 + i * 53 % 97) % 2},{'abc'[i % 3]}" for i in range(60)]
    Path("table.csv").write_text("\n".join(["x,y,ill,site", *rows]) + "\n")
    return here


def start(*words: object, before: tuple[str, ...] = (), stdout: object = subprocess.PIPE, **environment: str) -> Done:
    done = subprocess.run(
        [*before, *MAIN, *map(str, words)],
        stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, **environment}, timeout=240, check=False,
    )  # fmt: skip
    return Done(done.returncode, (done.stdout or b"").decode(), done.stderr.decode(errors="replace"))


def assert_one_sentence(done: Done, *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("seqdg: ")
    assert all(part in sentence for part in parts), sentence


class Panic(BaseException):
    """What Rust code raises."""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device. Make room, and run the command"),
        (
            OSError(errno.EROFS, os.strerror(errno.EROFS), "a.svg"),
            "Read-only file system (a.svg). Choose another folder",
        ),
        (RuntimeError("shared memory </torch_1>: Too many open files (24)"), "Too many open files. Allow more of them"),
        (Panic('Os { code: 24, message: "Too many open files" }'), "Too many open files. Allow more of them (ulimit"),
    ],
)
def test_what_no_writer_explains_is_explained_at_last(
    error: BaseException, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(where: Path) -> None:
        raise error

    monkeypatch.setattr("seqdg.results.read_status", fail)
    assert_one_sentence(run("status", "run"), sentence, "what is stored stays.")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="There is no /dev/full here.")
def test_a_table_that_cannot_be_printed_is_said_so_and_stays_stored(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = start(*BENCH, "--out", "run", stdout=full)
    assert_one_sentence(done, "No space left on device. Make room")
    assert len(Store.open(folder / "run").finished()) == 1


def mount(*words: str) -> None:
    if (
        not sys.platform.startswith("linux")
        or subprocess.run(["mount", *words], capture_output=True, check=False).returncode
    ):
        pytest.skip("Nothing can be mounted here.")


@pytest.fixture
def full_disk(folder: Path) -> Iterator[Path]:
    """A disk with room for two blocks of memory."""
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk))
    (disk / "ballast").write_bytes(b"x" * (shutil.disk_usage(disk).free - 8192))
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.slow
def test_on_a_full_disk_every_writer_says_so_and_leaves_what_was_there(full_disk: Path) -> None:
    assert run(*BENCH, "--out", "run").returncode == 0
    assert run(*FIT, "--out", "model").returncode == 0
    for words in (
        [*BENCH, "--out", "disk/run"],
        [*FIT, "--runs", "kept", "--out", "disk/model"],
        ["pack", "run", "--out", "disk/packed"],
        ["analyze", "line", "--steps", 2, "--out", "disk/line"],
    ):
        done = run(*words)
        assert_one_sentence(done, "disk")
        assert any(why in done.stderr for why in ("No space left", "disk is full", "disk I/O error")), done.stderr
    assert not (full_disk / "model").exists()
    shutil.rmtree(full_disk / "run", ignore_errors=True)
    (full_disk / "ballast").unlink()
    shutil.copytree("run", full_disk / "run")
    assert run("table", "disk/run").stdout == run("table", "run").stdout


@pytest.fixture
def read_only(folder: Path) -> Iterator[Path]:
    """A folder with a run and a model that nobody, not even root, may write to."""
    place = folder / "fixed"
    place.mkdir()
    assert run(*BENCH, "--out", "fixed/run").returncode == 0
    assert run(*FIT, "--out", "fixed/model").returncode == 0
    mount("--bind", str(place), str(place))
    mount("-o", "remount,ro,bind", str(place))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_of_a_folder_that_is_read_only_all_is_read_and_who_writes_says_so(read_only: Path) -> None:
    for words in (
        [*BENCH, "--out", "fixed/new"],
        [*BENCH, "--out", "fixed/run", "--trials", 2],
        [*FIT, "--out", "fixed/other"],
        ["report", "fixed/run"],
        ["pack", "fixed/run", "--out", "fixed/packed"],
        ["soup", "fixed/run"],
    ):
        assert_one_sentence(run(*words), "fixed")
    for words in (["table", "fixed/run"], ["status", "fixed/run"], ["show", "fixed/model"]):
        assert run(*words).returncode == 0
    assert run("predict", "fixed/model", "table.csv", "--out", "predicted.csv").returncode == 0
    assert run("pack", "fixed/run", "--out", "packed").returncode == 0


def test_a_user_without_a_home_is_asked_for_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    pwd = pytest.importorskip("pwd")
    for name in ("SEQDG_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(UsageError, match=r"This user has no home folder .* Set SEQDG_CACHE to one\."):
        find_cache_folder()


UNSHARED = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh")


@pytest.fixture
def small_shared_memory() -> tuple[str, ...]:
    """Words before a command that give it 64 kB of shared memory, as Docker gives 64 MB."""
    if (
        not sys.platform.startswith("linux")
        or subprocess.run([*UNSHARED, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("Nothing can be mounted here.")
    return UNSHARED


@pytest.mark.slow
def test_with_little_shared_memory_workers_train_all_the_same(
    folder: Path, small_shared_memory: tuple[str, ...]
) -> None:
    done = start(*TRIAL, "--workers", 2, "--out", "run", before=small_shared_memory)
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(*BENCH, "--out", "alone").stdout


@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not here.")
def test_where_ray_cannot_start_a_sentence_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: object, **more: object) -> None:
        raise RuntimeError("Timed out waiting for file gcs_server_port\nand more")

    monkeypatch.setattr("ray.init", fail)
    done = run(*TRIAL, "--executor", "ray", "--workers", 1, "--out", "run")
    assert_one_sentence(done, "Ray cannot be started on this machine (Timed out waiting", "Without --executor ray")


@pytest.mark.slow
def test_names_that_are_no_text_are_names_like_others(folder: Path) -> None:
    name = os.fsdecode(b"r\xff\xe4n")
    try:
        Path(name).mkdir()
    except OSError:
        pytest.skip("This file system takes text alone.")
    assert run(*BENCH, "--out", f"{name}/run").returncode == 0
    plain = run(*BENCH, "--out", "plain")
    assert run("table", f"{name}/run").stdout == plain.stdout
    for words in (["status", f"{name}/run"], ["report", f"{name}/run"], ["pack", f"{name}/run", "--out", f"{name}/p"]):
        done = run(*words)
        assert done.returncode == 0, done.stderr
    assert (Path(name) / "run" / "report.html").read_text(encoding="utf-8")
    assert run("table", f"{name}/p").stdout == plain.stdout
    done = run(*FIT, "--out", f"{name}/model")
    assert done.returncode == 0, done.stderr
    assert run("show", f"{name}/model").returncode == 0
    assert run("predict", f"{name}/model", "table.csv", "--out", f"{name}/p.csv").returncode == 0


@pytest.mark.slow
def test_in_the_c_locale_a_benchmark_in_any_language_runs(folder: Path) -> None:
    """Without Python's own way out of that locale, which an administrator may have turned off."""
    text = (folder / "table.csv").read_text().replace(",a\n", ",Zürich\n").replace(",b\n", ",Łódź\n")
    (folder / "table.csv").write_text(text, encoding="utf-8")
    lines = [
        'title = "Krankenhäuser"', "[data]", 'format = "table"', 'path = "table.csv"', 'label_column = "ill"',
        'domain_column = "site"', "[net]", 'name = "mlp"', "hidden = [4]", "[protocol]", "steps = 2", "trials = 1",
        "batch = 4", 'algorithms = ["agg"]',
    ]  # fmt: skip
    (folder / "mine.toml").write_text("\n".join(lines), encoding="utf-8")
    words = ["bench", "mine.toml", "--data", ".", "--device", "cpu", "--out"]
    here = run(*words, "here", "--workers", 0)
    assert here.returncode == 0, here.stderr
    for workers in (0, 2):
        done = start(*words, f"c{workers}", "--workers", workers, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        assert done.returncode == 0, done.stderr
        assert run("table", f"c{workers}").stdout == here.stdout
    commands = [["report", "c0"], ["pack", "c0", "--out", "packed"], ["table", "c0"], ["status", "c0"]]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", ONE_BY_ONE, json.dumps(commands)], env=environment, check=False)
    assert done.returncode == 0
    (folder / "mine.toml").write_text("\n".join(lines), encoding="latin-1")
    assert_one_sentence(run(*words, "here"), "mine.toml is not valid TOML")


@pytest.mark.slow
def test_with_sixteen_open_files_a_run_is_whole_or_says_what_to_do(folder: Path) -> None:
    before = ("sh", "-c", 'ulimit -n 16 && exec "$@"', "sh")
    done = start(*TRIAL, "--workers", 2, "--out", "run", before=before)
    assert done.returncode == 0, done.stderr
    fitted = start(*FIT, "--workers", 2, "--out", "model", before=before)
    if fitted.returncode:  # how many a worker needs depends on torch
        assert_one_sentence(fitted, "Too many open files. Allow more of them (ulimit -n 1024)")
    again = run(*FIT, "--workers", 0, "--out", "model", "--force")
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_a_model_is_fitted_to_a_table_whose_name_is_no_text(folder: Path) -> None:
    odd = Path("table.csv").rename(os.fsdecode(b"caf\xe9.csv"))
    done = run("fit", odd, *FIT[2:], "--out", "model")
    assert done.returncode == 0, done.stderr
    assert "caf" in run("show", "model").stdout
    assert run("predict", "model", odd, "--out", "p.csv").returncode == 0

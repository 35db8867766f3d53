"""What the machine refuses ends in a sentence: a full disk, few open files, a locale that knows only ASCII."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import seqdg
from fuzz import make_run, write_sweep
from seqdg.base import system

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(words: list[str | bytes | Path], before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'{before} exec "$@"', "bash", sys.executable, "-m", "seqdg", *words]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="surrogateescape", env={**os.environ, **environment}
    )


def test_a_full_disk_under_settings_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    words = ["--algorithms", "agg", "--steps", "1", "--trials", "1", "--held-out", "0", "--device", "cpu"]
    assert seqdg("bench", "rotated-mnist", *words, "--out", tmp_path / "run").returncode == 0
    monkeypatch.setattr(system.os, "fsync", fail)
    done = seqdg("table", tmp_path / "run", "--settings-out", tmp_path / "settings")
    assert done.returncode == 2
    assert done.stderr.endswith(
        "No space left on device. Make room, and run the command again: what is stored stays.\n"
    )
    assert not list((tmp_path / "settings").iterdir())


@pytest.mark.slow
def test_a_full_standard_output_is_a_sentence() -> None:
    done = run(["list", "benchmarks"], "exec > /dev/full;")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.slow
def test_few_open_files_do_or_are_named(tmp_path: Path) -> None:
    assert run(["table", make_run()], "ulimit -n 16;").returncode == 0
    done = run(["report", make_run()], "ulimit -n 16;")
    assert (done.returncode, done.stderr) == (
        2,
        "seqdg: Figures need 32 open files, and 16 are allowed: raise that by `ulimit -n 1024`.\n",
    )


@pytest.mark.slow
def test_names_that_are_no_text_are_written_or_named(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    write_sweep(Path(os.fsdecode(odd)) / "sweep" / "training-0" / "results.jsonl")
    for environment in ({}, C_LOCALE):
        out = odd + b"/out" + str(len(environment)).encode()
        assert run(["import-domainbed", odd + b"/sweep", "--out", out], **environment).returncode == 0
        done = run(["report", out, "--figures", out + b"/figures"], **environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "caf" in Path(os.fsdecode(out), "report.html").read_text(encoding="utf-8")
    done = run(["import-domainbed", odd + b"/sweep", "--out", odd + b"/x", "--domains", "Größe,1,2"], **C_LOCALE)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not in UTF-8" in done.stderr

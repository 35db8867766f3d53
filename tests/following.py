"""Follow a page of the docs: run its blocks in a folder, as a reader does.

A line `seqdg ...` and a block of Python run in this process, as starting one takes longer than most of them;
every block of Python has names of its own. A line that needs a shell (a pipe, a redirection, another program) gets one.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn
import torch

import seqdg as package
from command import seqdg
from pages import Block

NEEDS_SHELL = re.compile(r"[|&;<>$*`]")


def follow(block: Block, folder: Path, tools: Path) -> str:
    """Run a block in `folder`; what it prints. `tools` is a folder for what a shell needs, and for caches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SEQDG_CACHE", str(tools / "cache"))
        patch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)  # workers take longer to start
        if block.language == "python":
            return run_python(block.text)
        lines = block.text.replace("\\\n", " ").splitlines()
        return "".join(run_line(line, folder, tools) for line in lines)


def run_python(text: str) -> str:
    """Run it with names, randomness and settings of scikit-learn of its own; what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch.random.fork_rng(devices=[]), sklearn.config_context():
        exec(compile(text, "block", "exec", dont_inherit=True), {"__name__": "__main__"})
    return printed.getvalue()


def run_line(line: str, folder: Path, tools: Path) -> str:
    words = shlex.split(line, comments=True)
    if words[0] == "seqdg" and not any(NEEDS_SHELL.search(word) for word in words):
        done = seqdg(*words[1:])
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout
    if words[0] == "python" and len(words) == 2:
        return run_python(Path(words[1]).read_text(encoding="utf-8"))
    return run_in_shell(line, folder, tools)


def run_in_shell(line: str, folder: Path, tools: Path) -> str:
    programs = tools / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, words in (("python", ""), ("seqdg", '-c "from seqdg.cli import main; main()"')):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(Path(package.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout

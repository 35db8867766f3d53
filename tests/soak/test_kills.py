"""Killed at any moment, whatever it is doing, a command that goes on leaves what an undisturbed one leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kills.py")


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="The workers of a run are found by /proc.")
def test_three_hundred_kills_change_nothing(tmp_path: Path) -> None:
    """In a process of its own, since it forks. SEQDG_SOAK names a folder to go on from."""
    out = Path(os.environ.get("SEQDG_SOAK") or tmp_path)
    done = subprocess.run([sys.executable, SCRIPT, "--out", out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "; 0 ended otherwise" in done.stdout, done.stdout

"""How a sweep starts its trainings."""

from __future__ import annotations

import subprocess


def local_launcher(commands):
    for cmd in commands:
        subprocess.call(cmd, shell=True)


def dummy_launcher(commands):
    for cmd in commands:
        print(f"Dummy launcher: {cmd}")


REGISTRY = {"local": local_launcher, "dummy": dummy_launcher}

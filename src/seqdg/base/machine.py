"""What this machine offers."""

from __future__ import annotations

import os
from pathlib import Path


def count_cores() -> int:
    """How many cores this process may use: at most those of its affinity, and of its container's share of time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, round(int(quota) / int(period))))

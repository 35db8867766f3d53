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


def measure_free_memory() -> int | None:
    """How many bytes of memory this process may still take: of the machine, and of its container; None: unknown."""
    known = []
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        known.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, ValueError, KeyError):
        pass
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        if limit != "max":
            known.append(max(0, int(limit) - int(used)))
    except (OSError, ValueError):
        pass
    return min(known, default=None)

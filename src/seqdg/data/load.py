"""The data set that a benchmark's [data] table names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError
from seqdg.data import rotated_mnist, sources
from seqdg.data.cache import Progress
from seqdg.data.domain import Dataset
from seqdg.data.spec import DataSpec

BUNDLED = {"rotated-mnist": rotated_mnist.load}


def load_data(
    table: Mapping[str, Any],
    root: Path | None,
    allow_partial: bool = False,
    name: str = "data",
    progress: Progress | None = None,
    held_out: Sequence[str] | None = None,
) -> Dataset:
    """Bundled data need no root; all others lie below one. held_out: the domains that will be; None: every one."""
    if table.get("format") in BUNDLED:
        return BUNDLED[table["format"]]()
    spec = DataSpec.from_table(name, table)
    if root is None:
        raise UsageError(f"{name} does not come with seqdg: give the folder that holds {spec.path[0]} with --data DIR.")
    return sources.load(spec, root, allow_partial, progress, held_out)

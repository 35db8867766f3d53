"""The data set that a benchmark's [data] table names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqdg.data import rotated_mnist
from seqdg.data.domain import Dataset
from seqdg.errors import UsageError


def load_data(table: Mapping[str, Any], root: Path | None, allow_partial: bool = False) -> Dataset:
    """Bundled data need no root; all others lie below one."""
    if table.get("format") == "rotated-mnist":
        return rotated_mnist.load()
    raise UsageError(f"There is no data format '{table.get('format')}'.")

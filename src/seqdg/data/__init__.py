"""Data sets of several domains: loading and checking them, their rows in memory, and changes to images."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqdg.data.augment import ImageTransform
    from seqdg.data.checks import Problem
    from seqdg.data.data_check import DataCheck
    from seqdg.data.dataset import Dataset
    from seqdg.data.frame import Frame, make_frame
    from seqdg.data.labeled_rows import LabeledRows, read_rows
    from seqdg.data.load import BUNDLED, check_dataset, load_data, load_dataset, make_dataset
    from seqdg.data.readers import ProgressCallback
    from seqdg.data.spec import READERS, DataSpec
    from seqdg.data.tables import TableWriter, open_table

__all__ = [
    "BUNDLED",
    "READERS",
    "DataCheck",
    "DataSpec",
    "Dataset",
    "Frame",
    "ImageTransform",
    "LabeledRows",
    "Problem",
    "ProgressCallback",
    "TableWriter",
    "check_dataset",
    "load_data",
    "load_dataset",
    "make_dataset",
    "make_frame",
    "open_table",
    "read_rows",
]

# Where each name is defined. It is imported when it is first used.
_MODULES = {
    "BUNDLED": "load",
    "READERS": "spec",
    "DataCheck": "data_check",
    "DataSpec": "spec",
    "Dataset": "dataset",
    "Frame": "frame",
    "ImageTransform": "augment",
    "LabeledRows": "labeled_rows",
    "Problem": "checks",
    "ProgressCallback": "readers",
    "TableWriter": "tables",
    "check_dataset": "load",
    "load_data": "load",
    "load_dataset": "load",
    "make_dataset": "load",
    "make_frame": "frame",
    "open_table": "tables",
    "read_rows": "labeled_rows",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'seqdg.data' has no attribute '{name}'")
    return getattr(import_module(f"seqdg.data.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)

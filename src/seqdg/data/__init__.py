"""Data sets of several domains: loading and checking them, their rows in memory, and changes to images."""

from typing import TYPE_CHECKING

from seqdg.base.front_door import open_front_door

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
    from seqdg.data.table_writer import TableWriter
    from seqdg.data.tables import open_table

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

__getattr__, __dir__ = open_front_door(
    __name__,
    {
        "augment": "ImageTransform",
        "checks": "Problem",
        "data_check": "DataCheck",
        "dataset": "Dataset",
        "frame": "Frame make_frame",
        "labeled_rows": "LabeledRows read_rows",
        "load": "BUNDLED check_dataset load_data load_dataset make_dataset",
        "readers": "ProgressCallback",
        "spec": "READERS DataSpec",
        "table_writer": "TableWriter",
        "tables": "open_table",
    },
)

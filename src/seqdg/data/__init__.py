"""Data sets of several domains: loading and checking them, their rows in memory, and changes to images."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.data.augment import ImageTransform, find_augmentation, prepare
    from seqdg.data.cells import (
        Column,
        count_present,
        expect_dates,
        expect_numbers,
        expect_words,
        parse_column,
        parse_number,
        rank_word,
        to_word,
        to_words,
    )
    from seqdg.data.checks import (
        Problem,
        check_class_coverage,
        check_class_sizes,
        check_domain_sizes,
        check_domains,
        check_labels,
        note_gap_labels,
        note_spellings,
    )
    from seqdg.data.column_notes import note_columns
    from seqdg.data.column_types import describe_columns, drop_gap_words, find_gap_numbers, list_types, parse_types
    from seqdg.data.container import Container, File, open_container
    from seqdg.data.data_check import DataCheck
    from seqdg.data.dataset import Dataset
    from seqdg.data.dates import PARTS, take_parts
    from seqdg.data.decoding import decode, require_pillow
    from seqdg.data.frame import Frame, is_dataframe, make_frame
    from seqdg.data.image_folder import SUFFIXES
    from seqdg.data.labeled_rows import LabeledRows, check_table, read_rows
    from seqdg.data.load import BUNDLED, check_dataset, load_data, load_dataset, make_dataset
    from seqdg.data.pixels import scale_to_unit
    from seqdg.data.prepared import write_prepared
    from seqdg.data.readers import ProgressCallback
    from seqdg.data.scaling import SCALINGS, STANDARD, Scaling, join_columns, keep_as_is, learn_scaling, make_standard
    from seqdg.data.spec import READERS, DataSpec
    from seqdg.data.table_writer import STDOUT, TableWriter
    from seqdg.data.tables import TableFile, TableFormat, is_table, open_table

__getattr__, __dir__ = open_front(__name__)

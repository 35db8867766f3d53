"""Data sets of several domains: loading and checking them, their rows in memory, and changes to images."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.data.dataset import READERS, Dataset, DataSpec, ProgressCallback
    from seqdg.data.domain_rows import DomainRows, Problem, check_class_coverage, collect_rows
    from seqdg.data.images import (
        SUFFIXES,
        Container,
        File,
        ImageTransform,
        decode,
        find_augmentation,
        open_container,
        prepare,
        require_pillow,
        scale_to_unit,
    )
    from seqdg.data.labeled_rows import (
        LabeledRows,
        check_class_sizes,
        check_domain_sizes,
        check_domains,
        check_labels,
        check_table,
        note_gap_labels,
        note_spellings,
        read_rows,
    )
    from seqdg.data.load import DataCheck, check_dataset, load_data, load_dataset, make_dataset, write_prepared
    from seqdg.data.rotated_mnist import BUNDLED
    from seqdg.data.scaling import SCALINGS, STANDARD, Scaling, join_columns, keep_as_is, learn_scaling, make_standard
    from seqdg.data.tables import (
        PARTS,
        STDOUT,
        Column,
        Frame,
        TableFile,
        TableFormat,
        TableWriter,
        count_present,
        describe_columns,
        drop_gap_words,
        expect_dates,
        expect_numbers,
        expect_words,
        find_gap_numbers,
        is_dataframe,
        is_table,
        make_frame,
        note_columns,
        open_table,
        parse_column,
        parse_types,
        rank_word,
        read_number,
        take_parts,
        to_word,
        to_words,
    )

__getattr__, __dir__ = open_front(__name__)

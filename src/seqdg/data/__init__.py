"""Data sets of several domains: loading and checking them, their rows in memory, and changes to images."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.data.augment import ImageTransform, describe_augmentation, find_augmentation, prepare, scale_to_unit
    from seqdg.data.columns import (
        PARTS,
        Column,
        count_present,
        describe_columns,
        drop_missing,
        expect_dates,
        expect_numbers,
        expect_words,
        find_missing_numbers,
        parse_column,
        parse_types,
        rank_word,
        read_number,
        take_parts,
        to_word,
        to_words,
    )
    from seqdg.data.dataset import READERS, Dataset, DataSpec, ProgressCallback, derive
    from seqdg.data.domain_rows import DomainRows, Problem, check_class_coverage, collect_rows
    from seqdg.data.download import DOWNLOADS, fetch_data
    from seqdg.data.features.extraction import (
        FrozenBackbone,
        embed_text,
        extract_dataset,
        extract_features,
        make_spec,
        read_frozen,
        replace_text,
    )
    from seqdg.data.features.feature_file import Features, describe_difference
    from seqdg.data.frame import FeatureSource, Frame, is_dataframe, make_frame, note_columns
    from seqdg.data.load import (
        LabeledRows,
        check_class_sizes,
        check_dataset,
        check_domain_sizes,
        check_domains,
        check_labels,
        check_table,
        load_data,
        load_dataset,
        make_dataset,
        note_missing_labels,
        note_spellings,
        read_rows,
    )
    from seqdg.data.pictures import (
        PICTURE_SUFFIXES,
        Container,
        File,
        decode,
        decode_file,
        find_cache_folder,
        lock_cache,
        open_cache,
        open_container,
        require_pillow,
        write_cache,
        write_header,
    )
    from seqdg.data.rotated_mnist import BUNDLED, load_bundled
    from seqdg.data.scaling import (
        OPEN,
        QUANTILE,
        SCALINGS,
        STANDARD,
        Scaling,
        join_columns,
        keep_as_is,
        learn_scaling,
        make_standard,
    )
    from seqdg.data.table_files import STDOUT, TableFile, TableFormat, is_table, open_table, open_writer

__getattr__, __dir__ = open_front(__name__)

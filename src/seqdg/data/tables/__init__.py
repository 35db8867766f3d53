"""Tables: files and data frames to columns of numbers, text and dates, what was decided about them, and writing."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.data.tables.columns import (
        PARTS,
        Column,
        count_present,
        describe_columns,
        drop_gap_words,
        expect_dates,
        expect_numbers,
        expect_words,
        find_gap_numbers,
        parse_column,
        parse_types,
        rank_word,
        read_number,
        take_parts,
        to_word,
        to_words,
    )
    from seqdg.data.tables.frame import Frame, is_dataframe, make_frame, note_columns
    from seqdg.data.tables.table_files import STDOUT, TableFile, TableFormat, TableWriter, is_table, open_table

__getattr__, __dir__ = open_front(__name__)

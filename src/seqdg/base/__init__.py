"""What everything else is built on: episodes, trees of weights, noise, errors, files, text for people."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.base.added_fields import ADDED, added_field, describe_fields, restore_fields
    from seqdg.base.episode import Episode, Minibatch, Params
    from seqdg.base.errors import MOST_NAMES, UsageError, find_similar, unknown
    from seqdg.base.files import UNFINISHED, Files, Folder, replace_file, replace_folder
    from seqdg.base.interrupts import heed_interrupts_once, hold_interrupts
    from seqdg.base.machine import count_cores, measure_free_memory
    from seqdg.base.noise import fold, uniform
    from seqdg.base.phrases import count_things, join_names, list_numbers, list_some, make_printable
    from seqdg.base.places import DOMAINBED, adopt_places, collect_places, set_place
    from seqdg.base.shuffling import shuffle
    from seqdg.base.toml_table import read_fields, read_value
    from seqdg.base.tree import under_prefix, with_prefix
    from seqdg.base.version import VERSION

__getattr__, __dir__ = open_front(__name__)

"""What everything else is built on: episodes, trees of weights, noise, errors, files, own code, text for people."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.base.episode import GROUP, TARGET, VIEW, Episode, Minibatch, Params
    from seqdg.base.fields import (
        ADDED,
        added_field,
        describe_fields,
        parse_text,
        read_fields,
        read_toml,
        read_value,
        restore_fields,
    )
    from seqdg.base.messages import (
        MOST_NAMES,
        OTHER_NAMES,
        UsageError,
        align_columns,
        count_things,
        find_similar,
        join_names,
        list_numbers,
        list_some,
        make_printable,
        read_title,
        refuse_broken,
        state_reason,
        unknown,
    )
    from seqdg.base.noise import fold, shuffle, uniform
    from seqdg.base.plugins import hash_own_code, import_function, import_plugin, trust_only
    from seqdg.base.seal import SEAL_SIZE, find_seal, has_broken_seal, hash_others, is_intact, save_sealed
    from seqdg.base.system import (
        DOMAINBED,
        UNFINISHED,
        Files,
        Folder,
        adopt_checkouts,
        check_memory,
        check_output,
        choose_device,
        collect_checkouts,
        count_cores,
        find_family,
        find_interrupt,
        heed_interrupts_once,
        hold_interrupts,
        list_unfinished,
        make_file_name,
        measure_free_memory,
        prepare_process,
        register_family,
        replace_file,
        replace_folder,
        set_checkout,
        write_file,
    )
    from seqdg.base.tree import under_prefix, with_prefix

VERSION = "0.2.0"  # of seqdg
__getattr__, __dir__ = open_front(__name__)

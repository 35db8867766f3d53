"""Algorithms as pure functions, the fold that makes them sequential, their settings and names."""

from typing import TYPE_CHECKING

from seqdg.base import open_front

if TYPE_CHECKING:
    from seqdg.core.algorithm import Algorithm, Chainable, Loss, check_features
    from seqdg.core.registry import (
        FOREIGN,
        build,
        find_wrapper,
        is_registered,
        list_algorithms,
        list_inner_names,
        list_origins,
        list_wrappers,
        refuse_name,
        register,
        register_chain,
        shorten,
        split_chain,
        use_own_names,
    )
    from seqdg.core.sequential import Sequential, list_alone
    from seqdg.core.settings import (
        Number,
        Numbers,
        Range,
        Settings,
        adapt_to_path,
        check_count,
        collect_numbers,
        collect_rules,
        describe_settings,
        describe_shape,
        flatten_settings,
        format_settings,
        format_value,
        parse_settings,
        pick,
        pick_from_end,
        restore_settings,
        setting,
        with_numbers,
        with_settings,
    )
    from seqdg.core.wrapper import (
        BASE,
        Averaging,
        SharedTraining,
        Wrapper,
        count_needed_evaluations,
        find_core,
        list_layers,
        split_average,
        strip_wrappers,
    )

__getattr__, __dir__ = open_front(__name__)

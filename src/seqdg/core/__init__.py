"""Algorithms as pure functions, the fold that makes them sequential, their settings and names."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.core.algorithm import Algorithm, Chainable, Loss, Number, Numbers, Range, Settings, setting
    from seqdg.core.names import FOREIGN, list_inner_names, shorten, split_chain
    from seqdg.core.positions import check_count, pick, pick_from_end
    from seqdg.core.registry import (
        build,
        find_wrapper,
        import_function,
        import_plugin,
        is_registered,
        list_algorithms,
        list_origins,
        list_wrappers,
        refuse_name,
        register,
        register_chain,
    )
    from seqdg.core.sequential import Sequential, list_alone
    from seqdg.core.settings import (
        adapt_to_path,
        collect_numbers,
        collect_rules,
        describe_settings,
        describe_shape,
        flatten_settings,
        format_settings,
        format_value,
        parse_settings,
        restore_settings,
        with_numbers,
        with_settings,
    )
    from seqdg.core.source import is_same, read_own_code
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

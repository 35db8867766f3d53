"""What everything else is built on: episodes, trees of weights, noise, errors, files, own code, text for people; and
`open_front`, by which a package imports each of its names when it is first used."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        count_files,
        count_things,
        find_similar,
        format_duration,
        join_names,
        list_numbers,
        list_some,
        make_printable,
        read_title,
        refuse_broken,
        show_share,
        state_reason,
        unknown,
    )
    from seqdg.base.noise import fold, shuffle, uniform
    from seqdg.base.plugins import ENTRY_POINTS, hash_own_code, import_function, import_plugin, trust_only
    from seqdg.base.system import (
        DOMAINBED,
        SEAL_SIZE,
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
        find_seal,
        has_broken_seal,
        hash_file,
        hash_others,
        heed_interrupts_once,
        hold_interrupts,
        is_intact,
        list_unfinished,
        make_file_name,
        measure_free_memory,
        prepare_process,
        register_family,
        remove_abandoned,
        replace_file,
        replace_folder,
        save_sealed,
        set_checkout,
        write_file,
    )
    from seqdg.base.tree import under_prefix, with_prefix

VERSION = "0.2.0"  # of seqdg


def open_front(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package, for its `__init__.py`.

    The names are those that the file imports under `if TYPE_CHECKING:`. So they are listed once, type checkers and
    editors see them, and importing the package imports nothing: results are read where torch takes seconds to load.
    """
    modules = _list_names(Path(str(sys.modules[package].__file__)))

    def import_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = import_module(modules[name])
        if modules[name] == package or name not in dir(module):
            return import_module(f"{modules[name]}.{name}")  # a whole module, such as `seqdg.tree`
        return getattr(module, name)

    return import_name, lambda: sorted(modules)


def _list_names(file: Path) -> dict[str, str]:
    """Return the module of every name that a file imports under `if TYPE_CHECKING:`."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


__getattr__, __dir__ = open_front(__name__)

"""The front of a package: the names that other packages may use, each imported when it is first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


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

"""Algorithms by name. A file in `algorithms/`, an entry point or an import path adds some; there is no central list.

`@register("mldg", sequential="s-mldg")` gives a class its name and, where it is chainable, its sequential form's.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from seqdg.base.errors import UsageError, unknown
from seqdg.core.algorithm import Algorithm, Chainable
from seqdg.core.sequential import Sequential
from seqdg.core.settings import collect_rules, with_settings

ENTRY_POINTS = "seqdg.algorithms"
_factories: dict[str, Callable[[], Algorithm]] = {}
_origins: dict[str, str] = {}
_loaded = False
Kind = TypeVar("Kind", bound=type[Algorithm])


def register(name: str, sequential: str | None = None) -> Callable[[Kind], Kind]:
    """Name a class, and `Sequential` of it where it is chainable: `s-NAME` unless `sequential` says otherwise."""

    def add(kind: Kind) -> Kind:
        if "__dataclass_fields__" not in vars(kind):
            raise UsageError(f"{kind.__name__} is no dataclass: write @dataclass(frozen=True) below @register.")
        _add(name, kind, kind)
        if issubclass(kind, Chainable) and kind.extend is not Chainable.extend:
            base: type[Chainable] = kind
            _add(sequential or f"s-{name}", kind, lambda: Sequential(base()))
        return kind

    return add


def _add(name: str, kind: type, factory: Callable[[], Algorithm]) -> None:
    origin = f"{kind.__module__}.{kind.__qualname__}"
    if _origins.get(name, origin) != origin:
        raise UsageError(f"Two algorithms are named '{name}': {_origins[name]} and {origin}. Rename one.")
    _factories[name], _origins[name] = factory, origin


def list_algorithms() -> tuple[str, ...]:
    """Return every registered name."""
    _load()
    return tuple(sorted(_factories))


def build(name: str, /, **settings: Any) -> Algorithm:
    """Make an algorithm by name: a registered one, or `package.module:name` / `path/to/file.py:name` from outside."""
    _load()
    short = name
    if ":" in name:
        place, _, short = name.rpartition(":")
        import_plugin(place)
    if short not in _factories:
        if short.endswith(".py"):
            raise UsageError(f"Which algorithm of {short}? Give its name after a colon, as in {short}:NAME.")
        raise unknown("algorithm", short, sorted(_factories))
    algorithm = _factories[short]()
    for setting in settings:
        if setting not in collect_rules(algorithm):
            raise unknown(f"setting of {short}", setting, sorted(collect_rules(algorithm)) or ["(it has none)"])
    return with_settings(algorithm, settings)


def _load() -> None:
    global _loaded
    if _loaded:
        return
    _loaded = True
    folder = importlib.import_module("seqdg.algorithms")
    for module in pkgutil.iter_modules(folder.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"seqdg.algorithms.{module.name}")
    for entry in entry_points(group=ENTRY_POINTS):
        entry.load()


def import_plugin(place: str) -> ModuleType:
    """Import a user's module or file, once."""
    path = Path(place)
    if path.suffix != ".py":
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UsageError(f"There is no module '{place}' to import algorithms from ({error}).") from None
        finally:
            sys.path.pop(0)
    if not path.is_file():
        raise UsageError(f"There is no file '{place}' to read algorithms from.")
    tag = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"seqdg_plugin_{path.stem}_{tag}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _explain_failed_import(place, error) from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _explain_failed_import(place: str, error: Exception) -> UsageError:
    """Say which error a user's file raised, and in which of its lines."""
    if isinstance(error, UsageError):
        return error
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == Path(place).name]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    where = f", line {line}" if line else ""
    return UsageError(f"{place} cannot be imported ({type(error).__name__}: {error}{where}). Mend it and run again.")

"""Algorithms and wrappers by name. A file in `algorithms/`, an entry point or an import path adds some; there is no
central list.

`@register("mldg", sequential="s-mldg")` gives a class its name and, where it is chainable, its sequential form's. A
wrapper has its name after a `+`: `@register("ema")` makes `agg+ema`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from seqdg.base import UsageError, find_similar, unknown
from seqdg.core.algorithm import Algorithm, Chainable
from seqdg.core.names import FOREIGN, shorten, split_chain
from seqdg.core.sequential import Sequential
from seqdg.core.settings import collect_rules, with_settings
from seqdg.core.wrapper import PLACES, Wrapper, list_layers

ENTRY_POINTS = "seqdg.algorithms"
NAME = re.compile(r"[\w.\-]+")
_factories: dict[str, Callable[[], Algorithm]] = {}
_wrappers: dict[str, type[Wrapper]] = {}
_origins: dict[str, str] = {}
_imported: dict[str, dict[Path, bytes]] = {}  # by a user's module, its file and those that it uses, as imported
_loaded = False
Kind = TypeVar("Kind", bound=type[Algorithm])
Chain = TypeVar("Chain", bound=Chainable)


def register(name: str, sequential: str | None = None) -> Callable[[Kind], Kind]:
    """Name a class, and `Sequential` of it where it is chainable: `s-NAME` unless `sequential` says otherwise. A base
    that folds into itself gets no second name."""
    _check_name(name)

    def add(kind: Kind) -> Kind:
        _check_dataclass(kind)
        if issubclass(kind, Wrapper):
            _add_wrapper(name, kind)
            return kind
        _add(name, kind, kind)
        if issubclass(kind, Chainable) and kind.extend is not Chainable.extend and not kind.symmetric:
            base: type[Chainable] = kind
            _add(sequential or f"s-{name}", kind, lambda: Sequential(base()))
        return kind

    return add


def register_chain(name: str) -> Callable[[type[Chain]], type[Chain]]:
    """Name `Sequential` of a base that is nothing by itself."""
    _check_name(name)

    def add(kind: type[Chain]) -> type[Chain]:
        _check_dataclass(kind)
        _add(name, kind, lambda: Sequential(kind()))
        return kind

    return add


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' is no name of an algorithm: letters, digits, '-', '_' and '.' make one.")


def _check_dataclass(kind: type) -> None:
    if "__dataclass_fields__" not in vars(kind):
        raise UsageError(f"{kind.__name__} is no dataclass: write @dataclass(frozen=True) below @register.")


def _add(name: str, kind: type, factory: Callable[[], Algorithm]) -> None:
    _claim(name, kind)
    _factories[name] = factory


def _add_wrapper(name: str, kind: type[Wrapper]) -> None:
    if kind.place not in PLACES:
        raise UsageError(f"{kind.__name__} has the place '{kind.place}'. Choose one of: {', '.join(PLACES)}.")
    _claim(name, kind)
    _wrappers[name] = kind


def _claim(name: str, kind: type) -> None:
    origin = f"{kind.__module__}.{kind.__qualname__}"
    if _origins.get(name, origin) != origin:
        raise UsageError(f"Two algorithms are named '{name}': {_origins[name]} and {origin}. Rename one.")
    _origins[name] = origin


def list_algorithms() -> tuple[str, ...]:
    """Return the name of every registered algorithm, without wrappers."""
    _load()
    return tuple(sorted(_factories))


def list_wrappers() -> tuple[str, ...]:
    """Return the name of every registered wrapper, in the order in which they may follow one another."""
    _load()
    return tuple(sorted(_wrappers, key=lambda name: (PLACES.index(_wrappers[name].place), name)))


def is_registered(name: str) -> bool:
    """Say whether an algorithm or a wrapper has this name."""
    _load()
    return name in _factories or name in _wrappers


def find_wrapper(name: str) -> type[Wrapper]:
    """Find a registered wrapper's class."""
    _load()
    return _wrappers[name]


def build(name: str, /, **settings: Any) -> Algorithm:
    """Make an algorithm by name: a registered one, or `package.module:name` / `path/to/file.py:name` from outside.
    Wrappers follow after a `+`, from the inside out: `fo-s-mldg+mixup+ema`."""
    _load()
    first, *others = split_chain(name)
    algorithm = _build_base(first)
    previous = ""
    for part in others:
        kind, short = _find_wrapper(part), shorten(part)
        _check_order(name, previous, short)
        algorithm, previous = kind(algorithm), short
    _check_names(algorithm, shorten(name))
    for setting in settings:
        if setting not in collect_rules(algorithm):
            raise unknown("setting", setting, sorted(collect_rules(algorithm)), owner=shorten(name))
    return with_settings(algorithm, settings)


def _build_base(part: str) -> Algorithm:
    short = _import_part(part)
    if short in _wrappers:
        raise UsageError(f"'{short}' is a wrapper: write it after an algorithm, as in agg+{short}.")
    if short not in _factories:
        raise refuse_name(part, list_origins())
    return _factories[short]()


def refuse_name(part: str, origins: Mapping[str, str]) -> UsageError:
    """Return the error for a name that nothing has. origins: the class behind every known name, with its module."""
    place, _, short = part.rpartition(":")
    if short.endswith(".py"):
        return UsageError(f"Which algorithm of {short}? Give its name after a colon, as in {short}:NAME.")
    base = short.removeprefix("s-")
    if base != short and base in _factories and isinstance(kind := _factories[base], type):
        return UsageError(f"There is no '{short}': {_explain_no_sequential(base, kind)}")
    if not place:
        return unknown("algorithm", short, origins)
    inside = f"{import_plugin(place).__name__}."
    names = [name for name, origin in origins.items() if origin.startswith(inside)]
    if not names:
        return UsageError(f"{place} names no algorithm '{short}': write @register(\"{short}\") above its class.")
    near = find_similar(short, names)
    hint = f"Did you mean '{near}'? " if near is not None else ""
    return UsageError(f"{place} has no algorithm '{short}'. {hint}It has: {', '.join(names)}.")


def _explain_no_sequential(name: str, kind: type) -> str:
    if issubclass(kind, Chainable) and kind.symmetric:
        return f"{name} treats all domains alike, so its sequential form is {name} itself."
    return f"{name} has no sequential form. Subclass Chainable and write `extend` to give it one."


def list_origins() -> dict[str, str]:
    """Return the class behind the name of every registered algorithm, with its module."""
    return {name: _origins[name] for name in list_algorithms()}


def _find_wrapper(part: str) -> type[Wrapper]:
    short = _import_part(part)
    if short in _factories:
        raise UsageError(f"'{short}' is an algorithm and no wrapper: only wrappers follow a '+'.")
    if short not in _wrappers:
        raise unknown("wrapper", short, list_wrappers())
    return _wrappers[short]


def _import_part(part: str) -> str:
    if part.startswith(FOREIGN):
        raise UsageError(
            f"{shorten(part)} is a class of DomainBed and no algorithm of seqdg's: `seqdg bench` runs it beside these."
        )
    place, _, short = part.rpartition(":")
    if place:
        import_plugin(place)
    return short


def _check_order(name: str, previous: str, short: str) -> None:
    """Refuse wrappers out of order: inputs, direction, stages, weights, from the inside out, at most one of each."""
    if not previous:
        return
    before, now = (PLACES.index(_wrappers[w].place) for w in (previous, short))
    if before == now:
        what = "twice" if previous == short else f"beside '{previous}'"
        raise UsageError(f"{name} has the wrapper '{short}' {what}: a chain has at most one of each kind.")
    if before > now:
        order = " then ".join(" or ".join(w for w in list_wrappers() if _wrappers[w].place == p) for p in PLACES)
        raise UsageError(f"{name} has '{short}' after '{previous}'. The order is {order}.")


def _check_names(algorithm: Algorithm, name: str) -> None:
    """Refuse a chain of which two parts have a setting of the same name."""
    seen: dict[str, str] = {}
    for layer in list_layers(algorithm):
        for f in fields(layer):
            if isinstance(getattr(layer, f.name), Algorithm):
                continue
            if f.name in seen:
                raise UsageError(
                    f"Two parts of {name} have the setting '{f.name}': {seen[f.name]} and {type(layer).__name__}. "
                    "Rename it in your own class, or leave one of them out."
                )
            seen[f.name] = type(layer).__name__


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


def import_plugin(place: str, what: str = "algorithms") -> ModuleType:
    """Import a user's module or file, once. What lies beside it can be imported by it. what: the kind of thing that it
    should hold, for errors."""
    path = Path(place)
    if path.suffix != ".py":
        try:
            with _import_from(Path.cwd()):
                module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UsageError(f"There is no module '{place}' to import {what} from ({error}).") from None
        file = Path(getattr(module, "__file__", None) or "").resolve()
        if file.parent == Path.cwd().resolve():
            _later.add({name: other for name, other in _find_beside(file).items() if name not in sys.modules})
        return module
    if not path.is_file():
        raise UsageError(f"There is no file '{place}' to read {what} from.")
    tag = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"seqdg_plugin_{path.stem}_{tag}"
    if name in sys.modules:
        for file, content in _imported[name].items():
            if not file.is_file() or file.read_bytes() != content:
                raise UsageError(
                    f"{place if file == path.resolve() else file} has changed since this process imported it. Start "
                    "Python again (in a notebook, its kernel)."
                )
        return sys.modules[name]
    beside = _find_beside(path.resolve())
    _check_beside(place, beside)
    _later.add(beside)
    _imported[name] = {file: file.read_bytes() for file in (path.resolve(), *beside.values())}
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    new = [name, *(other for other in beside if other not in sys.modules)]
    sys.modules[name] = module
    try:
        with _import_from(path.resolve().parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        for other in new:  # so that they are read anew when they are mended
            sys.modules.pop(other, None)
            _later.files.pop(other, None)
        if isinstance(error, Exception):
            raise _explain_failed_import(place, error) from error
        raise
    return module


@contextmanager
def _import_from(folder: Path) -> Iterator[None]:
    """Import from a folder first, as long as the block lasts."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


class _LaterImports:
    """Finds the files beside a user's file that functions import when they run: then their folder is not searched."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}  # by the name of the module

    def add(self, files: Mapping[str, Path]) -> None:
        self.files |= files
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        file = self.files.get(name)
        return importlib.util.spec_from_file_location(name, file) if file is not None and file.is_file() else None


_later = _LaterImports()


def _find_beside(path: Path) -> dict[str, Path]:
    """Find the files of the same folder that a file imports, directly or through others, by the names of their
    modules."""
    beside: dict[str, Path] = {}
    pending = [path]
    while pending:
        for name in _list_imports(pending.pop()):
            file = path.with_name(f"{name}.py")
            if name not in beside and name not in sys.stdlib_module_names and file.is_file():
                beside[name] = file
                pending.append(file)
    return beside


def _list_imports(file: Path) -> list[str]:
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):  # importing it says what is wrong
        return []
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return [name.partition(".")[0] for name in names]


def _check_beside(place: str, beside: Mapping[str, Path]) -> None:
    """Refuse a file beside the user's whose module's name another one has: a process imports a name once."""
    for name, file in beside.items():
        if name in sys.modules:
            other = getattr(sys.modules[name], "__file__", None) or "elsewhere"
        else:
            other = str(_later.files.get(name, file))
        if Path(other).resolve() != file.resolve():
            raise UsageError(
                f"{place} imports {file}, but this process has imported another '{name}' already, from {other}. "
                "Rename one of them."
            )


def import_function(place: str, key: str) -> Callable[..., Any]:
    """Import the user's function that a key of a benchmark file names, as package:function or file.py:function."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(f"{key} is '{place}'. Give a function of yours as package:function or file.py:function.")
    try:
        module = import_plugin(where, f"the function of {key}")
    except UsageError:
        raise
    except Exception as error:
        raise _explain_failed_import(where, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{key} is '{place}', but {where} has no function '{name}'.")
    return cast(Callable[..., Any], function)


def _explain_failed_import(place: str, error: Exception) -> UsageError:
    """Say which error a user's file raised, and in which of its lines."""
    if isinstance(error, UsageError):
        return error
    folder = Path(place).resolve().parent
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((Path(error.filename or place), error.lineno))
    where = ""
    for file, line in frames:
        if file.resolve().parent == folder:
            where = f", line {line}" + (f" of {file.name}" if file.name != Path(place).name else "")
    return UsageError(f"{place} cannot be imported ({type(error).__name__}: {error}{where}). Mend it and run again.")

"""A user's own module or file, imported with the files that lie beside it, and the hash of its code."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from seqdg.base.messages import UsageError

ENTRY_POINTS = "seqdg.algorithms"  # the group in which installed packages name theirs
_trusted: list[str] | None = None  # what names code that may be imported; None: any, as a program of the user's asks
_imported: dict[str, dict[Path, bytes]] = {}  # by a user's module, its file and those that it uses, as imported


@contextmanager
def trust_only(typed: Sequence[str], named: Sequence[str] = ()) -> Iterator[None]:
    """Import no code in this block but what the user names: what a benchmark's file, a study, a record or a model names
    may be somebody else's. A block within another changes nothing.

    typed: what may hold FILE.py:NAME or module:NAME.   named: files and modules themselves.
    """
    global _trusted
    if _trusted is not None:
        yield
        return
    _trusted = [*typed, *(f"{name}:" for name in named)]
    try:
        yield
    finally:
        _trusted = None


def _check_trust(location: str, what: str) -> None:
    if _trusted is None:
        return
    exact = re.compile(rf"(^|[,+=:]){re.escape(location)}:")
    files = {
        Path(part.rpartition(":")[0].removeprefix("domainbed:")) for t in _trusted for part in re.split("[,=+]", t)
    }
    is_file = Path(location).suffix == ".py" and Path(location).resolve() in {file.resolve() for file in files}
    if not is_file and not any(exact.search(text) for text in _trusted):
        raise UsageError(
            f"A file names {location} to import {what} from, and nothing that you typed does: its code would run here. "
            f"If you trust it, add --trust {location} (in Python: trust=['{location}'])."
        )


def import_plugin(location: str, what: str = "algorithms") -> ModuleType:
    """Import a user's module or file, once. What lies beside it can be imported by it. what: the kind of thing that it
    should hold, for errors."""
    _check_trust(location, what)
    path = Path(location)
    if path.suffix != ".py":
        try:
            with _import_from(Path.cwd()):
                module = importlib.import_module(location)
        except ModuleNotFoundError as error:
            raise UsageError(f"There is no module '{location}' to import {what} from ({error}).") from None
        file = Path(getattr(module, "__file__", None) or "").resolve()
        if file.parent == Path.cwd().resolve():
            _later.add({name: other for name, other in _find_beside(file).items() if name not in sys.modules})
        return module
    if not path.is_file():
        raise UsageError(f"There is no file '{location}' to read {what} from.")
    tag = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"seqdg_plugin_{path.stem}_{tag}"
    if name in sys.modules:
        for file, content in _imported[name].items():
            if not file.is_file() or file.read_bytes() != content:
                raise UsageError(
                    f"{location if file == path.resolve() else file} has changed since this process imported it. Start "
                    "Python again (in a notebook, its kernel)."
                )
        return sys.modules[name]
    beside = _find_beside(path.resolve())
    _check_beside(location, beside)
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
        for other in new:  # so that they are read anew when they are fixed
            sys.modules.pop(other, None)
            _later.files.pop(other, None)
        if isinstance(error, Exception):
            raise _explain_failed_import(location, error) from error
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
        for full_name in _list_imports(pending.pop()):
            name = full_name.rpartition(f"{path.parent.name}.")[2].partition(".")[0]  # a package may name itself
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
    nearby = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level < 2]
    return names + [f"{node.module or ''}.{alias.name}".lstrip(".") for node in nearby for alias in node.names]


def _check_beside(location: str, beside: Mapping[str, Path]) -> None:
    """Refuse a file beside the user's whose module's name another one has: a process imports a name once."""
    for name, file in beside.items():
        if name in sys.modules:
            other = getattr(sys.modules[name], "__file__", None) or "elsewhere"
        else:
            other = str(_later.files.get(name, file))
        if Path(other).resolve() != file.resolve():
            raise UsageError(
                f"{location} imports {file}, but this process has imported another '{name}' already, from {other}. "
                "Rename one of them."
            )


def import_function(location: str, key: str) -> Callable[..., Any]:
    """Import the user's function that a key of a benchmark file names, as package:function or file.py:function."""
    where, colon, name = location.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(f"{key} is '{location}'. Give a function of yours as package:function or file.py:function.")
    try:
        module = import_plugin(where, f"the function of {key}")
    except UsageError:
        raise
    except Exception as error:
        raise _explain_failed_import(where, error) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{key} is '{location}', but {where} has no function '{name}'.")
    return cast(Callable[..., Any], function)


def _explain_failed_import(location: str, error: Exception) -> UsageError:
    """Say which error a user's file raised, and in which of its lines."""
    if isinstance(error, UsageError):
        return error
    folder = Path(location).resolve().parent
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((Path(error.filename or location), error.lineno))
    where = ""
    for file, line in frames:
        if file.resolve().parent == folder:
            where = f", line {line}" + (f" of {file.name}" if file.name != Path(location).name else "")
    return UsageError(f"{location} cannot be imported ({type(error).__name__}: {error}{where}). Fix it and run again.")


def hash_own_code(kinds: Iterable[Any]) -> str:
    """Return a hash of the code of those of these classes and functions that are the user's own; "" where there is none
    to read."""
    package = __name__.partition(".")[0]
    hashes = [_hash_source(kind) for kind in kinds if _name_module(kind).partition(".")[0] != package]
    return hashlib.sha256("".join(hashes).encode()).hexdigest() if any(hashes) else ""


def _name_module(kind: Any) -> str:
    """Return where a class or function is from; of an object that can be called, its class."""
    return str(getattr(kind, "__module__", None) or type(kind).__module__)


@cache  # as it was when it was first read: a file may change while its code runs
def _hash_source(kind: Any) -> str:
    """Hash the file of a class or function and the files beside it that it imports, whatever has changed in them."""
    file = Path(getattr(sys.modules.get(_name_module(kind)), "__file__", None) or "").resolve()
    if file.suffix == ".py" and file.is_file():
        files = _imported.get(_name_module(kind)) or {f: f.read_bytes() for f in (file, *_find_beside(file).values())}
        parts = [part for f in sorted(files) for part in (f.name.encode(), files[f])]
    else:
        parts = [text.encode() for text in _read_methods(kind)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest() if parts else ""


def _read_methods(kind: Any) -> Iterator[str]:
    """Read the code of a function, or of the methods of a class, that has no file, as in a notebook."""
    for member in vars(kind).values() if isinstance(kind, type) else (kind,):
        if isinstance(member, FunctionType) and member.__module__ == kind.__module__:
            with suppress(OSError, TypeError):  # the methods that `dataclass` writes have no text
                yield inspect.getsource(member)

"""A checkout of DomainBed: where it is, its modules, its classes and their settings. Nothing of it is changed."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from seqdg.base import DOMAINBED, UsageError, import_plugin, unknown

PREFIX = "domainbed:"
MARK = Path("domainbed") / "algorithms.py"  # what a checkout has
# Its network for vectors asks for these, which its registry defines for DANN alone, with these values.
VECTOR_SETTINGS = {"mlp_width": 256, "mlp_depth": 3, "mlp_dropout": 0.0}
SMALL, LARGE = "RotatedMNIST", "PACS"  # its data sets whose settings are used: networks from scratch, and pretrained


def find_checkout() -> Path | None:
    """Return the folder that holds its package; None where the package is to be importable as it is."""
    text = os.environ.get(DOMAINBED, "")
    if not text:
        return None
    for folder in (Path(text), Path(text).parent):  # the second: the package itself was named
        if (folder / MARK).is_file():
            return folder.resolve()
    raise UsageError(
        f"'{text}' is no checkout of DomainBed: there is no {MARK} in it. Give the folder into which "
        "github.com/facebookresearch/DomainBed was cloned, with --domainbed DIR or as SEQDG_DOMAINBED."
    )


@contextmanager
def on_path() -> Iterator[Path | None]:
    """Let its package be imported; yield its folder."""
    folder = find_checkout()
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        yield folder
    finally:
        if folder is not None:
            sys.path.remove(str(folder))


def import_module(name: str) -> ModuleType:
    """Import one of its modules, such as `algorithms` or `lib.misc`."""
    with on_path() as folder, warnings.catch_warnings():
        _check_origin(folder)
        warnings.simplefilter("ignore")  # it is older than some rules of Python and torch
        try:
            return importlib.import_module(f"domainbed.{name}")
        except ModuleNotFoundError as error:
            raise _explain_missing(error, folder) from None
        except Exception as error:  # its imports run code of other packages, which fails in many ways
            raise UsageError(
                f"DomainBed in {folder or 'the Python path'} cannot be imported ({type(error).__name__}: {error}). Fix "
                "that package, or install the ones that its domainbed/requirements.txt names."
            ) from error


def _check_origin(folder: Path | None) -> None:
    """Refuse a second checkout: a process imports a package once."""
    package = sys.modules.get("domainbed")
    if package is None or folder is None:
        return
    folders = [Path(folder).resolve() for folder in package.__path__]
    if folder / "domainbed" not in folders:
        raise UsageError(
            f"This process has imported DomainBed from {folders[0].parent} already, so {folder} cannot be used too. "
            "Start a new one."
        )


def _explain_missing(error: ModuleNotFoundError, folder: Path | None) -> UsageError:
    missing = str(error.name)
    if missing == "domainbed":
        return UsageError(
            "Where is DomainBed? No package 'domainbed' can be imported. Clone github.com/facebookresearch/DomainBed "
            "and give its folder with --domainbed DIR, or as SEQDG_DOMAINBED."
        )
    if missing.startswith("domainbed."):
        return UsageError(f"The checkout of DomainBed in {folder} is not whole: it has no module {missing}.")
    package = missing.partition(".")[0]
    return UsageError(
        f"DomainBed needs the package '{package}', and it is not installed: `pip install {package}` installs it."
    )


def list_classes() -> tuple[str, ...]:
    """List the names of its algorithms."""
    return tuple(import_module("algorithms").ALGORITHMS)


_files: dict[str, str] = {}  # by the name of a class of the user's, the file that it comes from


def find_class(name: str) -> type:
    """Find a class by `domainbed:CORAL`, or one of the user's by `domainbed:path/to/file.py:Mine`."""
    file, _, short = name.removeprefix(PREFIX).rpartition(":")
    algorithms = import_module("algorithms")
    if not file:
        if short.endswith(".py"):
            raise UsageError(f"Which class of {short}? Give its name after a colon, as in {PREFIX}{short}:NAME.")
        kind = getattr(algorithms, short, None)
        if not _is_class(kind):
            files = f"{PREFIX}FILE.py:{short}"
            known = (*algorithms.ALGORITHMS, f"{files} for a class of your own")
            raise unknown("class of DomainBed", short, known)
        return kind
    with on_path():  # the file may import more of DomainBed
        module = import_plugin(file)
    kind = getattr(module, short, None)
    if not _is_class(kind):
        names = [n for n, k in vars(module).items() if _is_class(k) and k.__module__ == module.__name__]
        raise unknown("class with update and predict", short, names, owner=file)
    _claim(short, str(Path(file).resolve()), algorithms)
    return kind


def _is_class(kind: Any) -> TypeGuard[type]:
    return (
        isinstance(kind, type) and callable(getattr(kind, "update", None)) and callable(getattr(kind, "predict", None))
    )


def _claim(short: str, file: str, algorithms: ModuleType) -> None:
    """Refuse two classes of one name: records tell them apart by it."""
    other = "DomainBed itself" if short in algorithms.ALGORITHMS else _files.setdefault(short, file)
    if other != file:
        raise UsageError(f"{file} has a class {short}, and so has {other}: rename yours, as records go by the name.")


def read_defaults(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the settings of a class, by its registry; for vectors with those that its network for vectors needs."""
    registry = import_module("hparams_registry")
    return _complete(registry.default_hparams(name.rpartition(":")[2], _choose_dataset(shape)), shape)


def draw_settings(name: str, shape: tuple[int, ...], number: int) -> dict[str, Any]:
    """Draw settings as its sweep draws those with this number (`hparams_seed`) for its first trial."""
    registry, misc = import_module("hparams_registry"), import_module("lib.misc")
    seed = misc.seed_hash(number, 0)
    return _complete(registry.random_hparams(name.rpartition(":")[2], _choose_dataset(shape), seed), shape)


def _choose_dataset(shape: tuple[int, ...]) -> str:
    """Name the data set of its registry whose settings fit networks from scratch, or pretrained ones."""
    return LARGE if is_large(shape) else SMALL


def is_large(shape: tuple[int, ...]) -> bool:
    """Say whether inputs are images for a pretrained network."""
    return len(shape) == 3 and shape[-1] >= 224


def _complete(hparams: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Add what its network for vectors needs, and return numpy's numbers as Python's."""
    extra = VECTOR_SETTINGS if len(shape) == 1 else {}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in hparams.items()}
    return {**extra, **plain}


def asks_for_cuda(kind: type) -> bool:
    """Say whether the code of a class moves something to a GPU whatever the device of its inputs."""
    return any(".cuda(" in _read_source(k) for k in kind.__mro__ if not k.__module__.startswith(("torch.", "builtins")))


def _read_source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return ""

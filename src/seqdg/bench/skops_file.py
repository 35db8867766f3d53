"""Fitted estimators of scikit-learn as bytes, by skops: what they hold is listed, and nothing is unpickled."""

from __future__ import annotations

import importlib
import io
import json
import warnings
import zipfile
from typing import Any

from seqdg.base import UsageError

SCHEMA, IDENTITY = "schema.json", "__id__"  # skops's names of the list of what a file holds, and of an object's number


def check_skops() -> None:
    """Raise a UsageError where skops is not installed."""
    _import_skops()


def write_skops(estimator: Any) -> bytes:
    """Write a fitted estimator, or refuse what is not of scikit-learn, numpy or scipy."""
    skops, name = _import_skops(), type(estimator).__name__
    try:
        content: bytes = skops.dumps(estimator)
    except Exception as error:  # whatever a foreign class may raise
        why = str(error).strip().splitlines()
        raise UsageError(
            f"A model of {name} cannot be saved: {why[0] if why else type(error).__name__}. Only models that are made "
            "of scikit-learn's own classes can be."
        ) from error
    foreign = [kind for kind in skops.get_untrusted_types(data=content) if not is_of_sklearn(kind)]
    if foreign:
        raise UsageError(
            f"A model of {name} holds {', '.join(foreign)}, and only scikit-learn's own classes are saved, so that "
            "loading a model never runs foreign code. Keep the object in this process, or take another candidate."
        )
    return _make_repeatable(content)


def _make_repeatable(content: bytes) -> bytes:
    """Number objects in the order in which they are listed, in place of their addresses in memory, and leave the time
    out, so that the same model is the same bytes."""
    numbers: dict[Any, int] = {}
    files: dict[str, str] = {}

    def renumber(node: Any) -> Any:
        if isinstance(node, list):
            return [renumber(part) for part in node]
        if not isinstance(node, dict):
            return node
        copy = {key: renumber(value) for key, value in node.items()}
        if "__loader__" in node and isinstance(node.get(IDENTITY), int):
            copy[IDENTITY] = numbers.setdefault(node[IDENTITY], len(numbers) + 1)
        if "__loader__" in node and node.get("file") in names:
            name = node["file"]
            copy["file"] = files.setdefault(name, f"{len(files) + 1}.{name.rpartition('.')[2]}")
        return copy

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as repeatable:
        names = set(archive.namelist()) - {SCHEMA}
        schema = renumber(json.loads(archive.read(SCHEMA)))
        for name in (*files, *sorted(names - set(files))):
            repeatable.writestr(zipfile.ZipInfo(files.get(name, name)), archive.read(name))
        repeatable.writestr(zipfile.ZipInfo(SCHEMA), json.dumps(schema))
    return out.getvalue()


def read_skops(content: bytes) -> Any:
    """Read what `write_skops` wrote; refuse anything else before a part of it is made."""
    skops = _import_skops()
    needed = skops.get_untrusted_types(data=content)
    foreign = [kind for kind in needed if not is_of_sklearn(kind)]
    if foreign:
        raise UsageError(f"The model holds {', '.join(foreign)}, which is not scikit-learn's own: it is not loaded.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = skops.loads(content, trusted=needed)
    for warning in caught:  # above all: that another version of scikit-learn wrote it
        warnings.warn(str(warning.message).splitlines()[0], UserWarning, stacklevel=2)
    return estimator


def is_of_sklearn(kind: str) -> bool:
    """Whether this is the full name of a class, and no function, that scikit-learn itself defines."""
    module, _, name = kind.rpartition(".")
    if not module.startswith("sklearn."):
        return False
    try:
        named = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return False
    return isinstance(named, type) and named.__module__.partition(".")[0] == "sklearn"


def _import_skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError:
        raise UsageError(
            "Models of scikit-learn are saved and loaded by skops: pip install 'seqdg[sklearn-models]'."
        ) from None

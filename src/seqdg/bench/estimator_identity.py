"""Describe an unfitted estimator as text: equal estimators have equal texts in every process, others differ.

It names the class by its full path, and every parameter of `get_params`, those of parts inside included. An estimator's
own `repr` will not do: it leaves defaults and the module out, shortens arrays, and may hold an address in memory.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np


def describe_estimator(estimator: Any) -> str:
    """Describe an estimator or pipeline: `sklearn.linear_model._ridge.Ridge(alpha=1.0, ...)`."""
    return _describe(estimator)


def _describe(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, np.ndarray):
        return _describe_array(value)
    if isinstance(value, Mapping):
        pairs = sorted((_describe(k), _describe(v)) for k, v in value.items())
        return _name(value) + "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if isinstance(value, set | frozenset):
        return f"{_name(value)}{{{', '.join(sorted(map(_describe, value)))}}}"
    if isinstance(value, list | tuple):
        return f"{_name(value)}[{', '.join(map(_describe, value))}]"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, partial):
        return f"partial({_describe(value.func)}, {_describe(value.args)}, {_describe(value.keywords)})"
    if isinstance(value, Callable) and hasattr(value, "__qualname__"):  # type: ignore[arg-type]
        return _describe_function(value)
    return _describe_object(value)


def _describe_array(array: np.ndarray[Any, Any]) -> str:
    if array.dtype == object:
        return f"array{array.shape}{_describe(array.tolist())}"
    return f"array{array.shape}{array.dtype.str}{_hash(np.ascontiguousarray(array).tobytes())}"


def _describe_function(function: Any) -> str:
    """Name a function by its place, and by its code where it has some: two lambdas of a line share their place."""
    where = f"{getattr(function, '__module__', '')}.{function.__qualname__}"
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        where += f" of {_describe(owner)}"
    code = getattr(function, "__code__", None)
    if code is None:
        return where
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    parts = (*_list_code(code), _describe([function.__defaults__, function.__kwdefaults__, inside]).encode())
    return f"{where}#{_hash(*parts)}"


def _list_code(code: types.CodeType) -> Iterable[bytes]:
    """Yield what a function does: its operations, names and constants, those of functions inside it included."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_code(constant)
        else:
            yield repr(constant).encode()


def _describe_object(value: Any) -> str:
    """Describe an estimator by its parameters, a generator by its state, anything else by what it holds."""
    if hasattr(value, "get_params"):
        held = value.get_params(deep=False)  # what is inside is described in its turn
    elif isinstance(value, np.random.RandomState):
        held = {"state": value.get_state(legacy=False)}
    elif isinstance(value, np.random.Generator):
        held = {"state": value.bit_generator.state}
    else:
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        held = {
            **{name: getattr(value, name) for name in slots if hasattr(value, name)},
            **getattr(value, "__dict__", {}),
        }
    return f"{_name(value)}({', '.join(f'{name}={_describe(held[name])}' for name in sorted(held))})"


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:24]

"""Settings of algorithms as text, as numbers in a stack, and as what trials of a stack must share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from seqdg.base.errors import UsageError, unknown
from seqdg.core.algorithm import Algorithm, Number, checked
from seqdg.core.positions import resized


def flat(algorithm: Algorithm) -> dict[str, Any]:
    """Every setting by name, those of a wrapped base included."""
    found: dict[str, Any] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        found.update(flat(value) if isinstance(value, Algorithm) else {f.name: value})
    return found


def with_settings(algorithm: Algorithm, settings: Mapping[str, Any]) -> Algorithm:
    """The same algorithm with some settings replaced; a name that it lacks is an error."""
    for name in settings:
        if name not in flat(algorithm):
            raise unknown(f"setting of {type(algorithm).__name__}", name, flat(algorithm) or ["(it has none)"])
    return _replaced(algorithm, settings)


def _replaced(algorithm: Algorithm, settings: Mapping[str, Any]) -> Algorithm:
    changes: dict[str, Any] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            changes[f.name] = _replaced(value, settings)
        elif f.name in settings:
            changes[f.name] = settings[f.name]
    return replace(algorithm, **changes)


def rules(algorithm: Algorithm) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Default and what is allowed, by name."""
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        found.update(rules(value) if isinstance(value, Algorithm) else {f.name: (f.default, dict(f.metadata))})
    return found


def printed(algorithm: Algorithm) -> dict[str, str]:
    """Every setting as text that `parsed` reads back: `0.1`, `0.05,0.6`, `1.2,` (a tuple of one), `true`."""
    return {name: _text(value) for name, value in flat(algorithm).items()}


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_text(v) for v in value) + ("," if len(value) == 1 else "")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(float(value)) if isinstance(value, float | Tensor) else str(value)


def parsed(algorithm: Algorithm, texts: Mapping[str, str], name_of: str | None = None) -> Algorithm:
    """The algorithm with settings read from text. name_of: what an error calls it."""
    known = rules(algorithm)
    values = {}
    for name, text in texts.items():
        if name not in known:
            raise unknown(f"setting of {name_of or type(algorithm).__name__}", name, known or ["(it has none)"])
        default, rule = known[name]
        values[name] = checked(name, default, rule, _value(name, default, text.strip()))
    return with_settings(algorithm, values)


def _value(name: str, default: Any, text: str) -> Any:
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if "," in text:
        return tuple(_value(name, default, part) for part in text.split(",") if part.strip())
    with suppress(ValueError):
        if isinstance(default, int):
            return int(text)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} is '{text}', but it must be a number.") from None


def numbers(algorithm: Algorithm) -> dict[str, Number]:
    """The settings that may differ between the trials of a stack: real numbers, a path such as `base.alpha.0` each."""
    found: dict[str, Number] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            found.update({f"{f.name}.{path}": v for path, v in numbers(value).items()})
        elif f.metadata.get("static"):
            continue
        elif isinstance(value, float | Tensor):
            found[f.name] = value
        elif isinstance(value, tuple):
            found.update({f"{f.name}.{i}": v for i, v in enumerate(value)})
    return found


def with_numbers(algorithm: Algorithm, values: Mapping[str, Number]) -> Algorithm:
    """The inverse of `numbers`: the same algorithm with these in their places."""
    changes: dict[str, Any] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            start = f"{f.name}."
            inner = {path[len(start) :]: v for path, v in values.items() if path.startswith(start)}
            changes[f.name] = with_numbers(value, inner)
        elif f.name in values:
            changes[f.name] = values[f.name]
        elif isinstance(value, tuple) and f"{f.name}.0" in values:
            changes[f.name] = tuple(values[f"{f.name}.{i}"] for i in range(len(value)))
    return replace(algorithm, **changes) if changes else algorithm


def for_path(algorithm: Algorithm, length: int, new: int) -> Algorithm:
    """The algorithm for a path of another length: tuples with a value for (nearly) every position keep their last
    entries and repeat the first; shorter ones count from the end and stay."""
    changes: dict[str, Any] = {}
    for name, (_, rule) in rules(algorithm).items():
        value = flat(algorithm)[name]
        if rule.get("per_position") and isinstance(value, tuple) and len(value) >= length - 1:
            size = len(value) + new - length
            changes[name] = resized(value, size) if size > 0 else value[-1]
    return with_settings(algorithm, changes) if changes else algorithm


def shape(algorithm: Algorithm) -> tuple[Any, ...]:
    """What trials must share to be one stack: the class and every setting that is not a number of `numbers`."""
    parts: list[Any] = [type(algorithm)]
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            parts.append((f.name, shape(value)))
        elif isinstance(value, tuple) and not f.metadata.get("static"):
            parts.append((f.name, len(value)))
        elif f.metadata.get("static") or not isinstance(value, float | Tensor):
            parts.append((f.name, value))
    return tuple(parts)

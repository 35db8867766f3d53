"""Settings, above all of algorithms, as text, as numbers in a stack, and as what trials of a stack must share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, TypeVar

from torch import Tensor

from seqdg.base import ADDED, UsageError, unknown
from seqdg.core.algorithm import Algorithm, Number, Settings, check_value
from seqdg.core.positions import resize

Kind = TypeVar("Kind", bound=Settings)


def flatten_settings(algorithm: Settings) -> dict[str, Any]:
    """Return every setting by name, those of a wrapped base included."""
    settings: dict[str, Any] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        settings.update(flatten_settings(value) if isinstance(value, Settings) else {f.name: value})
    return settings


def with_settings(algorithm: Kind, settings: Mapping[str, Any]) -> Kind:
    """Return the same algorithm with some settings replaced; a name that it lacks is an error."""
    known = flatten_settings(algorithm)
    for name in settings:
        if name not in known:
            raise unknown("setting", name, known, owner=type(algorithm).__name__)
    return _replace_settings(algorithm, settings)


def _replace_settings(algorithm: Kind, settings: Mapping[str, Any]) -> Kind:
    changes: dict[str, Any] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Settings):
            changes[f.name] = _replace_settings(value, settings)
        elif f.name in settings:
            changes[f.name] = settings[f.name]
    return replace(algorithm, **changes)


def collect_rules(algorithm: Settings) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the default of every setting and what it allows, by name."""
    rules: dict[str, tuple[Any, dict[str, Any]]] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        rules.update(collect_rules(value) if isinstance(value, Settings) else {f.name: (f.default, dict(f.metadata))})
    return rules


def format_settings(algorithm: Settings) -> dict[str, str]:
    """Return every setting as text for `parse_settings`: `0.1`, `0.05,0.6`, `1.2,` (a tuple of one), `true`."""
    return {name: format_value(value) for name, value in flatten_settings(algorithm).items()}


def describe_settings(algorithm: Settings) -> dict[str, str]:
    """Return the settings as text for `restore_settings`, without those added later that are "as before"."""
    texts, before = format_settings(algorithm), format_settings(_reset_added(algorithm))
    added = [name for name, (_, rule) in collect_rules(algorithm).items() if ADDED in rule]
    return {name: text for name, text in texts.items() if name not in added or text != before[name]}


def restore_settings(algorithm: Kind, texts: Mapping[str, str]) -> Kind:
    """Return the algorithm that these settings describe; those added later that they do not name are "as before"."""
    return parse_settings(_reset_added(algorithm), texts)


def _reset_added(algorithm: Kind) -> Kind:
    """Return the algorithm with every setting that was added later at the value that means "as before"."""
    before = {name: rule[ADDED] for name, (_, rule) in collect_rules(algorithm).items() if ADDED in rule}
    return with_settings(algorithm, before) if before else algorithm


def format_value(value: Any) -> str:
    """Return the value of one setting as text for `parse_value`."""
    if isinstance(value, tuple):
        return ",".join(format_value(v) for v in value) + ("," if len(value) == 1 else "")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(float(value)) if isinstance(value, float | Tensor) else str(value)


def parse_settings(algorithm: Kind, texts: Mapping[str, str], label: str | None = None) -> Kind:
    """Return the algorithm with settings read from text. label: what an error calls the algorithm."""
    known = collect_rules(algorithm)
    values = {}
    for name, text in texts.items():
        if name not in known:
            raise unknown("setting", name, known, owner=label or type(algorithm).__name__)
        default, rule = known[name]
        values[name] = parse_value(name, default, text, rule)
    return with_settings(algorithm, values)


def parse_value(name: str, default: Any, text: str, rules: Mapping[str, Any] | None = None) -> Any:
    """Read the value of one setting from text, as the type of its default, and check it by the rules."""
    return check_value(name, default, dict(rules or {}), _read_value(name, default, text.strip()))


def _read_value(name: str, default: Any, text: str) -> Any:
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if "," in text:
        return tuple(_read_value(name, default, part) for part in text.split(",") if part.strip())
    with suppress(ValueError):
        if isinstance(default, int):
            return int(text)
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} is '{text}', but it must be a number.") from None


def collect_numbers(algorithm: Algorithm) -> dict[str, Number]:
    """Return the settings that trials of a stack may differ in: real numbers, by paths such as `base.alpha.0`."""
    numbers: dict[str, Number] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            numbers.update({f"{f.name}.{path}": v for path, v in collect_numbers(value).items()})
        elif f.metadata.get("static"):
            continue
        elif isinstance(value, float | Tensor):
            numbers[f.name] = value
        elif isinstance(value, tuple):
            for i, v in enumerate(value):
                inner = collect_numbers(v) if isinstance(v, Algorithm) else None
                numbers.update(
                    {f"{f.name}.{i}": v} if inner is None else {f"{f.name}.{i}.{p}": n for p, n in inner.items()}
                )
    return numbers


def with_numbers(algorithm: Algorithm, values: Mapping[str, Number]) -> Algorithm:
    """Return the same algorithm with these numbers in their places, by the paths of `collect_numbers`."""
    changes: dict[str, Any] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            changes[f.name] = with_numbers(value, _select_under(values, f.name))
        elif isinstance(value, tuple) and value and isinstance(value[0], Algorithm):
            changes[f.name] = tuple(
                with_numbers(v, _select_under(values, f"{f.name}.{i}")) for i, v in enumerate(value)
            )
        elif f.name in values:
            changes[f.name] = values[f.name]
        elif isinstance(value, tuple) and _select_under(values, f.name):
            changes[f.name] = tuple(values.get(f"{f.name}.{i}", v) for i, v in enumerate(value))
    return replace(algorithm, **changes) if changes else algorithm


def _select_under(values: Mapping[str, Number], name: str) -> dict[str, Number]:
    """Return the numbers whose path begins with the name, and remove it from their paths."""
    return {path[len(name) + 1 :]: v for path, v in values.items() if path.startswith(f"{name}.")}


def adapt_to_path(algorithm: Kind, length: int, new: int) -> Kind:
    """Return the algorithm for a path of another length. Tuples with a value for (nearly) every position keep their
    last entries and repeat the first; shorter ones count from the end and stay."""
    changes: dict[str, Any] = {}
    for name, (_, rule) in collect_rules(algorithm).items():
        value = flatten_settings(algorithm)[name]
        if rule.get("per_position") and isinstance(value, tuple) and len(value) >= length - 1:
            size = len(value) + new - length
            changes[name] = resize(value, size) if size > 0 else value[-1]
    return with_settings(algorithm, changes) if changes else algorithm


def describe_shape(algorithm: Algorithm) -> tuple[Any, ...]:
    """Return what trials must share to be one stack: the class and every setting that `collect_numbers` leaves out."""
    parts: list[Any] = [type(algorithm)]
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Algorithm):
            parts.append((f.name, describe_shape(value)))
        elif isinstance(value, tuple) and value and isinstance(value[0], Algorithm):
            parts.append((f.name, tuple(map(describe_shape, value))))
        elif isinstance(value, tuple) and not f.metadata.get("static"):
            parts.append((f.name, len(value)))
        elif f.metadata.get("static") or not isinstance(value, float | Tensor):
            parts.append((f.name, value))
    return tuple(parts)

"""Settings, above all of algorithms: declared, checked, read from text, and as numbers in a stack.

Some have a value per position of the path, such as the paper's alpha_i and beta_i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from numbers import Real
from typing import Any, TypeVar

from torch import Tensor

from seqdg.base import ADDED, UsageError, unknown

Number = float | Tensor  # a 0-d tensor holds one value per trial of a stack
Numbers = Number | tuple[Number, ...]  # one for every position of the path, or one each
Kind = TypeVar("Kind", bound="Settings")


@dataclass(frozen=True)
class Range:
    """Where a search looks for a setting: between two numbers.

    Parameters
    ----------
    low, high : float
        The ends of the range.
    log : bool
        Whether the logarithm of the value is drawn uniformly, or else the value itself.

    Examples
    --------
    >>> from seqdg import Range
    >>> Range(1e-3, 1.0)
    Range(low=0.001, high=1.0, log=True)
    """

    low: float
    high: float
    log: bool = True


def setting(
    default: float | int | bool | str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    per_position: bool = False,
    static: bool = False,
    search: Range | tuple[Any, ...] | None = None,
    added: float | int | bool | str | None = None,
) -> Any:
    """Declare a setting of an algorithm: a field of its dataclass, with what is allowed and where a search looks.

    Parameters
    ----------
    default : float, int, bool or str
        The value where none is given. Other values are read as its type.
    least : float, optional
        The smallest value that is allowed.
    above : float, optional
        Values must be larger than this.
    most : float, optional
        The largest value that is allowed.
    choices : tuple of str
        The texts that are allowed; empty for any.
    per_position : bool
        Whether a tuple is allowed too, with a value for each position of the path.
    static : bool
        Whether trials that differ in it cannot share a stack, as where it decides the shape of a tensor.
    search : Range or tuple, optional
        Where a search looks: a range of numbers, or values to choose from.
    added : float, int, bool or str, optional
        For a setting that an algorithm got later: the value with which it does what it did before. While a trial has
        that value, its description leaves the setting out, and its key is the old one.

    Returns
    -------
    dataclasses.Field
        The field, with these rules in its metadata.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from seqdg import Algorithm, Range, setting
    >>> @dataclass(frozen=True)
    ... class Pull(Algorithm):
    ...     strength: float = setting(0.1, least=0.0, search=Range(1e-3, 1.0))
    >>> Pull().strength
    0.1
    >>> Pull(strength=-1)
    Traceback (most recent call last):
    seqdg.base.messages.UsageError: strength is -1.0, but it must be at least 0.0.
    """
    rules = {
        "least": least, "above": above, "most": most, "choices": choices,
        "per_position": per_position, "static": static, "search": search,
    }  # fmt: skip
    return field(default=default, metadata=rules if added is None else {**rules, ADDED: added})


@dataclass(frozen=True)
class Settings:
    """Values by name, checked. Subclasses are frozen dataclasses whose fields `setting` declares."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = check_value(f.name, f.default, dict(f.metadata), getattr(self, f.name))
            object.__setattr__(self, f.name, value)


def check_value(name: str, default: Any, rules: dict[str, Any], value: Any) -> Any:
    """Return the value of a setting in its canonical type, or raise a UsageError that says what is allowed."""
    if isinstance(value, Tensor) or not isinstance(default, bool | int | float | str):
        return value
    if isinstance(default, str):
        if rules.get("choices") and value not in rules["choices"]:
            raise unknown(f"value of {name}", str(value), rules["choices"])
        return value
    if isinstance(value, list | tuple):
        if not rules.get("per_position"):
            raise UsageError(f"{name} takes one value, but {len(value)} were given: {value}.")
        if not value:
            raise UsageError(f"{name} is an empty tuple: give one number, or one for each position of the path.")
        return tuple(check_value(name, default, rules, v) for v in value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{name} is {value!r}, but it must be true or false.")
        return value
    if isinstance(value, bool) or not isinstance(value, Real):  # Real: also numpy's own kinds of number
        raise UsageError(f"{name} is {value!r}, but it must be a number.")
    number = float(value)
    _check_range(name, rules, number)
    if isinstance(default, int):
        if number != int(number):
            raise UsageError(f"{name} is {value}, but it must be a whole number.")
        return int(number)
    return number


def _check_range(name: str, rules: dict[str, Any], value: float) -> None:
    if not math.isfinite(value):
        raise UsageError(f"{name} is {value}, but it must be finite.")
    least, above, most = rules.get("least"), rules.get("above"), rules.get("most")
    if least is not None and value < least:
        raise UsageError(f"{name} is {value}, but it must be at least {least}.")
    if above is not None and value <= above:
        raise UsageError(f"{name} is {value}, but it must be above {above}.")
    if most is not None and value > most:
        raise UsageError(f"{name} is {value}, but it must be at most {most}.")


def flatten_settings(algorithm: Settings) -> dict[str, Any]:
    """Return every setting by name, those of a wrapped base included."""
    return {f.name: value for f, value in _list_fields(algorithm)}


def collect_rules(algorithm: Settings) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the default of every setting and what it allows, by name."""
    return {f.name: (f.default, dict(f.metadata)) for f, _ in _list_fields(algorithm)}


def _list_fields(algorithm: Settings) -> Iterator[tuple[Field[Any], Any]]:
    """List the field and the value of every setting, those of a wrapped base included."""
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Settings):
            yield from _list_fields(value)
        else:
            yield f, value


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


def collect_numbers(algorithm: Settings) -> dict[str, Number]:
    """Return the settings that trials of a stack may differ in: real numbers, by paths such as `base.alpha.0`."""
    numbers: dict[str, Number] = {}
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        parts = {f"{f.name}.{i}": v for i, v in enumerate(value)} if isinstance(value, tuple) else {f.name: value}
        for path, part in parts.items():
            if isinstance(part, Settings):
                numbers |= {f"{path}.{rest}": v for rest, v in collect_numbers(part).items()}
            elif not f.metadata.get("static") and isinstance(value, float | Tensor | tuple):
                numbers[path] = part
    return numbers


def with_numbers(algorithm: Kind, values: Mapping[str, Number]) -> Kind:
    """Return the same algorithm with these numbers, by the paths of `collect_numbers`."""
    if not values:
        return algorithm
    return replace(algorithm, **{f.name: _put(values, f.name, getattr(algorithm, f.name)) for f in fields(algorithm)})


def _put(values: Mapping[str, Number], path: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_put(values, f"{path}.{i}", v) for i, v in enumerate(value))
    if isinstance(value, Settings):
        prefix = f"{path}."
        return with_numbers(value, {p.removeprefix(prefix): v for p, v in values.items() if p.startswith(prefix)})
    return values.get(path, value)


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


def describe_shape(algorithm: Settings) -> tuple[Any, ...]:
    """Return what trials must share to be one stack: the class and every setting that `collect_numbers` leaves out."""
    parts: list[Any] = [type(algorithm)]
    for f in fields(algorithm):
        value = getattr(algorithm, f.name)
        if isinstance(value, Settings):
            parts.append((f.name, describe_shape(value)))
        elif isinstance(value, tuple) and value and isinstance(value[0], Settings):
            parts.append((f.name, tuple(map(describe_shape, value))))
        elif isinstance(value, tuple) and not f.metadata.get("static"):
            parts.append((f.name, len(value)))
        elif f.metadata.get("static") or not isinstance(value, float | Tensor):
            parts.append((f.name, value))
    return tuple(parts)


def check_count(name: str, values: Numbers, counts: tuple[int, ...], length: int) -> None:
    """Raise a UsageError for a tuple whose length is none of the counts; a single number fits every path."""
    if isinstance(values, tuple) and len(values) not in counts:
        start = f"{name} has {len(values)} values, but a path of {length} domains takes"
        if counts == (0,):
            raise UsageError(f"{start} none: give one number.")
        wanted = " or ".join(str(c) for c in counts)
        raise UsageError(f"{start} {wanted}: give one number for all positions, or {wanted}.")


def pick(values: Numbers, i: int) -> Number:
    """Return value i of a tuple, whose last value repeats; a number holds everywhere."""
    return values[min(i, len(values) - 1)] if isinstance(values, tuple) else values


def pick_from_end(values: Numbers, i: int, length: int) -> Number:
    """Return value i of `length`, where a short tuple counts from the end and missing leading values are 1."""
    if not isinstance(values, tuple):
        return values
    missing = length - len(values)
    return 1.0 if i < missing else values[i - missing]


def resize(values: Numbers, length: int) -> Numbers:
    """Return the setting for a path of another length: tuples keep their last entries and repeat the first."""
    if not isinstance(values, tuple):
        return values
    return (values[0],) * (length - len(values)) + values[max(0, len(values) - length) :]

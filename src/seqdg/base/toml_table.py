"""Values of a TOML table, each checked against the type that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError, unknown

_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "Path": "the name of a file",
    "tuple[str, ...]": "a list of texts",
    "tuple[int, ...]": "a list of whole numbers",
    "tuple[float, ...]": "a list of numbers",
    "Mapping[str, int]": "a table of whole numbers",
    "table": "a table",
}


def fields_of(kind: type, table: Any, place: str, but: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Any:
    """The table's values as the dataclass `kind` declares them, ready to be passed to it.

    place: what the table is called in a sentence.   but: fields that no table sets.   also: names read elsewhere.
    """
    allowed = {f.name: str(f.type) for f in fields(kind) if f.name not in but}
    values: dict[str, Any] = {}
    for key, value in typed(table, "table", place).items():
        if key not in allowed:
            raise unknown(f"key in {place}", key, (*allowed, *also))
        values[key] = typed(value, allowed[key], f"'{key}' in {place}")
    return values


def typed(value: Any, kind: str, what: str) -> Any:
    """The value as a `kind`, as annotations write it; where it is none, an error that calls it `what`."""
    plain = kind.removesuffix(" | None")
    if plain.startswith("tuple"):
        items = [value] if isinstance(value, str) and "str" in plain else value
        each = plain.removeprefix("tuple[").partition(",")[0]
        if isinstance(items, list | tuple) and all(_is(item, each) for item in items):
            return tuple(items)
    elif plain.startswith("Mapping"):
        if isinstance(value, Mapping) and all(_is(v, "int") for v in value.values()):
            return dict(value)
    elif plain == "Path":
        if isinstance(value, str | Path):
            return Path(value)
    elif _is(value, plain):
        return float(value) if plain == "float" else value
    raise UsageError(f"{what} is {value!r}, but it must be {_WORDS[plain]}.")


def _is(value: Any, kind: str) -> bool:
    if kind == "table":
        return isinstance(value, Mapping)
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, {"str": str, "int": int, "float": int | float}.get(kind, ()))

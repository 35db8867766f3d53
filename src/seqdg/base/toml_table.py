"""Read the values of a TOML table and check their types."""

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
    "Mapping[str, str]": "a table of texts",
    "table": "a table",
}


def read_fields(kind: type, table: Any, place: str, but: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Any:
    """Return the table's values as the dataclass `kind` declares them, ready to be passed to it.

    place: what errors call the table.
    but: fields that a table may not set.
    also: further names to offer when a key is unknown.
    """
    allowed = {f.name: str(f.type) for f in fields(kind) if f.name not in but}
    values: dict[str, Any] = {}
    for key, value in read_value(table, "table", place).items():
        if key not in allowed:
            raise unknown("key", key, (*allowed, *also), owner=place[0].upper() + place[1:])
        values[key] = read_value(value, allowed[key], f"'{key}' in {place}")
    return values


def read_value(value: Any, kind: str, what: str) -> Any:
    """Return the value as a `kind`, written as in an annotation; an error calls the value `what`."""
    plain = kind.removesuffix(" | None")
    if plain.startswith("tuple"):
        items = [value] if isinstance(value, str) and "str" in plain else value
        each = plain.removeprefix("tuple[").partition(",")[0]
        if isinstance(items, list | tuple) and all(_is_of_kind(item, each) for item in items):
            return tuple(items)
    elif plain.startswith("Mapping"):
        each = plain.rpartition(" ")[2].removesuffix("]")
        if isinstance(value, Mapping) and all(_is_of_kind(v, each) for v in value.values()):
            return dict(value)
    elif plain == "Path":
        if isinstance(value, str | Path):
            return Path(value)
    elif _is_of_kind(value, plain):
        return float(value) if plain == "float" else value
    raise UsageError(f"{what} is {value!r}, but it must be {_WORDS[plain]}.")


def _is_of_kind(value: Any, kind: str) -> bool:
    if kind == "table":
        return isinstance(value, Mapping)
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, {"str": str, "int": int, "float": int | float}.get(kind, ()))

"""Fields of dataclasses as plain tables: read from TOML, and described for the key of a trial.

The key of a trial is a hash of its description. A field added later is left out of the description while it has the
value that means "as before", so it changes no old key.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import Any

from seqdg.base.messages import UsageError, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ADDED = "added"  # the name, in a field's metadata, of the value that means "as before"
_EXPECTED = {
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


def added_field(default: Any, before: Any = ...) -> Any:
    """Declare a field of a dataclass that is described, such as `Protocol` or `NetSpec`, after others have been.

    before: the value with which everything is as it was without the field; the default, unless another is given.
    """
    return field(default=default, metadata={ADDED: default if before is ... else before})


def describe_fields(plain: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without those added later that have the value "as before"."""
    described = {}
    for name, before in _list_fields(plain.__class__):
        value = getattr(plain, name)
        if before is ... or value != before:
            described[name] = value
    return described


@cache
def _list_fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass, each with the value that means "as before"; of the first ones, `...`."""
    return tuple((f.name, f.metadata.get(ADDED, ...)) for f in fields(kind))


def restore_fields(kind: Any, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields that a description means, ready for `kind(**fields)`: the inverse of `describe_fields`."""
    return {**{f.name: f.metadata[ADDED] for f in fields(kind) if ADDED in f.metadata}, **described}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, whose whole numbers have 64 bits."""
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, tables nested as deep
        raise UsageError(f"{path} is not valid TOML: {error}.") from None
    _check_whole_numbers(content, path)
    return content


def _check_whole_numbers(value: Any, path: Path) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(f"{path} is not valid TOML: it has a whole number of more than 64 bits, {value:.3e}.")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_whole_numbers(item, path)


def read_fields(kind: type, table: Any, owner: str, but: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Any:
    """Return the table's values as the dataclass `kind` declares them, ready to be passed to it.

    owner: what errors call the table.
    but: fields that a table may not set.
    also: further names to offer when a key is unknown.
    """
    allowed = {f.name: str(f.type) for f in fields(kind) if f.name not in but}
    values: dict[str, Any] = {}
    for key, value in read_value(table, "table", owner).items():
        if key not in allowed:
            raise unknown("key", key, (*allowed, *also), owner=owner[0].upper() + owner[1:])
        values[key] = read_value(value, allowed[key], f"'{key}' in {owner}")
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
    raise UsageError(f"{what} is {value!r}, but it must be {_EXPECTED[plain]}.")


def parse_text(text: str, kind: str, what: str) -> Any:
    """Read a value that is typed, as a `kind`, written as in an annotation; an error calls the value `what`."""
    plain = kind.removesuffix(" | None")
    if plain.startswith("tuple"):
        each = plain.removeprefix("tuple[").partition(",")[0]
        return tuple(parse_text(part, each, what) for part in text.split(",") if part)
    value: Any = {"true": True, "false": False}.get(text, text) if plain == "bool" else text
    if plain in ("int", "float"):
        with suppress(ValueError):
            value = int(text) if plain == "int" else float(text)
    return read_value(value, plain, what)


def _is_of_kind(value: Any, kind: str) -> bool:
    if kind == "table":
        return isinstance(value, Mapping)
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, {"str": str, "int": int, "float": int | float}.get(kind, ()))

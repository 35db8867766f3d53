"""Fields that were added later: left out of a description while they have the value that means "as before".

The key of a trial is a hash of its description. A field that is left out while nothing is new changes no old key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any

ADDED = "added"  # the name, in a field's metadata, of the value that means "as before"


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

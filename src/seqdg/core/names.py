"""Names of algorithms: `agg`, `agg+mixup+ema`, `./mine.py:pull+ema`, `agg+package.module:mine`."""

from __future__ import annotations

import re

from seqdg.base import UsageError

FOREIGN = "domainbed:"  # begins the name of a class of another project, which is no algorithm of ours
_SIMPLE = re.compile(r"[\w.\-]+")  # what stands after the colon, or alone


def split_chain(name: str) -> tuple[str, ...]:
    """Split a name at each `+` that is not inside a path: a base, then its wrappers from the inside out.

    A part is a name, or a file or module, a colon and a name. A path that holds a `+` begins with `.`, `/` or a drive.
    """
    parts: list[str] = []
    pending: str | None = None  # a path that has not come to its colon yet
    for token in name.split("+"):
        part = token if pending is None else f"{pending}+{token}"
        last = part.rpartition(":")[2]
        if not part or (_SIMPLE.fullmatch(last) and not last.endswith(".py")):
            parts.append(part)
            pending = None
        else:
            pending = part
    if pending is not None:
        parts.append(pending)
    if not all(parts):
        raise UsageError(f"'{name}' has an empty part. Write the base and its wrappers as in agg+mixup+ema.")
    return tuple(parts)


def shorten(name: str) -> str:
    """Drop the files that the parts of a name come from: `./mine.py:pull+ema` is `pull+ema`."""
    return "+".join(_shorten_part(part) for part in split_chain(name))


def _shorten_part(part: str) -> str:
    prefix = FOREIGN if part.startswith(FOREIGN) else ""
    return prefix + part.rpartition(":")[2]


def list_inner_names(name: str) -> tuple[str, ...]:
    """List the short names of a chain from its base to the whole: `agg`, `agg+mixup`, `agg+mixup+ema`."""
    parts = shorten(name).split("+")
    return tuple("+".join(parts[: i + 1]) for i in range(len(parts)))

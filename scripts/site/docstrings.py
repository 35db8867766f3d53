"""An extension of Griffe: shows the lines `name: what it means` of a docstring as a list.

Our docstrings explain arguments and settings one a line, those that go on are indented, and short ones share a line,
three spaces apart. Markdown would run them together.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe


class Settings(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = "\n\n".join(map(list_entries, inspect.cleandoc(obj.docstring.value).split("\n\n")))
            obj.docstring.value = split_names(text)


def list_entries(paragraph: str) -> str:
    """Return a paragraph of such lines as a list, any other as it is."""
    lines = paragraph.splitlines()
    if not re.match(r"(`?\w+`?)(, `?\w+`?)*: \S", lines[0]) if lines else True:
        return paragraph
    entries: list[str] = []
    for line in lines:
        if line.startswith("    ") and entries:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line.strip())
    parts = [part for entry in entries for part in re.split(r"\s{3,}(?=[`\w, ]+: )", entry)]
    return "\n".join("- " + re.sub(r"^([`\w, ]+?): ", _embolden, part) for part in parts)


def split_names(text: str) -> str:
    """Give each of several parameters with one description its own entry: Griffe shows the default of the first."""
    entries = re.compile(r"^(\w+(?:, \w+)+)( : .*\n(?:    .*\n?)+)", re.MULTILINE)
    return entries.sub(lambda found: "".join(f"{name}{found[2].rstrip()}\n" for name in found[1].split(", ")), text)


def _embolden(found: re.Match[str]) -> str:
    names = ", ".join(f"`{name.strip('` ')}`" for name in found[1].split(","))
    return f"{names}: "

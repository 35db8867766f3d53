"""Colors by role, for light and dark pages, safe for color-blind readers; shapes differ where colors repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LIGHT = {
    "paper": "#ffffff", "text": "#1b1f24", "muted": "#57606a", "rule": "#8c959f", "grid": "#e4e8ec",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#2a9387", "c3": "#a3318d", "c4": "#5c1f1f", "c5": "#6b5cff",
    "c6": "#56606b", "c7": "#a67c00", "c8": "#d81b60", "c9": "#4d7c0f",
}  # fmt: skip
DARK = {
    "paper": "#14171b", "text": "#e6e9ed", "muted": "#a3acb7", "rule": "#77818c", "grid": "#2b3138",
    "c0": "#5bb4ee", "c1": "#f2803a", "c2": "#2f9c86", "c3": "#f0a6d6", "c4": "#ffe79a", "c5": "#7f73ff",
    "c6": "#8b97a4", "c7": "#a67c2c", "c8": "#ff6f91", "c9": "#a8cf45",
}  # fmt: skip
HUES = tuple(f"c{i}" for i in range(10))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 4))


@dataclass(frozen=True)
class Style:
    """The look of one algorithm, class or layer in every picture; shapes and dashes are Vega's."""

    color: str
    shape: str = SHAPES[0]
    dash: tuple[int, ...] = DASHES[0]


Looks = Mapping[str, Style]


def make_styles(names: Sequence[str]) -> dict[str, Style]:
    """Return up to fifty different styles: ten colors, and five shapes that change where the colors repeat."""
    looks = {}
    for i, name in enumerate(dict.fromkeys(names)):
        color, other = HUES[i % len(HUES)], i + i // len(HUES)
        looks[name] = Style(color, SHAPES[other % len(SHAPES)], DASHES[other % len(DASHES)])
    return looks

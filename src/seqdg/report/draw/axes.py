"""Axes: from data to pixels, with ticks and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from seqdg.report.draw.labels import find_emptiest
from seqdg.report.draw.marks import Dot, Line, Mark, Picture, Text, fit_text, text_width

WIDTH = 340.0
SMALL = 11.0


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from low to high."""
    if high <= low:
        return [low]
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    steps = [power * m for m in (0.5, 1, 2, 2.5, 5, 10)]
    widest = next(i for i, step in enumerate(steps) if i and step >= raw * 0.999)
    ticks = _multiples(steps[widest], low, high)
    return ticks if len(ticks) > 2 else _multiples(steps[widest - 1], low, high)


def _multiples(step: float, low: float, high: float) -> list[float]:
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten, thinned to at most six."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [d * 10.0**p for p in powers for d in digits if low <= d * 10.0**p <= high]
        if len(ticks) <= 6:
            return ticks
    return ticks[:: -(-len(ticks) // 6)]


def format_number(value: float, step: float | None = None) -> str:
    """Return the number as short as the step between ticks allows."""
    if value == 0:
        return "0"
    if abs(value) >= 1e5 or abs(value) < 1e-3:
        digits = 0 if step is None else max(0, _decimals(step) + math.floor(math.log10(abs(value)) + 1e-9))
        factor, _, power = f"{value:.{digits}e}".partition("e")
        return f"{factor.rstrip('0').rstrip('.') if digits else factor}e{int(power)}"
    return f"{value:.3g}" if step is None else f"{value:.{max(0, _decimals(step))}f}"


def _decimals(step: float) -> int:
    """Return how many decimals a multiple of the step has; negative where it ends in zeros."""
    digits = -math.floor(math.log10(step) + 1e-9)
    return digits + 1 if round(step * 10.0**digits, 6) % 1 else digits


def pad_range(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """Return the range of the values with a margin."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    alike = high - low <= 1e-9 * max(abs(low), abs(high), 1e-9)
    air = (0.01 * abs(low) or 0.5) if alike else share * (high - low)
    return low - air, high + air


@dataclass
class Axes:
    """A plotting area; marks are added in data coordinates."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float = WIDTH
    height: float = 210.0
    left: float = 44.0
    right: float = 10.0
    top: float = 24.0
    bottom: float = 38.0
    log_x: bool = False
    marks: list[Mark] = field(default_factory=list)

    def px(self, x: float) -> float:
        low, high = self.x
        if self.log_x:
            x, low, high = math.log(x), math.log(low), math.log(high)
        share = (x - low) / (high - low) if high > low else 0.5
        return self.left + share * (self.width - self.left - self.right)

    def py(self, y: float) -> float:
        low, high = self.y
        share = (y - low) / (high - low) if high > low else 0.5
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)

    def x_axis(self, label: str, ticks: Sequence[float] | None = None) -> None:
        if ticks is None:
            ticks = log_ticks(*self.x) if self.log_x else nice_ticks(*self.x)
        step = None if self.log_x or len(ticks) < 2 else ticks[1] - ticks[0]
        base = self.height - self.bottom
        for tick in ticks:
            at = self.px(tick)
            self.marks.append(Line(((at, self.top), (at, base))))
            self.marks.append(Text(at, base + 14, format_number(tick, step), "middle", SMALL, "muted"))
        room = self.width - self.left - self.right
        middle = (self.left + self.width - self.right) / 2
        self.marks.append(Text(middle, base + 31, fit_text(label, room, SMALL), "middle", SMALL, "muted"))

    def y_axis(self, label: str) -> None:
        """Draw the axis. Call this first: it makes room for its numbers."""
        ticks = nice_ticks(*self.y)
        step = ticks[1] - ticks[0] if len(ticks) > 1 else None
        self.left = 24 + max(text_width(format_number(tick, step), SMALL) for tick in ticks)
        for tick in ticks:
            at = self.py(tick)
            self.marks.append(Line(((self.left, at), (self.width - self.right, at))))
            self.marks.append(Text(self.left - 5, at + 4, format_number(tick, step), "end", SMALL, "muted"))
        room = self.height - self.top - self.bottom
        middle = (self.top + self.height - self.bottom) / 2
        self.marks.append(Text(11, middle, fit_text(label, room + 30, SMALL), "middle", SMALL, "muted", turned=True))

    def heading(self, text: str) -> None:
        self.marks.append(
            Text(self.left, 14, fit_text(text, self.width - self.left, 13), size=13, bold=True, title=text)
        )

    def line(self, xs: Sequence[float], ys: Sequence[float], color: str, dash: str = "", title: str = "") -> None:
        """Broken where a value is not finite."""
        piece: list[tuple[float, float]] = []
        for x, y in [*zip(xs, ys, strict=True), (0.0, math.nan)]:
            if math.isfinite(y):
                piece.append((self.px(x), self.py(y)))
                continue
            if len(piece) > 1:
                self.marks.append(Line(tuple(piece), color, 1.8, dash, data=True, title=title))
            elif piece:
                self.marks.append(Dot(*piece[0], color, size=2.5, title=title))
            piece = []

    def upright(self, x: float, label: str = "") -> None:
        """Draw a rule at x. Its word goes where it covers the least, so call this after drawing the data."""
        at, base = self.px(x), self.height - self.bottom
        self.marks.append(Line(((at, self.top), (at, base)), "rule", 1.2, "4 3"))
        if label:
            places = [(at + 4, "start"), (at - 4, "end")]
            self._word(label, [(x, y, anchor) for y in (self.top + 11, base - 6) for x, anchor in places])

    def level(self, y: float, label: str = "") -> None:
        """Draw a rule at y, as `upright` does at x."""
        at, left, right = self.py(y), self.left, self.width - self.right
        self.marks.append(Line(((left, at), (right, at)), "rule", 1.2, "4 3"))
        if label:
            places = [(right - 3, "end"), (left + 3, "start"), ((left + right) / 2, "middle")]
            self._word(label, [(x, y, anchor) for y in (at - 4, at + 12) for x, anchor in places])

    def _word(self, label: str, places: Sequence[tuple[float, float, str]]) -> None:
        spots = [Text(x, y, label, anchor, SMALL, "muted") for x, y, anchor in places]
        self.marks.append(find_emptiest(spots, self.marks))

    def picture(self, title: str) -> Picture:
        return Picture(self.width, self.height, tuple(self.marks), title)

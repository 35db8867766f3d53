"""The learning curve over domains: how much one more domain helps on those that were not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from seqdg.base import count_things
from seqdg.estimator.spread import Spread, estimate_spread, make_records_frame
from seqdg.report import Figure, Point, Points, align_columns, make_styles
from seqdg.results import CRITERIA, Unit, find_unit

LAST = 3  # sizes that say how the curve goes on
Subset = tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """The score of one training on one domain that it had not seen."""

    trained_on: Subset
    held_out: str
    value: float


@dataclass(frozen=True)
class LearningCurve:
    """The score of a model on unseen domains, by the number of domains it was trained on.

    `print` it, or read `frame()`, `gain`, `sentence`, `figure()`.
    """

    name: str  # of the algorithm
    domains: tuple[str, ...]
    criterion: str
    measured: tuple[Measured, ...]
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """The numbers of domains that were trained on."""
        return sorted({len(m.trained_on) for m in self.measured})

    def frame(self) -> Any:
        """Return a row per number of domains: the mean over unseen domains with its standard error, the change from the
        number before, domain by domain, with its own, and how many trainings there were. A pandas frame, or a list of
        dictionaries where pandas is not installed."""
        rows, before = [], dict[int, int | None](zip(self.sizes, [None, *self.sizes], strict=False))
        for size in self.sizes:
            level, change = estimate_spread(list(self._average(size).values())), self._compare(before[size], size)
            rows.append(
                {
                    "domains": size,
                    "mean": level.mean,
                    "error": level.error,
                    "change": change.mean,
                    "change_error": change.error,
                    "trainings": len({m.trained_on for m in self.measured if len(m.trained_on) == size}),
                }
            )
        return make_records_frame(rows)

    def by_training(self) -> Any:
        """Return a row per training and unseen domain."""
        return make_records_frame(
            [{"trained_on": ", ".join(m.trained_on), "domains": len(m.trained_on), "held_out": m.held_out,
              "value": m.value} for m in self.measured]
        )  # fmt: skip

    @property
    def gain(self) -> Spread | None:
        """The improvement to expect of one more domain; None where the curve has fewer than two sizes.

        Of every unseen domain, a + b / k is fitted to the last three sizes k by least squares. From N to N + 1 domains
        that changes by -b / (N (N + 1)). The interval is over unseen domains; that the curve goes on like this is an
        assumption that no interval covers.
        """
        sizes, count = self.sizes[-LAST:], len(self.domains)
        if len(sizes) < 2:
            return None
        levels = [self._average(size) for size in sizes]
        sign = 1.0 if CRITERIA[self.criterion].higher_is_better else -1.0
        slopes = []
        for domain in self.domains:
            if all(domain in level for level in levels):
                values = [level[domain] for level in levels]
                slopes.append(float(np.polyfit([1 / k for k in sizes], values, 1)[0]))
        return estimate_spread([-sign * b / (count * (count + 1)) for b in slopes]) if slopes else None

    @property
    def sentence(self) -> str:
        """The sentence on whether one more domain would help."""
        unit, word = self._unit, self.criterion.replace("_", " ")
        count = len(self.domains)
        if self.gain is None:
            return (
                f"With {count_things(count, 'domain')} nothing can be said of one more: at least three show how much "
                "the second helped."
            )
        points = f" {unit.points}".rstrip()
        mean = f"{_show_change(self.gain.mean, unit)}{points}"
        if self.gain.low is None or self.gain.high is None:
            return f"One more domain would improve {word} on an unseen one by about {mean}, from one domain alone."
        low, high = (_show_change(v, unit) for v in (self.gain.low, self.gain.high))
        verdict = "so it is likely to help" if self.gain.low > 0 else "so it may help or not"
        if self.gain.high < 0:
            verdict = "so it is not likely to help"
        few = "" if len(self.sizes) >= LAST else ", which two sizes cannot check"
        return (
            f"One more domain than these {count} would improve {word} on an unseen one by {mean} (95 % interval {low} "
            f"to {high}), {verdict}, if the curve goes on as a + b / k{few}."
        )

    def figure(self) -> Figure:
        """Draw the mean over unseen domains against the number of domains, with standard errors."""
        unit = CRITERIA[self.criterion]
        points = []
        for size in self.sizes:
            level = estimate_spread(list(self._average(size).values()))
            mean, error = unit.factor * level.mean, None if level.error is None else unit.factor * level.error
            low, high = (None, None) if error is None else (mean - error, mean + error)
            points.append(Point(count_things(size, "domain"), size, mean, low, high, self.name))
        panel = Points(points, "domains trained on", unit.title, self.name)
        caption = f"Mean over unseen domains; bars are one standard error over them. {self.sentence}"
        return Figure("learning-curve", "Would one more domain help?", [panel], caption, make_styles([self.name]))

    def __str__(self) -> str:
        unit = self._unit

        def show(value: float | None, sign: str = "") -> str:
            return "-" if value is None or not math.isfinite(value) else f"{unit.factor * value:{sign}.{unit.digits}f}"

        lines = [["domains", "trainings", "mean", "error", "change", "error"]]
        before: int | None = None
        for size in self.sizes:
            level, change = estimate_spread(list(self._average(size).values())), self._compare(before, size)
            trainings = len({m.trained_on for m in self.measured if len(m.trained_on) == size})
            lines.append(
                [str(size), str(trainings), show(level.mean), show(level.error), show(change.mean, "+"),
                 show(change.error)]
            )  # fmt: skip
            before = size
        title = f"{unit.title} of {self.name} on domains that it has not seen, by how many it was trained on"
        below = "Errors are standard errors over unseen domains. One domain more also brings its rows."
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([title, *align_columns(lines), "", below, self.sentence, *notes]) + "\n"

    @property
    def _unit(self) -> Unit:
        return find_unit(self.criterion, [m.value for m in self.measured])

    def _average(self, size: int) -> dict[str, float]:
        """Return the mean over trainings on so many domains, by unseen domain."""
        values: dict[str, list[float]] = {}
        for m in self.measured:
            if len(m.trained_on) == size and math.isfinite(m.value):
                values.setdefault(m.held_out, []).append(m.value)
        return {domain: fmean(values[domain]) for domain in self.domains if domain in values}

    def _compare(self, before: int | None, size: int) -> Spread:
        if before is None:
            return Spread(math.nan)
        old, new = self._average(before), self._average(size)
        return estimate_spread([new[d] - old[d] for d in self.domains if d in old and d in new])


def _show_change(value: float, unit: Unit) -> str:
    return f"{round(unit.factor * value, unit.digits) + 0.0:+.{unit.digits}f}"  # 0.0 turns -0.0 into +0.0

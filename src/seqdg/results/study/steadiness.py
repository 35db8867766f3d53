"""The swings of the held-out accuracy at the end of training, with and without averaging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seqdg.results.record import DONE, Record
from seqdg.results.study.file import AVERAGES
from seqdg.results.study.outcomes import CRITERION, PartScores

LAST = 10  # evaluations


@dataclass(frozen=True)
class Steadiness:
    """The standard deviation, in points, of the held-out accuracy over the last evaluations of a training: a mean over
    held-out domains and seeds. gain: the mean of the same evaluations above the plain weights', in points."""

    set: str
    kind: str
    algorithm: str
    swing: Mapping[str, float]  # by variant: plain, ema, sma, swad
    gain: Mapping[str, float]


def measure_steadiness(parts: Mapping[tuple[str, str], PartScores]) -> list[Steadiness]:
    """Measure every algorithm that has plain and averaged records of long enough trainings."""
    found = []
    for (name, kind), part in parts.items():
        for base in part.part.algorithms:
            variants = {v: part.records.get(base if v == "plain" else f"{base}+{v}", []) for v in ("plain", *AVERAGES)}
            curves = {v: _list_curves(records) for v, records in variants.items()}
            curves = {v: some for v, some in curves.items() if some}
            if "plain" in curves and len(curves) > 1:
                level = {v: fmean(fmean(curve) for curve in some) for v, some in curves.items()}
                swing = {v: fmean(stdev(curve) for curve in some) for v, some in curves.items()}
                gain = {v: value - level["plain"] for v, value in level.items() if v != "plain"}
                found.append(Steadiness(name, kind, base, swing, gain))
    return found


def _list_curves(records: Sequence[Record]) -> list[list[float]]:
    """Return the held-out accuracy of the last evaluations of each training that has so many, in percent."""
    whole = [r for r in records if r.status == DONE and len(r.history) >= LAST]
    return [[100 * fmean(e.held_out[CRITERION]) for e in r.history[-LAST:]] for r in whole]

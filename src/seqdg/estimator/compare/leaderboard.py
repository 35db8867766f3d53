"""A leaderboard: every candidate with its scores on unseen and on known domains, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from seqdg.results import AVERAGE, CRITERIA, WORST, Outcome, average_finite

COLUMNS = (
    "rank", "candidate", "held_out", "worst", "stderr", "source_val", "fit_seconds", "predict_seconds", "chosen",
)  # fmt: skip


def rank_names(averages: Mapping[str, float | None], criterion: str) -> list[str]:
    """Sort names by their average on held-out domains, the best first; those that have none last."""
    sign = -1 if CRITERIA[criterion].higher_is_better else 1
    return sorted(averages, key=lambda name: math.inf if (v := averages[name]) is None else round(sign * v, 9))


def make_leaderboard(
    scores: Mapping[str, Mapping[str, float | None]],
    outcomes: Sequence[Outcome],
    criterion: str,
    chosen: str,
) -> list[dict[str, Any]]:
    """Make a row for each candidate, the best first.

    scores: by candidate, on every held-out domain, with AVERAGE and WORST.
    held_out, worst: the mean and the worst score on held-out domains.   stderr: the standard error of the mean, over
    the domains.   source_val: the mean score on validation rows of the sources.   fit_seconds: of one training with a
    domain held out, evaluations included; trainings of a stack share its time.   predict_seconds: for 1,000 rows.
    """
    rows: list[dict[str, Any]] = []
    for name in rank_names({name: row[AVERAGE] for name, row in scores.items()}, criterion):
        known = [v for domain, v in scores[name].items() if domain not in (AVERAGE, WORST) and v is not None]
        its = [o for o in outcomes if o.algorithm == name and o.value is not None]
        served = [o.record.serving for o in its if o.record.serving]
        values: tuple[Any, ...] = (
            len(rows) + 1,
            name,
            scores[name][AVERAGE],
            scores[name][WORST],
            stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None,
            _average([_measure_sources(o, criterion) for o in its]),
            _average([o.record.seconds for o in its]),
            _average(served),
            name == chosen,
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def to_frame(rows: list[dict[str, Any]]) -> Any:
    """Return a frame of pandas where it is installed, else the rows themselves."""
    try:
        import pandas as pd
    except ImportError:
        return rows
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _measure_sources(outcome: Outcome, criterion: str) -> float:
    evaluation = next(e for e in outcome.record.history if e.step == outcome.step)
    return average_finite(evaluation.source[criterion])


def _average(values: Sequence[float]) -> float | None:
    finite = [v for v in values if math.isfinite(v)]
    return fmean(finite) if finite else None

"""Which of a trial's evaluations counts, decided without the held-out domain (except where the name says oracle)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seqdg.errors import UsageError, unknown
from seqdg.evaluate import HIGHER_IS_BETTER
from seqdg.record import DIVERGED, DONE, Record

RULES = ("source-val", "last", "leave-one-out", "oracle")


@dataclass(frozen=True)
class Outcome:
    """What one algorithm reached on one held-out domain with one seed; value is None where training diverged."""

    algorithm: str
    held_out: str
    seed: int
    value: float | None
    step: int
    record: Record


def outcomes(records: Sequence[Record], rule: str = "source-val", criterion: str = "accuracy") -> list[Outcome]:
    """One per algorithm, held-out domain and seed, from all settings and steps that were tried."""
    if rule not in RULES:
        raise unknown("selection rule", rule, RULES)
    if criterion not in HIGHER_IS_BETTER:
        raise unknown("criterion", criterion, HIGHER_IS_BETTER)
    candidates: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        if len(record.held_out) == 1 and record.status in (DONE, DIVERGED):
            candidates.setdefault((record.algorithm, record.held_out[0], record.seed), []).append(record)
    pairs = _pairs(records) if rule == "leave-one-out" else {}
    return [_outcome(tried, rule, criterion, pairs) for tried in candidates.values()]


def _outcome(tried: list[Record], rule: str, criterion: str, pairs: dict[tuple[object, ...], Record]) -> Outcome:
    sign = 1.0 if HIGHER_IS_BETTER[criterion] else -1.0
    best: tuple[float, Record, int] | None = None
    for record in tried:
        if record.status == DIVERGED:
            continue
        steps = range(len(record.history)) if rule != "last" else [len(record.history) - 1]
        for i in steps:
            score = sign * _score(record, i, rule, criterion, pairs)
            if math.isfinite(score) and (best is None or score > best[0]):
                best = (score, record, i)
    if best is None:
        first = tried[0]
        return Outcome(first.algorithm, first.held_out[0], first.seed, None, 0, first)
    _, record, i = best
    value = record.history[i].held_out[criterion][0]
    return Outcome(record.algorithm, record.held_out[0], record.seed, value, record.history[i].step, record)


def _score(record: Record, i: int, rule: str, criterion: str, pairs: dict[tuple[object, ...], Record]) -> float:
    """By which evaluations of the same algorithm, held-out domain and seed are compared."""
    if rule == "oracle":
        return record.history[i].held_out[criterion][0]
    if rule == "leave-one-out":
        return _within_sources(record, i, criterion, pairs)
    return mean(record.history[i].source[criterion])


def _pairs(records: Sequence[Record]) -> dict[tuple[object, ...], Record]:
    """Trials with two domains held out, by setting, seed and pair."""
    return {
        (r.algorithm, _settings(r), r.seed, frozenset(r.held_out)): r
        for r in records
        if len(r.held_out) == 2 and r.status == DONE
    }


def _settings(record: Record) -> str:
    return str(sorted(record.description["settings"].items()))


def _within_sources(record: Record, i: int, criterion: str, pairs: dict[tuple[object, ...], Record]) -> float:
    """Mean over the sources s of the value on s after training without s and without the held-out domain."""
    target = record.held_out[0]
    name, settings, seed = record.algorithm, _settings(record), record.seed
    values = []
    for (algorithm, candidate, with_seed, out), pair in pairs.items():
        if (algorithm, candidate, with_seed) == (name, settings, seed) and target in out:  # type: ignore[operator]
            other = 1 - pair.held_out.index(target)
            values.append(pair.history[min(i, len(pair.history) - 1)].held_out[criterion][other])
    if not values:
        raise UsageError(
            "Selection by leave-one-out needs trials with two domains held out, and this run has none for "
            f"{name}. `seqdg bench --select leave-one-out` adds them."
        )
    return mean(values)


def mean(values: Sequence[float]) -> float:
    """Of those that are known: where all rows of a domain are of one class it has no AUROC."""
    total = sum(values)
    if values and math.isfinite(total):
        return total / len(values)
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan

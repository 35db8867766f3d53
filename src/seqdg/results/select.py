"""Which of a trial's evaluations counts, decided without the held-out domain (except where the name says oracle)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqdg.base.errors import UsageError, unknown
from seqdg.results.criteria import HIGHER_IS_BETTER, score
from seqdg.results.record import DIVERGED, DONE, Record

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
    for record in _tabled(records):
        candidates.setdefault((record.algorithm, record.held_out[0], record.seed), []).append(record)
    _check_criterion([r for tried in candidates.values() for r in tried], criterion)
    inner = _Inner(records if rule == "leave-one-out" else ())
    return [_outcome(tried, rule, criterion, inner) for tried in candidates.values()]


def candidates(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """By algorithm, how many settings and rates were tried for a held-out domain and seed: at least, at most."""
    tried: dict[str, dict[tuple[str, int], int]] = {}
    for r in _tabled(records):
        own = tried.setdefault(r.algorithm, {})
        own[r.held_out[0], r.seed] = own.get((r.held_out[0], r.seed), 0) + 1
    return {name: (min(own.values()), max(own.values())) for name, own in tried.items()}


def mixtures(records: Sequence[Record]) -> dict[str, list[str]]:
    """What trainings that are chosen from differ in beside settings and rate, by field of the protocol: the steps, say,
    where two commands filled one run."""
    found: dict[str, dict[str, None]] = {}
    seen: dict[str, dict[str, Any]] = {}
    for r in _tabled(records):
        protocol = r.description["protocol"]
        for name, first in seen.setdefault(r.algorithm, protocol).items():
            if name != "lr" and protocol.get(name, first) != first:
                found.setdefault(name, {}).update({str(first): None, str(protocol[name]): None})
    return {name: list(values) for name, values in found.items()}


def _tabled(records: Sequence[Record]) -> list[Record]:
    """Those that ran to an end with one domain held out."""
    return [r for r in records if len(r.held_out) == 1 and r.status in (DONE, DIVERGED)]


def _check_criterion(records: Sequence[Record], criterion: str) -> None:
    if any(r.history and criterion not in r.history[-1].held_out for r in records):
        others = ", ".join(name for name in HIGHER_IS_BETTER if name != criterion)
        raise UsageError(f"This run has no {criterion}: it is recorded for two classes alone. Choose one of: {others}.")


def _outcome(tried: list[Record], rule: str, criterion: str, inner: _Inner) -> Outcome:
    best: tuple[float, Record, int] | None = None
    for record in tried:
        if record.status == DIVERGED:
            continue
        last = len(record.history) - 1
        within = inner.of(record) if rule == "leave-one-out" else []
        for i in [last] if rule == "last" else range(last + 1):
            own = score(_value(record, i, rule, criterion, within), criterion)
            if math.isfinite(own) and (best is None or own > best[0]):
                best = (own, record, i)
    if best is None:
        first = tried[0]
        return Outcome(first.algorithm, first.held_out[0], first.seed, None, 0, first)
    _, record, i = best
    value = record.history[i].held_out[criterion][0]
    return Outcome(record.algorithm, record.held_out[0], record.seed, value, record.history[i].step, record)


def _value(record: Record, i: int, rule: str, criterion: str, within: Sequence[tuple[Record, int]]) -> float:
    """By which evaluations of the same algorithm, held-out domain and seed are compared."""
    if rule == "oracle":
        return record.history[i].held_out[criterion][0]
    if rule == "leave-one-out":
        if any(pair.status == DIVERGED for pair, _ in within):
            return math.nan
        return mean([p.history[min(i, len(p.history) - 1)].held_out[criterion][other] for p, other in within])
    return mean(record.history[i].source[criterion])


def _candidate(record: Record) -> str:
    """The algorithm with its settings and all that it is trained by, the learning rate among it."""
    about = record.description
    return json.dumps([about["algorithm"], about["settings"], about["protocol"]], sort_keys=True)


class _Inner:
    """Trials with two domains held out: each tells how well one of the two is served, for the sake of the other."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.found: dict[tuple[str, int, str], list[tuple[Record, int]]] = {}
        self.partners: dict[str, set[str]] = {}
        for r in records:
            if len(r.held_out) == 2 and r.status in (DONE, DIVERGED):
                for i, domain in enumerate(r.held_out):
                    self.found.setdefault((_candidate(r), r.seed, domain), []).append((r, 1 - i))
                    self.partners.setdefault(domain, set()).add(r.held_out[1 - i])

    def of(self, record: Record) -> list[tuple[Record, int]]:
        """For each source s, the trial without s and without the held-out domain, and the place of s in it: the score
        is the mean over s of the value on s. A candidate of which one of these diverged is not chosen."""
        target = record.held_out[0]
        found, sources = self.found.get((_candidate(record), record.seed, target), []), self.partners.get(target, ())
        if not found or len(found) < len(sources):
            raise UsageError(
                "Selection by leave-one-out needs trials with two domains held out, and this run has "
                f"{f'only {len(found)} of {len(sources)}' if found else 'none'} for {record.algorithm} with "
                f"{target} held out. `seqdg bench --select leave-one-out` adds them."
            )
        return found


def mean(values: Sequence[float]) -> float:
    """Of those that are known: where all rows of a domain are of one class it has no AUROC."""
    total = sum(values)
    if values and math.isfinite(total):
        return total / len(values)
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan

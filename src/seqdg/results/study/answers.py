"""The answers to a study's hypotheses, from the intervals of paired differences alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqdg.results.pooling import Pooled, SetDifference, average_set, find_levels, pool_sets, pool_sizes
from seqdg.results.statistics import LEVEL, correct_by_holm
from seqdg.results.study.file import Comparison, Hypothesis, Part, Study
from seqdg.results.study.outcomes import PartScores, find_scores, pair_scores
from seqdg.results.study.steadiness import Steadiness, measure_steadiness

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"


@dataclass(frozen=True)
class Pooling:
    """One comparison: its difference on every set that has both sides, and over all of them."""

    comparison: Comparison
    sets: tuple[SetDifference, ...]
    missing: tuple[str, ...]  # sets that have parts of these kinds, and not yet their trials
    pooled: Pooled | None
    size: Pooled | None  # of the standardized effects


@dataclass(frozen=True)
class Answer:
    """The answer to one hypothesis. level: of its interval under Holm's correction over all hypotheses."""

    hypothesis: Hypothesis
    main: Pooling
    p: float | None
    p_holm: float | None
    level: float
    beside: tuple[Pooling, ...]

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.main.pooled is None else self.main.pooled.find_interval(self.level)

    @property
    def verdict(self) -> str:
        """Supported where the interval lies above minus the margin, refuted where it lies below; else undecided."""
        if self.interval is None:
            return UNDECIDED
        low, high = self.interval
        least = -self.hypothesis.margin
        return SUPPORTED if low > least else REFUTED if high < least else UNDECIDED


@dataclass(frozen=True)
class Rivals:
    """On one set: the best sequential algorithm against the best of the rest, each chosen by source validation.

    oracle: the same chosen by the held-out accuracy itself, which favors whichever side has more to choose from.
    """

    set: str
    kind: str
    sequential: str
    other: str
    difference: SetDifference | None
    oracle: tuple[str, str, SetDifference | None]


@dataclass(frozen=True)
class Answers:
    study: Study
    answers: tuple[Answer, ...]
    rivals: tuple[Rivals, ...]
    steadiness: tuple[Steadiness, ...]


def answer_study(study: Study, out: Path | None) -> Answers:
    """Answer the hypotheses from the run directories below `out` and the published records."""
    parts = {(part.set, part.kind): PartScores(study, part, out) for part in study.parts}
    parts = {place: scores for place, scores in parts.items() if scores.scores}
    mains = [_pool(study, hypothesis.comparison, parts) for hypothesis in study.hypotheses]
    tests = [
        None if main.pooled is None or main.pooled.sets < 2 else main.pooled.test(-hypothesis.margin)
        for hypothesis, main in zip(study.hypotheses, mains, strict=True)
    ]
    # A hypothesis without data counts in the correction as if it could not be decided.
    filled = [1.0 if p is None else p for p in tests]
    corrected, levels = correct_by_holm(filled), find_levels(filled)
    answers = [
        Answer(
            hypothesis,
            main,
            p,
            None if p is None else p_holm,
            level,
            tuple(_pool(study, c, parts) for c in hypothesis.beside),
        )
        for hypothesis, main, p, p_holm, level in zip(study.hypotheses, mains, tests, corrected, levels, strict=True)
    ]
    return Answers(study, tuple(answers), tuple(_list_rivals(study, parts)), tuple(measure_steadiness(parts)))


def _pool(study: Study, comparison: Comparison, parts: Mapping[tuple[str, str], PartScores]) -> Pooling:
    sets, missing = [], []
    for name in study.sets:
        if any(study.find_part(name, side.kind) is None for side in (comparison.better, comparison.worse)):
            continue
        sides = [find_scores(parts, name, side) for side in (comparison.better, comparison.worse)]
        found = None
        if sides[0] is not None and sides[1] is not None:
            found = average_set(name, pair_scores(sides[0], sides[1]))
        if found is None:
            missing.append(name)
        else:
            sets.append(found)
    return Pooling(
        comparison,
        tuple(sets),
        tuple(missing),
        pool_sets(sets) if sets else None,
        pool_sizes(sets) if sets else None,
    )


def _list_rivals(study: Study, parts: Mapping[tuple[str, str], PartScores]) -> list[Rivals]:
    found = []
    for (name, kind), part in parts.items():
        ours = [a for a in part.scores if a.partition("+")[0] in study.sequential]
        others = [a for a in part.scores if a not in ours]
        if not ours or not others:
            continue

        def compare(first: str, second: str, part: PartScores = part, name: str = name) -> SetDifference | None:
            return average_set(name, pair_scores(part.scores[first], part.scores[second]))

        honest = _pick(part, ours, by_source=True), _pick(part, others, by_source=True)
        lucky = _pick(part, ours, by_source=False), _pick(part, others, by_source=False)
        found.append(Rivals(name, kind, *honest, compare(*honest), (*lucky, compare(*lucky))))
    return found


def _pick(part: PartScores, names: Sequence[str], by_source: bool) -> str:
    """Pick the best by source validation, or by the held-out accuracy."""

    def rate(name: str) -> float:
        scores = part.scores[name]
        values = list(scores.held_out.values())
        return scores.source if by_source else sum(values) / len(values) if values else float("-inf")

    return max(names, key=rate)


def count_wanted(part: Part, folds: int) -> dict[str, tuple[int, int]]:
    """Count the trainings (at most) and the records of each run directory of a part."""
    algorithms, seeds = len(part.algorithms), part.trials
    counts: dict[str, tuple[int, int]] = {}
    for folder in part.folders:
        if folder == "search":
            tried = (len(part.rates) or part.draws) * folds * algorithms
            views = sum(1 + (schedule == "constant" and bool(part.averages)) for schedule in part.schedules)
            counts[folder] = tried * len(part.schedules), tried * views
        elif folder == "cosine":
            counts[folder] = algorithms * folds * seeds, algorithms * folds * seeds
        else:
            views = len([v for v in part.variants if v != "cosine"])
            trainings = 2 if part.searches and part.averages and "plain" in part.variants else 1
            counts[folder] = algorithms * folds * seeds * trainings, algorithms * folds * seeds * views
    return counts


__all__ = ["LEVEL", "Answer", "Answers", "Pooling", "Rivals", "answer_study", "count_wanted"]

"""The answers to a study's hypotheses, from the intervals of paired differences alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from seqdg.base import unknown
from seqdg.results.pooling import Place, Pooled, SetDifference, average_set, find_levels, pool_sets, pool_sizes
from seqdg.results.statistics import LEVEL, correct_by_holm
from seqdg.results.study.file import Comparison, Hypothesis, Part, Study
from seqdg.results.study.outcomes import RULES, USUAL, PartScores, Scores, find_scores, pair_scores
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
    """On one set: the best sequential algorithm against the best of the rest, each chosen for every held-out domain by
    its own source validation. (In other folds that domain is a source: a choice by all folds would look at its rows.)

    oracle: the same chosen by the held-out accuracy itself, which favors whichever side has more to choose from.
    """

    set: str
    kind: str
    sequential: Mapping[str, str]  # by held-out domain
    other: Mapping[str, str]
    difference: SetDifference | None
    oracle: tuple[Mapping[str, str], Mapping[str, str], SetDifference | None]


@dataclass(frozen=True)
class Answers:
    study: Study
    answers: tuple[Answer, ...]
    rivals: tuple[Rivals, ...]
    steadiness: tuple[Steadiness, ...]
    select: str = USUAL  # the rule by which steps are chosen


def answer_study(study: Study, out: Path | None, select: str = USUAL) -> Answers:
    """Answer the hypotheses from the run directories below `out` and the published records.

    select: the rule that chooses the step; settings and the best algorithms are always chosen by source validation.
    """
    if select not in RULES:
        raise unknown("selection rule", select, RULES, owner="A study")
    return replace(answer_from(study, read_parts(study, out, select)), select=select)


def read_parts(study: Study, out: Path | None, select: str = USUAL) -> dict[tuple[str, str], PartScores]:
    """Read the parts that have records, by set and kind."""
    parts = {(part.set, part.kind): PartScores(study, part, out, select) for part in study.parts}
    return {place: scores for place, scores in parts.items() if scores.scores}


def answer_from(study: Study, parts: Mapping[tuple[str, str], PartScores]) -> Answers:
    """Answer the hypotheses from what was read."""
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
            found = average_set(name, pair_scores(sides[0].held_out, sides[1].held_out))
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
        ours = {a: scores for a, scores in part.scores.items() if a.partition("+")[0] in study.sequential}
        others = {a: scores for a, scores in part.scores.items() if a not in ours}
        if ours and others:
            honest, lucky = (_compare_best(name, ours, others, by_source) for by_source in (True, False))
            found.append(Rivals(name, kind, *honest, lucky))
    return found


def _compare_best(
    name: str, ours: Mapping[str, Scores], others: Mapping[str, Scores], by_source: bool
) -> tuple[dict[str, str], dict[str, str], SetDifference | None]:
    chosen = choose_best(ours, by_source), choose_best(others, by_source)
    better, worse = (_collect_chosen(side, best) for side, best in zip((ours, others), chosen, strict=True))
    return *chosen, average_set(name, pair_scores(better, worse))


def choose_best(side: Mapping[str, Scores], by_source: bool) -> dict[str, str]:
    """Choose for each held-out domain the algorithm with the best mean over seeds, of its source validation or of the
    held-out accuracy; one of which no training diverged, if there is one."""

    def rate(algorithm: str, domain: str) -> tuple[bool, float]:
        scores = side[algorithm]
        by_place = scores.source if by_source else scores.held_out
        values = [value for (held_out, _), value in by_place.items() if held_out == domain]
        return domain not in scores.diverged, fmean(values) if values else float("-inf")

    domains = dict.fromkeys(domain for scores in side.values() for domain, _ in scores.held_out)
    return {domain: max(side, key=lambda algorithm: rate(algorithm, domain)) for domain in domains}


def _collect_chosen(side: Mapping[str, Scores], chosen: Mapping[str, str]) -> dict[Place, float]:
    """Collect the held-out accuracies of the algorithms chosen for each domain."""
    return {
        place: value
        for domain, algorithm in chosen.items()
        for place, value in side[algorithm].held_out.items()
        if place[0] == domain
    }


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

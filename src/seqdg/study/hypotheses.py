"""The answers to a study's hypotheses, from the intervals of paired differences alone: computed, and shown as text,
Markdown, JSON or a figure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from seqdg.base import unknown
from seqdg.report import Figure, Row, Rows, Style
from seqdg.results import (
    DONE,
    LEVEL,
    InnerTrials,
    PairKey,
    Pooled,
    Record,
    SetDifference,
    average_set,
    correct_by_holm,
    find_levels,
    format_p,
    pool_sets,
    pool_sizes,
    score_candidate,
    select_outcomes,
)
from seqdg.study.definition import (
    AVERAGES,
    COSINE,
    COSINE_FOLDER,
    CRITERION,
    PLAIN,
    SEARCH,
    Comparison,
    Hypothesis,
    Part,
    Side,
    Study,
    collect_records,
    find_runs,
)

USUAL = "source-val"  # the rule of the answers
RULES = (USUAL, "last", "oracle", "oracle-split")  # others need trials that a study does not have
LAST = 10  # evaluations, whose swings are measured
SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
READING = (
    "Differences are in points of accuracy on held-out domains, paired over held-out domain and seed; ± is a standard "
    "error. After an algorithm, the kind of part that its trials belong to stands in brackets. A hypothesis is "
    "supported where its interval lies above 0, or above minus its margin; refuted where it lies below; else "
    "undecided. An effect size is a difference over the standard deviation of single pairs."
)
BESIDE = f"Beside it, and no part of the answer; {100 * (1 - LEVEL):.0f} % intervals, not corrected:"
RIVALS = (
    "Each side's best is chosen for every held-out domain by its own source validation (in brackets: for how many "
    "domains); and, to compare, by the held-out accuracy itself, which favors the side that has more to choose from."
)
SWINGS = (
    "Standard deviation in points, a mean over held-out domains and seeds; in brackets how far the mean of these "
    f"evaluations is above that of the plain weights. Of a part with {LAST} evaluations in all, it is that of whole "
    "trainings."
)
OTHER_RULE = "These are not the answers that the file asks for: the step was chosen by another rule,"
FORMATS = ("text", "markdown", "json")
FIGURE = "study-answers"
SET, ALL = "a set, 95 % interval", "all sets, interval corrected for all hypotheses"
LOOKS = {SET: Style("c6"), ALL: Style("c1", "diamond")}


@dataclass(frozen=True)
class Scores:
    """The accuracy of one algorithm in a part, in percent, at the steps that a rule chooses."""

    held_out: dict[PairKey, float]
    source: dict[PairKey, float]  # its source validation at its best step, which chooses the best algorithm
    diverged: frozenset[str]  # the held-out domains of trainings that diverged


class PartScores:
    """The scores of a part's algorithms, with `+cosine` after those under that schedule."""

    def __init__(self, study: Study, part: Part, out: Path | None, select: str = USUAL) -> None:
        self.part, self.records = part, dict[str, list[Record]]()
        for folder in part.folders:
            for record in () if folder == SEARCH else _read_trials(study, part, folder, out):
                name = record.algorithm + (f"+{COSINE}" if folder == COSINE_FOLDER else "")
                self.records.setdefault(name, []).append(record)
        self.scores = {name: _score(records, select) for name, records in self.records.items()}


def _score(records: Sequence[Record], select: str) -> Scores:
    outcomes = select_outcomes(records, select, CRITERION)
    known = [o for o in outcomes if o.value is not None]
    return Scores(
        held_out={(o.held_out, o.seed): 100 * o.value for o in known if o.value is not None},
        source={
            (o.held_out, o.seed): 100 * score_candidate(o.record, InnerTrials(()), USUAL, CRITERION) for o in known
        },
        diverged=frozenset(o.held_out for o in outcomes if o.value is None),
    )


def _read_trials(study: Study, part: Part, folder: str, out: Path | None) -> list[Record]:
    """Read the trials of a part, without those of its search."""
    records = collect_records(find_runs(study, part, folder, out), CRITERION)
    return [r for r in records.values() if r.seed < part.trials]


def pair_scores(better: Mapping[PairKey, float], worse: Mapping[PairKey, float]) -> dict[PairKey, float]:
    """Return the differences over the held-out domains and seeds that both sides have."""
    return {place: value - worse[place] for place, value in better.items() if place in worse}


def find_scores(parts: Mapping[tuple[str, str], PartScores], of: str, side: Side) -> Scores | None:
    """Find the scores of a side on a set."""
    part = parts.get((of, side.kind))
    return None if part is None else part.scores.get(side.algorithm)


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


def _collect_chosen(side: Mapping[str, Scores], chosen: Mapping[str, str]) -> dict[PairKey, float]:
    """Collect the held-out accuracies of the algorithms chosen for each domain."""
    return {
        place: value
        for domain, algorithm in chosen.items()
        for place, value in side[algorithm].held_out.items()
        if place[0] == domain
    }


def render_answers(answers: Answers, style: str = "text") -> str:
    """Show the answers."""
    if style not in FORMATS:
        raise unknown("format", style, FORMATS)
    if style == "json":
        return json.dumps(make_json(answers), indent=1)
    mark = style == "markdown"
    lines = [f"# {answers.study.title}" if mark else answers.study.title, "", READING, ""]
    if answers.select != USUAL:
        lines += [f"{OTHER_RULE} {answers.select}.", ""]
    for answer in answers.answers:
        lines += [*_describe_answer(answer, mark), ""]
    if answers.rivals:
        title = "The best sequential against the best of the rest"
        lines += [f"## {title}" if mark else title, "", RIVALS, "", *_tabulate_rivals(answers.rivals, mark)]
    if answers.steadiness:
        title = f"Swings of the held-out accuracy over the last {LAST} evaluations"
        lines += ["", f"## {title}" if mark else title, "", SWINGS, "", *_tabulate_swings(answers.steadiness, mark)]
    return "\n".join(lines).rstrip() + "\n"


def _tabulate_swings(steadiness: Sequence[Steadiness], mark: bool) -> list[str]:
    rows: list[tuple[str, ...]] = [("set", "kind", "algorithm", PLAIN, *AVERAGES)]
    for s in steadiness:
        averages = [f"{s.swing[v]:.2f} ({s.gain[v]:+.2f})" if v in s.swing else "" for v in AVERAGES]
        rows.append((s.set, s.kind, s.algorithm, f"{s.swing[PLAIN]:.2f}", *averages))
    return _draw(rows, mark)


def _describe_answer(answer: Answer, mark: bool) -> list[str]:
    h, main = answer.hypothesis, answer.main
    title = f"{h.name}. {h.says}: {answer.verdict}."
    lines = [f"## {title}" if mark else title, ""]
    pair = f"{main.comparison.better} minus {main.comparison.worse}"
    if main.pooled is None or answer.interval is None:
        return [*lines, f"{pair}: no set has both sides yet."]
    low, high = answer.interval
    p = "" if answer.p_holm is None else f", {format_p(answer.p_holm)} after Holm's correction"
    asked = f" (asked: above {-h.margin:g})" if h.margin else ""
    lines.append(
        f"{pair}: {main.pooled.mean:+.2f} points over {main.pooled.sets} sets, "
        f"{100 * (1 - answer.level):.1f} % interval {low:+.2f} to {high:+.2f}{asked}{p}; standard deviation between "
        f"sets {main.pooled.between:.2f} (I² {100 * main.pooled.heterogeneity:.0f} %){_describe_size(main.size)}."
    )
    if main.missing:
        lines.append(f"Not run yet, or by too few seeds: {', '.join(main.missing)}.")
    lines += ["", *_tabulate(main, mark)]
    if answer.beside:
        lines += ["", BESIDE, ""]
        lines += [f"- {_describe_pooling(pooling)}" for pooling in answer.beside]
    return lines


def _describe_size(size: Pooled | None) -> str:
    return "" if size is None else f"; effect size {size.mean:+.2f}"


def _describe_pooling(pooling: Pooling) -> str:
    pair = f"{pooling.comparison.better} minus {pooling.comparison.worse}"
    if pooling.pooled is None:
        return f"{pair}: not run yet."
    each = "; ".join(f"{s.name} {_format(s)}" for s in pooling.sets)
    if pooling.pooled.sets == 1:
        return f"{pair}: {each}."
    low, high = pooling.pooled.find_interval()
    return f"{pair}: {pooling.pooled.mean:+.2f} ({low:+.2f} to {high:+.2f}) over {pooling.pooled.sets} sets: {each}."


def _tabulate(pooling: Pooling, mark: bool) -> list[str]:
    """Make a table of the sets."""
    rows: list[tuple[str, ...]] = [
        ("set", "difference", f"{100 * (1 - LEVEL):.0f} % interval", "effect size", "domains", "seeds")
    ]
    return _draw([*rows, *(_make_row(s) for s in pooling.sets)], mark)


def _draw(rows: Sequence[tuple[str, ...]], mark: bool) -> list[str]:
    """Draw a table whose first row is its head."""
    if mark:
        return [f"| {' | '.join(row)} |" for row in (rows[0], ("---",) * len(rows[0]), *rows[1:])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _make_row(s: SetDifference) -> tuple[str, ...]:
    low, high = s.find_interval()
    return (
        s.name,
        f"{s.mean:+.2f} ± {s.error:.2f}",
        f"{low:+.2f} to {high:+.2f}",
        f"{s.size:+.2f}",
        str(s.domains),
        str(s.seeds),
    )


def _tabulate_rivals(rivals: Sequence[Rivals], mark: bool) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("set", "kind", "chosen by", "sequential", "rest", f"difference ({100 * (1 - LEVEL):.0f} % interval)")
    ]
    for r in rivals:
        for by, ours, other, difference in (
            ("source validation", r.sequential, r.other, r.difference),
            ("held-out accuracy", *r.oracle),
        ):
            rows.append((r.set, r.kind, by, _count_names(ours), _count_names(other), _format(difference)))
    return _draw(rows, mark)


def _count_names(chosen: Mapping[str, str]) -> str:
    """Name the two that are chosen for most domains, and count the rest: `agg+cosine (4), agg+ema (4), others (2)`."""
    counts = Counter(chosen.values()).most_common()
    others = sum(count for _, count in counts[2:])
    return ", ".join([f"{name} ({count})" for name, count in counts[:2]] + [f"others ({others})"] * bool(others))


def _format(s: SetDifference | None) -> str:
    if s is None:
        return "by too few seeds"
    low, high = s.find_interval()
    return f"{s.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def make_json(answers: Answers) -> dict[str, Any]:
    """Return the answers as plain data."""
    return {
        "title": answers.study.title,
        "select": answers.select,
        "hypotheses": [
            {
                "name": a.hypothesis.name,
                "says": a.hypothesis.says,
                "verdict": a.verdict,
                "margin": a.hypothesis.margin,
                "level": a.level,
                "p": a.p,
                "p_holm": a.p_holm,
                **_make_json_pooling(a.main, a.level),
                "beside": [_make_json_pooling(p, LEVEL) for p in a.beside],
            }
            for a in answers.answers
        ],
        "rivals": [
            {
                "set": r.set, "kind": r.kind, "sequential": dict(r.sequential), "other": dict(r.other),
                "difference": _make_json_set(r.difference),
                "oracle": {
                    "sequential": dict(r.oracle[0]), "other": dict(r.oracle[1]),
                    "difference": _make_json_set(r.oracle[2]),
                },
            }
            for r in answers.rivals
        ],
        "swings": [
            {"set": s.set, "kind": s.kind, "algorithm": s.algorithm, "swing": dict(s.swing), "gain": dict(s.gain)}
            for s in answers.steadiness
        ],
    }  # fmt: skip


def _make_json_pooling(pooling: Pooling, level: float) -> dict[str, Any]:
    pooled = pooling.pooled
    interval = None if pooled is None else [x if math.isfinite(x) else None for x in pooled.find_interval(level)]
    return {
        "better": str(pooling.comparison.better),
        "worse": str(pooling.comparison.worse),
        "difference": None if pooled is None else pooled.mean,
        "interval": interval,
        "between_sets": None if pooled is None else pooled.between,
        "heterogeneity": None if pooled is None else pooled.heterogeneity,
        "effect_size": None if pooling.size is None else pooling.size.mean,
        "sets": [_make_json_set(s) for s in pooling.sets],
        "missing": list(pooling.missing),
    }


def _make_json_set(s: SetDifference | None) -> dict[str, Any] | None:
    if s is None:
        return None
    return {
        "set": s.name, "difference": s.mean, "error": s.error, "interval": list(s.find_interval()),
        "effect_size": s.size if math.isfinite(s.size) else None, "domains": s.domains, "seeds": s.seeds,
    }  # fmt: skip


def make_answers_figure(answers: Answers) -> Figure:
    """Make the figure of the hypotheses that have answers."""
    known = [answer for answer in answers.answers if answer.interval is not None]
    rule = "" if answers.select == USUAL else f" Steps are chosen by another rule than the study's: {answers.select}."
    return Figure(
        FIGURE,
        answers.study.title,
        [make_panel(answers.study, answer) for answer in known],
        "Differences in points of accuracy on a held-out domain, paired by domain and seed. Gray: one data set. "
        f"Orange: all of them, by a random-effects model.{rule}",
        LOOKS,
    )


def make_panel(study: Study, answer: Answer) -> Rows:
    """Make the rows of one hypothesis: its sets, and all of them together."""
    rows = [Row(s.name, s.mean, *s.find_interval(), look=SET) for s in answer.main.sets]
    pooled, interval = answer.main.pooled, answer.interval
    if pooled is not None and interval is not None and all(map(math.isfinite, interval)):
        rows.append(Row("all", pooled.mean, *interval, look=ALL))
    margin = answer.hypothesis.margin
    asked = f" (asked: above −{margin:g})" if margin else ""
    heading = f"{answer.hypothesis.name}: {answer.verdict}{asked}"
    return Rows(rows, name_difference(study, answer.main.comparison), heading, zero=True)


def name_difference(study: Study, comparison: Comparison) -> str:
    """Name two algorithms in the same kind of parts, or two kinds with the same algorithm: by their paths, if these
    differ."""
    better, worse = comparison.better, comparison.worse
    if better.kind == worse.kind:
        return f"{better.algorithm} − {worse.algorithm}"
    paths = [next(part.path for part in study.parts if part.kind == side.kind) for side in (better, worse)]
    if paths[0] != paths[1]:
        return f"{better.algorithm}, {paths[0]} − {paths[1]} path"
    return f"{better.algorithm}, {better.kind} − {worse.kind}"

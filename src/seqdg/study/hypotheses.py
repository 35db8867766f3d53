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

from seqdg.base import align_columns, count_things, unknown
from seqdg.report import Figure, Panel, Style, draw_rows, make_row
from seqdg.results import (
    DONE,
    LEVEL,
    PairKey,
    Pooled,
    Record,
    SetDifference,
    average_set,
    correct_by_holm,
    find_levels,
    format_p,
    pause_garbage_collection,
    pool_sets,
    pool_sizes,
    select_outcomes,
)
from seqdg.study.definition import (
    AVERAGES,
    COSINE,
    CRITERION,
    PLAIN,
    SEARCH,
    Comparison,
    Hypothesis,
    Part,
    Study,
    collect_records,
    find_runs,
    score_source,
)

USUAL = "source-val"  # the rule of the answers
RULES = (USUAL, "last", "oracle", "oracle-split")  # others need trials that a study does not have
LAST = 10  # evaluations, whose swings are measured
SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
INTERVAL = f"{100 * (1 - LEVEL):.0f} % interval"
READING = (
    "Differences are in points of accuracy on held-out domains, paired over held-out domain and seed; ± is a standard "
    "error. After an algorithm, the kind of part that its trials belong to stands in brackets. A hypothesis is "
    "supported where its interval lies above 0, or above minus its margin; refuted where it lies below; else "
    "undecided. An effect size is a difference over the standard deviation of single pairs."
)
BESIDE = f"Beside it, and no part of the answer; {INTERVAL}s, not corrected:"
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
SOURCE, HELD_OUT = "source validation", "held-out accuracy"  # what chooses the best of each side
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

    def __init__(self, part: Part, records: Mapping[str, list[Record]], select: str = USUAL) -> None:
        self.part, self.records = part, records
        self.scores = {name: _score(its, select) for name, its in records.items()}


Parts = Mapping[tuple[str, str], PartScores]  # by set and kind


def _score(records: Sequence[Record], select: str) -> Scores:
    outcomes = select_outcomes(records, select, CRITERION)
    known = {(o.held_out, o.seed): (o.value, o.record) for o in outcomes if o.value is not None}
    return Scores(
        {pair: 100 * value for pair, (value, _) in known.items()},
        {pair: 100 * score_source(r) for pair, (_, r) in known.items()},
        frozenset(o.held_out for o in outcomes if o.value is None),
    )


def pair_scores(better: Mapping[PairKey, float], worse: Mapping[PairKey, float]) -> dict[PairKey, float]:
    """Return the differences over the held-out domains and seeds that both sides have."""
    return {pair: value - worse[pair] for pair, value in better.items() if pair in worse}


@dataclass(frozen=True)
class Steadiness:
    """The standard deviation, in points, of the held-out accuracy over the last evaluations of a training: a mean over
    held-out domains and seeds. gain: the mean of the same evaluations above the plain weights', in points."""

    set: str
    kind: str
    algorithm: str
    swing: Mapping[str, float]  # by variant: plain, ema, sma, swad
    gain: Mapping[str, float]


def measure_steadiness(parts: Parts) -> list[Steadiness]:
    """Measure every algorithm that has plain and averaged records of long enough trainings."""
    measured = []
    for (name, kind), part in parts.items():
        for base in part.part.algorithms:
            variants = {PLAIN: base, **{average: f"{base}+{average}" for average in AVERAGES}}
            curves = {v: _list_curves(part.records.get(algorithm, [])) for v, algorithm in variants.items()}
            curves = {v: some for v, some in curves.items() if some}
            if PLAIN in curves and len(curves) > 1:
                level = {v: fmean(fmean(curve) for curve in some) for v, some in curves.items()}
                swing = {v: fmean(stdev(curve) for curve in some) for v, some in curves.items()}
                gain = {v: value - level[PLAIN] for v, value in level.items() if v != PLAIN}
                measured.append(Steadiness(name, kind, base, swing, gain))
    return measured


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
    alone: bool = False  # the study is of one set

    @property
    def pooled(self) -> Pooled | None:
        return pool_sets(self.sets) if self.sets else None

    @property
    def size(self) -> Pooled | None:
        """The standardized effect."""
        return pool_sizes(self.sets) if self.sets else None

    @property
    def whole(self) -> SetDifference | Pooled | None:
        """What answers: all sets together; in a study of one set that set, over its domains and seeds."""
        return self.sets[0] if self.alone and self.sets else self.pooled

    def __str__(self) -> str:
        return f"{self.comparison.better} minus {self.comparison.worse}"


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
        return None if self.main.whole is None else self.main.whole.find_interval(self.level)

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
    Or by the held-out accuracy itself, which favors whichever side has more to choose from.
    """

    set: str
    kind: str
    chosen_by: str
    sequential: Mapping[str, str]  # by held-out domain
    other: Mapping[str, str]
    difference: SetDifference | None


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
    with pause_garbage_collection():
        parts = {part: _read_records(study, part, out) for part in study.parts}
    return {(part.set, part.kind): PartScores(part, records, select) for part, records in parts.items() if records}


def _read_records(study: Study, part: Part, out: Path | None) -> dict[str, list[Record]]:
    """Read the trials of a part by algorithm, all but those of its search."""
    records: dict[str, list[Record]] = {}
    for folder in part.folders:
        if folder == SEARCH:
            continue
        for record in collect_records(find_runs(study, part, folder, out), CRITERION).values():
            if record.seed < part.trials:
                name = record.algorithm + (f"+{COSINE}" if folder == COSINE else "")
                records.setdefault(name, []).append(record)
    return records


def answer_from(study: Study, parts: Parts) -> Answers:
    """Answer the hypotheses from what was read."""
    mains = [_pool(study, hypothesis.comparison, parts) for hypothesis in study.hypotheses]
    tests = [
        None if main.whole is None or (len(main.sets) < 2 and not main.alone) else main.whole.test(-hypothesis.margin)
        for hypothesis, main in zip(study.hypotheses, mains, strict=True)
    ]
    # A hypothesis without data counts in the correction as if it could not be decided.
    filled = [1.0 if p is None else p for p in tests]
    answers = [
        Answer(h, main, p, None if p is None else p_holm, level, tuple(_pool(study, c, parts) for c in h.beside))
        for h, main, p, p_holm, level in zip(
            study.hypotheses, mains, tests, correct_by_holm(filled), find_levels(filled), strict=True
        )
    ]
    return Answers(study, tuple(answers), tuple(_list_rivals(study, parts)), tuple(measure_steadiness(parts)))


def _pool(study: Study, comparison: Comparison, parts: Parts) -> Pooling:
    sets, missing = [], []
    sides = comparison.better, comparison.worse
    for name in study.sets:
        if any(study.find_part(name, side.kind) is None for side in sides):
            continue
        read = [parts[name, side.kind].scores if (name, side.kind) in parts else {} for side in sides]
        better, worse = (scores.get(side.algorithm) for scores, side in zip(read, sides, strict=True))
        difference = average_set(name, pair_scores(better.held_out, worse.held_out)) if better and worse else None
        if difference is None:
            missing.append(name)
        else:
            sets.append(difference)
    return Pooling(comparison, tuple(sets), tuple(missing), alone=len(study.sets) == 1)


def _list_rivals(study: Study, parts: Parts) -> list[Rivals]:
    rivals = []
    for (name, kind), part in parts.items():
        ours = {a: scores for a, scores in part.scores.items() if a.partition("+")[0] in study.sequential}
        others = {a: scores for a, scores in part.scores.items() if a not in ours}
        for chosen_by in (SOURCE, HELD_OUT) if ours and others else ():
            first, second = (choose_best(side, chosen_by == SOURCE) for side in (ours, others))
            pairs = pair_scores(_collect_chosen(ours, first), _collect_chosen(others, second))
            rivals.append(Rivals(name, kind, chosen_by, first, second, average_set(name, pairs)))
    return rivals


def choose_best(side: Mapping[str, Scores], by_source: bool) -> dict[str, str]:
    """Choose for each held-out domain the algorithm with the best mean over seeds, of its source validation or of the
    held-out accuracy; one of which no training diverged, if there is one."""

    def rate(algorithm: str, domain: str) -> tuple[bool, float]:
        scores = side[algorithm]
        by_pair = scores.source if by_source else scores.held_out
        values = [value for (held_out, _), value in by_pair.items() if held_out == domain]
        return domain not in scores.diverged, fmean(values) if values else float("-inf")

    domains = dict.fromkeys(domain for scores in side.values() for domain, _ in scores.held_out)
    return {domain: max(side, key=lambda algorithm: rate(algorithm, domain)) for domain in domains}


def _collect_chosen(side: Mapping[str, Scores], chosen: Mapping[str, str]) -> dict[PairKey, float]:
    """Collect the held-out accuracies of the algorithms chosen for each domain."""
    return {
        pair: value
        for domain, algorithm in chosen.items()
        for pair, value in side[algorithm].held_out.items()
        if pair[0] == domain
    }


def render_answers(answers: Answers, style: str = "text") -> str:
    """Show the answers."""
    if style not in FORMATS:
        raise unknown("format", style, FORMATS)
    if style == "json":
        return json.dumps(make_json(answers), indent=1)
    mark = style == "markdown"
    heading = "## " if mark else ""
    lines = [f"# {answers.study.title}" if mark else answers.study.title, "", READING, ""]
    if answers.select != USUAL:
        lines += [f"{OTHER_RULE} {answers.select}.", ""]
    for answer in answers.answers:
        lines += [f"{heading}{answer.hypothesis.name}. {answer.hypothesis.says}: {answer.verdict}.", ""]
        lines += [*_describe_answer(answer, mark), ""]
    if answers.rivals:
        lines += [f"{heading}The best sequential against the best of the rest", "", RIVALS, ""]
        lines += _tabulate_rivals(answers.rivals, mark)
    if answers.steadiness:
        lines += ["", f"{heading}Swings of the held-out accuracy over the last {LAST} evaluations", "", SWINGS, ""]
        lines += _tabulate_swings(answers.steadiness, mark)
    return "\n".join(lines).rstrip() + "\n"


def _describe_answer(answer: Answer, mark: bool) -> list[str]:
    main, margin = answer.main, answer.hypothesis.margin
    if main.pooled is None or answer.interval is None:
        return [f"{main}: no set has both sides yet."]
    low, high = answer.interval
    p = "" if answer.p_holm is None else f", {format_p(answer.p_holm)} after Holm's correction"
    asked = f" (asked: above {-margin:g})" if margin else ""
    size = "" if main.size is None else f"; effect size {main.size.mean:+.2f}"
    between = (
        f"standard deviation between sets {main.pooled.between:.2f} (I² {100 * main.pooled.heterogeneity:.0f} %)"
        if not main.alone
        else "the interval is over the domains and seeds of this set"
    )
    lines = [
        f"{main}: {main.pooled.mean:+.2f} points over {count_things(main.pooled.sets, 'set')}, "
        f"{100 * (1 - answer.level):.1f} % interval {low:+.2f} to {high:+.2f}{asked}{p}; {between}{size}."
    ]
    if main.missing:
        lines.append(f"Not run yet, or by too few seeds: {', '.join(main.missing)}.")
    lines += ["", *_tabulate_sets(main.sets, mark)]
    if answer.beside:
        lines += ["", BESIDE, "", *(f"- {_describe_pooling(pooling)}" for pooling in answer.beside)]
    return lines


def _describe_pooling(pooling: Pooling) -> str:
    if pooling.pooled is None:
        return f"{pooling}: not run yet."
    each = "; ".join(f"{s.name} {_format(s)}" for s in pooling.sets)
    if pooling.pooled.sets == 1:
        return f"{pooling}: {each}."
    low, high = pooling.pooled.find_interval()
    return f"{pooling}: {pooling.pooled.mean:+.2f} ({low:+.2f} to {high:+.2f}) over {pooling.pooled.sets} sets: {each}."


def _tabulate_sets(sets: Sequence[SetDifference], mark: bool) -> list[str]:
    rows: list[tuple[str, ...]] = [("set", "difference", INTERVAL, "effect size", "domains", "seeds")]
    for s in sets:
        low, high = s.find_interval()
        numbers = f"{s.mean:+.2f} ± {s.error:.2f}", f"{low:+.2f} to {high:+.2f}", f"{s.size:+.2f}"
        rows.append((s.name, *numbers, str(s.domains), str(s.seeds)))
    return _draw(rows, mark)


def _tabulate_rivals(rivals: Sequence[Rivals], mark: bool) -> list[str]:
    rows: list[tuple[str, ...]] = [("set", "kind", "chosen by", "sequential", "rest", f"difference ({INTERVAL})")]
    for r in rivals:
        sides = _count_names(r.sequential), _count_names(r.other)
        rows.append((r.set, r.kind, r.chosen_by, *sides, _format(r.difference)))
    return _draw(rows, mark)


def _tabulate_swings(steadiness: Sequence[Steadiness], mark: bool) -> list[str]:
    rows: list[tuple[str, ...]] = [("set", "kind", "algorithm", PLAIN, *AVERAGES)]
    for s in steadiness:
        averages = [f"{s.swing[v]:.2f} ({s.gain[v]:+.2f})" if v in s.swing else "" for v in AVERAGES]
        rows.append((s.set, s.kind, s.algorithm, f"{s.swing[PLAIN]:.2f}", *averages))
    return _draw(rows, mark)


def _draw(rows: Sequence[tuple[str, ...]], mark: bool) -> list[str]:
    """Draw a table whose first row is its head."""
    if mark:
        return [f"| {' | '.join(row)} |" for row in (rows[0], ("---",) * len(rows[0]), *rows[1:])]
    return [line.rstrip() for line in align_columns(rows, left=len(rows[0]))]


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
                "name": a.hypothesis.name, "says": a.hypothesis.says, "verdict": a.verdict,
                "margin": a.hypothesis.margin, "level": a.level, "p": a.p, "p_holm": a.p_holm,
                **_make_json_pooling(a.main, a.level), "beside": [_make_json_pooling(p, LEVEL) for p in a.beside],
            }
            for a in answers.answers
        ],
        "rivals": [{**vars(r), "difference": _make_json_set(r.difference)} for r in answers.rivals],
        "swings": [vars(s) for s in answers.steadiness],
    }  # fmt: skip


def _make_json_pooling(pooling: Pooling, level: float) -> dict[str, Any]:
    pooled, whole = pooling.pooled, pooling.whole
    summary = dict.fromkeys(("difference", "interval", "between_sets", "heterogeneity", "effect_size"))
    if pooled is not None and whole is not None and pooling.size is not None:
        interval = [x if math.isfinite(x) else None for x in whole.find_interval(level)]
        summary = {
            "difference": pooled.mean, "interval": interval, "between_sets": pooled.between,
            "heterogeneity": pooled.heterogeneity, "effect_size": pooling.size.mean,
        }  # fmt: skip
    sides = {"better": str(pooling.comparison.better), "worse": str(pooling.comparison.worse)}
    sets = [_make_json_set(s) for s in pooling.sets]
    return {**sides, **summary, "sets": sets, "missing": list(pooling.missing)}


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


def make_panel(study: Study, answer: Answer) -> Panel:
    """Make the rows of one hypothesis: its sets, and all of them together."""
    rows = [make_row(s.name, s.mean, *s.find_interval(), look=SET) for s in answer.main.sets]
    pooled, interval = answer.main.pooled, answer.interval
    if pooled is not None and interval is not None and all(map(math.isfinite, interval)):
        rows.append(make_row("corrected" if answer.main.alone else "all", pooled.mean, *interval, look=ALL))
    margin = answer.hypothesis.margin
    asked = f" (asked: above −{margin:g})" if margin else ""
    heading = f"{answer.hypothesis.name}: {answer.verdict}{asked}"
    return draw_rows(rows, name_difference(study, answer.main.comparison), LOOKS, heading, zero=True)


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

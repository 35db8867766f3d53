"""A study on the page: what it will run, and what it answers, as text, Markdown or JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from seqdg.base import unknown
from seqdg.results import (
    AVERAGES,
    LAST,
    LEVEL,
    PLAIN,
    USUAL,
    Answer,
    Answers,
    Pooled,
    Pooling,
    Rivals,
    SetDifference,
    Steadiness,
    format_p,
)

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

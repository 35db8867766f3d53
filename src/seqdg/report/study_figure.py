"""The answers of a study as a picture: for each hypothesis its difference on every set, and over all of them."""

from __future__ import annotations

import math

from seqdg.report.charts import Figure
from seqdg.report.panels import Row, Rows
from seqdg.report.theme import Style
from seqdg.results import USUAL, Answer, Answers, Comparison, Study

NAME = "study-answers"
SET, ALL = "a set, 95 % interval", "all sets, interval corrected for all hypotheses"
LOOKS = {SET: Style("c6"), ALL: Style("c1", "diamond")}


def make_answers_figure(answers: Answers) -> Figure:
    """Make the figure of the hypotheses that have answers."""
    known = [answer for answer in answers.answers if answer.interval is not None]
    rule = "" if answers.select == USUAL else f" Steps are chosen by another rule than the study's: {answers.select}."
    return Figure(
        NAME,
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

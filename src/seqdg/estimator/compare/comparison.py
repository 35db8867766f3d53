"""The result of `compare`: every candidate's scores, and in words what they say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from seqdg.base import count_things
from seqdg.estimator.compare.held_out_scores import CHOSEN, HeldOutScores
from seqdg.estimator.compare.rules import ORACLE, WITHIN_ERROR, split_rule
from seqdg.report import align_columns
from seqdg.results import AVERAGE, CRITERIA, WORST, Unit, find_unit, name_criterion

RULES = {
    "source-val": "by validation rows of the source domains",
    "leave-one-out": "by how well it served each domain after training on the others",
    "leave-one-out-stopped": "by how well it served each domain, after so many steps on the others",
    "both": "by validation rows of the source domains, and by how well it served each after training on others",
}


@dataclass(frozen=True)
class Comparison(HeldOutScores):
    """The scores of algorithms with every domain held out in turn.

    `print` it, or read `scores`, `expected`, `interval`, `metrics`, `warnings`, `estimator`.
    """

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the choice."""
        return _say_warnings(self)

    @property
    def sentence(self) -> str:
        """The sentence on what to expect on the next domain."""
        return _say_expected(self)

    @property
    def drivers(self) -> str:
        """The sentences on what makes the interval wide, and what one more domain would do."""
        return _say_drivers(self)

    @property
    def how(self) -> list[str]:
        """The sentences on how the winner was chosen."""
        return _say_how(self)

    def describe(self) -> dict[str, Any]:
        """Return what the model's card says, as JSON holds it."""
        return {
            "sentence": self.sentence,
            "drivers": self.drivers,
            "how": self.how,
            "criterion": self.criterion,
            "select": self.select,
            "expected": self.expected,
            "interval": None if self.interval is None else list(self.interval),
            "held_out": self.metrics(),
            "warnings": self.warnings,
        }

    def __str__(self) -> str:
        return _draw(self)


def _draw(comparison: HeldOutScores) -> str:
    """Draw the tables of scores, with the sentences and notes below."""
    tables = [_draw_domains(comparison)]
    if _count_tried(comparison) > 1:  # one candidate is the same by every rule
        tables.append(_draw_rules(comparison))
    sentences = [*_say_how(comparison), _say_expected(comparison), _say_drivers(comparison), *_say_warnings(comparison)]
    notes = [f"note: {note}" for note in comparison.notes]
    return "\n\n".join("\n".join(part) for part in (*([t] for t in tables), sentences, notes) if part) + "\n"


def _say_expected(comparison: HeldOutScores) -> str:
    """Say what to expect on the next domain."""
    unit, name = _find_unit(comparison), name_criterion(comparison.criterion)
    if comparison.expected is None or comparison.interval is None:
        return f"Nothing can be said of the {name} on the next domain: training diverged."
    known = comparison.domains if comparison.next_domain is None else comparison.next_domain.known
    low, high = (f"{unit.factor * v:.{unit.digits}f}" for v in comparison.interval)
    return (
        f"Expected {name} on the next domain: {unit.factor * comparison.expected:.{unit.digits}f}{unit.sign} (90 % "
        f"interval {low} to {high}, from {len(known)} domains, each held out in turn)."
    )


def _say_drivers(comparison: HeldOutScores) -> str:
    """Say what makes the interval as wide as it is, and what one more domain would do."""
    ahead = comparison.next_domain
    if ahead is None:
        return ""
    if ahead.differ is None:
        differ = "Of one domain nothing is known of how domains differ: the interval is that of many other data sets."
    else:
        differ = (
            f"The {len(ahead.known)} domains differ by {_format_width(comparison, ahead.differ)} (standard deviation); "
            f"if they did not, the interval would be {_format_width(comparison, ahead.rows_alone)} wide, by the number "
            "of rows alone."
        )
    now, then = (_format_width(comparison, width) for width in (ahead.width, ahead.narrower))
    if ahead.narrower >= 0.98 * ahead.width:
        return f"{differ} It is {now} wide; one more domain would hardly change that."
    return f"{differ} It is {now} wide; one more domain would narrow it to about {then}."


def _say_how(comparison: HeldOutScores) -> list[str]:
    """Say how the winner was chosen."""
    winner, seeds = comparison.winner, count_things(comparison.seeds, "seed")
    rate = {} if winner.lr is None else {"lr": winner.lr}
    values = {**winner.settings, **rate}
    settings = ", ".join(f"{k} = {_format_setting(v)}" for k, v in values.items()) or "no settings"
    tried = _count_tried(comparison)
    if tried == 1:
        given = "was the only candidate that there was time for" if comparison.left_out else "was given, not chosen"
        return [f"{winner.algorithm} ({settings}) {given}; {seeds}."]
    anew = "without it" if comparison.nested else "by the scores on the others"
    return [
        f"{winner.algorithm} ({settings}) was chosen among {tried} candidates of {len(comparison.algorithms)} "
        f"algorithms {RULES[split_rule(comparison.select)[0]]}; {seeds}.",
        *_explain_choice(comparison),
        f"The expectation is that of this choice as a whole, made anew for every held-out domain {anew}.",
    ]


def _say_warnings(comparison: HeldOutScores) -> list[str]:
    """Say what speaks against trusting the choice."""
    warnings, why = [], comparison.reason
    leans = split_rule(comparison.select)[1]
    if why is not None and not leans and why.best != why.simplest and not why.exceeds_error:
        warnings.append(
            f"{why.best} was chosen, but its lead over {why.simplest}, which is simpler, may be chance "
            f"({_format_gap(comparison)}): the rule {comparison.select}{WITHIN_ERROR} takes the simpler one."
        )
    choices = comparison.chosen[comparison.select]
    lost = sum(o.value is None for o in choices)
    if lost:
        warnings.append(f"All candidates diverged for {lost} of {len(choices)} choices.")
    return warnings


def _count_tried(comparison: HeldOutScores) -> int:
    return sum(comparison.algorithms.values())


def _explain_choice(comparison: HeldOutScores) -> list[str]:
    """Say how the winner compares with the best and the simplest, where the rule leans to the simplest."""
    why, winner = comparison.reason, comparison.winner.algorithm
    if why is None or not split_rule(comparison.select)[1]:
        return []
    if why.best == why.simplest:
        return [f"{why.best} is the simplest and scores best by this rule."]
    gap = _format_gap(comparison)
    if winner == why.best and why.exceeds_error:
        return [f"Its lead over {why.simplest}, the simplest, is larger than its standard error: {gap}."]
    if winner == why.best:
        return [f"Its lead over {why.simplest}, the simplest, may be chance, but is too large to give up: {gap}."]
    if winner == why.simplest:
        lead = f"its lead over {why.simplest}, the simplest, may be chance"
        return [f"{why.best} scores best by this rule, but {lead}: {gap}."]
    return [f"{why.best} scores best by this rule, but its lead over {winner}, which is simpler, may be chance."]


def _format_gap(comparison: HeldOutScores) -> str:
    unit, why = _find_unit(comparison), comparison.reason
    assert why is not None
    digits = unit.digits + 1  # so that a gap that is just above its error does not look the same
    gap = f"{unit.factor * why.gap + 0.0:.{digits}f} {unit.points}".rstrip()
    over = f"over {count_things(why.domains, 'domain')}"
    if not math.isfinite(why.error):
        return f"{gap} {over}, too few for a standard error"
    return f"{gap} with a standard error of {unit.factor * why.error:.{digits}f} {over}"


def _format_width(comparison: HeldOutScores, value: float) -> str:
    unit = _find_unit(comparison)
    return f"{unit.factor * value:.{unit.digits}f} {unit.points}".rstrip()


def _format_setting(value: Any) -> str:
    """Format a setting, numbers to four digits."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_format_setting, value))})"
    if isinstance(value, float) and value != round(value, 1):
        return f"{value:.4g}"
    return value if isinstance(value, str) else repr(value)


def _draw_domains(comparison: HeldOutScores) -> str:
    unit, scores = _find_unit(comparison), comparison.scores()
    columns, tried = [*comparison.domains, AVERAGE, WORST], _count_tried(comparison)
    lines = [["algorithm", "candidates", *columns]]
    for name in comparison.order if tried > 1 else comparison.order[:-1]:
        count = tried if name == CHOSEN else comparison.algorithms[name]
        cells = [_format_score(scores[name][c], unit) for c in columns]
        lines.append([name, str(count), *cells])
    over = f"mean over {count_things(comparison.seeds, 'seed')}, chosen by {comparison.select}"
    title = f"{unit.title} on each domain, held out in turn: {over}"
    return "\n".join([title, *align_columns(lines)])


def _draw_rules(comparison: HeldOutScores) -> str:
    unit = _find_unit(comparison)
    averages = {rule: comparison.scores(rule) for rule in comparison.rules}
    lines = [["algorithm", *(f"({rule})" if rule == ORACLE else rule for rule in comparison.rules)]]
    for name in comparison.order:
        cells = [_format_score(averages[rule].get(name, {}).get(AVERAGE), unit) for rule in comparison.rules]
        lines.append([name, *(f"({c})" if r == ORACLE else c for c, r in zip(cells, comparison.rules, strict=True))])
    title = f"{unit.title}, average over held-out domains, by rule of choice"
    note = "(oracle): chosen by the held-out domain itself. A bound on what choosing better could give, not a result."
    return "\n".join([title, *align_columns(lines), *([note] if ORACLE in comparison.rules else [])])


def _find_unit(comparison: HeldOutScores) -> Unit:
    if not CRITERIA[comparison.criterion].has_size:
        return CRITERIA[comparison.criterion]
    return find_unit(comparison.criterion, [scores[AVERAGE] for scores in comparison.scores().values()])


def _format_score(value: float | None, unit: Unit) -> str:
    return "-" if value is None else f"{unit.factor * value:.{unit.digits}f}"

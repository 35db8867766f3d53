"""Rules of choice: which candidate is taken, by scores that the domain it is for has no part in.

What is known of a candidate for a target is a score for each source domain s, more being better:

    source-val      v_s: on validation rows of s, of the training on all sources
    leave-one-out   h_s: on all rows of s, of a training on the other sources
    both            (v_s + h_s) / 2

The number of steps of a training is the one that validates best on its sources. `leave-one-out-stopped` is
`leave-one-out` at one number of steps for all trainings, the one with the best mean of h_s.

The candidate with the best mean wins. A rule that ends in `-1se` takes the simplest candidate over which the best one's
lead may be chance: with d_s the difference between the best one's score and its own,

    mean(d) <= deviation(d) / sqrt(number of sources)

(one standard error: Breiman et al., Classification and Regression Trees, 1984; here of paired differences, so that easy
and hard domains do not count as noise). One that ends in `-near` takes it only where it is also near: where mean(d) is
at most a point (0.01), or 2 % of an error. Few domains tell little, and what is far behind by their scores is usually
behind. Simple is what has few parts to go wrong: a linear model, then AGG, then its averages, then other models without
a net, then the rest, in the order in which they were named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from seqdg.base import UsageError, unknown
from seqdg.results import average_finite

SOURCE_VAL, LEAVE_ONE_OUT, BOTH, ORACLE = "source-val", "leave-one-out", "both", "oracle"
STOPPED = "leave-one-out-stopped"
BASES = (SOURCE_VAL, LEAVE_ONE_OUT, BOTH, STOPPED)
WITHIN_ERROR, NEAR = "-1se", "-near"
RULES = tuple(base + ending for ending in ("", WITHIN_ERROR, NEAR) for base in BASES)
DEFAULT = BOTH + NEAR
POINT, SHARE_OF_ERROR = 0.01, 0.02  # how far behind is near, of shares and of errors
REPORTED = (SOURCE_VAL, LEAVE_ONE_OUT, BOTH, ORACLE)  # beside the one that chooses
MOST_NESTED = 6  # domains up to which pairs of them are held out, unless the user says otherwise


@dataclass(frozen=True)
class Choice:
    """The place of what was chosen among candidates that begin with the simplest, and why.

    best: the place of the best mean.   gap: by how much the best one's mean exceeds that of the simplest.   error: the
    standard error of this, over so many domains; nan of one.
    """

    place: int
    best: int
    simplest: int
    gap: float
    error: float
    domains: int

    @property
    def exceeds_error(self) -> bool:
        """True where the best one's lead over the simplest is larger than its standard error."""
        return exceeds_error(self.gap, self.error)


def split_rule(rule: str) -> tuple[str, str]:
    """Split a rule into what it looks at and how it leans to the simplest: not (""), `-1se` or `-near`."""
    for ending in (WITHIN_ERROR, NEAR):
        if rule.endswith(ending):
            return rule.removesuffix(ending), ending
    return rule, ""


def looks_at_held_out(rule: str) -> bool:
    """Return whether a rule needs scores on sources that were held out."""
    return split_rule(rule)[0] in (LEAVE_ONE_OUT, BOTH, STOPPED)


def check_rules(select: str, rules: Sequence[str]) -> None:
    """Raise a UsageError for a rule that does not exist or that cannot choose for a domain without labels."""
    if select == ORACLE:
        raise UsageError(f"oracle chooses by the held-out domain, and the next domain has no labels: use {DEFAULT}.")
    for rule, allowed in ((select, RULES), *((rule, (*RULES, ORACLE)) for rule in rules)):
        if rule not in allowed:
            raise unknown("selection rule", str(rule), allowed)


def choose(scores: Sequence[Sequence[float] | None], leaning: str) -> Choice | None:
    """Choose among candidates, from the simplest on, by their scores on each source; None where none has any.

    scores: None for a candidate whose training diverged.   leaning: to the simplest, as `split_rule` returns it.
    """
    means = [math.nan if s is None else average_finite(s) for s in scores]
    known = [i for i, mean in enumerate(means) if math.isfinite(mean)]
    if not known:
        return None
    best = max(known, key=lambda i: (round(means[i], 9), -i))
    gaps = {i: compare_scores(scores[best] or (), scores[i] or ()) for i in known}
    near = POINT if means[best] >= 0 else SHARE_OF_ERROR * -means[best]
    most = {"": -math.inf, WITHIN_ERROR: math.inf, NEAR: near}[leaning]
    chosen = next(i for i in known if i == best or (not exceeds_error(*gaps[i]) and round(gaps[i][0] - most, 9) <= 0))
    sources = sum(map(math.isfinite, scores[best] or ()))
    return Choice(chosen, best, known[0], *gaps[known[0]], sources)


def compare_scores(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the mean paired difference of scores over domains and its standard error; nan of fewer than two."""
    gaps = [a - b for a, b in zip(first, second, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not gaps:
        return math.nan, math.nan
    return fmean(gaps), stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan


def exceeds_error(gap: float, error: float) -> bool:
    """Return whether a gap is larger than its standard error: False where the error is not known."""
    return round(gap, 9) > round(error, 9) if math.isfinite(error) else False

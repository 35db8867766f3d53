"""The result of `compare`: every candidate's scores with every domain held out in turn, and in words what they say.

The candidate with the best mean wins. A rule that ends in `-1se` takes the simplest candidate over which the best one's
lead may be chance: with d_s the difference between the best one's score and its own,

    mean(d) <= deviation(d) / sqrt(number of sources)

(one standard error: Breiman et al., Classification and Regression Trees, 1984; here of paired differences, so that easy
and hard domains do not count as noise). One that ends in `-near` takes it only where it is also near: where mean(d) is
at most a point (0.01), or 2 % of an error. Few domains tell little, and what is far behind by their scores is usually
behind. Simple is what has few parts to go wrong, as learners say (`rank_simplicity`): a linear model, then AGG, then
its averages, then other models without a net, then the rest, in the order in which they were named.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from seqdg.base import UsageError, align_columns, count_things, unknown
from seqdg.data import Dataset
from seqdg.estimator.model_report import write_model_report
from seqdg.estimator.recipe import WEIGHTED, Winner
from seqdg.results import (
    AVERAGE,
    CRITERIA,
    WORST,
    NextDomain,
    Outcome,
    PairedDifference,
    Unit,
    average_finite,
    compare_pairs,
    find_unit,
    name_criterion,
    predict_next_domain,
)
from seqdg.training import measure_rows

if TYPE_CHECKING:
    from seqdg.estimator.column_importance import Importance

SOURCE_VAL, LEAVE_ONE_OUT, BOTH, ORACLE = "source-val", "leave-one-out", "both", "oracle"
STOPPED = "leave-one-out-stopped"
BASES = (SOURCE_VAL, LEAVE_ONE_OUT, BOTH, STOPPED)
WITHIN_ERROR, NEAR = "-1se", "-near"
RULES = tuple(base + ending for ending in ("", WITHIN_ERROR, NEAR) for base in BASES)
DEFAULT = BOTH + NEAR
POINT, SHARE_OF_ERROR = 0.01, 0.02  # how far behind is near, of shares and of errors
REPORTED = (SOURCE_VAL, LEAVE_ONE_OUT, BOTH, ORACLE)  # beside the one that chooses
MAJORITY, MEAN = "majority-class", "mean"  # the baseline that costs nothing
CHOSEN = "chosen"  # the choice among all candidates, in place of one of them
Scores = dict[str, float | None]  # by domain, and AVERAGE and WORST
MEANINGS = {
    "source-val": "by in-domain validation",
    "leave-one-out": "by its leave-one-domain-out score",
    "leave-one-out-stopped": "by its leave-one-domain-out score, which also set the number of steps",
    "both": "by the mean of its in-domain validation and leave-one-domain-out scores",
}


@dataclass(frozen=True)
class Choice:
    """The index of what was chosen among candidates that begin with the simplest, and why.

    best: the index of the best mean.   lead: by how much the best one's mean exceeds that of the simplest.   error: the
    standard error of this, over so many domains; nan of one.
    """

    index: int
    best: int
    simplest: int
    lead: float
    error: float
    domains: int

    @property
    def exceeds_error(self) -> bool:
        """True where the best one's lead over the simplest is larger than its standard error."""
        return exceeds_error(self.lead, self.error)


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
    leads = {i: compare_scores(scores[best] or (), scores[i] or ()) for i in known}
    near = POINT if means[best] >= 0 else SHARE_OF_ERROR * -means[best]
    most = {"": -math.inf, WITHIN_ERROR: math.inf, NEAR: near}[leaning]
    chosen = next(i for i in known if i == best or (not exceeds_error(*leads[i]) and round(leads[i][0] - most, 9) <= 0))
    sources = sum(map(math.isfinite, scores[best] or ()))
    return Choice(chosen, best, known[0], *leads[known[0]], sources)


def compare_scores(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the mean paired difference of scores over domains and its standard error; nan of fewer than two."""
    leads = [a - b for a, b in zip(first, second, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not leads:
        return math.nan, math.nan
    return fmean(leads), stdev(leads) / math.sqrt(len(leads)) if len(leads) > 1 else math.nan


def exceeds_error(lead: float, error: float) -> bool:
    """Return whether a lead is larger than its standard error: False where the error is not known."""
    return round(lead, 9) > round(error, 9) if math.isfinite(error) else False


@dataclass(frozen=True, repr=False)
class Comparison:
    """The scores of algorithms with every domain held out in turn, as `seqdg.compare` returns them.

    In a notebook it is its leaderboard; `print` shows it too.

    Attributes
    ----------
    estimator : DomainClassifier or DomainRegressor
        The ensemble, or the single choice, fitted on all domains.
    domains : tuple of str
        The domains, each of which was held out.
    sentence : str
        What to expect on the next domain, in words.
    notes : tuple of str
        What was decided about the data and the candidates.

    Examples
    --------
    >>> import numpy as np
    >>> import seqdg
    >>> draw = np.random.default_rng(0)
    >>> X, hospital = draw.normal(size=(90, 2)), np.repeat(["north", "south", "east"], 30)
    >>> ill = np.where(X[:, 0] > 0, "yes", "no")
    >>> comparison = seqdg.compare(X, ill, hospital, candidates=["logistic", "knn"], baseline=None, seeds=1)
    >>> comparison.leaderboard()["candidate"].tolist()[-1]
    'majority-class'
    >>> low, high = comparison.interval
    >>> low < comparison.expected < high
    True
    """

    domains: tuple[str, ...]
    algorithms: Mapping[str, int]  # names, with how many candidates each
    criterion: str
    select: str  # the rule by which the winner was chosen
    seeds: int
    winner: Winner
    outcomes: Mapping[str, Sequence[Outcome]]  # by rule, which chooses settings and step of each algorithm
    chosen: Mapping[str, Sequence[Outcome]]  # by rule, which chooses the algorithm too
    baseline: str | None
    reason: Choice  # for the choice, by the index of a candidate in `ranked`
    ranked: tuple[str, ...]  # the algorithm of each candidate for all domains, the simplest first
    notes: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)  # of each domain; of weighted ones, how many they are worth
    nested: bool = True  # whether what was chosen for a domain is chosen without anything that has seen it
    left_out: tuple[str, ...] = ()  # candidates that there was no time for
    constant: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # without a model, by domain, criterion
    estimator: Any = field(default=None, compare=False)  # the winner, fitted on all domains
    combined: Sequence[Outcome] = ()  # what the weighted ensemble reaches; none: one candidate was chosen
    members: tuple[Winner, ...] = ()  # of the ensemble for all domains, the heaviest first
    pick: Winner | None = None  # what would be chosen in place of an ensemble
    classes: tuple[str, ...] = ()
    told: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of each held-out domain, for the report

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(self.outcomes)

    def scores(self, rule: str | None = None, criterion: str | None = None) -> dict[str, Scores]:
        """Return the mean over seeds on every held-out domain, by algorithm.

        Parameters
        ----------
        rule : str, optional
            The rule that chooses settings and steps, such as "source-val"; by default the one that chose.
        criterion : str, optional
            Such as "accuracy" or "log_loss"; by default the one that chose.

        Returns
        -------
        dict of str to dict
            By algorithm and domain, with the average and the worst. `chosen` is the choice among them all, and
            `weighted-ensemble`, by the rule that chose, what they reach together.
        """
        rule, criterion = rule or self.select, criterion or self.criterion
        by_name = {name: [o for o in self.outcomes[rule] if o.algorithm == name] for name in self.algorithms}
        rows = {name: self._average(outcomes, criterion) for name, outcomes in by_name.items() if outcomes}
        rows[CHOSEN] = self._average(self.chosen[rule], criterion)
        if self.combined and rule == self.select:
            rows[WEIGHTED] = self._average(self.combined, criterion)
        return rows

    def leaderboard(self) -> pd.DataFrame:
        """Return a row for each candidate, the best on held-out domains first, and the baseline that needs no model.

        Scores are in the unit of the printed tables: accuracy and other shares in %, R² as it is.

        Returns
        -------
        pandas.DataFrame
            `held_out` and `worst` are the mean and the worst score on held-out domains, `stderr` the standard error of
            the mean over the domains, `source_val` the mean score on validation rows of the sources, `fit_seconds` of
            one training (trainings of a stack share its time), `predict_seconds` of 1,000 rows. `chosen` marks the
            winner, `transductive` what needs the rows of the unseen domain together. With an ensemble `weight` is a
            candidate's weight, and `weighted-ensemble` and `chosen`, a single pick in its place, have rows too.
        """
        rows: list[dict[str, Any]] = []
        scores, weights = self.scores(), {member.algorithm: member.weight for member in self.members}
        outcomes = [*self.outcomes[self.select], *self.combined]
        together = {o.algorithm for o in outcomes if o.record.description.get("together")}
        if not together.isdisjoint(weights):
            together |= {o.algorithm for o in self.combined}
        for name in self._sort(scores) if self.combined else self.order[:-1]:
            of_name = self.chosen[self.select] if name == CHOSEN else [o for o in outcomes if o.algorithm == name]
            its = [o for o in of_name if o.value is not None]
            rows.append(
                {
                    "rank": len(rows) + 1,
                    "candidate": name,
                    **self._list_means(scores[name]),
                    "source_val": _average([average_finite(_find_step(o).source[self.criterion]) for o in its]),
                    "fit_seconds": _average([o.record.seconds for o in its]),
                    "predict_seconds": _average([o.record.serving for o in its if o.record.serving]),
                    "chosen": name == self.winner.algorithm,
                    "transductive": not together.isdisjoint([name, *(o.record.algorithm for o in its)]),
                    **({"weight": weights.get(name)} if self.combined else {}),
                }
            )
        if self.constant:
            costs = {"fit_seconds": 0.0, "predict_seconds": 0.0}
            means = self._list_means(self._constant_scores)
            rows.append({"rank": None, "candidate": self._constant_name, **means, **costs, "chosen": False})
        board, scored = pd.DataFrame(rows), ["held_out", "worst", "stderr", "source_val"]
        board[scored] = board[scored].astype(float) * self._unit.factor
        return board.astype({"rank": "Int64"})

    def _list_means(self, scores: Scores) -> dict[str, float | None]:
        """Return the mean, the worst and the standard error over the domains that have a score."""
        known = [v for d in self.domains if (v := scores[d]) is not None]
        error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
        return {"held_out": scores[AVERAGE], "worst": scores[WORST], "stderr": error}

    @property
    def order(self) -> list[str]:
        """The candidates by their average on held-out domains, the best first and those that have none last; then
        CHOSEN, and WEIGHTED where there is an ensemble."""
        scores = self.scores()
        ends = [name for name in (CHOSEN, WEIGHTED) if name in scores]
        return [*self._sort({name: row for name, row in scores.items() if name not in ends}), *ends]

    def _sort(self, scores: Mapping[str, Scores]) -> list[str]:
        sign = -1 if self._unit.higher_is_better else 1
        averages = {name: row[AVERAGE] for name, row in scores.items()}
        ranks = {name: math.inf if value is None else round(sign * value, 9) for name, value in averages.items()}
        return sorted(ranks, key=ranks.__getitem__)

    @property
    def judged(self) -> str:
        """The row of scores that the expectation is taken from: that of the ensemble, or of the single choice."""
        return WEIGHTED if self.combined else CHOSEN

    def metrics(self) -> dict[str, Scores]:
        """Return every criterion of the winner.

        Returns
        -------
        dict of str to dict
            By domain, with the average and the worst, and criterion.
        """
        outcomes = self.combined or self.chosen[self.select]
        known = [c for c in CRITERIA if any(c in o.record.history[-1].held_out for o in outcomes)]
        columns = {c: self.scores(criterion=c)[self.judged] for c in known}
        return {row: {c: columns[c][row] for c in known} for row in (*self.domains, AVERAGE, WORST)}

    @property
    def expected(self) -> float | None:
        """The mean score of the ensemble, or of the single choice, over held-out domains."""
        return self.scores()[self.judged][AVERAGE]

    @property
    def next_domain(self) -> NextDomain | None:
        """The estimate for the next domain, from the winner's scores on known ones; None where there are none."""
        scores = self.scores()[self.judged]
        known = {d: v for d in self.domains if (v := scores[d]) is not None}
        if not known:
            return None
        return predict_next_domain(list(known.values()), [self.rows.get(d, 1) for d in known], self.criterion)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval for the next domain, with a probability of 90 % if it is drawn as the known ones were."""
        ahead = self.next_domain
        return None if ahead is None else (ahead.low, ahead.high)

    @property
    def paired(self) -> list[PairedDifference]:
        """Every algorithm against the baseline, trial by trial."""
        if self.baseline is None or len(self.algorithms) < 2:
            return []
        unit = CRITERIA[self.criterion]
        return compare_pairs(self.outcomes[self.select], self.baseline, unit.factor, unit.higher_is_better)

    @property
    def sentence(self) -> str:
        """The sentence on what to expect on the next domain."""
        ahead, unit, name = self.next_domain, self._unit, name_criterion(self.criterion)
        if self.expected is None or ahead is None:
            return f"Nothing can be said of the {name} on the next domain: training diverged."
        return (
            f"Expected {name} on the next domain: {_format(self.expected, unit)}{unit.sign} (90 % interval "
            f"{_format(ahead.low, unit)} to {_format(ahead.high, unit)}, from {len(ahead.known)} domains, each held "
            f"out in turn){self._compare_with_constant()}."
            + (
                " The interval is optimistic, as these domains differ more than it allows for."
                if ahead.is_optimistic
                else ""
            )
        )

    @property
    def drivers(self) -> str:
        """The sentences on what makes the interval wide, and what one more domain would do."""
        ahead = self.next_domain
        if ahead is None:
            return ""
        if ahead.differ is None:
            differ = (
                "One domain does not show how domains differ, so the interval rests on other data sets. It spans "
                f"{self._format_points(ahead.width)}"
            )
        else:
            apart, width, rest = map(self._format_points, (ahead.differ, ahead.width, ahead.rows_alone))
            differ = (
                f"The {len(ahead.known)} domains differ by {apart} (standard deviation). The interval spans {width}; "
                f"{rest} would remain from sampling noise even if all domains were alike"
            )
        more = f"narrow it to about {self._format_points(ahead.narrower)}"
        if ahead.narrower >= 0.98 * ahead.width:
            more = "hardly change that"
        return f"{differ}; one more domain would {more}."

    @property
    def how(self) -> list[str]:
        """The sentences on how the winner was chosen."""
        if self.members:
            return self._explain_weights()
        winner, seeds = self.winner, count_things(self.seeds, "seed")
        values = {**(winner.settings or {}), **({} if winner.lr is None else {"lr": winner.lr})}
        settings = ", ".join(f"{k} = {_format_setting(v)}" for k, v in values.items()) or "no settings"
        if self._tried == 1:
            alone = (
                "was the only candidate that there was time for (a larger time limit tries more)"
                if self.left_out
                else "was given, not chosen"
            )
            return [f"{winner.algorithm} ({settings}) {alone}; {seeds}."]
        return [
            f"{winner.algorithm} ({settings}) was chosen among {self._tried} candidates of {len(self.algorithms)} "
            f"algorithms {MEANINGS[split_rule(self.select)[0]]}; {seeds}.",
            *self._explain_choice(),
            self._explain_estimate("selection"),
        ]

    @property
    def warnings(self) -> list[str]:
        """Reasons not to trust the choice."""
        warnings, (best, simplest) = [], self._name_ends()
        if not self.members and not split_rule(self.select)[1] and best != simplest and not self.reason.exceeds_error:
            warnings.append(
                f"{best} was chosen, but its lead over {simplest}, which is simpler, may be chance "
                f"({self._format_lead()}): the rule {self.select}{WITHIN_ERROR} takes the simpler one."
            )
        choices = self.combined or self.chosen[self.select]
        lost = sum(o.value is None for o in choices)
        if lost:
            warnings.append(f"All candidates diverged for {lost} of {len(choices)} choices.")
        return warnings

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

    def describe_candidates(self) -> dict[str, Any]:
        """Return what `report` shows beside the card, as JSON holds it."""
        ahead, scores = self.next_domain, self.scores()
        rows = [
            {
                **{name: None if pd.isna(value) else value for name, value in row.items()},
                "scores": scores[row["candidate"]],
            }
            for row in self.leaderboard().to_dict("records")
            if row["candidate"] in scores
        ]
        constant = {"name": self._constant_name, "scores": self._constant_scores} if self.constant else None
        return {
            "criterion": self.criterion,
            "judged": self.judged,
            "candidates": json.loads(json.dumps(rows)),
            "constant": constant,
            "rows": dict(self.rows),
            "limits": [] if ahead is None else [list(pair) for pair in ahead.limits],
            "inconsistency": None if ahead is None else ahead.inconsistency,
            "classes": list(self.classes),
            "domains": {d: dict(its) for d, its in self.told.items()},
        }

    def report(self, out: str | Path, importance: Importance | None = None) -> Path:
        """Write a page on what to expect of the model, for a browser without a network; return its path.

        Parameters
        ----------
        out : str or Path
            A file that ends in .html, or a directory for report.html.
        importance : Importance, optional
            What `seqdg.importance` measured, to be shown too.

        Returns
        -------
        Path
            Where the page is.
        """
        about = {"estimate": self.describe(), "comparison": self.describe_candidates(), "notes": list(self.notes)}
        return write_model_report({"algorithm": self.winner.algorithm, "facts": about}, Path(out), importance)

    def __repr__(self) -> str:
        candidates, domains = count_things(len(self.algorithms), "candidate"), count_things(len(self.domains), "domain")
        return f"<Comparison of {candidates} on {domains}: {self.winner.algorithm}. {self.sentence}>"

    def _repr_html_(self) -> str:
        """Draw the leaderboard, with the sentences on what to expect and on how the winner was chosen."""
        head, *rows = self.format_leaderboard()
        lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        table = f"<table><thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>"
        sentences = "".join(f"<p>{escape(text)}</p>" for text in (self.sentence, *self.how, *self.warnings))
        return f"<p>{escape(self._unit.title)} with each domain held out in turn</p>{table}{sentences}"

    def format_leaderboard(self) -> list[list[str]]:
        """Format the leaderboard as text: a line of names, and a line for each row."""
        score = f"{{:.{self._unit.digits}f}}"
        formats = dict.fromkeys(("held_out", "worst", "stderr", "source_val"), score)
        formats |= {"rank": "{:d}", "fit_seconds": "{:.2f}", "predict_seconds": "{:.3f}", "weight": "{:.0%}"}
        board = self.leaderboard()
        lines = [[str(name).replace("_", " ") for name in board.columns]]
        for row in board.itertuples(index=False):
            cells = []
            for name, value in zip(board.columns, row, strict=True):
                if pd.isna(value) or value is False:
                    cells.append("")
                else:
                    cells.append("yes" if value is True else formats.get(name, "{}").format(value))
            lines.append(cells)
        return lines

    def __str__(self) -> str:
        """Draw the tables of scores, with the sentences and notes below."""
        tables = [self._draw_domains(), *([self._draw_rules()] if self._tried > 1 else [])]  # one is alike by all rules
        sentences = [*self.how, self.sentence, self.drivers, *self.warnings]
        notes = [f"note: {note}" for note in self.notes]
        return "\n\n".join("\n".join(part) for part in (*tables, sentences, notes) if part) + "\n"

    @property
    def _tried(self) -> int:
        return sum(self.algorithms.values())

    @property
    def _unit(self) -> Unit:
        if not CRITERIA[self.criterion].has_size:
            return CRITERIA[self.criterion]
        return find_unit(self.criterion, [scores[AVERAGE] for scores in self.scores().values()])

    def _average(self, outcomes: Sequence[Outcome], criterion: str) -> Scores:
        row: Scores = {}
        for domain in self.domains:
            its = [o for o in outcomes if o.held_out == domain and o.value is not None]
            row[domain] = _average([_find_step(o).held_out[criterion][0] for o in its])
        return _summarize(row, criterion)

    @property
    def _constant_name(self) -> str:
        return MEAN if CRITERIA[self.criterion].is_of_numbers else MAJORITY

    @property
    def _constant_scores(self) -> Scores:
        """What a constant reaches, by domain, AVERAGE and WORST."""
        return _summarize({d: _average([self.constant[d][self.criterion]]) for d in self.domains}, self.criterion)

    def _compare_with_constant(self) -> str:
        """Say what a constant reaches, where it has a score: one that never varies has no correlation."""
        average = self._constant_scores[AVERAGE] if self.constant else None
        if average is None:
            return ""
        what = "mean" if self._constant_name == MEAN else "majority class"
        return f"; always predicting the {what} reaches {_format(average, self._unit)}{self._unit.sign}"

    def _explain_weights(self) -> list[str]:
        """Say of what the ensemble is made, and what a single pick in its place reaches."""
        what = "numbers" if CRITERIA[self.criterion].is_of_numbers else "probabilities"
        tried, seeds = count_things(len(self.algorithms), "candidate"), count_things(self.seeds, "seed")
        shares = ", ".join(f"{member.algorithm} {100 * member.weight:.0f} %" for member in self.members)
        sentences = [
            f"{WEIGHTED} averages the {what} of {len(self.members)} of {tried}, weighted by its score on "
            f"unseen domains: {shares}; {seeds}.",
            self._explain_estimate("weighting"),
        ]
        if self.pick is not None:
            average, unit = self.scores()[CHOSEN][AVERAGE], self._unit
            sentences.append(
                f"A single pick, selected in the same way, reaches {_format(average, unit)}{unit.sign}; for all "
                f"domains it is {self.pick.algorithm} (--single, or ensemble=False, takes it)."
            )
        return sentences

    def _explain_estimate(self, procedure: str) -> str:
        """Say that what to expect is of the whole procedure, and whether it is nested."""
        nested = "nested leave-one-domain-out" if self.nested else "by the scores of the other domains, almost nested"
        return f"The estimate covers the whole {procedure} procedure ({nested})."

    def _explain_choice(self) -> list[str]:
        """Say how the winner compares with the best and the simplest, where the rule leans to the simplest."""
        winner, (best, simplest) = self.winner.algorithm, self._name_ends()
        if not split_rule(self.select)[1]:
            return []
        if best == simplest:
            return [f"{best} is the simplest and scores best by this rule."]
        lead = self._format_lead()
        if winner == best:
            if self.reason.exceeds_error:
                return [f"It beat {simplest}, the simplest candidate, by {lead} (more than one standard error)."]
            return [f"Its lead over {simplest}, the simplest, may be chance, but is too large to give up: {lead}."]
        if winner == simplest:
            return [
                f"{best} scores best by this rule, but its lead over {winner}, the simplest, may be chance: {lead}."
            ]
        return [f"{best} scores best by this rule, but its lead over {winner}, which is simpler, may be chance."]

    def _name_ends(self) -> tuple[str, str]:
        """Name the algorithms of the best candidate and of the simplest."""
        return self.ranked[self.reason.best], self.ranked[self.reason.simplest]

    def _format_lead(self) -> str:
        unit, why = self._unit, self.reason
        for _ in range(3):  # so that a lead just above its error does not look the same
            unit = replace(unit, digits=unit.digits + 1)
            if _format(why.lead + 0.0, unit) != _format(why.error, unit):
                break
        lead, over = _format(why.lead + 0.0, unit), f"over {count_things(why.domains, 'domain')}"
        if not math.isfinite(why.error):
            return f"{lead} {unit.points} {over}, too few for a standard error".replace("  ", " ")
        return f"{lead} ± {_format(why.error, unit)} {unit.points} {over}".replace("  ", " ")

    def _format_points(self, value: float) -> str:
        return f"{_format(value, self._unit)} {self._unit.points}".rstrip()

    def _draw_domains(self) -> list[str]:
        unit, scores, columns = self._unit, self.scores(), [*self.domains, AVERAGE, WORST]
        lines = [["algorithm", "candidates", *columns]]
        for name in self.order if self._tried > 1 else self.order[:-1]:
            count = len(self.members) if name == WEIGHTED else self._tried if name == CHOSEN else self.algorithms[name]
            lines.append([name, str(count), *(_format(scores[name][c], unit) for c in columns)])
        if self.constant:
            lines.append([self._constant_name, "-", *(_format(self._constant_scores[c], unit) for c in columns)])
        over = f"mean over {count_things(self.seeds, 'seed')}, chosen by {self.select}"
        return [f"{unit.title} on each domain, held out in turn: {over}", *align_columns(lines)]

    def _draw_rules(self) -> list[str]:
        unit, averages = self._unit, {rule: self.scores(rule) for rule in self.rules}
        lines = [["algorithm", *(f"({rule})" if rule == ORACLE else rule for rule in self.rules)]]
        for name in self.order:
            cells = {rule: _format(averages[rule].get(name, {}).get(AVERAGE), unit) for rule in self.rules}
            lines.append([name, *(f"({cell})" if rule == ORACLE else cell for rule, cell in cells.items())])
        title = f"{unit.title}, average over held-out domains, by rule of choice"
        note = (
            "(oracle): chosen by the held-out domain itself. A bound on what choosing better could give, not a result."
        )
        return [title, *align_columns(lines), *([note] if ORACLE in self.rules else [])]


def _summarize(row: Scores, criterion: str) -> Scores:
    """Add AVERAGE and WORST to the scores of domains."""
    known = [v for v in row.values() if v is not None]
    worst = min if CRITERIA[criterion].higher_is_better else max
    return {**row, AVERAGE: fmean(known) if known else None, WORST: worst(known) if known else None}


def _find_step(outcome: Outcome) -> Any:
    """Return the evaluation at the chosen step."""
    return next(e for e in outcome.record.history if e.step == outcome.step)


def _average(values: Sequence[float]) -> float | None:
    finite = [v for v in values if math.isfinite(v)]
    return fmean(finite) if finite else None


def _format(value: float | None, unit: Unit) -> str:
    return "-" if value is None else f"{unit.factor * value:.{unit.digits}f}"


def _format_setting(value: Any) -> str:
    """Format a setting, numbers to four digits."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_format_setting, value))})"
    if isinstance(value, float) and value != round(value, 1):
        return f"{value:.4g}"
    return value if isinstance(value, str) else repr(value)


def score_constant(data: Dataset) -> dict[str, dict[str, float]]:
    """Return by held-out domain and criterion what a constant of the other domains reaches: the shares of their
    classes, of which the largest is predicted, or the mean of their numbers."""
    weight = torch.ones(len(data.y), dtype=torch.float64) if data.weight is None else data.weight.double()
    found = {}
    for i, domain in enumerate(data.domains):
        rows, sources = data.rows(domain), data.domain != i
        said = _find_constant(data, sources, weight).expand(len(rows), -1)
        found[domain] = measure_rows(said, data.y[rows], None if data.weight is None else weight[rows])
    return found


def _find_constant(data: Dataset, sources: Tensor, weight: Tensor) -> Tensor:
    """Return the logarithm of the share of each class (class,), or the mean (1,)."""
    if data.is_regression:
        return ((data.y * weight)[sources].sum() / weight[sources].sum())[None]
    shares = torch.bincount(data.y[sources], weights=weight[sources], minlength=len(data.classes)).double()
    return (shares / shares.sum()).clamp(min=1e-12).log()

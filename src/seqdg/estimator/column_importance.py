"""Permutation importance by domain: which columns a model uses where it was trained, and which still help elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import get_scorer, get_scorer_names

from seqdg.base import UsageError, align_columns, list_some, refuse_broken, unknown
from seqdg.data import Frame, is_dataframe
from seqdg.estimator.domain_estimator import DomainEstimator
from seqdg.estimator.user_data import read_domains, read_weights, take_domains
from seqdg.report import Figure, draw_rows, make_row, make_styles, shorten_names
from seqdg.results import Spread, estimate_spread
from seqdg.training import make_stream

SEEN, UNSEEN = "seen", "unseen"
HEADINGS = {SEEN: "Domains trained on", UNSEEN: "Unseen domains"}
SET_ASIDE = 0.2  # share of every domain's rows that no fold trains on
MOST_FOLDS = 10
MOST_SHOWN = 20  # columns in the picture and in print
VERDICTS = {
    "transfers": "helps on domains that the model has not seen",
    "varies": "helps where the model was trained; beyond, domains differ too much to say",
    "does not transfer": "helps where the model was trained, and less or not at all beyond",
    "misleads": "makes the model worse on domains that it has not seen",
    "little": "indistinguishable from no help",
}
Score = Callable[..., float]  # of a model, rows and their labels, and of weights if there are any
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Importance:
    """How much the score drops when a column is shuffled. `print` it, or read `frame()`, `by_domain()`, `figure()`.

    drops: (domain held out, column, 2) the mean over shuffles, on rows of the domains that were trained on and on the
    domain that was not.
    """

    columns: tuple[str, ...]
    domains: tuple[str, ...]  # that were held out in turn
    drops: NDArray[np.float64]
    scores: NDArray[np.float64]  # (domain held out, 2) before any shuffle
    repeats: int
    scoring: str

    def frame(self) -> pd.DataFrame:
        """Return a row per column, the most useful on unseen domains first: the mean drops with their 95 % intervals
        over domains, and the verdict."""
        rows = []
        for name, seen, unseen in zip(self.columns, self.drops[..., 0].T, self.drops[..., 1].T, strict=True):
            inside, outside, lost = map(estimate_spread, (seen, unseen, seen - unseen))
            intervals = (inside.low, inside.high, outside.low, outside.high)
            rows.append((name, inside.mean, outside.mean, *intervals, judge(inside, outside, lost)))
        ends = [f"{kind}_{end}" for kind in (SEEN, UNSEEN) for end in ("low", "high")]
        return pd.DataFrame(rows, columns=["column", SEEN, UNSEEN, *ends, "verdict"]).sort_values(
            UNSEEN, ascending=False, kind="stable", ignore_index=True
        )

    def by_domain(self) -> pd.DataFrame:
        """Return a row per held-out domain and column."""
        names = pd.MultiIndex.from_product([self.domains, self.columns], names=["held_out", "column"])
        return pd.DataFrame(self.drops.reshape(-1, 2), index=names, columns=[SEEN, UNSEEN]).reset_index()

    def figure(self) -> Figure:
        """Draw each column's drop where the model was trained and on unseen domains, with 95 % intervals."""
        table = self.frame()[:MOST_SHOWN]
        names = shorten_names(table["column"].tolist())
        looks, panels = make_styles(HEADINGS), []
        for kind, heading in HEADINGS.items():
            rows = [
                make_row(names[row["column"]], row[kind], row[f"{kind}_low"], row[f"{kind}_high"], look=kind)
                for row in table.to_dict("records")
            ]
            panels.append(draw_rows(rows, f"drop of {self.scoring}", looks, heading, zero=True))
        caption = (
            f"Drop of {self.scoring} when a column is shuffled within its domain, {self.repeats} times: mean and 95 % "
            f"interval over {len(self.domains)} domains, each held out in turn.{self._count_rest('drawn')}"
        )
        return Figure("importance", "What transfers", panels, caption, looks)

    def __str__(self) -> str:
        table = self.frame()
        names = shorten_names(table["column"].tolist())
        lines = [["column", "trained on", UNSEEN, "95 % interval", "verdict"]]
        for row in table[:MOST_SHOWN].to_dict("records"):
            low, high = (_format_drop(row[f"{UNSEEN}_{end}"]) for end in ("low", "high"))
            interval = "-" if low == "-" else f"{low} to {high}"
            drops = (_format_drop(row[kind]) for kind in (SEEN, UNSEEN))
            lines.append([names[row["column"]], *drops, interval, row["verdict"]])
        inside, outside = self.scores.mean(0)
        title = (
            f"Drop of {self.scoring} when a column is shuffled within its domain: mean over {len(self.domains)} "
            f"domains, each held out in turn, and {self.repeats} shuffles"
        )
        before = (
            f"Before: {inside:.3f} on set-aside rows of the domains trained on, {outside:.3f} on the unseen ones."
            f"{self._count_rest('shown')}"
        )
        meanings = [f"{verdict}: {text}" for verdict, text in VERDICTS.items() if verdict in set(table["verdict"])]
        return "\n".join([title, *align_columns(lines), "", before, *meanings]) + "\n"

    def _count_rest(self, verb: str) -> str:
        rest = len(self.columns) - MOST_SHOWN
        return f" {rest} columns that matter less are not {verb}." if rest > 0 else ""


def judge(seen: Spread, unseen: Spread, lost: Spread) -> str:
    """Say what a column is worth, by the intervals over domains of its drops where the model was trained, on unseen
    domains, and of the difference. Of columns that are worth nothing, one in forty seems to transfer by chance."""
    if unseen.low is not None and unseen.low > 0:
        return "transfers"
    if unseen.high is not None and unseen.high < 0:
        return "misleads"
    if seen.low is None or seen.low <= 0:
        return "little"
    return "does not transfer" if lost.low is not None and lost.low > 0 else "varies"


def importance(
    model: Any,
    X: Any,
    y: Any,
    domains: Any,
    *,
    columns: Sequence[str] | None = None,
    repeats: int = 5,
    scoring: str | Score | None = None,
    random_state: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    sample_weight: Any = None,
) -> Importance:
    """Measure which columns still help on a domain that the model has not seen.

    Each domain is held out in turn (ten of more than ten). A clone of the model is fitted to four fifths of the other
    domains' rows, with `domains` if its `fit` takes them. Then scikit-learn's `permutation_importance` measures
        drop = score before - score after a column is shuffled within its domain
    twice: on the fifth of the other domains' rows that was set aside (seen), and on the held-out domain (unseen).
    Columns that say the same share their importance: shuffling one leaves the other.

    Parameters
    ----------
    model : estimator
        Of seqdg or scikit-learn. Fitted or not, it stays as it is.
    X : data frame or matrix
        The table.
    y : array of shape (row,)
        The labels or numbers.
    domains : array of shape (row,), or str
        The name or number of each row's domain, or the column of the data frame X that holds it.
    columns : list of str, optional
        The columns to shuffle. By default all.
    repeats : int, default 5
        Shuffles of each column.
    scoring : str or callable, optional
        As in scikit-learn. By default the model's own `score`, accuracy or R².
    random_state : int, default 0
        Seed of what is set aside and of the shuffles; the same one gives the same numbers.
    on_progress : callable, optional
        Called with the number of folds that are done and their total.
    sample_weight : array of shape (row,), optional
        How much each row counts, in training and in every score.

    Returns
    -------
    Importance
        `print` it, or read `frame()`, `by_domain()` and `figure()`.

    Examples
    --------
    >>> import numpy as np
    >>> import seqdg
    >>> from sklearn.linear_model import LogisticRegression
    >>> draw = np.random.default_rng(0)
    >>> X, hospital = draw.normal(size=(400, 2)), np.repeat(["north", "south", "east", "west"], 100)
    >>> found = seqdg.importance(LogisticRegression(), X, X[:, 0] > 0, hospital)
    >>> found.frame()[["column", "verdict"]].to_dict("list")
    {'column': ['x0', 'x1'], 'verdict': ['transfers', 'little']}
    """
    X, domains = take_domains(X, domains)
    table = _read_table(X)
    if repeats < 1:
        raise UsageError(f"{repeats} repeats were asked for, but at least 1 is needed.")
    labels = np.asarray(y)
    indices = _find_columns(table, columns)
    every, domain = read_domains(domains, len(labels))
    if len(table) != len(labels):
        raise UsageError(f"X has {len(table)} rows and y {len(labels)}: they must agree.")
    if len(every) < 2:
        raise UsageError(f"There is only the domain '{every[0]}': to hold it out, at least one other is needed.")
    weight = read_weights(sample_weight, every, domain)
    # A model that is given a matrix is fitted to one: a data frame has names, which it would miss later.
    enter = (lambda table: table) if is_dataframe(X) or isinstance(X, Frame) else pd.DataFrame.to_numpy
    names = get_scorer_names()
    if isinstance(scoring, str) and scoring not in names:
        raise unknown("score", scoring, names, owner="scikit-learn")
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring

    def score(model: Any, x: pd.DataFrame, y: Any, **weights: Any) -> float:
        given = enter(x), y
        with refuse_broken(f"The score {scoring} does not suit this model") if scoring in names else nullcontext():
            return float(model.score(*given, **weights) if scorer is None else scorer(model, *given, **weights))

    aside = _set_aside(domain, random_state)
    held_out = sorted(make_stream(random_state, "folds").permutation(len(every))[:MOST_FOLDS].tolist())
    drops, before = np.empty((len(held_out), len(indices), 2)), np.empty((len(held_out), 2))
    for fold, d in enumerate(held_out):
        on_progress(fold, len(held_out))
        trained = np.flatnonzero((domain != d) & ~aside)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about categories that a fold has not seen
            fitted = clone(model)
            if isinstance(fitted, DomainEstimator):
                fitted.set_params(verbose=0)  # what is shown here are the folds
            takes_domains = "domains" in signature(fitted.fit).parameters
            known = {"domains": np.array(every)[domain[trained]]} if takes_domains else {}
            fitted.fit(enter(table.iloc[trained]), labels[trained], **known, **_pick_weights(weight, trained))
            for kind, rows in enumerate((np.flatnonzero((domain != d) & aside), np.flatnonzero(domain == d))):
                part, truth, weights = table.iloc[rows], labels[rows], _pick_weights(weight, rows)
                before[fold, kind] = score(fitted, part, truth, **weights)
                shuffled = permutation_importance(
                    fitted,
                    np.tile(np.arange(len(rows))[:, None], len(indices)),
                    truth,
                    scoring=_ShuffledScore(score, part, list(indices.values()), domain[rows]),
                    n_repeats=repeats,
                    random_state=int(make_stream(random_state, "shuffle", d, kind).integers(2**31)),
                    **weights,
                )
                drops[fold, :, kind] = shuffled.importances_mean
    on_progress(len(held_out), len(held_out))
    word = scoring if isinstance(scoring, str) else "the score"
    if scoring is None:
        word = "accuracy" if is_classifier(model) else "R²"
    return Importance(tuple(indices), tuple(every[d] for d in held_out), drops, before, repeats, word)


@dataclass(frozen=True)
class _ShuffledScore:
    """Score a model on a table, one column of which is shuffled within domains.

    `permutation_importance` shuffles a matrix (row, column) of row numbers instead of the table. So shuffles can
    stay within domains: sorting a domain's rows by their shuffled numbers is a random order of them.
    """

    score: Score
    table: pd.DataFrame
    columns: list[int]  # of the table, one for each column of row numbers
    domain: Rows

    def __call__(self, model: Any, numbers: Rows, y: Any, **weights: Any) -> float:
        changed = self.table
        for column, shuffled in zip(self.columns, numbers.T, strict=True):
            if (shuffled != np.arange(len(shuffled))).any():
                order = np.empty_like(shuffled)
                order[np.argsort(self.domain, kind="stable")] = np.lexsort((shuffled, self.domain))
                changed = self.table.copy(deep=False)
                changed.isetitem(column, self.table.iloc[:, column].array.take(order))
        return self.score(model, changed, y, **weights)


def _read_table(x: Any) -> pd.DataFrame:
    if isinstance(x, Frame):  # text stays text, even if it looks like numbers
        pairs = zip(x.names, x.columns, strict=True)
        return pd.DataFrame({n: pd.Categorical(c) if c.dtype == object else c for n, c in pairs})
    if is_dataframe(x):
        table: pd.DataFrame = x.to_pandas() if hasattr(x, "to_pandas") else x
        return table
    matrix = np.asarray(x)
    if matrix.ndim != 2:
        raise UsageError(f"Columns are shuffled, but the input has shape {list(matrix.shape)}: give a table.")
    return pd.DataFrame(matrix, columns=[f"x{i}" for i in range(matrix.shape[1])])


def _find_columns(table: pd.DataFrame, columns: Sequence[str] | None) -> dict[str, int]:
    """Return the columns to shuffle, each with its position in the table."""
    names = list(map(str, table.columns))
    for name in columns or ():
        if name not in names:
            raise unknown("column", str(name), names, owner="The table")
    chosen = {name: i for i, name in enumerate(names) if columns is None or name in columns}
    if not chosen:
        raise UsageError(f"No column was named. The table has {list_some(names)}.")
    return chosen


def _set_aside(domain: Rows, seed: int) -> NDArray[np.bool_]:
    """Draw a fifth of every domain's rows, at least one of a domain that has two."""
    aside = np.zeros(len(domain), dtype=bool)
    for d in np.unique(domain):
        rows = np.flatnonzero(domain == d)
        count = min(max(1, round(SET_ASIDE * len(rows))), len(rows) - 1)
        aside[make_stream(seed, "set aside", int(d)).permutation(rows)[:count]] = True
    return aside


def _pick_weights(weight: NDArray[np.float64] | None, rows: Rows) -> dict[str, Any]:
    """Return the weights of rows as `fit` and `score` take them; nothing if all rows count the same."""
    return {} if weight is None else {"sample_weight": weight[rows]}


def _format_drop(value: float) -> str:
    return "-" if pd.isna(value) else f"{round(value, 3) + 0.0:+.3f}"  # 0.0 turns -0.0 into +0.0

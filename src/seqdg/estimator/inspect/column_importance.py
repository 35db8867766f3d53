"""Permutation importance by domain: which columns a model uses where it was trained, and which still help elsewhere."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import get_scorer

from seqdg.base import UsageError, list_some, private, unknown
from seqdg.data import Frame, is_dataframe
from seqdg.estimator.inspect.spread import Spread, estimate_spread
from seqdg.estimator.user_data import read_domains, read_weights
from seqdg.report import Figure, align_columns, make_styles, panels, shorten_names
from seqdg.training import make_stream

SEEN, UNSEEN = "seen", "unseen"
SET_ASIDE = 0.2  # share of every domain's rows that no fold trains on
MOST_FOLDS = 10
MOST_DRAWN = 20  # columns in the picture and in print
VERDICTS = {
    "transfers": "helps on domains that the model has not seen",
    "varies": "helps where the model was trained; beyond, domains differ too much to say",
    "does not transfer": "helps where the model was trained, and less or not at all beyond",
    "misleads": "makes the model worse on domains that it has not seen",
    "little": "cannot be told from no help at all",
}
Score = Callable[..., float]  # of a model, rows and their labels, and of weights where there are some
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

    def frame(self) -> Any:
        """Return a row per column, the most useful on unseen domains first: the drops with their 95 % intervals over
        domains, and the verdict in words. A pandas frame, or a list of dictionaries where pandas is not installed."""
        rows = []
        for name, seen, unseen, verdict in self._list_spreads():
            row: dict[str, Any] = {"column": name, SEEN: seen.mean, UNSEEN: unseen.mean}
            for kind, spread in ((SEEN, seen), (UNSEEN, unseen)):
                row |= {f"{kind}_low": spread.low, f"{kind}_high": spread.high}
            rows.append({**row, "verdict": verdict})
        return pd.DataFrame(rows)

    def by_domain(self) -> Any:
        """Return a row per held-out domain and column."""
        return pd.DataFrame(
            [
                {"held_out": domain, "column": name, SEEN: float(drop[0]), UNSEEN: float(drop[1])}
                for domain, drops in zip(self.domains, self.drops, strict=True)
                for name, drop in zip(self.columns, drops, strict=True)
            ]
        )

    def figure(self) -> Figure:
        """Draw each column's drop where the model was trained and on unseen domains, with 95 % intervals."""
        looks = make_styles(["trained on", UNSEEN])
        shown = self._list_spreads()[:MOST_DRAWN]
        names = shorten_names([name for name, *_ in shown])
        drawn = [
            panels.Rows(
                [_make_row(names[name], style, (seen, unseen)[place]) for name, seen, unseen, _ in shown],
                f"drop of {self.scoring}",
                heading,
                zero=True,
            )
            for place, style, heading in ((0, "trained on", "Domains trained on"), (1, UNSEEN, "Unseen domains"))
        ]
        left = len(self.columns) - len(shown)
        more = f" {left} columns that matter less are not drawn." if left > 0 else ""
        caption = (
            f"Drop of {self.scoring} when a column is shuffled within its domain, {self.repeats} times: mean and 95 % "
            f"interval over {len(self.domains)} domains, each held out in turn.{more}"
        )
        return Figure("importance", "What transfers", drawn, caption, looks)

    def __str__(self) -> str:
        lines = [["column", "trained on", UNSEEN, "95 % interval", "verdict"]]
        listed = self._list_spreads()
        names = shorten_names([name for name, *_ in listed])
        for name, seen, unseen, verdict in listed[:MOST_DRAWN]:
            interval = "-" if unseen.low is None else f"{_show(unseen.low)} to {_show(unseen.high)}"
            lines.append([names[name], _show(seen.mean), _show(unseen.mean), interval, verdict])
        inside, outside = self.scores.mean(0)
        title = (
            f"Drop of {self.scoring} when a column is shuffled within its domain: mean over {len(self.domains)} "
            f"domains, each held out in turn, and {self.repeats} shuffles"
        )
        before = f"Before: {inside:.3f} on set-aside rows of the domains trained on, {outside:.3f} on the unseen ones."
        found = [verdict for *_, verdict in listed]
        words = [f"{verdict}: {text}" for verdict, text in VERDICTS.items() if verdict in found]
        left = len(listed) - MOST_DRAWN
        more = [f"{left} columns that matter less are not shown."] if left > 0 else []
        return "\n".join([title, *align_columns(lines), "", before, *more, *words]) + "\n"

    def _list_spreads(self) -> list[tuple[str, Spread, Spread, str]]:
        """List every column with its drops inside and outside and the verdict, the largest drop outside first."""
        listed = []
        for i, name in enumerate(self.columns):
            seen, unseen = (estimate_spread(self.drops[:, i, kind]) for kind in (0, 1))
            lost = estimate_spread(self.drops[:, i, 0] - self.drops[:, i, 1])
            listed.append((name, seen, unseen, judge(seen, unseen, lost)))
        return sorted(listed, key=lambda entry: -round(entry[2].mean, 9))


def judge(seen: Spread, unseen: Spread, lost: Spread) -> str:
    """Say in words what a column is worth, by the intervals over domains of its drops where the model was trained, on
    unseen domains, and of the difference. Of columns that are worth nothing, one in forty seems to transfer by chance.
    """
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
    scoring: str | Callable[[Any, Any, Any], float] | None = None,
    random_state: int = 0,
    show: Callable[[int, int], None] = lambda done, total: None,
    sample_weight: Any = None,
) -> Importance:
    """Say of each column what transfers to a domain that the model has not seen, and what does not.

    Each domain is held out in turn (ten of more than ten). A clone of the model is fitted to four fifths of the other
    domains' rows, with `domains` where its `fit` takes them. Then a column is shuffled among the rows of each domain,
    and
        drop = score before - score after
    is measured twice: on the fifth of the other domains' rows that was set aside (seen), and on the held-out domain
    (unseen). This is permutation importance (Breiman, Machine Learning 2001), by domain. Columns that say the same
    share their importance: shuffling one leaves the other.

    model: a seqdg or scikit-learn estimator; fitted or not, it stays as it is.
    columns: those to shuffle; None: all.   repeats: shuffles of each.
    scoring: a name or a function, as scikit-learn has them; None: the model's own `score`, accuracy or R².
    random_state: seed of what is set aside and of the shuffles; the same one gives the same numbers.
    show: hears how many of the folds are done.   sample_weight: (row,) how much each row counts, in training and in
        every score.
    """
    table = X if isinstance(X, Frame) or is_dataframe(X) else np.asarray(X)
    if not isinstance(table, Frame) and len(table.shape) != 2:
        raise UsageError(f"Columns are shuffled, but the input has shape {list(table.shape)}: give a table.")
    if repeats < 1:
        raise UsageError(f"{repeats} repeats were asked for, but at least 1 is needed.")
    labels = np.asarray(y)
    names, places = _find_columns(table, columns)
    every, domain = read_domains(domains, len(labels))
    if len(table) != len(labels):
        raise UsageError(f"X has {len(table)} rows and y {len(labels)}: they must agree.")
    if len(every) < 2:
        raise UsageError(f"There is only the domain '{every[0]}': to hold it out, at least one other is needed.")
    weight = read_weights(sample_weight, every, domain)
    score: Score = _score if scoring is None else get_scorer(scoring) if isinstance(scoring, str) else scoring
    aside = _set_aside(domain, random_state)
    held_out = _choose_folds(len(every), random_state)
    drops, before = np.empty((len(held_out), len(names), 2)), np.empty((len(held_out), 2))
    for fold, d in enumerate(held_out):
        show(fold, len(held_out))
        inside, outside = (np.flatnonzero(keep) for keep in ((domain != d) & aside, domain == d))
        trained = np.flatnonzero((domain != d) & ~aside)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of words that a fold has not seen
            fitted = _fit_clone(
                model,
                _take(table, trained),
                labels[trained],
                np.array(every)[domain[trained]],
                **_pick_weights(weight, trained),
            )
            for kind, rows in enumerate((inside, outside)):
                part, truth, weights = _take(table, rows), labels[rows], _pick_weights(weight, rows)
                before[fold, kind] = score(fitted, part, truth, **weights)
                for i, place in enumerate(places):
                    after = []
                    for r in range(repeats):
                        stream = make_stream(random_state, "shuffle", int(d), kind, place, r)
                        order = _shuffle_within(domain[rows], stream)
                        after.append(score(fitted, _shuffle_column(part, place, order), truth, **weights))
                    drops[fold, i, kind] = before[fold, kind] - np.mean(after)
    show(len(held_out), len(held_out))
    word = scoring if isinstance(scoring, str) else "the score"
    if scoring is None:
        word = "accuracy" if is_classifier(model) else "R²"
    return Importance(names, tuple(every[d] for d in held_out), drops, before, repeats, word)


def _find_columns(table: Any, columns: Sequence[str] | None) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the columns to shuffle, and where they stand."""
    if isinstance(table, Frame):
        names = list(table.names)
    else:
        names = [str(n) for n in table.columns] if is_dataframe(table) else [f"x{i}" for i in range(table.shape[1])]
    for name in columns or ():
        if name not in names:
            raise unknown("column", str(name), names, owner="The table")
    chosen = [n for n in names if columns is None or n in columns]
    if not chosen:
        raise UsageError(f"No column was named. The table has {list_some(names)}.")
    return tuple(chosen), [names.index(n) for n in chosen]


def _set_aside(domain: Rows, seed: int) -> NDArray[np.bool_]:
    """Draw a fifth of every domain's rows, at least one of a domain that has two."""
    aside = np.zeros(len(domain), dtype=bool)
    for d in np.unique(domain):
        rows = np.flatnonzero(domain == d)
        count = min(max(1, round(SET_ASIDE * len(rows))), len(rows) - 1)
        aside[make_stream(seed, "set aside", int(d)).permutation(rows)[:count]] = True
    return aside


def _choose_folds(count: int, seed: int) -> list[int]:
    """Choose the domains to hold out: every one, or some of many."""
    drawn = make_stream(seed, "folds").permutation(count)[:MOST_FOLDS]
    return sorted(int(d) for d in drawn)


def _fit_clone(model: Any, x: Any, y: Any, domains: Any, **weights: Any) -> Any:
    fresh = clone(model)
    known = {"domains": domains} if "domains" in signature(fresh.fit).parameters else {}
    return fresh.fit(x, y, **known, **weights)


def _pick_weights(weight: NDArray[np.float64] | None, rows: Rows) -> dict[str, Any]:
    """Return the weights of rows as `fit` and `score` take them; nothing where all rows count the same."""
    return {} if weight is None else {"sample_weight": weight[rows]}


def _score(model: Any, x: Any, y: Any, **weights: Any) -> float:
    return float(model.score(x, y, **weights))


def _take(table: Any, rows: Rows) -> Any:
    if isinstance(table, Frame):
        return replace(table, columns=tuple(column[rows] for column in table.columns))
    return private.take_rows(table, rows)


def _shuffle_within(domain: Rows, stream: np.random.Generator) -> Rows:
    """Draw an order of the rows in which each stays in its domain."""
    order = np.arange(len(domain))
    for d in np.unique(domain):
        rows = np.flatnonzero(domain == d)
        order[rows] = stream.permutation(rows)
    return order


def _shuffle_column(table: Any, place: int, order: Rows) -> Any:
    if isinstance(table, Frame):
        columns = list(table.columns)
        columns[place] = columns[place][order]
        return replace(table, columns=tuple(columns))
    if isinstance(table, np.ndarray):
        changed = table.copy()
        changed[:, place] = table[order, place]
        return changed
    shuffled = copy.copy(table)
    if hasattr(table, "isetitem"):
        shuffled.isetitem(place, table.iloc[order, place].to_numpy())
        return shuffled
    return shuffled.with_columns(table[:, place][order])  # polars


def _make_row(label: str, look: str, spread: Spread) -> panels.Row:
    return panels.Row(label, spread.mean, spread.low, spread.high, look=look)


def _show(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:+.3f}"  # 0.0 turns -0.0 into +0.0

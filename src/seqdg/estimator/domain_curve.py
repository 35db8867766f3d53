"""The learning curve over domains: train on more and more of them, and test each model on the others."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from seqdg.base import UsageError, align_columns, count_things
from seqdg.bench import (
    InProcess,
    MemorySink,
    Progress,
    Session,
    Trial,
    Workers,
    execute,
    is_short,
    plan_trials,
    time_groups,
)
from seqdg.estimator.compare.folds import Contender, Sweep
from seqdg.estimator.domain_estimator import DomainEstimator, choose_estimator
from seqdg.estimator.recipe import adapt_recipe
from seqdg.estimator.user_data import make_user_data
from seqdg.report import MISSING, Figure, can_draw, draw_points, make_styles, write_figures
from seqdg.results import (
    CRITERIA,
    DONE,
    Record,
    Spread,
    Unit,
    estimate_spread,
    find_unit,
    make_directory,
    select_evaluation,
)
from seqdg.training import make_stream

LAST = 3  # sizes that say how the curve goes on
SUBSETS = 12  # of the domains, for each number of them
MOST_SIZES = 8  # numbers of domains that are tried
Subset = tuple[str, ...]


def write_analysis(folder: Path, frames: Mapping[str, Any], figure: Figure) -> list[Path]:
    """Write each frame as NAME.csv and the figure as SVG, and return the paths."""
    make_directory(folder, "--out")
    paths = [folder / f"{name}.csv" for name in frames]
    for path, frame in zip(paths, frames.values(), strict=True):
        frame.to_csv(path, index=False)
    if not can_draw():
        print(f"There is no picture. {MISSING}", file=sys.stderr)
        return paths
    return [*paths, *write_figures([figure], folder, ["svg"])]


@dataclass(frozen=True)
class Measured:
    """The score of one training on one domain that it had not seen."""

    trained_on: Subset
    held_out: str
    value: float


@dataclass(frozen=True)
class LearningCurve:
    """The score of a model on unseen domains, by the number of domains it was trained on.

    `print` it, or read `frame()`, `by_training()`, `gain`, `sentence`, `figure()`.
    """

    name: str  # of the algorithm
    domains: tuple[str, ...]
    criterion: str
    measured: tuple[Measured, ...]
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> list[int]:
        """The numbers of domains that were trained on."""
        return sorted({len(m.trained_on) for m in self.measured})

    def frame(self) -> pd.DataFrame:
        """Return a row per number of domains: the mean over unseen domains with its standard error, the change from the
        row before, domain by domain, with its own, and how many trainings there were."""
        means = self._average()
        levels, changes = ([estimate_spread(row) for row in t.to_numpy()] for t in (means, means.diff()))
        return pd.DataFrame(
            {
                "domains": self.sizes,
                "mean": [level.mean for level in levels],
                "error": [level.error for level in levels],
                "change": [change.mean for change in changes],
                "change_error": [change.error for change in changes],
                "trainings": self.by_training().groupby("domains")["trained_on"].nunique().tolist(),
            }
        ).astype({"error": float, "change_error": float})  # None is NaN

    def by_training(self) -> pd.DataFrame:
        """Return a row per training and unseen domain."""
        return pd.DataFrame(
            {"trained_on": ", ".join(m.trained_on), "domains": len(m.trained_on), "held_out": m.held_out,
             "value": m.value} for m in self.measured
        )  # fmt: skip

    @property
    def gain(self) -> Spread | None:
        """The improvement to expect of one more domain; None if the curve has fewer than two sizes.

        For every unseen domain, a + b / k is fitted to the last three sizes k by least squares. From N to N + 1 domains
        that changes by -b / (N (N + 1)). The interval is over unseen domains; that the curve goes on like this is an
        assumption that no interval covers.
        """
        count, last = len(self.domains), self._average()[-LAST:].dropna(axis=1)
        if len(last) < 2 or last.empty:
            return None
        sign = 1.0 if CRITERIA[self.criterion].higher_is_better else -1.0
        slopes = np.polyfit(1 / last.index.to_numpy(), last.to_numpy(), 1)[0]
        return estimate_spread(-sign * slopes / (count * (count + 1)))

    @property
    def sentence(self) -> str:
        """The sentence on whether one more domain would help."""
        unit, word, count = self._unit, self.criterion.replace("_", " "), len(self.domains)
        if self.gain is None:
            return (
                f"With {count_things(count, 'domain')} nothing can be said of one more: at least three show how much "
                "the second helped."
            )
        mean = f"{_format_change(self.gain.mean, unit)} {unit.points}".rstrip()
        if self.gain.low is None or self.gain.high is None:
            return f"One more domain would improve {word} on an unseen one by about {mean}, from one domain alone."
        low, high = (_format_change(v, unit) for v in (self.gain.low, self.gain.high))
        verdict = "so it is likely to help" if self.gain.low > 0 else "so it may help or not"
        if self.gain.high < 0:
            verdict = "so it is not likely to help"
        few = "" if len(self.sizes) >= LAST else ", which two sizes cannot check"
        return (
            f"One more domain than these {count} would improve {word} on an unseen one by {mean} (95 % interval {low} "
            f"to {high}), {verdict}, if the curve goes on as a + b / k{few}."
        )

    def figure(self) -> Figure:
        """Draw the mean over unseen domains against the number of domains, with standard errors."""
        unit = CRITERIA[self.criterion]
        points = []
        for row in self.frame().to_dict("records"):
            size, mean, error = row["domains"], unit.factor * row["mean"], unit.factor * row["error"]
            ends = {"low": mean - error, "high": mean + error}
            points.append({"name": count_things(size, "domain"), "x": size, "y": mean, **ends, "look": self.name})
        looks = make_styles([self.name])
        panel = draw_points(points, "domains trained on", unit.title, looks, self.name)
        caption = f"Mean over unseen domains; bars are one standard error over them. {self.sentence}"
        return Figure("learning-curve", "Would one more domain help?", [panel], caption, looks)

    def __str__(self) -> str:
        unit = self._unit

        def show(value: float, sign: str = "") -> str:
            return "-" if pd.isna(value) else f"{unit.factor * value:{sign}.{unit.digits}f}"

        lines = [["domains", "trainings", "mean", "error", "change", "error"]]
        for row in self.frame().to_dict("records"):
            scores = show(row["mean"]), show(row["error"]), show(row["change"], "+"), show(row["change_error"])
            lines.append([str(row["domains"]), str(row["trainings"]), *scores])
        title = f"{unit.title} of {self.name} on domains that it has not seen, by how many it was trained on"
        below = "Errors are standard errors over unseen domains. One domain more also brings its rows."
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([title, *align_columns(lines), "", below, self.sentence, *notes]) + "\n"

    @property
    def _unit(self) -> Unit:
        return find_unit(self.criterion, [m.value for m in self.measured])

    def _average(self) -> pd.DataFrame:
        """Return the mean over trainings, a row per number of domains trained on and a column per unseen domain."""
        table = self.by_training()
        finite = table[np.isfinite(table["value"])]
        means = finite.pivot_table(values="value", index="domains", columns="held_out", aggfunc="mean")
        return means.reindex(index=self.sizes, columns=list(self.domains))


def learning_curve(
    model: Any,
    X: Any,
    y: Any,
    domains: Any,
    *,
    seeds: int = 1,
    subsets: int = SUBSETS,
    workers: int = 0,
    on_message: Callable[[str], None] = lambda sentence: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    sample_weight: Any = None,
) -> LearningCurve:
    """Train on k = 1, 2, ..., N - 1 of the N domains, and test each model on the domains it was not trained on.

    Parameters
    ----------
    model : DomainClassifier, DomainRegressor, str, Algorithm or estimator
        The first two say the algorithm, its training and the criterion. Or the algorithm alone, as `compare` takes a
        candidate: it is trained as usual, as a `DomainRegressor` if y holds numbers with fractions.
    X : data frame, matrix or array of shape (row, ...)
        The inputs.
    y : array of shape (row,)
        The labels or numbers.
    domains : array of shape (row,), or str
        The name or number of each row's domain, or the column of the data frame X that holds it.
    seeds : int, default 1
        Trainings of each choice of domains.
    subsets : int, default 12
        Choices of k domains, at most; drawn by the model's random_state so that each domain is in about as many. Of
        more than nine domains only eight numbers k are tried.
    workers : int, default 0
        Processes to train in; 0 is this one.
    on_message : callable, optional
        Called beforehand with a sentence on how many trainings there are.
    on_progress : callable, optional
        Called with the progress of the trainings.
    sample_weight : array of shape (row,), optional
        How much each row counts, in training and in every score.

    Returns
    -------
    LearningCurve
        `print` it, or read `frame()`, `by_training()`, `gain`, `sentence` and `figure()`.

    Examples
    --------
    >>> import numpy as np
    >>> import seqdg
    >>> draw = np.random.default_rng(0)
    >>> X, hospital = draw.normal(size=(200, 2)), np.repeat(["north", "south", "east", "west"], 50)
    >>> curve = seqdg.learning_curve("logistic", X, X[:, 0] > 0, hospital)
    >>> curve.frame()["trainings"].tolist()
    [4, 6, 4]
    """
    template = clone(model) if isinstance(model, DomainEstimator) else choose_estimator(y).set_params(algorithm=model)
    recipe = template.make_recipe()
    if recipe.stop is not None:
        raise UsageError("The step is chosen by source validation in every training: leave stop out.")
    if seeds < 1 or subsets < 1:
        raise UsageError(f"{seeds} seeds and {subsets} subsets were asked for, but at least 1 of each is needed.")
    data = make_user_data(X, y, domains, recipe, keep_missing=True, sample_weight=sample_weight)
    names = data.dataset.domains
    if len(names) < 2:
        raise UsageError(f"There is only the domain '{names[0]}': to hold it out, at least one other is needed.")
    recipe = adapt_recipe(recipe, data.dataset)
    sweep = Sweep(data, recipe, range(recipe.seed, recipe.seed + seeds), within=False)
    contender = Contender(recipe.name, recipe.algorithm, recipe.protocol.lr)
    notes, planned, sizes = list[str](), list[Trial](), list[int]()
    for size in choose_sizes(len(names)):
        chosen = choose_subsets(names, size, subsets, recipe.seed)
        targets = [tuple(d for d in names if d not in subset) for subset in chosen]
        try:
            sweep.check_target(targets[0], contender)
        except UsageError as error:
            notes.append(f"{count_things(size, 'domain')} cannot be trained on: {error}")
            continue
        planned += [trial for target in targets for trial in sweep.make_trials(target, contender)]
        sizes.append(size)
    if not planned:
        raise UsageError(notes[-1])
    trainings = count_things(len(planned), "training")
    on_message(f"{trainings} of {recipe.name} on {sizes[0]} to {sizes[-1]} of {len(names)} domains.")
    sink, session = MemorySink(), Session(sweep.task, recipe.device)
    plan = plan_trials(sweep.task, planned, sweep.net, recipe.device)
    costs = time_groups(plan.missing, session.task, session.device)
    is_quick = is_short([costs.get(group.key) for group in plan.missing])  # then starting processes takes longer
    execute(plan, session, Workers(workers) if workers and not is_quick else InProcess(), sink, costs, on_progress)
    records = [sink.records[trial.key] for trial in plan.trials]
    lost = sum(record.status != DONE for record in records)
    if lost:
        notes.append(f"{count_things(lost, 'training')} diverged and are left out.")
    measured = [m for record in records for m in _measure(record, names, recipe.criterion)]
    if not measured:
        raise UsageError("Every training diverged. Choose a smaller lr.")
    return LearningCurve(recipe.name, names, recipe.criterion, tuple(measured), tuple(notes))


def choose_sizes(count: int) -> list[int]:
    """Choose how many of the domains to train on: every number, or of many some at growing distances."""
    if count - 1 <= MOST_SIZES:
        return list(range(1, count))
    return sorted({round(v) for v in np.geomspace(1, count - 1, MOST_SIZES)})


def choose_subsets(domains: Sequence[str], size: int, most: int, seed: int) -> list[Subset]:
    """Choose sets of so many domains: all of them, or `most` that each have about as many of every domain.

    They are neighbors on a circle of the domains in random order, and on further circles if one does not suffice.
    """
    if math.comb(len(domains), size) <= most:
        return list(combinations(domains, size))
    chosen: dict[Subset, None] = {}
    stream = make_stream(seed, "subsets", size)
    while len(chosen) < most:
        circle = stream.permutation(len(domains)).tolist()
        for first in range(len(circle)):
            members = sorted(circle[(first + i) % len(circle)] for i in range(size))
            if len(chosen) < most:
                chosen[tuple(domains[i] for i in members)] = None
    return list(chosen)


def _measure(record: Record, domains: Sequence[str], criterion: str) -> list[Measured]:
    """List what a training reached on every unseen domain, at the step that source validation chose."""
    chosen = select_evaluation(record, criterion)
    if chosen is None:
        return []
    values = chosen.held_out[criterion]
    trained_on = tuple(d for d in domains if d not in record.held_out)
    return [Measured(trained_on, d, v) for d, v in zip(record.held_out, values, strict=True)]


def _format_change(value: float, unit: Unit) -> str:
    return f"{round(unit.factor * value, unit.digits) + 0.0:+.{unit.digits}f}"  # 0.0 turns -0.0 into +0.0

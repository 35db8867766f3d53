"""The page on a model: what to expect of it on the next domain, and what it did on each that was held out.

`describe_predictions` keeps of a held-out domain what the page shows: a confusion matrix and a calibration curve. With
p the predicted probability of the second of two classes (of more, of the predicted class) and h whether it was so,

    logit P(h = 1) = a + b logit p       b: the calibration slope, 1 where the model is as sure as it should be
    logit P(h = 1) = c + logit p         c: the calibration intercept, or calibration-in-the-large: 0 is right

(Cox, Biometrika 1958; Steyerberg, Clinical Prediction Models, 2nd ed. 2019, chapter 15). Of numbers, the line that
predicts them from the model's is fitted by least squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit

from seqdg import report as reports
from seqdg.base import UsageError, count_things, list_some, refuse_broken, replace_file
from seqdg.results import AVERAGE, WORST, Unit, find_unit

if TYPE_CHECKING:
    from seqdg.estimator.column_importance import Importance

BINS = 10  # of a calibration curve, of as many rows each
MOST_CLASSES = 20  # of a confusion matrix
MOST_CURVES = 12  # domains that have a panel or a matrix of their own, those with the worst scores
LEAST_P = 1e-6  # so far from 0 and 1 is a probability taken to be
NEXT, IDEAL = "next domain", "ideal"
FOOTER = "Made by seqdg from the model and its comparison alone."
Floats = NDArray[np.float64]


# What is kept of a held-out domain -----------------------------------------------------------------------------------


def describe_predictions(y: NDArray[Any], weight: Floats | None, said: Sequence[Floats]) -> dict[str, Any]:
    """Describe what one or several models, one per seed, say of a domain's rows, as JSON holds it.

    y: (row,) classes from 0, or numbers.   said: (row, class) probabilities each, or (row,) numbers.
    """
    count = len(said)
    w = np.tile(np.ones(len(y)) if weight is None else weight, count) / count
    outputs, truth = np.concatenate(list(said)), np.tile(y, count)
    if outputs.ndim == 1:
        return {"bins": _list_bins(outputs, truth, w), **_fit_line(outputs, truth, w)}
    predicted, classes = outputs.argmax(1), outputs.shape[1]
    p, hit = (outputs[:, 1], truth == 1) if classes == 2 else (outputs.max(1), predicted == truth)
    about = {"bins": _list_bins(p, hit.astype(float), w), **fit_calibration(p, hit, w)}
    if classes <= MOST_CLASSES:
        matrix = np.zeros((classes, classes))
        np.add.at(matrix, (truth, predicted), w)
        about["confusion"] = matrix.round(3).tolist()
    return about


def fit_calibration(p: Floats, hit: NDArray[np.bool_], weight: Floats) -> dict[str, float | None]:
    """Fit calibration slope and intercept; None where all rows are alike or the predictions separate them."""
    x = logit(np.clip(p, LEAST_P, 1 - LEAST_P))
    share = float(weight @ hit / weight.sum()) if weight.sum() > 0 else 0.0
    if not 0 < share < 1:
        return {"slope": None, "intercept": None}

    def find_excess(c: float) -> float:
        return float(weight @ (expit(x + c) - hit))

    def measure_loss(ab: Floats) -> tuple[float, Floats]:
        z = ab[0] + ab[1] * x
        loss = float(weight @ (np.logaddexp(0, z) - hit * z))
        error = weight * (expit(z) - hit)
        return loss / weight.sum(), np.array([error.sum(), error @ x]) / weight.sum()

    slope, ends = None, [(x[part].min(), x[part].max()) for part in (hit, ~hit)]
    if np.ptp(x) > 0 and ends[0][0] <= ends[1][1] and ends[1][0] <= ends[0][1]:  # they do not separate the rows
        fitted = minimize(measure_loss, np.array([0.0, 1.0]), jac=True, method="BFGS")
        slope = float(fitted.x[1])
    return {"slope": slope, "intercept": float(brentq(find_excess, -40, 40))}


def _fit_line(x: Floats, y: Floats, weight: Floats) -> dict[str, float | None]:
    """Fit the slope of  y = a + b x  by least squares, and the mean of  y - x."""
    share = weight / weight.sum()
    spread = float(share @ (x - share @ x) ** 2)
    slope = float(share @ ((x - share @ x) * (y - share @ y))) / spread if spread > 0 else None
    return {"slope": slope, "intercept": float(share @ (y - x))}


def _list_bins(x: Floats, y: Floats, weight: Floats) -> list[list[float]]:
    """Return of each bin of rows with like predictions their mean prediction, the mean truth and the weight."""
    parts = np.array_split(np.argsort(x, kind="stable"), min(BINS, len(x)))
    bins = []
    for part in parts:
        total = float(weight[part].sum())
        if total > 0:
            bins.append([float(weight[part] @ x[part] / total), float(weight[part] @ y[part] / total), total])
    return bins


# The page ------------------------------------------------------------------------------------------------------------


def write_model_report(text: Mapping[str, Any], out: Path, importance: Importance | None = None) -> Path:
    """Write the page of a model, and return its path.

    text: the content of model.json, or of it `algorithm` and `facts`.   out: a file, or a directory for report.html.
    """
    path = out if out.suffix == ".html" and not out.is_dir() else out / "report.html"
    with refuse_broken("The description of the model cannot be shown", ": it is not as it was saved."):
        page = build_model_page(text, importance)
    html = reports.render_page(page).encode(errors="backslashreplace")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(html)
    return path


def build_model_page(text: Mapping[str, Any], importance: Importance | None = None) -> reports.Page:
    """Build the page of a model from its description."""
    facts = text["facts"]
    if "comparison" not in facts or "estimate" not in facts:
        raise UsageError(
            "No domain was held out when this model was fitted, so there is nothing to report: `seqdg show` has its "
            "card. Fit it by `seqdg fit` without --no-estimate, or by `seqdg.compare`."
        )
    contents = _Contents(facts["estimate"], facts["comparison"])
    sections = [
        *contents.show_leaderboard(), *contents.show_next(), *contents.show_domains(), *contents.show_errors(),
        *contents.show_calibration(), _show_importance(importance), *_show_notes(facts),
    ]  # fmt: skip
    return reports.Page(
        title=f"{text['algorithm']}: what to expect on the next domain",
        lead=facts["estimate"]["sentence"],
        answers=contents.answer_questions(),
        warnings=facts["estimate"]["warnings"],
        sections=sections,
        names=contents.looks,
        footer=FOOTER,
        warned="Reasons for caution",
        followed="Domains",
    )


class _Contents:
    """The sections of a page, from what a model's description holds."""

    def __init__(self, estimate: Mapping[str, Any], comparison: Mapping[str, Any]) -> None:
        self.estimate, self.comparison = estimate, comparison
        self.judged: str = comparison["judged"]
        self.scores: dict[str, Mapping[str, float | None]] = {
            row["candidate"]: row["scores"] for row in comparison["candidates"]
        }
        self.scores.setdefault(self.judged, {d: s[comparison["criterion"]] for d, s in estimate["held_out"].items()})
        self.domains = [d for d in estimate["held_out"] if d not in (AVERAGE, WORST)]
        self.looks = reports.make_styles([*self.domains, AVERAGE])
        self.unit: Unit = find_unit(comparison["criterion"], [scores[AVERAGE] for scores in self.scores.values()])

    @property
    def own(self) -> Mapping[str, float | None]:
        """The scores that the expectation is taken from."""
        return self.scores[self.judged]

    @property
    def hardest(self) -> list[str]:
        """The domains that have panels of their own, in their order."""
        known = [d for d in self.domains if d in self.comparison["domains"]]
        sign = 1 if self.unit.higher_is_better else -1
        worst = sorted(known, key=lambda d: sign * (self.own[d] or 0.0))
        return [d for d in known if d in worst[:MOST_CURVES]]

    def format(self, value: float | None) -> str:
        return "-" if value is None else f"{self.unit.factor * value:.{self.unit.digits}f}"

    def scale(self, value: float | None) -> float | None:
        return None if value is None else self.unit.factor * value

    def answer_questions(self) -> list[tuple[str, str]]:
        return [
            ("How good will it be?", self.estimate["sentence"]),
            *([("Is it better than no model?", self._compare_with_constant())] if self.comparison["constant"] else []),
            ("How was it chosen?", " ".join(self.estimate["how"])),
            ("What makes the interval wide?", f"{self.estimate['drivers']} {self._explain_inconsistency()}".strip()),
        ]

    def show_leaderboard(self) -> Iterator[reports.Section]:
        rows = []
        for row in self.comparison["candidates"]:
            name = row["candidate"]
            rows += [reports.make_row(name, self.scale(row["scores"][d]), look=d) for d in self.domains]
            rows.append(reports.make_row(name, self.scale(row["scores"][AVERAGE]), look=AVERAGE))
        if constant := self.comparison["constant"]:
            rows += [
                reports.make_row(constant["name"], self.scale(constant["scores"][d]), look=d) for d in self.domains
            ]
        rows = [row for row in rows if row["value"] is not None]
        panel = reports.draw_rows(rows, self.unit.title, self.looks)
        caption = "A dot for each domain, on which the candidate was judged without having seen it, and their average."
        figure = reports.Figure("leaderboard", "Candidates by domain", [panel], caption, self.looks, has_legend=True)
        yield reports.Section("leaderboard", "Leaderboard", figures=[figure], tables=[self._make_leaderboard()])

    def _make_leaderboard(self) -> reports.Table:
        weighs = any(row.get("weight") is not None for row in self.comparison["candidates"])
        head = ["candidate", "average", "worst", *self.domains, *(["weight in %"] if weighs else []), "seconds to fit"]
        rows = []
        for row in self.comparison["candidates"]:
            scores = row["scores"]
            cells = [self.format(scores[c]) for c in (AVERAGE, WORST, *self.domains)]
            if weighs:
                cells.append("-" if row.get("weight") is None else f"{100 * row['weight']:.0f}")
            seconds = row["fit_seconds"]
            cells.append("-" if seconds is None else f"{seconds:.2f}")
            rows.append((row["candidate"], [*cells]))
        if constant := self.comparison["constant"]:
            cells = [self.format(constant["scores"][c]) for c in (AVERAGE, WORST, *self.domains)]
            rows.append((constant["name"], [*cells, *(["-"] if weighs else []), "-"]))
        return reports.Table(f"{self.unit.title}, each domain held out in turn", head, rows)

    def show_next(self) -> Iterator[reports.Section]:
        interval = self.estimate["interval"]
        if interval is None:
            return
        low, high = map(self.scale, interval)
        rows = [reports.make_row("90 % interval", self.scale(self.estimate["expected"]), low, high, look=AVERAGE)]
        others = {n: s for n, s in self.scores.items() if n == "chosen" and n != self.judged}
        rows += [reports.make_row("a single pick", self.scale(s[AVERAGE]), look=AVERAGE) for s in others.values()]
        if constant := self.comparison["constant"]:
            rows.append(reports.make_row(constant["name"], self.scale(constant["scores"][AVERAGE]), look=AVERAGE))
        panel = reports.draw_rows(rows, self.unit.title, reports.pick_styles(self.looks, [AVERAGE]))
        caption = (
            "The next domain's score lies in the interval with a probability of 90 %, if it is drawn as the known ones "
            "were. The other dots are averages over the known domains."
        )
        figure = reports.Figure("next", "Against the baseline", [panel], caption, self.looks)
        yield reports.Section("next", "The next domain", [self.estimate["drivers"]], figures=[figure])

    def show_domains(self) -> Iterator[reports.Section]:
        known = [d for d in self.domains if self.own[d] is not None]
        counts = self.comparison["rows"]
        rows = []
        for d, limits in zip(known, self.comparison["limits"], strict=True):
            low, high = map(self.scale, limits)
            rows.append(reports.make_row(d, self.scale(self.own[d]), low, high, count_things(counts[d], "row"), d))
        if self.estimate["interval"] is not None:
            low, high = map(self.scale, self.estimate["interval"])
            rows.append(reports.make_row(NEXT, self.scale(self.estimate["expected"]), low, high, look=AVERAGE))
        text = [
            "Each domain was held out of the whole procedure: training, weights and choice (leave-one-domain-out; in "
            f"clinical research, internal-external cross-validation). {self._explain_inconsistency()}"
        ]
        caption = (
            f"Score of {self.judged} on each held-out domain with its 90 % interval by the number of rows, and the "
            "interval in which the next domain is expected (a forest plot with a prediction interval)."
        )
        panel = reports.draw_rows(rows, self.unit.title, self.looks)
        figure = reports.Figure("forest", "Forest plot", [panel], caption, self.looks)
        yield reports.Section("domains", "Domain by domain", text, figures=[figure], tables=[self._make_metrics()])

    def _make_metrics(self) -> reports.Table:
        held_out = self.estimate["held_out"]
        rows = []
        for criterion in next(iter(held_out.values())):
            unit = find_unit(criterion, [scores[criterion] for scores in held_out.values()])
            values = [scores[criterion] for scores in held_out.values()]
            rows.append((unit.title, ["-" if v is None else f"{unit.factor * v:.{unit.digits}f}" for v in values]))
        return reports.Table(
            f"{self.judged} on each held-out domain, by every criterion", ["criterion", *held_out], rows
        )

    def show_errors(self) -> Iterator[reports.Section]:
        """Show what is mistaken for what, where there are not too many classes."""
        matrices = {
            d: np.array(its["confusion"]) for d, its in self.comparison["domains"].items() if "confusion" in its
        }
        if not matrices:
            return
        classes = self.comparison["classes"]
        rows = [(d, [_format_share(m[i, i], m[i].sum()) for i in range(len(m))]) for d, m in matrices.items()]
        whole = np.sum(list(matrices.values()), axis=0)
        rows.append(("all domains", [_format_share(whole[i, i], whole[i].sum()) for i in range(len(classes))]))
        recall = reports.Table(
            "Share of each class that is recognized, in % (recall; of two classes, sensitivity and specificity)",
            ["domain", *classes],
            rows,
        )
        predicted = [(d, [_format_share(m[i, i], m[:, i].sum()) for i in range(len(m))]) for d, m in matrices.items()]
        precision = reports.Table(
            "Share of the predictions of each class that are right, in % (precision)", ["domain", *classes], predicted
        )
        text = ["Rows are counted where their domain was held out; with several seeds, the mean over seeds."]
        aside = [precision, *(_make_matrix(d, matrices[d], classes) for d in self.hardest if d in matrices)]
        yield reports.Section(
            "errors", "Errors by class", text, tables=[recall, _make_matrix("all domains", whole, classes)], aside=aside
        )

    def show_calibration(self) -> Iterator[reports.Section]:
        about = self.comparison["domains"]
        if not about:
            return
        classes = self.comparison["classes"]
        x, y, text = self._name_axes(classes)
        looks = {**reports.make_styles([*self.domains, AVERAGE, IDEAL])}
        panels = []
        for d in self.hardest:
            bins = about[d]["bins"]
            xs, ys = [b[0] for b in bins], [b[1] for b in bins]
            ends = [0.0, 1.0] if classes else [min(*xs, *ys), max(*xs, *ys)]
            panels.append(reports.draw_lines({IDEAL: (ends, ends), d: (xs, ys)}, x, y, looks, d))
        caption = f"Rows in {BINS} groups of like predictions, and the line on which predictions are right."
        figure = reports.Figure("calibration", "Calibration curves", panels, caption, looks, small=True)
        rows = [(d, [_format_number(its["slope"]), _format_number(its["intercept"])]) for d, its in about.items()]
        table = reports.Table("Calibration by domain", ["domain", "slope", "intercept"], rows)
        yield reports.Section("calibration", "Calibration", [text], figures=[figure], tables=[table])

    def _name_axes(self, classes: Sequence[str]) -> tuple[str, str, str]:
        """Name the axes of calibration curves, and say how to read slope and intercept."""
        if not classes:
            return (
                "predicted", "mean truth",
                "Slope: by how much the truth grows as the prediction grows by 1; 1 is right. Intercept: the mean of "
                "truth minus prediction; 0 is right.",
            )  # fmt: skip
        if len(classes) == 2:
            x, y = f"predicted probability of {classes[1]}", f"share of {classes[1]}"
        else:
            x, y = "probability of the predicted class", "share that is right"
        text = (
            "Slope: 1 is right; below 1 the model is too sure of itself, above 1 not sure enough. Intercept "
            f"(calibration-in-the-large): 0 is right; above 0 the {y} is higher than predicted."
        )
        return x, y, text

    def _compare_with_constant(self) -> str:
        constant = self.comparison["constant"]
        sign = 1 if self.unit.higher_is_better else -1
        pairs = {d: (self.own[d], constant["scores"][d]) for d in self.domains}
        leads = [sign * self.unit.factor * (a - b) for a, b in pairs.values() if a is not None and b is not None]
        if not leads:
            return "That cannot be said: there are no scores."
        ahead = sum(lead > 0 for lead in leads)
        points, digits = f" {self.unit.points}".rstrip(), self.unit.digits
        return (
            f"It is ahead of {constant['name']}, which needs no model, on {ahead} of {len(leads)} domains, on average "
            f"by {sum(leads) / len(leads):.{digits}f}{points} (from {min(leads):.{digits}f} to "
            f"{max(leads):.{digits}f})."
        )

    def _explain_inconsistency(self) -> str:
        share = self.comparison["inconsistency"]
        if share is None:
            return ""
        return (
            f"I² = {100 * share:.0f} %: so much of the variance between the domains' scores is not explained by their "
            "numbers of rows."
        )


def _make_matrix(domain: str, matrix: Floats, classes: Sequence[str]) -> reports.Table:
    rows = [(name, [f"{count:.4g}" for count in counts]) for name, counts in zip(classes, matrix, strict=True)]
    return reports.Table(
        f"Confusion matrix of {domain}: true classes in rows, predictions in columns", ["class", *classes], rows
    )


def _show_importance(measured: Importance | None) -> reports.Section:
    if measured is None:
        text = "Not measured: `seqdg report MODEL --data TABLE` shuffles every column on domains that were held out."
        return reports.Section("importance", "Which columns transfer", [text])
    frame = measured.frame()
    rows = [
        (str(row["column"]), [f"{row['seen']:.4f}", f"{row['unseen']:.4f}", row["verdict"]])
        for row in frame.to_dict("records")
    ]
    table = reports.Table(
        f"Drop of {measured.scoring} when a column is shuffled", ["column", "trained on", "unseen", "verdict"], rows
    )
    return reports.Section("importance", "Which columns transfer", figures=[measured.figure()], tables=[table])


def _show_notes(facts: Mapping[str, Any]) -> Iterator[reports.Section]:
    points = list(facts.get("notes", ()))
    if columns := facts.get("columns"):
        points.append(f"Columns: {list_some([f'{name} ({what})' for name, what in columns.items()], 50)}.")
    if points:
        yield reports.Section("notes", "Notes on the data", points=points)


def _format_share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole > 0 else "-"


def _format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"

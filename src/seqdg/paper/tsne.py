"""What the held-out domain looks like to each algorithm: t-SNE of its embeddings. (Section 5.4 of the paper.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqdg import report

if TYPE_CHECKING:  # only to compute, not to show
    from seqdg.paper.study import Numbers, Study
    from seqdg.training import Stack

MOST = 400  # points in a panel


def compute(study: Study) -> Numbers:
    """Compute points and separability of the raw inputs and of each algorithm's features, of the first seed."""
    from seqdg.paper.study import Refused, analyze_each, embed, explain_missing_features, walk
    from seqdg.training import make_stream

    stack = study.build_stack(study.names[0])
    rows = stack.jobs[0].split.test[0]
    if len(rows) > MOST:
        rows = rows[np.sort(make_stream(study.seed, "tsne").permutation(len(rows))[:MOST])]
    x, y = stack.inputs.serve(rows[None].to(stack.inputs.device))
    labels = y[0].cpu().numpy()

    def embed_held_out(name: str, stack: Stack) -> NDArray[np.float64]:
        if sentence := explain_missing_features(stack, name):
            raise Refused(sentence)
        *_, state = walk(stack, name, 1, study.on_progress)
        z = embed(stack, stack.deploy(state), rows.expand(len(stack.jobs), -1))[0]
        return z.cpu().double().numpy()

    features, refused = analyze_each(study, embed_held_out)
    panels = {
        name: {"points": np.round(lay_out(z, study.seed), 2).tolist(), "score": measure_separability(z, labels)}
        for name, z in {"raw data": x[0].flatten(1).cpu().double().numpy(), **features}.items()
    }
    return {
        "classes": list(study.dataset.classes),
        "labels": labels.tolist(),
        "panels": panels,
        "perplexity": choose_perplexity(len(rows)),
        "refused": refused,
    }


def choose_perplexity(rows: int) -> float:
    return float(min(30, max(2, (rows - 1) // 3)))


def lay_out(features: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """Return (row, 2) points by t-SNE (van der Maaten and Hinton 2008) from a principal-components start."""
    from sklearn.manifold import TSNE

    model = TSNE(perplexity=choose_perplexity(len(features)), init="pca", learning_rate="auto", random_state=seed)
    points: NDArray[np.float64] = model.fit_transform(features).astype(np.float64)
    return points


def measure_separability(features: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Return the mean silhouette (Rousseeuw 1987) of the classes, by the features: 1 apart, 0 mixed."""
    from sklearn.metrics import silhouette_score

    if not 1 < len(set(labels.tolist())) < len(labels):
        return None
    return float(silhouette_score(features, labels))


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show the embeddings of the held-out domain, a panel per algorithm."""
    numbers = payload["numbers"]
    classes = [numbers["classes"][k] for k in numbers["labels"]]
    looks = report.make_styles([c for c in numbers["classes"] if c in set(classes)])
    panels = []
    for name, panel in numbers["panels"].items():
        below = f"silhouette {_format_score(panel['score'])}"
        panels.append(report.draw_cloud(panel["points"], classes, looks, name, below))
    scores = [(name, [_format_score(panel["score"])]) for name, panel in numbers["panels"].items()]
    table = report.Table("Mean silhouette of the classes", ["", "silhouette"], scores)
    caption = (
        f"t-SNE of the held-out rows with the same settings for all (perplexity {numbers['perplexity']:g}); color and "
        "shape are the class. The silhouette is of the features, not of their picture: 1 apart, 0 mixed."
    )
    title = "Embeddings of the held-out domain"
    figure = report.Figure("tsne", title, panels, caption, looks, has_legend=True, small=True)
    section = report.make_section(
        payload, "tsne", "What it learned: embeddings", [figure], [], _state_findings(numbers)
    )
    return replace(section, aside=[table])


def _format_score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _state_findings(numbers: Mapping[str, Any]) -> list[str]:
    scores = {name: p["score"] for name, p in numbers["panels"].items() if p["score"] is not None}
    if not scores:
        return []
    best = max(scores, key=lambda name: scores[name])
    raw = f", against {scores['raw data']:.2f} of the raw data" if "raw data" in scores and best != "raw data" else ""
    return [f"Classes are best separated by {best} (silhouette {scores[best]:.2f}{raw})."]


report.register_analysis(report.AnalysisKind(
    "tsne", compute, show, ("ensemble", "undo-bias", "s-undo-bias", "agg", "fo-mldg", "ffo-s-mldg", "fo-s-mldg"),
    trials=1, steps=200, order=20, headline=(3, 0),
))  # fmt: skip

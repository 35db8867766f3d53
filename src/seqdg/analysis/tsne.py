"""What the held-out domain looks like to each algorithm: t-SNE of its embeddings. (Section 5.4 of the paper.)"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqdg.analysis.study import Diverged, Numbers, Study, embed, walk, why_no_features
from seqdg.data.sampler import stream

MOST = 400  # points in a panel


def tsne(study: Study) -> Numbers:
    """Points and separability for the raw inputs and for each algorithm, of the first seed, all laid out alike."""
    stack = study.stack(study.names[0])
    rows = stack.jobs[0].split.test[0]
    if len(rows) > MOST:
        rows = rows[np.sort(stream(study.seed, "tsne").permutation(len(rows))[:MOST])]
    x, y = stack.inputs.serve(rows[None].to(stack.inputs.device))
    labels = y[0].cpu().numpy()
    shown = {"raw data": x[0].flatten(1).cpu().double().numpy()}
    refused: dict[str, str] = {}
    for name in study.names:
        stack = study.stack(name)
        if sentence := why_no_features(stack, name):
            refused[name] = sentence
            continue
        try:
            *_, state = walk(stack, name, 1, study.tick)
        except Diverged as reason:
            refused[name] = str(reason)
            continue
        shown[name] = embed(stack, stack.deploy(state), rows.expand(len(stack.jobs), -1))[0].cpu().double().numpy()
    panels = {
        name: {"points": np.round(layout(z, study.seed), 2).tolist(), "score": separability(z, labels)}
        for name, z in shown.items()
    }
    return {
        "classes": list(study.dataset.classes),
        "labels": labels.tolist(),
        "panels": panels,
        "perplexity": perplexity(len(rows)),
        "refused": refused,
    }


def perplexity(rows: int) -> float:
    return float(min(30, max(2, (rows - 1) // 3)))


def layout(features: NDArray[np.float64], seed: int = 0) -> NDArray[np.float64]:
    """(row, 2) by t-SNE (van der Maaten and Hinton 2008) from a principal-components start, the same for all."""
    from sklearn.manifold import TSNE

    model = TSNE(perplexity=perplexity(len(features)), init="pca", learning_rate="auto", random_state=seed)
    points: NDArray[np.float64] = model.fit_transform(features).astype(np.float64)
    return points


def separability(features: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Mean silhouette (Rousseeuw 1987) of the classes, of the features and not of their picture: 1 apart, 0 mixed."""
    from sklearn.metrics import silhouette_score

    if not 1 < len(set(labels.tolist())) < len(labels):
        return None
    return float(silhouette_score(features, labels))

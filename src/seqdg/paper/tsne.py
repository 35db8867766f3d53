"""What the held-out domain looks like to each algorithm: t-SNE of its embeddings. (Section 5.4 of the paper.)"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqdg.paper.study import Numbers, Refused, Study, embed, of_each, walk, why_no_features
from seqdg.training.sampler import stream
from seqdg.training.stack import Stack

MOST = 400  # points in a panel


def tsne(study: Study) -> Numbers:
    """Points and separability for the raw inputs and for each algorithm, of the first seed, all laid out alike."""
    stack = study.stack(study.names[0])
    rows = stack.jobs[0].split.test[0]
    if len(rows) > MOST:
        rows = rows[np.sort(stream(study.seed, "tsne").permutation(len(rows))[:MOST])]
    x, y = stack.inputs.serve(rows[None].to(stack.inputs.device))
    labels = y[0].cpu().numpy()

    def features(name: str, stack: Stack) -> NDArray[np.float64]:
        if sentence := why_no_features(stack, name):
            raise Refused(sentence)
        *_, state = walk(stack, name, 1, study.tick)
        z = embed(stack, stack.deploy(state), rows.expand(len(stack.jobs), -1))[0]
        return z.cpu().double().numpy()

    found, refused = of_each(study, features)
    panels = {
        name: {"points": np.round(layout(z, study.seed), 2).tolist(), "score": separability(z, labels)}
        for name, z in {"raw data": x[0].flatten(1).cpu().double().numpy(), **found}.items()
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

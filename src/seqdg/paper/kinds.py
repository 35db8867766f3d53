"""The analyses by name, with what each looks at where nothing else is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seqdg.paper.alignment import alignment
from seqdg.paper.cost import cost
from seqdg.paper.ensemble import ensemble
from seqdg.paper.invariance import invariance
from seqdg.paper.ranks import ranks
from seqdg.paper.similarity import similarity
from seqdg.paper.study import Numbers, Study
from seqdg.paper.tsne import tsne


@dataclass(frozen=True)
class Kind:
    run: Callable[[Study], Numbers]
    algorithms: tuple[str, ...]
    trials: int
    steps: int = 300
    everywhere: bool = False  # holds out every domain in turn, unless one is named


COSTLY = (
    "agg", "dann", "crossgrad", "metareg", "fo-mldg", "mldg", "ffo-s-mldg", "fo-s-mldg", "s-mldg", "undo-bias",
    "s-undo-bias", "ensemble",
)  # fmt: skip
KINDS = {
    "invariance": Kind(invariance, ("agg", "fo-mldg", "fo-s-mldg"), 2),
    "tsne": Kind(tsne, ("ensemble", "undo-bias", "s-undo-bias", "agg", "fo-mldg", "ffo-s-mldg", "fo-s-mldg"), 1, 200),
    "cost": Kind(cost, COSTLY, 1, 100),
    "similarity": Kind(similarity, ("undo-bias", "s-undo-bias"), 1, 200),
    "ranks": Kind(ranks, ("agg", "fo-mldg", "fo-s-mldg"), 2, 200),
    "alignment": Kind(alignment, ("agg", "fo-mldg", "fo-s-mldg", "ffo-s-mldg"), 2),
    "ensemble": Kind(ensemble, ("ensemble", "undo-bias", "s-undo-bias"), 1, 200, True),
}

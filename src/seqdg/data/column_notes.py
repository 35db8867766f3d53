"""Notes on columns that are probably not meant as features: identifiers, counters, names of domains, empty ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.data.cells import Column, count_present
from seqdg.data.column_types import find_counters
from seqdg.data.frame import Frame

MANY_WORDS = 20  # above which a column may be an identifier, where most rows have a word of their own


def note_columns(frame: Frame, domains: NDArray[Any] | None = None) -> list[str]:
    """Return a note on every column from which a model learns nothing that holds for new rows.

    domains: (row,) where each row is from; None: not known.
    """
    columns = dict(zip(frame.names, frame.columns, strict=True))
    rows = [] if domains is None else [np.flatnonzero(domains == d) for d in np.unique(domains)]
    words = {name: len(set(values.tolist()) - {None}) for name, values in columns.items() if values.dtype == object}
    return [
        *(
            f"Column '{name}' has {count} different words in {len(frame)} rows: is it an identifier? Then leave it "
            f"out, on the command line by --id {name}, which writes it beside the predictions."
            for name, count in words.items()
            if count > max(MANY_WORDS, len(frame) // 2)
        ),
        *(
            f"Column '{name}' numbers the rows: is it an identifier? Then leave it out, on the command line by "
            f"--id {name}."
            for name in find_counters(columns)
        ),
        *(
            f"Column '{name}' has one value in each domain, and another in every one: it names the domain. From so few "
            f"values little is learned for a new one; leave it out, on the command line by --ignore {name}, unless you "
            "know better."
            for name, values in columns.items()
            if _names_domains(values, rows)
        ),
        *(
            f"Column '{name}' is empty, in all {len(frame)} rows: the model learns nothing of it."
            for name, values in columns.items()
            if not count_present(values)
        ),
    ]


def _names_domains(values: Column, rows: Sequence[NDArray[np.int64]]) -> bool:
    """Return whether each domain has one value of its own. rows: numbers of the rows of each domain."""
    met = set()
    for place in rows:
        first = values[place[0]]
        if len(place) < 2 or first is None or not bool((values[place] == first).all()):
            return False
        met.add(first)
    return len(rows) > 1 and len(met) == len(rows)

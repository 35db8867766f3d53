"""Notes on columns that are probably not meant as features: identifiers, counters, names of domains, empty ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.data.cells import Column, count_present
from seqdg.data.column_types import SHORT, find_counters
from seqdg.data.frame import Frame

MANY_WORDS = 20  # above which a column may be an identifier, where most rows have a word of their own
SURPRISE = 10.0  # equal pairs of whole numbers that chance would give at least; where there are none, it was not chance
NAMES = frozenset(("id", "ids", "identifier", "uid", "nr", "mrn", "patient", "subject", "customer", "serial", "key"))


def note_columns(frame: Frame, domains: NDArray[Any] | None = None) -> list[str]:
    """Return a note on every column from which a model learns nothing that holds for new rows.

    domains: (row,) where each row is from; None: not known.
    """
    columns = dict(zip(frame.names, frame.columns, strict=True))
    rows = [] if domains is None else [np.flatnonzero(domains == d) for d in np.unique(domains)]
    counters = find_counters(columns)
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
            for name in counters
        ),
        *(
            f"Column '{name}' has another whole number in every row{where}: is it an identifier? Then leave it out, on "
            f"the command line by --id {name}, which writes it beside the predictions."
            for name, values in columns.items()
            if name not in counters and (where := _find_identifier(name, values, rows)) is not None
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


def _find_identifier(name: str, values: Column, rows: Sequence[NDArray[np.int64]]) -> str | None:
    """Say where no whole number of a column recurs though it should, in the table ("") or in each domain; else None.

    Of n draws from R numbers, n (n - 1) / 2R pairs are equal on average, if all are equally likely, and more if not:
    a measurement has some. Where R is so large that it may have none, the column's name decides.
    rows: numbers of the rows of each domain.
    """
    if values.dtype.kind != "f" or len(values) <= SHORT or not np.isfinite(values).all():
        return None
    if (values != np.floor(values)).any():
        return None
    if _differ(values) and (_count_equal(values) >= SURPRISE or _is_name_of_identifier(name)):
        return ""
    if len(rows) < 2 or not all(_differ(values[place]) for place in rows):
        return None
    return " of a domain" if sum(_count_equal(values[place]) for place in rows) >= SURPRISE else None


def _differ(numbers: Column) -> bool:
    """Return whether no number recurs."""
    return bool(np.ptp(numbers) >= len(numbers) - 1) and len(np.unique(numbers)) == len(numbers)


def _count_equal(numbers: Column) -> float:
    """Return how many pairs would be equal on average among as many draws from the whole numbers in between."""
    return len(numbers) * (len(numbers) - 1) / 2 / float(np.ptp(numbers) + 1)


def _is_name_of_identifier(name: str) -> bool:
    """Return whether a part of a column's name says so: `patient_id`, `patientID`, `Subject`."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return any(part.lower() in NAMES for part in parts)


def _names_domains(values: Column, rows: Sequence[NDArray[np.int64]]) -> bool:
    """Return whether each domain has one value of its own. rows: numbers of the rows of each domain."""
    met = set()
    for place in rows:
        first = values[place[0]]
        if len(place) < 2 or first is None or not bool((values[place] == first).all()):
            return False
        met.add(first)
    return len(rows) > 1 and len(met) == len(rows)

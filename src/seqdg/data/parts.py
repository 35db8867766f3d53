"""Columns that divide rows in another way than the domain: a split column gives each domain its part of a fixed split,
a group column names the groups by which results are judged."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base import count_things, list_some
from seqdg.data.cells import is_missing, to_word
from seqdg.data.checks import Labels, Problem

TRAIN, VALIDATION, TEST = PARTS = ("train", "validation", "test")
ID_VALIDATION, ID_TEST = "id_val", "id_test"  # rows of train domains, as WILDS (Koh et al., 2021) calls them
_MEANINGS = {"train": TRAIN, "validation": VALIDATION, "val": VALIDATION, "test": TEST, "id_validation": ID_VALIDATION}
_PART_OF = {**{part: part for part in PARTS}, ID_VALIDATION: TRAIN, ID_TEST: TRAIN}


class Division(NamedTuple):
    """The content of a split column."""

    parts: tuple[str, ...]  # the part of each domain; empty where the column makes no sense
    keep: NDArray[np.bool_]  # (row,) without the `id_test` rows, which serve nothing here
    validation: NDArray[np.bool_] | None  # (row,) the `id_val` rows; None where there are none
    problems: list[Problem]
    notes: list[str]


def divide_rows(split: NDArray[Any], domain: Labels, domains: tuple[str, ...]) -> Division:
    """Give each domain its part: its rows are all `train` (with `id_val`, `id_test`), all `validation` or all `test`.

    split: (row,) the cells of the split column.   domain: (row,) index into domains.
    """
    words = [to_word(value).strip().lower() for value in split]
    meanings = np.array([_MEANINGS.get(word, word) for word in words], dtype=object)
    problems = _find_strange(split, meanings)
    parts = []
    for i, name in enumerate(domains):
        present = dict.fromkeys(_PART_OF.get(m, "") for m in meanings[domain == i])
        several = [part for part in PARTS if part in present]
        if len(several) > 1:
            problems.append(
                Problem(
                    f"The split column puts rows of the domain '{name}' into {' and '.join(several)}, but a domain is "
                    f"in one part of a fixed split: call rows that validate within a train domain {ID_VALIDATION}."
                )
            )
        parts.append(several[0] if several else TRAIN)
    validation, left = meanings == ID_VALIDATION, meanings == ID_TEST
    notes = [f"{count_things(int(left.sum()), 'row')} called {ID_TEST} left out."] if left.any() else []
    return Division(() if problems else tuple(parts), ~left, validation if validation.any() else None, problems, notes)


def _find_strange(split: NDArray[Any], meanings: NDArray[Any]) -> list[Problem]:
    allowed = f"{', '.join(PARTS)} (or val), {ID_VALIDATION} or {ID_TEST}"
    empty = sum(is_missing(value) for value in split)
    problems = [Problem(f"The split column has {count_things(empty, 'empty cell')}: write {allowed}.")] if empty else []
    strange = sorted({m for m, v in zip(meanings, split, strict=True) if m not in _PART_OF and not is_missing(v)})
    if strange:
        problems.append(Problem(f"The split column holds {list_some(strange)}: write {allowed}."))
    return problems


def encode_groups(values: NDArray[Any]) -> tuple[tuple[str, ...], Labels, list[Problem]]:
    """Number the groups that occur, in order; a row without one is a problem.

    values: (row,) the cells of the group column, numbers or words.
    """
    lacking = sum(map(is_missing, values.tolist()))
    if lacking:
        cure = "fill in every one, or leave group_column out"
        problem = Problem(f"The group column has {count_things(lacking, 'empty cell')}: {cure}.")
        return (), np.zeros(len(values), np.int64), [problem]
    kinds, index = np.unique(values if values.dtype.kind in "iufb" else values.astype(str), return_inverse=True)
    return tuple(to_word(kind) for kind in kinds.tolist()), index.reshape(-1).astype(np.int64), []

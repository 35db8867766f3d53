"""Sparse matrices of scipy: nets read dense rows, so they are made dense, for predictions some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from seqdg.base import UsageError, measure_free_memory

ROOM = 3  # times the size of a dense table in double precision: itself, and what is made of it
TOGETHER = 2**23  # numbers that are made dense at once for predictions


def is_sparse(x: Any) -> bool:
    """Return whether x is a sparse matrix of scipy."""
    return hasattr(x, "toarray") and hasattr(x, "nnz")


def make_dense(x: Any) -> NDArray[Any]:
    """Make a sparse matrix dense, all at once, after a look at how much memory is free."""
    try:
        x = check_array(x, accept_sparse=True, dtype=None, ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    needed, free = ROOM * 8 * x.shape[0] * x.shape[1], measure_free_memory()
    if free is not None and needed > free:
        raise UsageError(
            f"X is sparse, and as a dense table of {x.shape[0]} rows and {x.shape[1]} columns it needs about "
            f"{needed / 2**30:.1f} GiB, of which {free / 2**30:.1f} are free: bring it to fewer columns first, as with "
            "sklearn.decomposition.TruncatedSVD."
        )
    return np.asarray(x.toarray())


def split_sparse(x: Any) -> Iterator[Any]:
    """Yield the rows of a sparse matrix, some at a time."""
    rows = x.tocsr()
    count = max(1, TOGETHER // max(1, x.shape[1]))
    for start in range(0, x.shape[0], count):
        yield rows[start : start + count]

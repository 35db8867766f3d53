"""Free text as numbers: hashed n-grams, or an encoder of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqdg.base import UsageError
from seqdg.core import import_function
from seqdg.data.contents import Matrix

Encoder = Callable[[list[str]], Any]  # texts to numbers, (row, feature)


def encode_text(texts: Sequence[str], encode: str, size: int, ngrams: tuple[int, int]) -> Matrix:
    """Return numbers for every text. encode: `hash`, or where to import an encoder from."""
    if encode == "hash":
        return hash_ngrams(texts, size, ngrams)
    return _apply(import_function(encode, "encode"), encode, list(texts))


def hash_ngrams(texts: Sequence[str], size: int = 2048, ngrams: tuple[int, int] = (1, 2)) -> Matrix:
    """Mark which of `size` buckets of n-grams of words occur, in a row of length 1 (scikit-learn's hashing).

    Nothing is fitted to the texts, so that nothing of a held-out domain leaks.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    hasher = HashingVectorizer(n_features=size, ngram_range=ngrams, binary=True, norm="l2", alternate_sign=False)
    result: Matrix = hasher.transform(texts).astype(np.float32).toarray()
    return result


def _apply(encoder: Encoder, place: str, texts: list[str]) -> Matrix:
    try:
        returned = encoder(texts)
        x = np.asarray(returned.toarray() if hasattr(returned, "toarray") else returned, dtype=np.float32)
    except Exception as error:  # it is the user's code
        raise UsageError(f"The encoder '{place}' failed ({type(error).__name__}: {error}).") from error
    if x.ndim != 2 or len(x) != len(texts):
        raise UsageError(
            f"The encoder '{place}' returned shape {list(x.shape)} for {len(texts)} texts: a row of numbers for each "
            "is needed."
        )
    return x

"""Settings that have a value per position of the path, such as the paper's alpha_i and beta_i."""

from __future__ import annotations

from seqdg.base import UsageError
from seqdg.core.algorithm import Number, Numbers


def check_count(name: str, values: Numbers, counts: tuple[int, ...], length: int) -> None:
    """Raise a UsageError for a tuple whose length is none of the counts; a single number fits every path."""
    if isinstance(values, tuple) and len(values) not in counts:
        start = f"{name} has {len(values)} values, but a path of {length} domains takes"
        if counts == (0,):
            raise UsageError(f"{start} none: give one number.")
        wanted = " or ".join(str(c) for c in counts)
        raise UsageError(f"{start} {wanted}: give one number for all positions, or {wanted}.")


def pick(values: Numbers, i: int) -> Number:
    """Return value i of a tuple, whose last value repeats; a number holds everywhere."""
    return values[min(i, len(values) - 1)] if isinstance(values, tuple) else values


def pick_from_end(values: Numbers, i: int, length: int) -> Number:
    """Return value i of `length`, where a short tuple counts from the end and missing leading values are 1."""
    if not isinstance(values, tuple):
        return values
    missing = length - len(values)
    return 1.0 if i < missing else values[i - missing]


def resize(values: Numbers, length: int) -> Numbers:
    """Return the setting for a path of another length: tuples keep their last entries and repeat the first."""
    if not isinstance(values, tuple):
        return values
    return (values[0],) * (length - len(values)) + values[max(0, len(values) - length) :]

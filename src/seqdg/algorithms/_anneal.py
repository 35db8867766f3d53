"""Penalties that are weak at first, as in DomainBed: two stages, so that the second begins with a new optimizer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from seqdg.core import Algorithm, Number, setting


def anneal_setting() -> Any:
    """Declare the share of the steps with the weak penalty; DomainBed's 500 of 5,001 steps are 0.1."""
    return setting(0.1, least=0.0, most=0.9, static=True, search=(0.0, 0.1, 0.3))


def weaken(weight: Number) -> Number:
    """Return 1, or the weight itself where that is less."""
    return weight.clamp(max=1.0) if isinstance(weight, Tensor) else min(weight, 1.0)


def split_stages(share: float, weak: Algorithm, full: Algorithm) -> tuple[tuple[float, Algorithm], ...]:
    """Return the two stages; with a share of 0 there is no weak one."""
    return ((share, weak), (1.0 - share, full)) if share > 0 else ((1.0, full),)

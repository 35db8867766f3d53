"""What all analyses say of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def about(payload: Mapping[str, Any]) -> str:
    """`Held out: dslr. 3 seeds, 500 steps.`"""
    of = payload["of"]
    seeds, steps = of["seeds"], sorted(set(of["steps"].values()))
    count = "One seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    length = " or ".join(str(n) for n in steps)
    return f"Held out: {of['held_out']}. {count}, {length} steps."


def refusals(payload: Mapping[str, Any]) -> list[str]:
    """Why some algorithms are not shown."""
    return list(payload["numbers"].get("refused", {}).values())


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plus_minus(mean: float, spread: float | None, digits: int = 2) -> str:
    return f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread is not None else "")

"""Algorithms as pure functions, the fold that makes them sequential, their settings and names."""

from seqdg.core.algorithm import Algorithm, Chainable, Loss, Number, Numbers, Range, setting
from seqdg.core.registry import build, list_algorithms, register
from seqdg.core.sequential import Sequential

__all__ = [
    "Algorithm",
    "Chainable",
    "Loss",
    "Number",
    "Numbers",
    "Range",
    "Sequential",
    "build",
    "list_algorithms",
    "register",
    "setting",
]

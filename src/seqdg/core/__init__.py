"""Algorithms as pure functions, the fold that makes them sequential, their settings and names."""

from seqdg.core.algorithm import Algorithm, Chainable, Loss, Number, Numbers, Range, setting
from seqdg.core.registry import build, list_algorithms, list_wrappers, register, register_chain
from seqdg.core.sequential import Sequential
from seqdg.core.wrapper import Averaging, Wrapper

__all__ = [
    "Algorithm",
    "Averaging",
    "Chainable",
    "Loss",
    "Number",
    "Numbers",
    "Range",
    "Sequential",
    "Wrapper",
    "build",
    "list_algorithms",
    "list_wrappers",
    "register",
    "register_chain",
    "setting",
]

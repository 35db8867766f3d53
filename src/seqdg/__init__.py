"""Domain generalization by sequential learning: train on the domains you have, work on one you have never seen."""

from seqdg import testing
from seqdg.algorithm import Algorithm, Chainable, Range, setting
from seqdg.episode import Episode, Params
from seqdg.errors import UsageError
from seqdg.models.net import Net
from seqdg.registry import algorithms, build, register
from seqdg.sequential import Sequential

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Chainable",
    "Episode",
    "Net",
    "Params",
    "Range",
    "Sequential",
    "UsageError",
    "algorithms",
    "build",
    "register",
    "setting",
    "testing",
]

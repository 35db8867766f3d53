"""Domain generalization by sequential learning: train on the domains you have, work on one you have never seen."""

from importlib import import_module
from typing import Any

from seqdg import testing
from seqdg.base.episode import Episode, Params
from seqdg.base.errors import UsageError
from seqdg.core.algorithm import Algorithm, Chainable, Range, setting
from seqdg.core.registry import algorithms, build, register
from seqdg.core.sequential import Sequential
from seqdg.nets.net import Net

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Chainable",
    "DomainGeneralizer",
    "Episode",
    "Net",
    "Params",
    "Range",
    "Sequential",
    "UsageError",
    "algorithms",
    "build",
    "compare",
    "register",
    "setting",
    "testing",
]

_LATER = {"DomainGeneralizer": "estimator.classifier", "compare": "estimator.compare"}


def __getattr__(name: str) -> Any:
    """What needs scikit-learn is imported when it is first used."""
    if name not in _LATER:
        raise AttributeError(f"module 'seqdg' has no attribute '{name}'")
    return getattr(import_module(f"seqdg.{_LATER[name]}"), name)

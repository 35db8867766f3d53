"""Domain generalization by sequential learning: train on the domains you have, work on one you have never seen."""

from typing import TYPE_CHECKING, Any

from seqdg.base import VERSION, open_front, register_family

if TYPE_CHECKING:
    from seqdg import testing
    from seqdg.base import Episode, Params, UsageError, noise, tree
    from seqdg.bench import run
    from seqdg.core import (
        Algorithm,
        Averaging,
        Chainable,
        Range,
        Sequential,
        Wrapper,
        build,
        list_algorithms,
        list_wrappers,
        register,
        setting,
    )
    from seqdg.data import Features, extract_features
    from seqdg.estimator import DomainClassifier, DomainRegressor, importance, learning_curve
    from seqdg.estimator.compare import compare
    from seqdg.nets import Net
    from seqdg.report import Results

__version__ = VERSION
__all__ = [
    "Algorithm",
    "Averaging",
    "Chainable",
    "DomainClassifier",
    "DomainRegressor",
    "Episode",
    "Features",
    "Net",
    "Params",
    "Range",
    "Results",
    "Sequential",
    "UsageError",
    "Wrapper",
    "build",
    "compare",
    "extract_features",
    "importance",
    "learning_curve",
    "list_algorithms",
    "list_wrappers",
    "noise",
    "register",
    "run",
    "setting",
    "testing",
    "tree",
]

__getattr__, _ = open_front(__name__)


def _make_domainbed_learner(name: str) -> Any:
    from seqdg.interop import make_learner

    return make_learner(name)


# Here, because every process imports this file, also a worker that trains a class of DomainBed.
register_family("domainbed", _make_domainbed_learner)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

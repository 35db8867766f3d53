"""Domain generalization by sequential learning: train on the domains you have, work on one you have never seen."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seqdg.base.version import VERSION

if TYPE_CHECKING:
    from seqdg import testing
    from seqdg.base import noise, tree
    from seqdg.base.episode import Episode, Params
    from seqdg.base.errors import UsageError
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
    from seqdg.estimator import (
        DomainClassifier,
        DomainGeneralizer,
        DomainRegressor,
        compare,
        importance,
        learning_curve,
    )
    from seqdg.nets.net import Net
    from seqdg.report.results import Results
    from seqdg.report.run import run

__version__ = VERSION
__all__ = [
    "Algorithm",
    "Averaging",
    "Chainable",
    "DomainClassifier",
    "DomainGeneralizer",
    "DomainRegressor",
    "Episode",
    "Net",
    "Params",
    "Range",
    "Results",
    "Sequential",
    "UsageError",
    "Wrapper",
    "build",
    "compare",
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

# Where each name is defined. It is imported when it is first used, so that reading results does not import torch.
_MODULES = {
    "Algorithm": "core.algorithm",
    "Averaging": "core.wrapper",
    "Chainable": "core.algorithm",
    "DomainClassifier": "estimator",
    "DomainGeneralizer": "estimator",
    "DomainRegressor": "estimator",
    "Episode": "base.episode",
    "Net": "nets.net",
    "Params": "base.episode",
    "Range": "core.algorithm",
    "Results": "report.results",
    "Sequential": "core.sequential",
    "UsageError": "base.errors",
    "Wrapper": "core.wrapper",
    "build": "core.registry",
    "compare": "estimator",
    "importance": "estimator",
    "learning_curve": "estimator",
    "list_algorithms": "core.registry",
    "list_wrappers": "core.registry",
    "register": "core.registry",
    "run": "report.run",
    "setting": "core.algorithm",
}
_WHOLE = {"noise": "base.noise", "testing": "testing", "tree": "base.tree"}  # modules that are public names


def __getattr__(name: str) -> Any:
    if name in _WHOLE:
        return import_module(f"seqdg.{_WHOLE[name]}")
    if name not in _MODULES:
        raise AttributeError(f"module 'seqdg' has no attribute '{name}'")
    return getattr(import_module(f"seqdg.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

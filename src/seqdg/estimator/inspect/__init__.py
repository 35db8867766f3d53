"""Look into a model: which columns it uses, and how its score grows with the number of domains."""

from typing import TYPE_CHECKING

from seqdg.base.front import open_front

if TYPE_CHECKING:
    from seqdg.estimator.inspect.column_importance import Importance, importance
    from seqdg.estimator.inspect.domain_curve import LearningCurve, learning_curve
    from seqdg.estimator.inspect.spread import write_analysis

__getattr__, __dir__ = open_front(__name__)

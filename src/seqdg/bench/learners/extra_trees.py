"""Extremely randomized trees of all sources together."""

from __future__ import annotations

from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from seqdg.bench.learner import register_learner
from seqdg.bench.learners._forest import Forest


@register_learner("extra-trees")
class ExtraTrees(Forest):
    """The mean of trees whose splits are drawn at random (Geurts, Ernst and Wehenkel, 2006; `ExtraTrees...`).

    trees: how many.
    leaf_rows: rows of a leaf, at least.
    features: share of the inputs that a split looks at; 0 means their square root, or a third to predict numbers.
    most_rows: that a tree is grown from.
    balance: weigh rows so that every domain counts the same.
    """

    classifier, regressor = ExtraTreesClassifier, ExtraTreesRegressor

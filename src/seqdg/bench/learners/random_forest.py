"""A random forest of all sources together."""

from __future__ import annotations

from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from seqdg.bench.learner import register_learner
from seqdg.bench.learners._forest import Forest


@register_learner("random-forest")
class RandomForest(Forest):
    """The mean of trees of rows drawn with replacement (Breiman, 2001; scikit-learn's `RandomForest...`).

    trees: how many.
    leaf_rows: rows of a leaf, at least.
    features: share of the inputs that a split looks at; 0 means their square root, or a third to predict numbers.
    most_rows: that a tree is grown from.
    balance: weigh rows so that every domain counts the same.
    """

    classifier, regressor = RandomForestClassifier, RandomForestRegressor

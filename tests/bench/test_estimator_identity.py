"""An estimator of the user's own is known by its class and all its parameters: none is taken for another, ever."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from seqdg.bench import OwnEstimator
from seqdg.bench.learners.estimators import describe_estimator


class Holder(ClassifierMixin, BaseEstimator):
    def __init__(self, held=None, other=1):
        self.held, self.other = held, other


class Thing:
    """An object without a `repr` of its own: its address tells nothing."""

    def __init__(self, value):
        self.value = value


def make_namesake():
    return type("LogisticRegression", (LogisticRegression,), {"__module__": "elsewhere"})()


LONG = np.arange(5000.0)
CHANGED = np.where(LONG == 2500, -1, LONG)  # which `repr` does not show
PAIRS = {
    "a parameter": (LogisticRegression(C=1.0), LogisticRegression(C=2.0)),
    "a namesake": (LogisticRegression(), make_namesake()),
    "a part inside": (
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(with_mean=False), LogisticRegression()),
    ),
    "a number and a word": (Holder(1), Holder("1")),
    "whole and not": (Holder(1), Holder(1.0)),
    "a list and a tuple": (Holder([1]), Holder((1,))),
    "the middle of an array": (Holder(LONG), Holder(CHANGED)),
    "the type of an array": (Holder(LONG), Holder(LONG.astype(np.float32))),
    "lambdas": (FunctionTransformer(lambda x: x + 1), FunctionTransformer(lambda x: x + 2)),
    "what a function is given": (Holder(partial(np.clip, a_min=0)), Holder(partial(np.clip, a_min=1))),
    "the state of a generator": (Holder(np.random.RandomState(0)), Holder(np.random.RandomState(1))),
    "what an object holds": (Holder(Thing(1)), Holder(Thing(2))),
    "an estimator of several": (
        VotingClassifier([("a", LogisticRegression())]),
        VotingClassifier([("a", LogisticRegression(C=3))]),
    ),
}


@pytest.mark.parametrize("what", PAIRS)
def test_two_that_differ_are_told_apart_and_a_copy_is_the_same(what):
    one, other = PAIRS[what]
    assert describe_estimator(one) != describe_estimator(other)
    assert OwnEstimator(one) != OwnEstimator(other)
    for estimator in (one, other):
        assert describe_estimator(clone(estimator)) == describe_estimator(estimator)
        assert hash(OwnEstimator(clone(estimator))) == hash(OwnEstimator(estimator))


def test_it_holds_no_address_and_the_order_of_names_does_not_count():
    assert describe_estimator(Holder(Thing({"b": 1, "a": 2}))) == describe_estimator(Holder(Thing({"a": 2, "b": 1})))
    assert describe_estimator(Holder({3, 1, 2})) == describe_estimator(Holder({2, 3, 1}))
    assert " at 0x" not in describe_estimator(Holder([Thing(1), np.mean, lambda x: x]))


@pytest.mark.slow
def test_it_is_the_same_in_another_process():
    code = (
        "from sklearn.ensemble import RandomForestClassifier\n"
        "from seqdg.bench.learners.estimators import describe_estimator\n"
        "print(describe_estimator(RandomForestClassifier(class_weight={'b': 1, 'a': 2})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = describe_estimator(RandomForestClassifier(class_weight={"a": 2, "b": 1}))
    assert done.stdout.strip() == here
    assert here.startswith("sklearn.ensemble._forest.RandomForestClassifier(bootstrap=True, ")


def test_what_users_read_is_short():
    assert repr(OwnEstimator(LogisticRegression(C=2.0))) == "LogisticRegression(C=2.0)"

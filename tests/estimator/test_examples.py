"""The examples in the docstrings of the estimator's public names run and print what they say."""

from __future__ import annotations

import doctest

import pytest

import seqdg


@pytest.mark.parametrize("name", ["DomainClassifier", "DomainRegressor", "importance", "learning_curve"])
def test_the_example_of_a_public_name_runs(name):
    tests = doctest.DocTestFinder(recurse=False).find(getattr(seqdg, name), name, globs={})
    assert sum(len(test.examples) for test in tests) > 0
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0

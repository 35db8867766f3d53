"""What classifier and regressor share."""

import inspect

import pytest

import seqdg
from seqdg import UsageError
from seqdg.estimator.user_data import read_numbers


def test_both_have_the_same_parameters_but_for_the_loss():
    classifier, regressor = (
        inspect.signature(kind.__init__).parameters for kind in (seqdg.DomainClassifier, seqdg.DomainRegressor)
    )
    assert classifier.keys() ^ regressor.keys() == {"calibrate", "class_weight", "loss"}
    different = {
        name for name in classifier.keys() & regressor.keys() if classifier[name].default != regressor[name].default
    }
    assert different == {"algorithm", "criterion"}


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (["a", "b"], "a number for every row"),
        ([1.0, float("nan")], r"NaN or infinity in 1 row \(from 0: 1\)"),
        (None, "give a number for every row"),
    ],
)
def test_a_target_that_is_no_number_is_refused(y, sentence):
    with pytest.raises(UsageError, match=sentence):
        read_numbers(y)

"""`seqdg.estimator` names what others may use, and imports it when it is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seqdg import estimator


def test_every_name_of_the_front_door_is_there():
    assert dir(estimator) == sorted(estimator.__all__)
    for name in estimator.__all__:
        assert getattr(estimator, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = estimator.nothing


def test_the_front_door_is_light_to_import():
    code = (
        "import sys, seqdg.estimator; print([m for m in ('torch', 'numpy', 'sklearn', 'pandas') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

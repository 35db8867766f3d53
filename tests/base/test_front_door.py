"""A package names what others may use, and imports it when it is first used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

PACKAGES = ("seqdg.data", "seqdg.training", "seqdg.bench", "seqdg.estimator")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_a_front_door_is_there(name):
    package = import_module(name)
    assert dir(package) == sorted(package.__all__)
    for public in package.__all__:
        assert not isinstance(getattr(package, public), ModuleType)  # of the same name
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("name", PACKAGES)
def test_a_front_door_is_light_to_import(name):
    heavy = ("torch", "numpy", "sklearn", "pandas", "pyarrow", "PIL", "ray")
    code = f"import sys, {name}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

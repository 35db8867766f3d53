"""A package names what others may use, and imports it when it is first used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import seqdg

FRONTS = [
    f"seqdg.{file.parent.name}"
    for file in sorted(Path(seqdg.__file__).parent.glob("*/__init__.py"))
    if "open_front(" in file.read_text(encoding="utf-8")
]


def test_most_packages_have_a_front():
    assert len(FRONTS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("name", FRONTS)
def test_every_name_of_a_front_is_there_and_is_no_module(name):
    package = import_module(name)
    assert dir(package)
    if name == "seqdg.kernels":
        pytest.importorskip("triton", reason="kernels need Triton")
    for public in dir(package):
        value = getattr(package, public)
        assert not isinstance(value, ModuleType), f"a module of {name} has the name of its function {public}"
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("name", FRONTS)
def test_a_front_is_light_to_import(name):
    heavy = ("torch", "numpy", "sklearn", "pandas", "pyarrow", "PIL", "ray")
    code = f"import sys, {name}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_package_may_offer_a_whole_module():
    assert isinstance(seqdg.tree, ModuleType)
    assert isinstance(seqdg.testing, ModuleType)

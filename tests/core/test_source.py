"""The code of a user's class, as far as it decides what the class computes."""

from __future__ import annotations

import importlib.util
import sys

import pytest

import seqdg
from seqdg.core.source import is_own, is_same, read_source

FILE = '''
"""Two classes."""

import math

SCALE = 2.0  # of both


def square(x):
    """x * x"""
    return SCALE * x * x


class First:
    """The first."""

    def loss(self, x):
        return square(x)


class Second(First):
    def loss(self, x):
        return math.exp(x)
'''


@pytest.fixture
def read(tmp_path):
    """Return the code of a class of a file with some text replaced."""
    names = []

    def read_class(name: str, old: str = "", new: str = "") -> str:
        names.append(f"plugin_source_{len(names)}")
        file = tmp_path / f"{names[-1]}.py"
        assert old in FILE
        file.write_text(FILE.replace(old, new) if old else FILE)
        spec = importlib.util.spec_from_file_location(names[-1], file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[names[-1]] = module
        spec.loader.exec_module(module)
        return read_source(getattr(module, name))

    yield read_class
    for name in names:
        del sys.modules[name]


def test_comments_docstrings_and_layout_are_no_change(read):
    before = read("First")
    for old, new in (("  # of both", ""), ('"""x * x"""', '"""The square."""'), ("SCALE * x * x", "(SCALE * x\n * x)")):
        assert is_same(read("First", old, new), before)


def test_what_a_class_needs_of_its_file_is_its_code_and_nothing_else(read):
    first, second = read("First"), read("Second")
    assert "SCALE = 2.0" in first
    assert "math" not in first
    assert "class First" in second, "the base decides, too"
    assert not is_same(read("First", "SCALE = 2.0", "SCALE = 3.0"), first)
    assert not is_same(read("Second", "SCALE = 2.0", "SCALE = 3.0"), second)
    assert is_same(read("First", "math.exp(x)", "math.exp(-x)"), first)
    assert not is_same(read("Second", "math.exp(x)", "math.exp(-x)"), second)


def test_a_class_without_a_file_has_the_code_of_its_methods(monkeypatch, read):
    read("First")
    first = sys.modules["plugin_source_0"].First
    monkeypatch.delattr(sys.modules["plugin_source_0"], "__file__")
    assert read_source(first) == "def loss(self, x):\n    return square(x)"


def test_classes_of_this_package_are_not_the_users_own():
    assert not is_own(seqdg.Sequential)
    assert is_own(type("Mine", (seqdg.Algorithm,), {"__module__": "__main__"}))

"""The hash of a user's own code: of the file that a class is in and of files beside it that it imports."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import seqdg
from seqdg.base.plugins import _hash_source, hash_own_code

FILE = """
SCALE = 2.0  # of both


class First:
    def loss(self, x):
        return SCALE * x * x


class Second(First):
    def loss(self, x):
        return x
"""
MINE = """
{}


class Mine:
    def loss(self, x):
        return {}
"""
HELPER = """
from own_deeper import shift


def square(x):
    return shift(x) ** 2
"""
DEEPER = """
import math


def shift(x):
    return x + 1
"""


@pytest.fixture
def hash_class(tmp_path, monkeypatch):
    """Return the hash of the class Mine in a file that imports others beside it; each file is given by its text."""
    monkeypatch.syspath_prepend(tmp_path)

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("own_")]:
            del sys.modules[name]

    def write_and_hash(**texts: str) -> str:
        forget()
        for name, text in texts.items():
            (tmp_path / f"own_{name}.py").write_text(text)
        importlib.invalidate_caches()
        return hash_own_code([importlib.import_module("own_mine").Mine])

    yield write_and_hash
    forget()


def import_file(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_any_change_of_the_file_counts(hash_class):
    before = hash_class(mine=MINE.format("", "x"))
    assert hash_class(mine=MINE.format("", "x")) == before
    for text in (MINE.format("", "2 * x"), MINE.format("# a comment", "x"), MINE.format("OTHER = 1", "x")):
        assert hash_class(mine=text) != before


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("from own_helper import square", "square(x)"),
        ("from own_helper import square as root", "root(x)"),
        ("from own_helper import *", "square(x)"),
        ("import own_helper", "own_helper.square(x)"),
        ("import own_helper as h", "h.square(x)"),
        ("import math", "__import__('math').pi or square(x)\n\n    from own_helper import square"),
        ("", "x\n\n    def other(self, x):\n        from own_helper import square\n        return square(x)"),
    ],
)
def test_what_is_imported_from_files_beside_it_counts_too(hash_class, line: str, call: str):
    texts = {"mine": MINE.format(line, call), "helper": HELPER, "deeper": DEEPER, "apart": DEEPER}
    before = hash_class(**texts)
    assert hash_class(**texts) == before
    for name, counts in (("helper", True), ("deeper", True), ("apart", False)):
        after = hash_class(**{**texts, name: texts[name] + "# a comment"})
        assert (after != before) is counts, name


def test_what_is_imported_when_it_runs_counts_whether_it_has_run_or_not(hash_class) -> None:
    call = "x\n\n    def other(self, x):\n        from own_helper import square\n        return square(x)"
    texts = {"mine": MINE.format("", call), "helper": HELPER, "deeper": DEEPER}
    before = hash_class(**texts)
    importlib.import_module("own_helper")
    _hash_source.cache_clear()
    assert hash_own_code([sys.modules["own_mine"].Mine]) == before, (
        "a run must not change its own code by training once"
    )


def test_files_beside_one_another_may_import_one_another(hash_class):
    helper = "import own_mine\n\n\ndef square(x):\n    return own_mine.SCALE * x * x\n"
    mine = "SCALE = 2\n" + MINE.format("from own_helper import square", "square(x)")
    before = hash_class(mine=mine, helper=helper)
    assert hash_class(mine=mine.replace("SCALE = 2", "SCALE = 3"), helper=helper) != before


@pytest.mark.parametrize(
    "line",
    [
        "from .helper import square",
        "from . import helper",
        "from own_package.helper import square",
        "from own_package import helper",
        "import own_package.helper",
    ],
)
def test_modules_of_one_package_lie_beside_one_another(tmp_path, monkeypatch, line: str):
    hashes = set()
    for i in (1, 2):
        folder = tmp_path / str(i) / "own_package"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "mine.py").write_text(MINE.format(line, "x"))
        (folder / "helper.py").write_text(f"def square(x):\n    return {i} * x\n")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder.parent)
            hashes.add(hash_own_code([importlib.import_module("own_package.mine").Mine]))
        for name in [name for name in sys.modules if name.startswith("own_package")]:
            del sys.modules[name]
    assert len(hashes) == 2


def test_where_the_files_lie_does_not_count(tmp_path):
    hashes = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(FILE)
        sys.modules[f"own_{name}"] = import_file(tmp_path / name / "mine.py", f"own_{name}")
        hashes.add(hash_own_code([sys.modules.pop(f"own_{name}").First]))
    assert len(hashes) == 1


def test_a_class_without_a_file_has_the_code_of_its_methods(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FILE)
    module = import_file(tmp_path / "mine.py", "own_notebook")
    first, second = module.First, module.Second
    del module.__file__
    monkeypatch.setitem(sys.modules, "own_notebook", module)
    hashes = {hash_own_code([first]), hash_own_code([second]), ""}
    assert len(hashes) == 3
    assert hash_own_code([type("Empty", (), {"__module__": "own_notebook"})]) == ""


def test_a_file_that_changes_later_does_not_change_the_code_that_runs(hash_class, tmp_path):
    before = hash_class(mine=MINE.format("", "x"))
    (tmp_path / "own_mine.py").write_text(MINE.format("", "3 * x"))
    assert hash_own_code([sys.modules["own_mine"].Mine]) == before


def test_classes_of_this_package_are_not_the_users_own():
    assert hash_own_code([seqdg.Sequential, seqdg.Algorithm]) == ""

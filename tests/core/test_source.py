"""The code of a user's class, as far as it decides what the class computes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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


@pytest.fixture
def read_beside(tmp_path, monkeypatch):
    """Return the code of the class Mine in a file that imports others beside it; each file is given by its text."""
    monkeypatch.syspath_prepend(tmp_path)

    def read_class(**texts: str) -> str:
        for name, text in texts.items():
            monkeypatch.delitem(sys.modules, f"beside_{name}", raising=False)
            (tmp_path / f"beside_{name}.py").write_text(text)
        importlib.invalidate_caches()
        return read_source(importlib.import_module("beside_mine").Mine)

    yield read_class
    for name in [name for name in sys.modules if name.startswith("beside_")]:
        del sys.modules[name]


MINE = """
{}


class Mine:
    def loss(self, x):
        return {}
"""
HELPER = """
from beside_deeper import shift

POWER = 2


def square(x):
    return shift(x) ** POWER


def halve(x):
    return x / 2
"""
DEEPER = """
import math


def shift(x):
    return x + 1
"""


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("from beside_helper import square", "square(x)"),
        ("from beside_helper import square as root, halve", "root(x)"),
        ("from beside_helper import *", "square(x)"),
        ("import beside_helper", "beside_helper.square(x)"),
        ("import beside_helper as h", "h.square(x)"),
        ("import math", "__import__('math').pi or square(x)\n\n    from beside_helper import square"),
    ],
)
def test_what_is_imported_from_files_beside_it_counts_too(read_beside, line: str, call: str):
    texts = {"mine": MINE.format(line, call), "helper": HELPER, "deeper": DEEPER}
    before = read_beside(**texts)
    assert is_same(read_beside(**texts), before)
    for name, old, new, counts in (
        ("helper", "POWER = 2", "POWER = 3", True),
        ("deeper", "x + 1", "x + 2", True),
        ("helper", "x / 2", "x / 3", False),
        ("deeper", "import math", "import math  # not used", False),
    ):
        after = read_beside(**{**texts, name: texts[name].replace(old, new)})
        assert is_same(after, before) is not counts, (name, new)


def test_what_a_function_imports_does_not_count_whether_it_is_loaded_or_not(read_beside) -> None:
    call = "x\n\n    def other(self, x):\n        from beside_helper import square\n        return square(x)"
    codes = [
        read_beside(mine=MINE.format(line, call), helper=HELPER, deeper=DEEPER) for line in ("", "import beside_helper")
    ]
    assert codes[0] == codes[1], "a run must not find its own code changed because it has trained once"


def test_everything_may_be_imported_through_files_that_import_everything_of_one_another(read_beside) -> None:
    texts = {"mine": MINE.format("from beside_helper import *", "shift(x)"), "helper": "from beside_deeper import *\n"}
    before, after = (
        read_beside(deeper=f"{DEEPER.replace('1', number)}\n\nfrom beside_helper import *\n", **texts)
        for number in ("1", "2")
    )
    assert not is_same(before, after)


@pytest.mark.parametrize("line", ["from beside_helper import *", "import beside_helper"])
def test_a_file_beside_it_may_be_empty(read_beside, line: str) -> None:
    texts = {"mine": MINE.format(line, "(x, beside_helper)")}
    assert "class Mine" in read_beside(**texts, helper="")
    assert is_same(read_beside(**texts, helper=""), read_beside(**texts, helper="# nothing yet\n"))


def test_a_file_beside_it_that_is_used_as_a_whole_counts_as_a_whole(read_beside):
    texts = {"mine": MINE.format("import beside_helper", "vars(beside_helper)"), "helper": HELPER, "deeper": DEEPER}
    before = read_beside(**texts)
    assert not is_same(read_beside(**{**texts, "helper": HELPER.replace("x / 2", "x / 3")}), before)


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("from .helper import square", "square(x)"),
        ("from . import helper", "helper.square(x)"),
        ("from beside_package.helper import square", "square(x)"),
    ],
)
def test_modules_of_one_package_lie_beside_one_another(tmp_path, monkeypatch, line: str, call: str):
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "beside_package"
    folder.mkdir()
    for name, text in (
        ("__init__", ""),
        ("mine", MINE.format(line, call)),
        ("helper", "def square(x):\n    return x\n"),
    ):
        (folder / f"{name}.py").write_text(text)
    try:
        assert "def square" in read_source(importlib.import_module("beside_package.mine").Mine)
    finally:
        for name in [name for name in sys.modules if name.startswith("beside_package")]:
            del sys.modules[name]


def test_files_beside_one_another_may_import_one_another(read_beside):
    helper = "import beside_mine\n\n\ndef square(x):\n    return beside_mine.SCALE * x * x\n"
    mine = "SCALE = 2\n" + MINE.format("from beside_helper import square", "square(x)")
    before = read_beside(mine=mine, helper=helper)
    assert not is_same(read_beside(mine=mine.replace("SCALE = 2", "SCALE = 3"), helper=helper), before)


def test_packages_that_are_installed_or_compiled_are_not_read(read_beside, tmp_path, monkeypatch):
    (tmp_path / "beside_compiled.so").write_bytes(b"")
    compiled = ModuleType("beside_compiled")
    compiled.__file__ = str(tmp_path / "beside_compiled.so")
    monkeypatch.setitem(sys.modules, "beside_compiled", compiled)
    code = read_beside(
        mine=MINE.format("import beside_compiled, torch\nfrom math import exp", "torch.tanh(exp(beside_compiled))")
    )
    assert len(code) < 200


def test_a_class_without_a_file_has_the_code_of_its_methods(monkeypatch, read):
    read("Second")
    first = sys.modules["plugin_source_0"].First
    monkeypatch.delattr(sys.modules["plugin_source_0"], "__file__")
    assert read_source(first) == "def loss(self, x):\n    return square(x)"


def test_a_file_that_changes_later_does_not_change_the_code_that_runs(read):
    before = read("First")
    module = sys.modules["plugin_source_0"]
    Path(module.__file__).write_text(FILE + "\nSCALE = 3.0\n")
    assert read_source(module.First) == before


def test_classes_of_this_package_are_not_the_users_own():
    assert not is_own(seqdg.Sequential)
    assert is_own(type("Mine", (seqdg.Algorithm,), {"__module__": "__main__"}))


TABLED = """
import math
from types import SimpleNamespace

TABLE = {"a": 0}
CONFIG = SimpleNamespace(scale=2)
POWER = 1
SEEN = []


def fill(number):
    TABLE["a"] = number


def prepare(number):
    fill(number)


def show(number):
    print(number, SEEN)


async def wait(number):
    return number


class Mine:
    def loss(self, x):
        return TABLE["a"] * CONFIG.scale * math.exp(x) ** POWER

    async def fetch(self):
        return await wait(1)


class Second(Mine):
    pass


STATEMENT
"""


@pytest.mark.parametrize(
    "statement",
    [
        'TABLE["a"] = 1',
        'TABLE["a"] += 1',
        'TABLE["a"]: int = 1',
        "TABLE.update(a=1)",
        "CONFIG.scale = 1",
        'SEEN = TABLE["a"] = 1',
        'TABLE["a"], SEEN = 1, 2',
        "fill(1)",
        "prepare(1)",
        "for key in (1, 2):\n    TABLE[key] = 1",
        "if math.pi > 3:\n    CONFIG.scale = 1",
        "Mine.loss = lambda self, x: 1",
        'globals()["POWER"] = 1',
        "exec('POWER = 1')",
        'vars()["POWER"] = 1',
    ],
)
def test_a_statement_that_works_on_what_a_class_uses_is_its_code(read_beside, statement: str) -> None:
    before, after = (
        read_beside(mine=TABLED.replace("STATEMENT", text)) for text in (statement, statement.replace("1", "3"))
    )
    assert not is_same(before, after)
    assert not is_same(before, read_beside(mine=TABLED.replace("STATEMENT", "")))


@pytest.mark.parametrize(
    "statement",
    [
        "show(1)",
        "SEEN.append(1)",
        "print(math.sin(1))",
        "OTHER = Mine().loss(1)",
        "if __name__ == '__main__':\n    print(Mine().loss(1))",
        "str.join('1', Second.__name__)",
        "class Third(Mine):\n    power = 1",
        "'some text 1'",
    ],
)
def test_other_statements_are_not_its_code(read_beside, statement: str) -> None:
    assert read_beside(mine=TABLED.replace("STATEMENT", statement)) == read_beside(mine=TABLED.replace("STATEMENT", ""))


def test_a_statement_in_a_file_beside_it_that_works_on_what_a_class_uses_is_its_code(read_beside) -> None:
    texts = {"mine": MINE.format("from beside_helper import square", "square(x)"), "deeper": DEEPER}
    helper = HELPER.replace("** POWER", "** POWERS[0]").replace("POWER = 2", "POWERS = [2]")
    before, after = (read_beside(**texts, helper=f"{helper}\n\nPOWERS[0] = {number}\n") for number in (2, 3))
    assert not is_same(before, after)
    texts = {**texts, "mine": MINE.format("from beside_helper import *", "POWERS[0] * x"), "helper": helper}
    before, after = (
        read_beside(**{**texts, "mine": f"{texts['mine']}\n\nPOWERS[0] = {number}\n"}) for number in (2, 3)
    )
    assert not is_same(before, after)


def test_an_asynchronous_function_is_code_like_others(read_beside) -> None:
    before = read_beside(mine=TABLED.replace("STATEMENT", ""))
    for old, new, counts in (
        ("    return number\n", "    return number + 1\n", True),
        ("    return number\n", '    """Wait."""\n    return number\n', False),
    ):
        assert old in TABLED
        after = read_beside(mine=TABLED.replace("STATEMENT", "").replace(old, new))
        assert is_same(after, before) is not counts


def test_an_argument_of_a_method_is_not_the_variable_of_that_name_in_the_file(read) -> None:
    last = "        return math.exp(x)\n"
    before, after = (read("First", last, f"{last}\n\nx = First().loss({number})\n") for number in (1, 2))
    assert before == after == read("First")
    assert "SCALE" in before, "a function's name for something of the file counts"


def test_code_that_this_python_cannot_parse_is_other_code() -> None:
    assert not is_same("x = 1", "type Newer[T: int = float] = list[T] ; )")
    assert is_same("not even Python)", "not even Python)")

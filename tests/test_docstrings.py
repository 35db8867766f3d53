"""Public names have docstrings in NumPy's form, and their examples run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import seqdg
from seqdg.core.registry import _factories, _origins
from seqdg.estimator.compare import Comparison

PLAIN = ("Params",)  # an alias of a type, which has no docstring of its own


def list_members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has from this package."""
    for name in dir(kind):
        owner = next((k for k in kind.__mro__ if name in vars(k)), object)
        if not name.startswith(("_", "set_")) and owner.__module__.startswith("seqdg."):  # set_*: scikit-learn's
            member = inspect.getattr_static(kind, name)
            if isinstance(member, property) or inspect.isroutine(getattr(kind, name)):
                yield name, member


def list_public() -> dict[str, Any]:
    """Everything that a user may call, by the name that it is written with."""
    public = {}
    for name in (n for n in seqdg.__all__ if n not in PLAIN):
        value = getattr(seqdg, name)
        if isinstance(value, ModuleType):
            names = getattr(value, "__all__", [n for n in vars(value) if not n.startswith("_")])
            values = {f"{name}.{n}": getattr(value, n) for n in names}
            values = {n: v for n, v in values.items() if getattr(v, "__module__", "").startswith(value.__name__)}
        else:
            values = {name: value}
        for written, v in values.items():
            public[written] = v
            if isinstance(v, type):
                public |= {f"{written}.{member}": m for member, m in list_members(v)}
    return public


PUBLIC = list_public()
PUBLIC |= {f"Comparison.{name}": getattr(Comparison, name) for name in ("leaderboard", "scores", "metrics", "report")}
CALLED = {name: value for name, value in PUBLIC.items() if not isinstance(value, property)}


def unwrap(value: Any) -> Callable[..., Any]:
    """The function of a static or class method."""
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def list_sections(doc: str) -> dict[str, str]:
    """The sections of a docstring by title."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.cleandoc(doc), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def list_parameters(value: Any) -> list[str]:
    names = [p.name for p in inspect.signature(unwrap(value)).parameters.values()]
    return [name for name in names if name not in ("self", "cls")]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name]) or ""
    assert doc, f"{name} has no docstring"
    assert not doc.startswith(f"{name}("), f"{name} has only the docstring that dataclass writes"


@pytest.mark.parametrize("name", CALLED)
def test_every_parameter_is_described(name: str) -> None:
    value = CALLED[name]
    if isinstance(value, type) and issubclass(value, Exception):
        return
    described = list_sections(inspect.getdoc(unwrap(value)) or "").get("Parameters", "")
    for parameter in list_parameters(value):
        if not parameter.startswith("_"):
            assert re.search(rf"^[\w*, ]*\b{parameter}\b[\w*, ]* ?:|^\*\*{parameter}$", described, re.MULTILINE), (
                f"the section Parameters of {name} does not describe '{parameter}'"
            )


@pytest.mark.parametrize("name", [n for n, v in CALLED.items() if not isinstance(v, type)])
def test_what_is_returned_is_described(name: str) -> None:
    returned = inspect.signature(unwrap(CALLED[name])).return_annotation
    if returned not in (None, "None", inspect.Signature.empty):
        sections = list_sections(inspect.getdoc(unwrap(CALLED[name])) or "")
        assert "Returns" in sections or "Yields" in sections, f"{name} does not say what it returns"


@pytest.mark.parametrize("name", ["Comparison", *(n for n in PUBLIC if ">>>" in (inspect.getdoc(PUBLIC[n]) or ""))])
def test_examples_run(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seqdg.list_algorithms()
    before = dict(_factories), dict(_origins)
    monkeypatch.chdir(tmp_path)
    doc = inspect.getdoc(unwrap({**PUBLIC, "Comparison": Comparison}[name])) or ""
    test = doctest.DocTestParser().get_doctest(doc, {}, name, None, 0)
    output: list[str] = []
    try:
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=output.append)
    finally:
        for registry, kept in zip((_factories, _origins), before, strict=True):
            registry.clear()
            registry.update(kept)
    assert not output, "".join(output)


@pytest.mark.parametrize("name", [n for n in seqdg.__all__ if n not in PLAIN and callable(getattr(seqdg, n))])
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(seqdg, name)) or ""), f"{name} has no example"

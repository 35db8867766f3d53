"""The page on the architecture names files, functions and packages that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import seqdg

ROOT = Path(seqdg.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
STEP = re.compile(r"^ *([a-z_]+(?:/[a-z_]+)*\.py) +(\w+)", re.MULTILINE)


def test_every_step_of_a_diagram_is_a_file_and_a_name_that_it_defines():
    steps = STEP.findall(PAGE)
    assert len(steps) > 30
    for file, name in steps:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in names, f"{file} defines no {name}"


def test_methods_that_the_page_names_are_there():
    for kind, method in (
        ("bench/benchmark.py", "make_task"),
        ("bench/benchmark.py", "plan"),
        ("report/results.py", "open"),
    ):
        assert f"def {method}(" in (ROOT / kind).read_text(encoding="utf-8")


def test_the_table_lists_every_package_and_nothing_else():
    listed = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}
    assert set(listed) == packages
    assert len(listed) == len(packages)


def test_the_table_has_the_packages_in_the_order_of_imports():
    from test_imports import PACKAGES  # type: ignore[import-not-found]

    listed = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert listed == [name for name in PACKAGES if name in listed]


def test_every_file_that_the_page_points_to_is_there():
    for path in re.findall(r"`([a-z_]+/[a-z_]+\.py)`", PAGE):
        place = Path(__file__).parents[1] if path.startswith("tests/") else ROOT
        assert (place / path).is_file(), path

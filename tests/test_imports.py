"""Imports go one way, from the command line down to the types, and `import seqdg` stays light."""

from __future__ import annotations

import ast
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import seqdg
from seqdg.results import DONE, Evaluation, Record, Store

ROOT = Path(seqdg.__file__).parent

# The packages from top to bottom. A module imports from its own package and from those below it.
PACKAGES = (
    "__main__",
    "cli",
    "",  # seqdg/__init__.py, which imports the public names when they are first used
    "interop",
    "estimator",
    "study",
    "paper",
    "bench",
    "testing",
    "training",
    "data",
    "report",
    "results",
    "algorithms",
    "core",
    "nets",
    "kernels",
    "base",
    "benchmarks",  # files alone
)
WITHOUT_FRONT = ("algorithms", "benchmarks")  # each file there is a name of its own
# Folders whose files register themselves, so that adding one is adding a file: who looks them up names the folder.
LOOKED_UP = (("core.registry", "algorithms"), ("report.analyses", "paper"))
ENTRY_POINTS = ("base.plugins", "algorithms")  # the group in which installed packages name theirs is called so
WITHOUT_TORCH = ("store", "export", "runs", "select", "statistics", "criteria")
HEAVY = (
    "ray",
    "altair",
    "vl_convert",
    "sklearn",
    "pandas",
    "typer",
    "rich",
    "scipy",
    "torchvision",
    "timm",
    "h5py",
    "PIL",
)


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its name below `seqdg`; the package itself is ''."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def named(tree: ast.AST) -> Iterator[str]:
    """All that a file imports, wherever in it: `a.b`, and `a.b.c` of `from a.b import c`, module or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out from the root"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def graph() -> dict[str, set[str]]:
    """Which modules of the package each module imports. Those of `seqdg/__init__.py` are for type checkers alone."""
    known, found = modules(), {}
    for module, path in known.items():
        found[module] = set()
        for name in named(ast.parse(path.read_text(encoding="utf-8"))) if module else ():
            first, _, rest = name.partition(".")
            if first == "seqdg":
                found[module].add(rest if rest in known else rest.rpartition(".")[0])
    return found


def reached(start: str, edges: dict[str, set[str]]) -> dict[str, str]:
    """What a module imports, itself or through others, with the way there."""
    ways, waiting = {start: start}, [start]
    while waiting:
        module = waiting.pop()
        for other in sorted(edges[module] - ways.keys()):
            ways[other] = f"{ways[module]} -> {other or 'seqdg'}"
            waiting.append(other)
    return ways


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{name}.") for name in names)


def package(module: str) -> str:
    return module.partition(".")[0]


def test_every_import_of_the_package_is_of_something_that_is_there():
    edges = graph()
    assert len(edges) > 20
    assert {"core", "base.tree"} <= edges["algorithms.mldg"]
    for module, others in edges.items():
        assert others <= edges.keys(), f"{module} imports {others - edges.keys()}"


def test_no_modules_import_each_other_in_a_circle():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"These import each other in a circle: {' <- '.join(error.args[1])}")


def test_every_module_is_in_a_package_that_has_a_rank():
    assert {package(module) for module in modules()} <= set(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES, ids=lambda name: name or "seqdg")
def test_nothing_imports_from_a_package_above_its_own(name):
    above = PACKAGES[: PACKAGES.index(name)]
    for module, others in graph().items():
        if package(module) == name:
            for other in others:
                assert package(other) not in above, f"{module} must not import {other or 'seqdg'}"


def test_no_import_from_a_package_above_hides_in_a_string():
    known, hidden = modules(), set()
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            other = name.rstrip(".").removeprefix("seqdg.")
            named_here = name.startswith("seqdg.") and other in known
            if named_here and PACKAGES.index(package(other)) < PACKAGES.index(package(module)):
                hidden.add((module, other))
    assert hidden == {*LOOKED_UP, ENTRY_POINTS}


def test_no_import_goes_past_the_front_of_another_package():
    known = modules()
    for module, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("seqdg."):
                other = node.module.removeprefix("seqdg.")
                if package(other) in (package(module), *WITHOUT_FRONT):
                    continue
                assert known[other].name == "__init__.py", f"{module} imports {other}: import it from {package(other)}"


def test_reports_are_made_from_records_alone():
    edges = graph()
    for module in edges:
        if within(module, ("report",)):
            for other, way in reached(module, edges).items():
                assert not within(
                    other, ("training.trainer", "training.stack", "algorithms", "bench.executors", "cli")
                ), way


def test_algorithms_neither_step_nor_draw_nor_look_at_values():
    """What is random arrives in the episode; the trainer takes the step; a value read back breaks a stack."""
    forbidden_imports = ("torch.optim", "random", "numpy", "os", "time", "pathlib", "seqdg.training.stack")
    forbidden_calls = {"backward", "item", "tolist", "manual_seed", "cuda", "cpu"}
    for path in sorted((ROOT / "algorithms").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name in named(tree):
            assert not any(f"{name}.".startswith(f"{bad}.") for bad in forbidden_imports), f"{path.name} imports {name}"
        calls = {n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        assert not calls & forbidden_calls, f"{path.name} calls {calls & forbidden_calls}"


def test_results_are_read_without_torch():
    names = ", ".join(f"seqdg.results.{name}" for name in WITHOUT_TORCH)
    assert imported(f"import seqdg, {names}") & {"torch", *HEAVY} == set()


def test_help_and_what_a_run_has_come_to_are_shown_without_torch_and_numpy(tmp_path):
    """They start at once. (A table with paired tests does import numpy and scipy.)"""
    record = Record("key", {"algorithm": "agg", "held_out": ["b"], "seed": 0, "settings": {}, "protocol": {}}, DONE)
    evaluation = Evaluation(10, {"accuracy": [0.5]}, {"accuracy": [0.6]})
    Store.create(tmp_path, "bench").add([replace(record, history=[evaluation])])
    commands = [["seqdg", "--help"], ["seqdg", "status", str(tmp_path)], ["seqdg", "table", str(tmp_path)]]
    code = f"""
import sys
from seqdg.cli import main
for sys.argv in {commands!r}:
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""
    assert imported(code) & {"torch", "numpy", "jinja2", *HEAVY} == {"typer"}


def test_every_public_name_is_there_and_shown():
    assert set(dir(seqdg)) == {*seqdg.__all__, "__version__"}
    for name in seqdg.__all__:
        assert getattr(seqdg, name) is not None
    shown = pydoc.plain(pydoc.render_doc(seqdg))
    assert "class Algorithm" in shown
    assert "build(name" in shown


def test_completion_offers_what_a_module_defines_and_no_names_that_it_imports():
    for module in (seqdg.tree, seqdg.noise, seqdg.testing):
        assert not [
            n for n in dir(module) if n.startswith("_") or not getattr(module, n).__module__.startswith("seqdg.")
        ]
    assert {"add", "scale", "with_prefix"} <= set(dir(seqdg.tree))
    assert {"uniform", "normal", "fold"} <= set(dir(seqdg.noise))


def test_listing_algorithms_and_learners_imports_nothing_heavy():
    """A learner of this package is imported when it is asked for."""
    code = "import seqdg\nseqdg.list_algorithms()\nfrom seqdg.bench import find_learner, list_learners\n"
    new = imported(f"{code}assert 'dica' in list_learners()\nfind_learner('agg')") - imported("import torch")
    assert new & set(HEAVY) == set()


def imported(code: str) -> set[str]:
    """The packages that a new process has imported after running the code."""
    path = str(ROOT.parent)
    code = (
        f"import sys; sys.path.insert(0, {path!r})\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())

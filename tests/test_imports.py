"""Imports go one way, from the command line down to the types, and `import seqdg` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import seqdg

ROOT = Path(seqdg.__file__).parent

# Each may reach what stands below it, itself or through others, and nothing above.
CHAIN = (
    ("cli",),
    ("bench.executors", "report"),
    ("training.runner",),
    ("training.stack",),
    ("algorithms", "testing"),
    ("core.registry",),
    ("core.sequential", "core.settings"),
    ("core.algorithm",),
    ("nets",),
    ("base.episode", "base.tree", "base.noise", "base.errors"),
)
HEAVY = ("ray", "matplotlib", "sklearn", "pandas", "typer", "rich", "scipy", "torchvision", "timm", "h5py", "PIL")


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


def graph() -> dict[str, set[str]]:
    """Which modules of the package each module imports."""
    known, found = modules(), {}
    for module, path in known.items():
        found[module] = set()
        for name in named(ast.parse(path.read_text(encoding="utf-8"))):
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


def test_every_import_of_the_package_is_of_something_that_is_there():
    edges = graph()
    assert len(edges) > 20
    assert {"core.algorithm", "core.registry", "base.tree"} <= edges["algorithms.mldg"] | edges["core.registry"]
    for module, others in edges.items():
        assert others <= edges.keys(), f"{module} imports {others - edges.keys()}"


def test_no_modules_import_each_other_in_a_circle():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"These import each other in a circle: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("place", range(1, len(CHAIN)), ids=lambda place: ", ".join(CHAIN[place]))
def test_nothing_imports_what_stands_above_it(place):
    edges, above = graph(), tuple(name for names in CHAIN[:place] for name in names)
    for module in edges:
        if within(module, CHAIN[place]):
            for other, way in reached(module, edges).items():
                assert not within(other, above), f"{module} must not import {other}: {way}"


def test_reports_are_made_from_records_alone():
    edges = graph()
    for module in edges:
        if within(module, ("report",)):
            for other, way in reached(module, edges).items():
                assert not within(
                    other, ("training.runner", "training.stack", "algorithms", "bench.executors", "cli")
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


def test_importing_the_package_and_listing_its_algorithms_imports_nothing_heavy():
    code = f"""
import sys
import torch
before = set(sys.modules)
import seqdg
seqdg.algorithms()
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(new & set({HEAVY!r})))
"""
    path = str(ROOT.parent)
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == []

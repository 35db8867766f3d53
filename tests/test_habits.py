"""What the project promises around its code: the workflow, hooks, templates and citation are true and agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import seqdg
from pages import ROOT
from seqdg.base.fields import tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HABITS = [
    *(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff", ROOT / "SECURITY.md",
    ROOT / ".github" / "pull_request_template.md",
]  # fmt: skip


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pythons() -> list[str]:
    """Those that the workflow tests."""
    found: list[str] = read(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python-version"]
    return found


def test_the_pythons_of_the_workflow_are_those_that_the_package_names(pythons: list[str]) -> None:
    named = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert named == pythons
    assert PROJECT["project"]["requires-python"] == f">={pythons[0]}"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + pythons[0].replace(".", "")
    assert PROJECT["tool"]["mypy"]["python_version"] == pythons[0]
    for page in ("README.md", "docs/assets/badge-python.svg"):
        assert f"{pythons[0]} to {pythons[-1]}" in (ROOT / page).read_text(encoding="utf-8")


def test_the_workflow_runs_what_the_makefile_has() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    assert {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step} == {
        "make lint",
        "make test",
        "make docs",
    }
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"lint", "test", "docs"} <= set(targets)


def test_hooks_are_the_tools_that_make_lint_runs() -> None:
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    linted = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2]
    for hook in hooks:
        tool = hook["entry"].removeprefix(".venv/bin/")
        assert f"$(BIN)/{tool}" in linted
        assert any(need.startswith(tool.split()[0]) for need in PROJECT["project"]["optional-dependencies"]["dev"])


def test_the_citation_has_the_version_and_no_address() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == seqdg.__version__, "Write the version of src/seqdg/base/__init__.py in CITATION.cff."
    assert citation["authors"] == [{"name": "the seqdg developers"}]
    assert citation["license"] == "MIT"


def test_issue_templates_have_a_name_and_a_body() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"]
        assert form["description"]
        assert all({"type", "id", "attributes"} <= entry.keys() for entry in form["body"])


@pytest.mark.parametrize("path", HABITS, ids=lambda path: path.name)
def test_no_host_or_folder_of_a_machine_is_named(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://|@[\w-]+\.\w|(?<![\w.*~$}/-])/[a-z]+/", text)

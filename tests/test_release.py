"""What is released is described once: the version, what it needs, and how the demo is started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest
import yaml
from jinja2 import Environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import seqdg
from command import seqdg as command
from pages import ROOT
from seqdg.base import VERSION
from seqdg.base.fields import tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONDA_NAMES = {"torch": "pytorch"}  # where they differ


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recipe():
    """The conda recipe, as conda-build would read it."""
    return yaml.safe_load(Environment().from_string(read("conda/meta.yaml")).render(PYTHON="python"))


def split_requirement(text: str) -> tuple[str, str]:
    """`torch>=2.6; ...` -> torch, >=2.6"""
    found = re.match(r"([\w-]+)\s*([<>=!,.\d]*)", text)
    assert found is not None
    return found[1].lower(), found[2]


def test_the_version_is_the_same_everywhere(recipe):
    assert PROJECT["project"]["dynamic"] == ["version"]
    place = PROJECT["tool"]["hatch"]["version"]
    found = re.search(place["pattern"].replace("?P<version>", ""), read(place["path"]))
    assert found is not None
    assert found[1] == VERSION == seqdg.__version__ == recipe["package"]["version"]
    assert yaml.safe_load(read("CITATION.cff"))["version"] == VERSION
    assert command("--version").stdout.split()[-1] == VERSION


def test_the_changelog_begins_with_this_version_and_its_date_and_stays_short():
    changelog = read("CHANGELOG.md")
    version, date = re.findall(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)[0]
    assert version == VERSION
    assert yaml.safe_load(read("CITATION.cff"))["date-released"] == date
    assert len(changelog.splitlines()) <= 80


def test_the_metadata_are_what_an_index_takes():
    project = PROJECT["project"]
    assert project["license"] == "MIT AND CC-BY-SA-3.0"  # then no classifier may name a licence
    assert not [c for c in project["classifiers"] if c.startswith("License")]
    assert all((ROOT / name).is_file() for name in project["license-files"])
    assert all(address.startswith("https://") for address in project["urls"].values())  # none before there is one
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / name).exists(), name


def test_what_is_pinned_can_be_installed_on_every_python_that_the_package_names():
    pythons = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    pinned = [Requirement(line) for line in read("constraints.txt").splitlines() if not line.startswith("#")]
    known = 0
    for pin in pinned:
        if metadata.version(pin.name).partition("+")[0] not in pin.specifier:
            continue  # what another version needs is not known here
        known += 1
        needs = SpecifierSet(metadata.metadata(pin.name)["Requires-Python"])
        for python in pythons:
            if pin.marker is None or pin.marker.evaluate({"python_version": python}):
                assert needs.contains(f"{python}.9"), f"{pin} needs Python {needs}"
    assert known


def test_every_extra_that_a_sentence_names_exists():
    extras = set(PROJECT["project"]["optional-dependencies"])
    named = {
        name
        for path in [
            *(ROOT / "src").rglob("*.py"),
            *(ROOT / "docs").glob("*.md"),
            ROOT / "README.md",
            ROOT / "Dockerfile",
        ]
        for names in re.findall(r"seqdg\[([\w,-]+)\]", path.read_text(encoding="utf-8"))
        for name in names.split(",")
    }
    assert {"images", "onnx", "tensorboard"} <= named <= extras


def test_the_conda_recipe_needs_what_the_package_needs(recipe):
    wanted = dict(map(split_requirement, PROJECT["project"]["dependencies"]))
    has = dict(map(split_requirement, recipe["requirements"]["run"]))
    assert has.pop("python") == PROJECT["project"]["requires-python"]
    assert has == {CONDA_NAMES.get(name, name): bound for name, bound in wanted.items()}
    assert dict(map(split_requirement, recipe["requirements"]["host"]))["hatchling"] == ">=1.27"
    (script,) = recipe["build"]["entry_points"]
    assert script.split(" = ") == list(*PROJECT["project"]["scripts"].items())
    assert recipe["about"]["license"] == PROJECT["project"]["license"]
    assert recipe["about"]["license_file"] == PROJECT["project"]["license-files"]
    assert recipe["about"]["summary"] == PROJECT["project"]["description"]


def test_the_image_copies_what_is_there_and_starts_the_demo():
    lines = re.sub(r"\\\n", " ", read("Dockerfile")).splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    kept = [line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(kept)
    assert all(name in [*copied, "src/seqdg/data/rotated_mnist.txt"] for name in PROJECT["project"]["license-files"])
    (start,) = [line.removeprefix("CMD ") for line in lines if line.startswith("CMD ")]
    demo = re.findall(
        r"^\t\$\(BIN\)/(seqdg .*)$", read("Makefile").partition("\ndemo:")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert json.loads(start) == ["sh", "-c", " && ".join(demo)]
    (base,) = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert base.removeprefix("python:").removesuffix("-slim") in {
        c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"]
    }


@pytest.mark.soak
def test_the_wheel_holds_every_file_of_the_package_and_an_index_would_take_it(tmp_path):
    pytest.importorskip("hatchling")
    pytest.importorskip("twine")
    words = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob(f"seqdg-{VERSION}-py3-none-any.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("seqdg/")}
    listed = subprocess.run(["git", "ls-files", "src/seqdg"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert held == {name.removeprefix("src/") for name in listed.stdout.split()}
    checked = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    assert "PASSED" in subprocess.run(checked, check=True, capture_output=True, text=True).stdout

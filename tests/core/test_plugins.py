"""Algorithms from a user's own file or module, with what lies beside it."""

from __future__ import annotations

import sys
import textwrap

import pytest

from seqdg import Sequential, UsageError, build
from seqdg.bench import find_learner

PLUGIN = """
from __future__ import annotations

from dataclasses import dataclass

from seqdg import Chainable, register, setting


@register("{name}")
@dataclass(frozen=True)
class Toy(Chainable):
    weight: float = setting(1.0)

    def extend(self, net, past, episode, i):
        return lambda w: past(w) + self.weight * net.loss(w, episode.minibatch(i))
"""


def test_an_algorithm_comes_from_a_file_outside_the_package(tmp_path):
    file = tmp_path / "plugin_file.py"
    file.write_text(textwrap.dedent(PLUGIN.format(name="toy-file")))
    algorithm = build(f"{file}:toy-file", weight=2.0)
    assert algorithm.weight == 2.0
    sequential = build(f"{file}:s-toy-file", weight=2.0)
    assert isinstance(sequential, Sequential)
    assert sequential.base == algorithm, "the file is read once"
    with pytest.raises(UsageError, match=r"file\.py has no algorithm 'toy-fiel'\. Did you mean 'toy-file'\?"):
        build(f"{file}:toy-fiel")


def test_a_file_that_changes_while_python_runs_is_refused(tmp_path):
    file = tmp_path / "plugin_edited.py"
    file.write_text(PLUGIN.format(name="toy-edited"))
    build(f"{file}:toy-edited")
    file.write_text(PLUGIN.format(name="toy-edited").replace("past(w) +", "2 * past(w) +"))
    with pytest.raises(UsageError, match=r"edited\.py has changed since this process imported it\. Start Python again"):
        build(f"{file}:toy-edited")


def test_a_sequential_form_that_is_not_there_is_explained(tmp_path):
    file = tmp_path / "plugin_plain.py"
    text = PLUGIN.format(name="toy-plain").replace("Chainable", "Algorithm").replace("def extend", "def other")
    file.write_text(text)
    for find in (build, find_learner):
        with pytest.raises(
            UsageError, match=r"toy-plain has no sequential form\. Subclass Chainable and write `extend`"
        ):
            find(f"{file}:s-toy-plain")
        with pytest.raises(UsageError, match=r"vrex treats all domains alike, so its sequential form is vrex itself"):
            find("s-vrex")


def test_a_file_that_registers_nothing_is_told_how_to(tmp_path):
    file = tmp_path / "plugin_nameless.py"
    file.write_text(PLUGIN.format(name="nameless").replace('@register("nameless")', ""))
    for find in (build, find_learner):
        with pytest.raises(UsageError, match=r"names no algorithm 'toy': write @register\(\"toy\"\) above its class\."):
            find(f"{file}:toy")


def test_an_algorithm_comes_from_a_module_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "plugin_module.py").write_text(PLUGIN.format(name="toy-module"))
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert build("plugin_module:toy-module").weight == 1.0
    assert sys.path == before


WITH_HELPER = PLUGIN.replace("from seqdg", "from plugin_helper import SCALE\nfrom seqdg").replace("1.0", "SCALE")


def write_beside(folder, name: str, helper: str) -> str:
    """Write a file that imports another beside it, and return where its algorithm is."""
    folder.mkdir(exist_ok=True)
    (folder / "plugin_helper.py").write_text(helper)
    (folder / "plugin_with_helper.py").write_text(WITH_HELPER.format(name=name))
    return f"{folder / 'plugin_with_helper.py'}:{name}"


def test_a_file_imports_what_lies_beside_it_and_leaves_the_path_as_it_was(tmp_path):
    before = list(sys.path)
    assert build(write_beside(tmp_path, "toy-beside", "SCALE = 7.0\n")).weight == 7.0
    assert sys.path == before


def test_a_function_imports_what_lies_beside_its_file_when_it_runs(tmp_path, monkeypatch):
    """By then the folder is not on the path."""
    line = "        from plugin_later import SCALE\n"
    for folder, scale in (("one", 3.0), ("two", 4.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "plugin_later.py").write_text(f"SCALE = {scale}\n")
        text = PLUGIN.format(name=f"toy-later-{folder}").replace("        return past", f"{line}        return past")
        text += f"\n    def get_scale(self):\n{line}        return SCALE\n"
        (tmp_path / folder / "plugin_runs.py").write_text(text)
    algorithm = build(f"{tmp_path}/one/plugin_runs.py:toy-later-one")
    with pytest.raises(UsageError, match=r"has imported another 'plugin_later' already, from .*one/plugin_later\.py"):
        build(f"{tmp_path}/two/plugin_runs.py:toy-later-two")
    assert algorithm.get_scale() == 3.0
    for name in ("plugin_later", "plugin_runs"):
        (tmp_path / "two" / f"{name}.py").rename(tmp_path / "two" / f"{name}_too.py")
    (tmp_path / "two" / "plugin_runs_too.py").write_text(text.replace("plugin_later", "plugin_later_too"))
    monkeypatch.chdir(tmp_path / "two")
    algorithm = build("plugin_runs_too:toy-later-two")
    monkeypatch.chdir(tmp_path)
    assert algorithm.get_scale() == 4.0


def test_a_file_beside_two_users_files_may_be_a_link(tmp_path):
    (tmp_path / "elsewhere.py").write_text("SCALE = 7.0\n")
    for name in ("first", "second"):
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / f"plugin_{name}.py").write_text(
            WITH_HELPER.format(name=f"toy-link-{name}").replace("plugin_helper", "plugin_link")
        )
        if name == "first":
            (folder / "plugin_link.py").symlink_to(tmp_path / "elsewhere.py")
        assert build(f"{folder}/plugin_{name}.py:toy-link-{name}").weight == 7.0


def test_a_file_may_change_the_path_itself(tmp_path):
    location = write_beside(tmp_path, "toy-path", f"import sys\n\nSCALE = 7.0\nsys.path.insert(0, '{tmp_path}/more')\n")
    before = list(sys.path)
    try:
        build(location)
        assert sys.path == [f"{tmp_path}/more", *before]
    finally:
        sys.path[:] = before


def test_a_file_beside_a_users_that_changes_while_python_runs_is_refused(tmp_path):
    location = write_beside(tmp_path, "toy-stale", "SCALE = 7.0\n")
    build(location)
    write_beside(tmp_path, "toy-stale", "SCALE = 8.0\n")
    with pytest.raises(
        UsageError, match=r"plugin_helper\.py has changed since this process imported it\. Start Python"
    ):
        build(location)


def test_two_files_of_one_name_beside_users_files_are_refused(tmp_path):
    first, second = (
        write_beside(tmp_path / name, f"toy-{name}", f"SCALE = {len(name)}.0\n") for name in ("one", "three")
    )
    assert build(first).weight == 3.0
    with pytest.raises(
        UsageError,
        match=r"three/plugin_helper\.py, but this process has imported another 'plugin_helper' already, from ",
    ):
        build(second)


def test_a_file_beside_a_users_that_fails_is_named_and_read_anew_when_it_is_repaired(tmp_path):
    for helper, error in (
        ("\n1 / 0\n", r"ZeroDivisionError: division by zero, line 2 of plugin_helper\.py"),
        ("\n\ndef f(:\n", r"SyntaxError: .*, line 3 of plugin_helper\.py"),
        ("SKALE = 1.0\n", r"ImportError: cannot import name 'SCALE' from 'plugin_helper' \(.*\), line 6"),
    ):
        location = write_beside(tmp_path, "toy-fixed", helper)
        with pytest.raises(UsageError, match=rf"plugin_with_helper\.py cannot be imported \({error}\)\. Fix it"):
            build(location)
    assert build(write_beside(tmp_path, "toy-fixed", "SCALE = 7.0  # longer\n")).weight == 7.0


def test_a_location_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"There is no file '.*nothing\.py' to read algorithms from\."):
        build(f"{tmp_path}/nothing.py:toy")
    with pytest.raises(UsageError, match=r"There is no module 'no_such_module' to import algorithms from"):
        build("no_such_module:toy")


def test_a_file_that_fails_is_read_anew_when_it_is_repaired(tmp_path):
    file = tmp_path / "plugin_broken.py"
    file.write_text("1 / 0\n")
    with pytest.raises(UsageError, match=r"cannot be imported \(ZeroDivisionError: division by zero, line 1\)"):
        build(f"{file}:toy-repaired")
    file.write_text(PLUGIN.format(name="toy-repaired") + "\n# longer, so that no stale bytecode fits\n")
    assert build(f"{file}:toy-repaired").weight == 1.0


def test_a_file_without_a_name_and_a_class_that_is_no_dataclass_are_sentences(tmp_path):
    for find in (build, find_learner):
        with pytest.raises(UsageError, match=r"Which algorithm of \./mine\.py\? Give its name after a colon"):
            find("./mine.py")
    file = tmp_path / "plugin_bare.py"
    file.write_text("from seqdg import Algorithm, register\n\n@register('bare')\nclass Bare(Algorithm):\n    pass\n")
    with pytest.raises(UsageError, match=r"Bare is no dataclass: write @dataclass\(frozen=True\) below @register"):
        build(f"{file}:bare")
    file.write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"cannot be imported \(SyntaxError: .*, line 1\)"):
        build(f"{file}:bare")

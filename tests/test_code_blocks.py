"""Every block of code in the docs runs in a test, or says in its title what it needs; its commands exist either way."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main

import seqdg as package
from command import seqdg
from pages import BLOCK, COMMANDS, EXAMPLES, GALLERY, GUIDES, PAGES, PYTHON, ROOT, WALKTHROUGHS, Block, list_blocks
from seqdg.cli import app, complete_words

NEEDS = {
    "a GPU", "a checkout", "a cluster", "a data set", "the data set", "a run of that data set", "a sweep of DomainBed",
    "DomainBed", "the network", "the published runs", "the wheel", "your own table", "your own pictures",
    "TensorBoard", "MLflow",
}  # fmt: skip
RUN_ELSEWHERE = {*GUIDES, *WALKTHROUGHS, "estimator.md"}
SHORT = ["--steps", "20"]  # added to commands that train


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run(page: Path, block: Block) -> bool:
    name = name_of(page).removeprefix("docs/")
    if re.fullmatch(r"results/[^/]+/README\.md", name):  # tests/results/test_published.py prints each of these tables
        return (
            block.text.startswith(f"seqdg table docs/{Path(name).parent.as_posix()} ") and block.text.count("\n") == 1
        )
    if name in RUN_ELSEWHERE or name in COMMANDS or name.startswith("notebooks/"):
        return True
    return block.language == "python" and name_of(page) in (*PYTHON, GALLERY, EXAMPLES)


def list_commands(text: str) -> Iterator[list[str]]:
    """The words of every `seqdg ...` in a block of shell."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        words = shlex.split(line, comments=True)
        end = next((i for i, word in enumerate(words) if word in ("|", "&&", ">")), len(words))
        if words[:1] == ["seqdg"]:
            yield words[1:end]


def make_parser(command: Any) -> Any:
    """The parser of a command; a command keeps its option for help, so it must have the names that it usually has."""
    return command.make_parser(command.context_class(command, help_option_names=["-h", "--help"]))


@pytest.mark.parametrize("page", [p for p in PAGES if "```" in p.read_text(encoding="utf-8")], ids=name_of)
def test_every_block_runs_or_says_what_it_needs(page: Path) -> None:
    for block in list_blocks(page):
        where = f"{name_of(page)}:\n{block.text}"
        assert block.language, f"no language (`text` for what is not run): {where}"
        if block.needs:
            assert set(re.split(", | and ", block.needs)) <= NEEDS, where
        elif block.language not in ("text", "math"):
            assert is_run(page, block), f"neither run by a test nor marked with what it needs: {where}"


@pytest.mark.parametrize("page", [p for p in PAGES if "```sh" in p.read_text(encoding="utf-8")], ids=name_of)
def test_every_command_and_option_exists(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in (w for b in list_blocks(page) if b.language == "sh" for w in list_commands(b.text)):
        make_parser(commands[words[0]]).parse_args(complete_words(words[1:]))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_a_sentence_names_exists(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    sentences = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for text in re.findall(r"(?<!`)`(seqdg [a-z][^`]*)`(?!`)", sentences):
        words = shlex.split(text)[1:]
        parser = make_parser(commands[words[0]])
        values = ["VALUE"] if words[-1].startswith("--") else []  # of an option that is only named
        parser.parse_args([*complete_words(words[1:]), *values])


def shorten(words: list[str]) -> list[str]:
    """The same command with little to train: of an option that is given twice, the last counts."""
    if words[0] == "bench" and "--quick" in words:
        return [*words, "--workers", "0", "--device", "cpu"]
    if words[0] == "bench":
        if "--out" not in words:  # where it would be without SHORT
            benchmark = words[1] if len(words) > 1 and not words[1].startswith("-") else "rotated-mnist"
            words = [*words, "--out", f"runs/{benchmark}"]
        search = ["--search", "2"] if "--search" in words else []
        return [*words, *SHORT, "--trials", "2", "--held-out", "0,75", "--workers", "0", "--device", "cpu", *search]
    return [*words, *SHORT, "--device", "cpu", "--workers", "0", "--seeds", "1"] if words[0] == "fit" else words


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_of_a_page_work_one_after_the_other(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in list_blocks(ROOT / "docs" / name):
        if block.needs or block.language == "text":
            continue
        if block.file:
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, name, "exec"), {})
        else:
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words[0] == "seqdg":
                    done = seqdg(*shorten(words[1:]))
                    assert done.returncode == 0, f"{line}\n{done.stderr}"
                elif words[0] == "python":
                    exec(compile(Path(words[1]).read_text(), words[1], "exec"), {})
                else:
                    subprocess.run(words, check=True, capture_output=True)


@pytest.mark.soak
@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_can_be_followed_word_for_word(name: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool, words in (("python", ""), ("seqdg", "-c 'from seqdg.cli import main; main()' ")):
        (tools / tool).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (tools / tool).chmod(0o755)
    places = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(Path(package.__file__).parents[1])}
    for block in list_blocks(ROOT / "docs" / name):
        if block.needs or block.language == "text":
            continue
        if block.file:
            (tmp_path / block.file).write_text(block.text)
            continue
        start = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
        done = subprocess.run(
            [*start, block.text],
            cwd=tmp_path,
            env={**os.environ, **places},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stderr}"


@pytest.mark.parametrize("page", [*PYTHON, pytest.param(GALLERY, marks=pytest.mark.slow)])
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        for block in list_blocks(ROOT / page):
            if block.language == "python" and not block.needs:
                exec(compile(block.text, page, "exec"), names)


def test_the_examples_for_contributors_register_what_they_name() -> None:
    blocks = [block.text for block in list_blocks(ROOT / EXAMPLES) if block.language == "python"]
    # Run by tests/cli/test_check_algorithm.py, tests/bench/test_learner.py and test_own_net.py.
    assert len(blocks) == 4

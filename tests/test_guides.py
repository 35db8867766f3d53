"""The guides can be followed word for word: their blocks are written and run as they stand, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from pages import GUIDES, ROOT, list_blocks
from seqdg.bench.benchmark import FIELDS, tomllib
from seqdg.training.protocol import Protocol


def like(text: str) -> str:
    """Without what may differ between machines: figures of a training, and where the best of them stands."""
    if "±" not in text:
        return text
    return re.sub(r"[ *]+", " ", re.sub(r"\d+\.\d+", "#", text)).replace(" \n", "\n")


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, str]:
    """An environment in which `seqdg` and `python` are those that run this test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, words in (("python", ""), ("seqdg", '-c "from seqdg.cli import main; main()"')):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / name).chmod(0o755)
    cache = str(tmp_path / "cache")
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "SEQDG_CACHE": cache,
        "LC_ALL": "C.UTF-8",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_can_be_followed_word_for_word(tmp_path: Path, commands: dict[str, str], name: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    said, ran = "", 0
    for block in list_blocks(ROOT / "docs" / name):
        if block.language == "text":
            assert like(said) == like(block.text)
        elif block.file:
            (here / block.file).write_text(block.text)
        elif block.language == "toml":  # a part of a file: its fields are known
            known = {f.name for f in fields(Protocol)} | FIELDS["protocol"].keys()
            assert tomllib.loads(block.text)["protocol"].keys() <= known
        else:
            start = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": ["python", "-c"]}[block.language]
            done = subprocess.run(
                [*start, block.text], cwd=here, env=commands, capture_output=True, text=True, timeout=600, check=False
            )
            assert done.returncode == 0, f"{block.text}\n{done.stderr}"
            said, ran = done.stdout, ran + 1
    assert ran >= 8
    assert (here / "runs/patients/report.html").is_file()


def test_a_block_is_saved_only_where_the_sentence_before_it_says_so() -> None:
    found = list_blocks(ROOT / "docs" / "bring-your-own-domains.md")
    saved = ["make_data.py", "patients.toml", "features.toml", "pictures.toml", "list.toml"]
    assert [b.file for b in found if b.file] == saved
    assert {b.language for b in found} == {"python", "sh", "toml", "text"}
    assert all(b.file for b in found if b.language == "toml" and "[data]" in b.text), "a part of a file may stay a part"

"""The guides can be followed word for word: their blocks are written and run as they stand, in an empty folder."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from following import follow
from pages import GUIDES, ROOT, list_blocks
from seqdg.base.fields import tomllib
from seqdg.bench.benchmark import FIELDS
from seqdg.training import Protocol


def like(text: str) -> str:
    """Without what may differ between machines: figures of a training, and where the best of them stands."""
    if "±" not in text:
        return text
    return re.sub(r"[ *]+", " ", re.sub(r"\d+\.\d+", "#", text)).replace(" \n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_can_be_followed_word_for_word(tmp_path: Path, name: str) -> None:
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
            said, ran = follow(block, here, tmp_path), ran + 1
    assert ran >= 8
    assert (here / "runs/patients/report.html").is_file()


def test_a_block_is_saved_only_where_the_sentence_before_it_says_so() -> None:
    found = list_blocks(ROOT / "docs" / "bring-your-own-domains.md")
    saved = ["make_data.py", "patients.toml", "features.toml", "pictures.toml", "list.toml"]
    assert [b.file for b in found if b.file] == saved
    assert {b.language for b in found} == {"python", "sh", "toml", "text"}
    assert all(b.file for b in found if b.language == "toml" and "[data]" in b.text), "a part of a file may stay a part"

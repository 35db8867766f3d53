"""The layouts that the guide shows are read as it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from seqdg.data import DataSpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GUIDE = Path(__file__).parents[2] / "docs" / "bring-your-own-domains.md"


def test_every_key_of_the_guides_data_tables_is_one():
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    tables = [table for block in blocks if (table := tomllib.loads(block).get("data"))]
    assert len(tables) >= 3
    for table in tables:
        DataSpec.from_table("mine", table)


@pytest.mark.parametrize("name", ["domain_column", "label_column", "x_key", "y_key", "ignore"])
def test_the_other_keys_that_the_guide_names_exist(name):
    assert f"`{name}`" in GUIDE.read_text(encoding="utf-8")
    assert hasattr(DataSpec("mine"), name)

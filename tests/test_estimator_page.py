"""The page of what estimators do: its Python runs from top to bottom, and says what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "estimator.md"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the blocks of the page leave behind, and what they print."""
    folder = tmp_path_factory.mktemp("page")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    printed: list[str] = []
    left = {"print": lambda *words: printed.append(" ".join(map(str, words)))}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), left)
    return {**left, "printed": printed}


@pytest.mark.slow
def test_the_verdicts_are_those_that_the_table_was_made_for(names):
    verdicts = dict(names["table"][["column", "verdict"]].to_numpy().tolist())
    assert verdicts["dose"] == "transfers"
    assert verdicts["reading"] != "transfers"
    assert verdicts["shoe"] != "transfers"


def test_the_curve_says_what_one_more_site_is_worth(names):
    assert names["curve"].sizes == [1, 2, 3, 4]
    assert names["curve"].sentence.startswith("One more domain than these 5 would improve accuracy")

"""The walk-throughs of the docs, run word for word: every block in order, its output as shown but for last digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from following import follow
from pages import ROOT, WALKTHROUGHS, list_blocks

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")
POINTS = 6.0  # by which a percentage may differ on another machine: rounding changes which step is chosen
SHORT = ("75 degrees", 10.0)  # the same for a net of few steps, which swings by seven between makes of CPU


NAMES = r"agg|agg\+ema|fo-s-mldg|ensemble|logistic|extra-trees|hist-gradient-boosting|GradientBoostingClassifier"


def words(text: str) -> list[str]:
    """Without numbers, spaces and what rounding may decide: what wins, why, and what one more domain would do."""
    plain = re.sub(rf"(?<![-\w])({NAMES})(?![-+\w])( \([^)]*\))?", "ALGORITHM", text)
    plain = re.sub(r"^.*( scores best|Its lead over|It beat |ensemble averages the).*$", "", plain, flags=re.MULTILINE)
    plain = re.sub(r"^note: .* far behind on every held-out domain.*$", "", plain, flags=re.MULTILINE)
    plain = re.sub(r"one more domain would .*$", "one more domain", plain, flags=re.MULTILINE)
    return NUMBER.sub("#", plain).split()


def assert_alike(shown: str, printed: str) -> None:
    assert words(shown) == words(printed), f"shown:\n{shown}\nprinted:\n{printed}"
    for line, other in zip(shown.splitlines(), printed.splitlines(), strict=True):
        pairs = zip(NUMBER.findall(line), NUMBER.findall(other), strict=False)
        said = " ".join(words(line))
        if "p = " in line or "agree to" in line or "ALGORITHM was chosen" in said or not said:
            continue
        points = SHORT[1] if line.startswith(SHORT[0]) else POINTS
        for a, b in pairs:
            assert abs(float(a) - float(b)) <= (points if "." in a else 0), f"shown:\n{line}\nprinted:\n{other}"


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKTHROUGHS)
def test_a_walk_through_does_what_it_says(page: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("PIL")
    found = [block for block in list_blocks(ROOT / "docs" / page) if not block.needs]
    assert sum(block.language == "text" for block in found) >= 4
    here = tmp_path / "here"
    here.mkdir()
    printed = ""
    for block in found:
        if block.language == "text":
            assert_alike(block.text, printed)
        else:
            assert block.language in ("sh", "python")
            printed = follow(block, here, tmp_path)


def test_the_comparison_of_outputs_notices_differences():
    assert_alike("agg 93.1 %\n", "fo-s-mldg 95.0 %\n")
    with pytest.raises(AssertionError, match="shown"):
        assert_alike("agg 93.1 %\n", "agg 80.0 %\n")
    with pytest.raises(AssertionError, match="shown"):
        assert_alike("rows: 129\n", "rows: 130\n")
    with pytest.raises(AssertionError, match="shown"):
        assert_alike("all good\n", "all bad\n")

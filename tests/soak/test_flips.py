"""A bit that flips in a file that seqdg reads back is named, or changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.flips import GOOD, KINDS, NAMED, count_outcomes, flip_all


@pytest.mark.slow
@pytest.mark.parametrize("flips", [60, pytest.param(1000, marks=pytest.mark.soak)])
def test_no_flipped_bit_changes_a_result_in_silence(tmp_path: Path, flips: int) -> None:
    made = list(flip_all(tmp_path, flips))
    assert [flip for flip in made if flip.outcome not in GOOD] == [], count_outcomes(made)
    assert {flip.kind for flip in made} == set(KINDS)
    assert sum(flip.outcome == NAMED for flip in made) > flips / 2, "most bits of most files count"

from __future__ import annotations

import pytest

from seqdg.base import list_numbers


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([], ""), ([3], "3"), ([0, 1], "0, 1"), ([0, 2, 3, 4, 5, 7, 8], "0, 2 to 5, 7, 8"), ([5, 4, 3], "5, 4, 3")],
)
def test_numbers_that_follow_each_other_are_listed_by_their_ends(numbers, said):
    assert list_numbers(numbers) == said

from __future__ import annotations

import pytest

from seqdg.base import find_similar, list_numbers


def test_the_name_that_was_probably_meant_is_found_by_case_by_a_part_and_by_its_letters():
    assert find_similar("AGG", ["agg", "agg+ema"]) == "agg"
    assert find_similar("f1", ["fish", "macro_f1", "top5"]) == "macro_f1"
    assert find_similar("ema", ["agg+ema", "coral+ema"]) == "agg+ema"  # two have it, so that its letters decide
    assert find_similar("ERM", ["eqrm", "agg"]) == "agg"
    assert find_similar("xyz", ["agg"]) is None


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([], ""), ([3], "3"), ([0, 1], "0, 1"), ([0, 2, 3, 4, 5, 7, 8], "0, 2 to 5, 7, 8"), ([5, 4, 3], "5, 4, 3")],
)
def test_numbers_that_follow_each_other_are_listed_by_their_ends(numbers, said):
    assert list_numbers(numbers) == said

from __future__ import annotations

import pytest

from seqdg import UsageError, build
from seqdg.core.positions import check_count, pick, pick_from_end, resize


def test_a_number_holds_at_every_position():
    assert [pick(0.3, i) for i in range(4)] == [0.3] * 4
    assert [pick_from_end(0.3, i, 4) for i in range(4)] == [0.3] * 4
    assert resize(0.3, 7) == 0.3
    check_count("alpha", 0.3, (2,), 3)


def test_a_tuple_gives_one_value_each_and_its_last_repeats():
    assert [pick((0.1, 0.2, 0.3), i) for i in range(3)] == [0.1, 0.2, 0.3]
    assert [pick((0.1, 0.2), i) for i in range(4)] == [0.1, 0.2, 0.2, 0.2]


def test_a_short_tuple_that_counts_from_the_end_is_1_in_front():
    assert [pick_from_end((1.2,), i, 3) for i in range(3)] == [1.0, 1.0, 1.2]
    assert [pick_from_end((1.5, 1.2), i, 3) for i in range(3)] == [1.0, 1.5, 1.2]
    assert [pick_from_end((2.0, 1.5, 1.2), i, 3) for i in range(3)] == [2.0, 1.5, 1.2]


def test_for_another_length_tuples_keep_their_last_entries_and_repeat_the_first():
    assert resize((1.0, 2.0, 3.0), 2) == (2.0, 3.0)
    assert resize((1.0, 2.0, 3.0), 3) == (1.0, 2.0, 3.0)
    assert resize((1.0, 2.0, 3.0), 5) == (1.0, 1.0, 1.0, 2.0, 3.0)


def test_a_tuple_of_the_wrong_length_is_an_error_that_names_the_path():
    with pytest.raises(UsageError) as caught:
        check_count("alpha", (0.1, 0.2, 0.3), (2,), 3)
    assert str(caught.value) == (
        "alpha has 3 values, but a path of 3 domains takes 2: give one number for all positions, or 2."
    )
    with pytest.raises(UsageError, match="beta has 5 values, but a path of 3 domains takes 1 or 2 or 3: "):
        check_count("beta", (1.0,) * 5, (1, 2, 3), 3)
    with pytest.raises(UsageError) as caught:
        check_count("alpha", (0.1,), (0,), 1)
    assert str(caught.value) == "alpha has 1 values, but a path of 1 domains takes none: give one number."


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("s-mldg", {"alpha": (0.1, 0.2, 0.3)}, "alpha has 3 values, but a path of 3 domains takes 2"),
        ("fo-s-mldg", {"alpha": (0.1,)}, "alpha has 1 values, but a path of 3 domains takes 2"),
        ("s-mldg", {"beta": (1.0,) * 4}, "beta has 4 values, but a path of 3 domains takes 1 or 2 or 3"),
        ("ffo-s-mldg", {"alpha": (0.1,) * 4}, "alpha has 4 values, but a path of 3 domains takes 2 or 3"),
        ("mldg", {"alpha": (0.1, 0.2)}, "alpha has 2 values, but a path of 2 domains takes 1"),
    ],
)
def test_an_algorithm_says_before_training_that_a_tuple_does_not_fit(name, settings, sentence):
    from seqdg.testing import build_nets

    net = next(iter(build_nets().values()))
    with pytest.raises(UsageError, match=sentence):
        build(name, **settings).check(net, 3)

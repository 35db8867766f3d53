from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqdg import Algorithm, Sequential, UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.fo_mldg import FirstOrderMLDG
from seqdg.algorithms.mldg import MLDG
from seqdg.core import (
    Number,
    Numbers,
    collect_numbers,
    collect_rules,
    describe_settings,
    describe_shape,
    flatten_settings,
    format_settings,
    parse_settings,
    restore_settings,
    setting,
    with_numbers,
    with_settings,
)
from seqdg.core.settings import check_count, pick, pick_from_end, resize


@dataclass(frozen=True)
class Everything(Algorithm):
    """One setting of each kind."""

    rate: Number = setting(0.5, above=0.0, most=1.0)
    weights: Numbers = setting(1.0, least=0.0, per_position=True)
    width: int = setting(8, least=1)
    share: float = setting(0.25, static=True)
    kernel: str = setting("rbf", choices=("rbf", "linear"))
    deep: bool = setting(False)


positive = st.floats(0.0, 1e300, allow_nan=False)


@given(
    rate=st.floats(1e-300, 1.0),
    weights=positive | st.lists(positive, min_size=1, max_size=4).map(tuple),
    width=st.integers(1, 2**60),
    kernel=st.sampled_from(["rbf", "linear"]),
    deep=st.booleans(),
)
def test_settings_survive_a_round_trip_through_text(rate, weights, width, kernel, deep):
    algorithm = Everything(rate=rate, weights=weights, width=width, kernel=kernel, deep=deep)
    assert parse_settings(Everything(), format_settings(algorithm)) == algorithm


def test_text_looks_as_on_the_command_line():
    texts = format_settings(Everything(weights=(0.05, 0.6), deep=True))
    assert texts["rate"] == "0.5"
    assert texts["weights"] == "0.05,0.6"
    assert texts["width"] == "8"
    assert texts["kernel"] == "rbf"
    assert texts["deep"] == "true"
    assert format_settings(build("ffo-s-mldg", beta=(1.2,)))["beta"] == "1.2,"
    assert parse_settings(build("s-mldg"), {"alpha": " 0.05, 0.6 ", "beta": "1.2,"}) == Sequential(
        MLDG((0.05, 0.6), (1.2,))
    )
    assert parse_settings(Everything(), {"width": "3.0"}).width == 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate": float("nan")}, "rate is nan, but it must be finite."),
        ({"weights": (1.0, float("inf"))}, "weights is inf, but it must be finite."),
        ({"rate": 0.0}, "rate is 0.0, but it must be above 0.0."),
        ({"rate": 1.5}, "rate is 1.5, but it must be at most 1.0."),
        ({"weights": (1.0, -1.0)}, "weights is -1.0, but it must be at least 0.0."),
        ({"weights": ()}, "weights is an empty tuple: give one number, or one for each position of the path."),
        ({"rate": (0.1, 0.2)}, "rate takes one value, but 2 were given: (0.1, 0.2)."),
        ({"rate": "fast"}, "rate is 'fast', but it must be a number."),
        ({"rate": True}, "rate is True, but it must be a number."),
        ({"width": 2.5}, "width is 2.5, but it must be a whole number."),
        ({"deep": 1}, "deep is 1, but it must be true or false."),
        ({"kernel": "rfb"}, "There is no value of kernel 'rfb'. Did you mean 'rbf'? Choose from: rbf, linear."),
    ],
)
def test_a_value_that_is_not_allowed_is_one_sentence(settings, sentence):
    with pytest.raises(UsageError) as caught:
        Everything(**settings)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"rate": "fast"}, "rate is 'fast', but it must be a number."),
        ({"rate": "nan"}, "rate is nan, but it must be finite."),
        ({"width": "2.5"}, "width is 2.5, but it must be a whole number."),
        ({"deep": "yes"}, "deep is 'yes', but it must be true or false."),
        ({"weights": ","}, "weights is an empty tuple: give one number, or one for each position of the path."),
        ({"weights": "1,-2"}, "weights is -2.0, but it must be at least 0.0."),
    ],
)
def test_a_text_that_is_not_allowed_is_one_sentence(texts, sentence):
    with pytest.raises(UsageError) as caught:
        parse_settings(Everything(), texts)
    assert str(caught.value) == sentence


def test_an_unknown_setting_suggests_the_nearest():
    with pytest.raises(UsageError, match=r"Everything has no setting 'wieghts'. Did you mean 'weights'\?"):
        parse_settings(Everything(), {"wieghts": "1"})
    with pytest.raises(UsageError, match=r"Everything has no setting 'wdith'. Did you mean 'width'\?"):
        with_settings(Everything(), {"wdith": 1})
    with pytest.raises(UsageError, match=r"s-mldg has no setting 'aplha'. Did you mean 'alpha'\?"):
        build("s-mldg", aplha=1)
    with pytest.raises(UsageError, match=r"agg has no setting 'alpha'. It has none."):
        build("agg", alpha=1)


def test_whole_numbers_and_lists_become_the_canonical_types():
    algorithm = Everything(rate=1, weights=[1, 2])
    assert (algorithm.rate, algorithm.weights) == (1.0, (1.0, 2.0))
    assert isinstance(algorithm.rate, float)


def test_a_wrapped_base_shows_its_settings_as_its_own():
    algorithm = build("fo-s-mldg", alpha=(0.2, 0.3))
    assert flatten_settings(algorithm) == {"alpha": (0.2, 0.3), "beta": 1.0, "reduction": "mean"}
    assert set(collect_rules(algorithm)) == {"alpha", "beta", "reduction"}
    assert with_settings(algorithm, {"beta": 2.0}) == Sequential(FirstOrderMLDG((0.2, 0.3), 2.0))
    assert flatten_settings(AGG()) == {}


def test_numbers_are_what_may_differ_in_a_stack_and_go_back_to_their_places():
    assert collect_numbers(build("s-mldg", alpha=(0.2, 0.3))) == {
        "base.alpha.0": 0.2,
        "base.alpha.1": 0.3,
        "base.beta": 1.0,
    }
    assert collect_numbers(Everything()) == {"rate": 0.5, "weights": 1.0}
    for algorithm in (AGG(), Everything(weights=(1.0, 2.0)), build("s-mldg", beta=(1.0, 2.0, 3.0))):
        assert with_numbers(algorithm, collect_numbers(algorithm)) == algorithm
    moved = with_numbers(build("s-mldg", alpha=(0.2, 0.3)), {"base.alpha.0": 0.7, "base.alpha.1": 0.8})
    assert moved == build("s-mldg", alpha=(0.7, 0.8))


def test_a_tensor_setting_is_kept_as_it_is_and_printed_as_a_number():
    value = torch.tensor(0.25, dtype=torch.float64)
    algorithm = Everything(rate=value)
    assert algorithm.rate is value
    assert format_settings(algorithm)["rate"] == "0.25"


def test_trials_can_share_a_stack_when_only_numbers_differ():
    assert describe_shape(Everything(rate=0.1, weights=2.0)) == describe_shape(Everything(rate=0.9, weights=3.0))
    assert describe_shape(build("s-mldg", alpha=(0.1, 0.2))) == describe_shape(build("s-mldg", alpha=(0.3, 0.2)))
    others = [
        Everything(weights=(1.0,)),
        Everything(weights=(1.0, 1.0)),
        Everything(width=9),
        Everything(share=0.3),
        Everything(kernel="linear"),
        Everything(deep=True),
        AGG(),
    ]
    shapes = [describe_shape(algorithm) for algorithm in (Everything(), *others)]
    assert len(set(shapes)) == len(shapes)
    assert describe_shape(build("s-mldg")) != describe_shape(build("fo-s-mldg"))


def test_numbers_of_numpy_are_numbers():
    assert build("fo-s-mldg", alpha=np.float32(0.5), beta=np.int64(2)) == build("fo-s-mldg", alpha=0.5, beta=2.0)
    with pytest.raises(UsageError, match="finite"):
        build("fo-s-mldg", alpha=np.float32("nan"))


@dataclass(frozen=True)
class Grown(Algorithm):
    """What it was with `rate` alone, it is with `momentum` at 0 and `clip` off."""

    rate: float = setting(0.5)
    momentum: float = setting(0.9, least=0.0, added=0.0)
    clip: bool = setting(False, added=False)


def test_a_setting_that_was_added_is_described_only_where_it_is_not_as_before():
    assert describe_settings(Grown(momentum=0)) == {"rate": "0.5"}
    assert describe_settings(Grown()) == {"rate": "0.5", "momentum": "0.9"}
    assert describe_settings(Grown(momentum=torch.tensor(0.0), clip=True)) == {"rate": "0.5", "clip": "true"}
    assert set(format_settings(Grown(momentum=0))) == {"rate", "momentum", "clip"}  # shown all the same


def test_settings_without_an_added_one_mean_as_before():
    assert restore_settings(Grown(), {"rate": "0.25"}) == Grown(0.25, 0.0, False)
    for algorithm in (Grown(), Grown(momentum=0.0), Grown(clip=True), Grown(0.1, 0.2, True)):
        assert restore_settings(Grown(), describe_settings(algorithm)) == algorithm


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

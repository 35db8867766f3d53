from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqdg.report.draw.axes import Axes, format_number, log_ticks, nice_ticks, pad_range
from seqdg.report.draw.labels import find_emptiest
from seqdg.report.draw.marks import Line, Text, fit_text, text_width


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_even_and_within_the_range(low, width):
    ticks = nice_ticks(low, low + width)
    assert len(ticks) <= 6
    assert all(low - 1e-6 * width <= t <= low + width * (1 + 1e-6) for t in ticks)
    gaps = {round((b - a) / width, 6) for a, b in itertools.pairwise(ticks)}
    assert len(gaps) <= 1


def test_ticks_by_hand():
    assert nice_ticks(0, 100) == [0, 25, 50, 75, 100]
    assert nice_ticks(66.5, 71.2) == [67, 68, 69, 70, 71]  # by twos there would be two
    assert nice_ticks(3, 3) == [3]
    assert log_ticks(0.3, 6) == [0.5, 1, 2, 5]
    assert log_ticks(1, 1e4) == [1, 10, 100, 1000, 10000]


@given(st.floats(-1e7, 1e7), st.integers(-6, 7), st.floats(1, 10))
def test_no_two_ticks_of_an_axis_read_the_same(low, power, width):
    ticks = nice_ticks(low, low + width * 10.0**power)
    assume(len(ticks) > 1 and abs(low) < 1e6 * width * 10.0**power)
    step = ticks[1] - ticks[0]
    assert len({format_number(tick, step) for tick in ticks}) == len(ticks)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (0, 1, "0"),
        (125000, 25000, "1.25e5"),
        (100000, 25000, "1e5"),
        (0.00025, 0.00025, "2.5e-4"),
        (1.2e-5, 1e-6, "1.2e-5"),
        (20, 10, "20"),
        (0.5, 0.25, "0.50"),
        (2.5, 2.5, "2.5"),
        (1e6, 5e5, "1e6"),
        (0.0002, None, "2e-4"),
    ],
)
def test_numbers_are_as_short_as_their_steps_allow(value, step, text):
    assert format_number(value, step) == text


def test_a_single_value_still_has_a_range():
    low, high = pad_range([5.0])
    assert low < 5.0 < high
    assert pad_range([]) == (0.0, 1.0)
    assert pad_range([math.nan, math.inf]) == (0.0, 1.0)


def test_the_corners_of_the_data_are_the_corners_of_the_frame():
    frame = Axes((10, 20), (0, 1), width=300, height=200, left=40, right=10, top=20, bottom=30)
    assert (frame.px(10), frame.px(20)) == (40, 290)
    assert (frame.py(0), frame.py(1)) == (170, 20)
    logged = Axes((1, 100), (0, 1), width=300, left=0, right=0, log_x=True)
    assert logged.px(10) == pytest.approx(150)


def test_a_curve_is_broken_where_it_is_not_finite():
    frame = Axes((0, 4), (0, 1))
    frame.line([0, 1, 2, 3, 4], [0.1, 0.2, math.nan, 0.3, 0.4], "c0")
    assert [len(m.points) for m in frame.marks if isinstance(m, Line)] == [2, 2]


@given(st.text(max_size=80), st.floats(20, 300))
def test_a_fitted_text_fits_and_has_no_control_characters(text, width):
    shown = fit_text(text, width, 12)
    assert text_width(shown, 12) <= max(width, text_width("…", 12))
    assert shown.isprintable()


def test_a_word_goes_where_no_curve_is():
    curve = Line(((40.0, 30.0), (300.0, 30.0)), "c0", data=True)
    under, over = Text(100, 34, "chance"), Text(100, 80, "chance")
    assert find_emptiest([under, over], [curve]) is over
    assert find_emptiest([under, over], [replace(curve, data=False, color="rule")]) is over
    assert find_emptiest([under, over], [replace(curve, data=False, color="grid")]) is under
    assert find_emptiest([under, over], []) is under


def test_words_do_not_cover_each_other():
    spots = [Text(50, 50, "one"), Text(50, 90, "one")]
    assert find_emptiest(spots, [Text(45, 52, "there already")]) is spots[1]

"""Dates as tables write them."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from seqdg.data.columns import PARTS, find_orders, make_dates, parse_date, take_parts, to_words


@pytest.mark.parametrize(
    ("word", "date"),
    [
        ("2020-02-29", (2020, 2, 29)),
        ("2020/2/9", (2020, 2, 9)),
        ("2020-02-29T13:45", (2020, 2, 29, 13, 45)),
        ("2020-02-29 13:45:10.25", (2020, 2, 29, 13, 45, 10, 250000)),
        ("2020-02-29T13:45:10Z", (2020, 2, 29, 13, 45, 10)),
        ("2020-02-29 13:45:10+02:00", (2020, 2, 29, 13, 45, 10)),
        ("29.02.2020", (2020, 2, 29)),
        ("29/02/2020 08:00", (2020, 2, 29, 8)),
        ("9 Feb 2020", (2020, 2, 9)),
        ("9-February-2020", (2020, 2, 9)),
        ("9. Feb 2020", (2020, 2, 9)),
        ("Feb 9, 2020 1:05 pm", (2020, 2, 9, 13, 5)),
        ("feb 9 2020 12:05 AM", (2020, 2, 9, 0, 5)),
        ("2019-02-29", None),
        ("2020-13-01", None),
        ("2020-01-01 25:00", None),
        ("9 Foo 2020", None),
        ("13:45", None),
        ("2020", None),
        ("20200229", None),
        ("1.5", None),
        ("1-2", None),
        ("", None),
    ],
)
def test_a_word_is_a_date_or_none(word, date):
    assert parse_date(word) == (None if date is None else datetime.datetime(*date))


def test_the_order_of_days_and_months_is_told_from_all_words():
    assert find_orders(["03/04/2020", "13/04/2020"]) == ["dmy"]
    assert find_orders(["03/04/2020", "04/13/2020"]) == ["mdy"]
    assert find_orders(["03/04/2020", "05/06/2020"]) == ["dmy", "mdy"]
    assert find_orders(["03.04.2020", "05.06.2020"]) == ["dmy"]
    assert find_orders(["2020-04-03", "soon", "2020-04-03"]) == ["ymd"]
    assert find_orders(["soon", "2020-04-03"]) == []
    assert find_orders([]) == []
    assert parse_date("03/04/2020", "mdy") == datetime.datetime(2020, 3, 4)
    assert parse_date("03/04/2020", "ymd") is None


def test_the_parts_are_those_that_python_tells():
    when = [
        datetime.datetime(1969, 12, 31, 23, 30),
        datetime.datetime(2024, 2, 29, 6, 15),
        datetime.datetime(1, 1, 1),
        datetime.datetime(9999, 12, 31, 12),
    ]
    got = take_parts(make_dates([*when, None]))
    want = [[d.year, d.month, d.day, d.weekday(), d.hour + d.minute / 60] for d in when]
    np.testing.assert_allclose(got[:-1], want)
    assert got.shape == (5, len(PARTS))
    assert np.isnan(got[-1]).all()


def test_dates_as_words_have_a_time_only_where_one_has():
    days = make_dates([datetime.date(2020, 1, 2), None])
    assert to_words(days).tolist() == ["2020-01-02", None]
    times = make_dates([datetime.datetime(2020, 1, 2, 3, 4, 5), datetime.datetime(2020, 1, 2)])
    assert to_words(times).tolist() == ["2020-01-02T03:04:05", "2020-01-02T00:00:00"]
    zone = datetime.timezone(datetime.timedelta(hours=5))
    assert to_words(make_dates([datetime.datetime(2020, 1, 2, 3, tzinfo=zone)])).tolist() == ["2020-01-02T03:00:00"]

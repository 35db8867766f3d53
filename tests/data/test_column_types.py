"""What is decided about the columns of a table, and what is refused because it is in doubt."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from seqdg.base import UsageError
from seqdg.data import Frame, describe_columns, make_frame, parse_types


def words(*cells: str | None) -> Frame:
    return Frame(("c",), (np.array(cells, dtype=object),), named=True)


def decide(frame: Frame, kind: str = "", na: tuple[str, ...] = (), is_text: bool = True):
    decided = frame.decide_types({"c": kind} if kind else {}, na, is_text)
    assert decided.types is not None
    return decided.columns[0], decided.types[0].describe()


def test_numbers_with_the_usual_signs_for_a_missing_value_are_numbers():
    values, said = decide(words("1", "?", "NA", "n/a", None, " - ", "null", "2.5"))
    np.testing.assert_array_equal(values, [1, *[np.nan] * 6, 2.5])
    assert said == "numbers, 6 missing ('?', 'NA', 'n/a')"


def test_a_stray_word_among_numbers_is_refused_with_both_ways_out():
    with pytest.raises(UsageError) as caught:
        decide(words("1", "2", "old", "3", "old"))
    said = str(caught.value)
    assert said == (
        "Column 'c' holds mostly numbers, but row 2 (from 0) holds 'old', and 1 other cell like it. Fix it, or give "
        "--na 'old' if that means missing, or --types 'c=category' to take the whole column as categories."
    )
    values, _ = decide(words("1", "2", "old", "3", "old"), na=("old",))
    np.testing.assert_array_equal(values, [1, 2, np.nan, 3, np.nan])
    values, said = decide(words("1", "2", "old", "3", "old"), "category")
    assert values.tolist() == ["1", "2", "old", "3", "old"]
    assert said == "4 categories"


@pytest.mark.parametrize(
    ("unit", "name"), [(" kg", "kg"), ("%", "%"), (" mg/dl", "mg/dl"), (" µg/m³", "µg/m³"), (" °C", "°C"), ("€", "€")]
)
def test_numbers_with_a_unit_are_asked_about_where_they_are_measurements(unit, name):
    measured = words(*(f"{50 + i / 10}{unit}" for i in range(30)), "unknown", None)
    with pytest.raises(UsageError) as caught:
        decide(measured)
    assert str(caught.value) == (
        f"Column 'c' holds 31 different texts such as '50.0{unit}': numbers with the unit {name}? Then write the "
        "numbers alone. Or give --types 'c=category' to take them as categories."
    )
    assert decide(measured, "category")[1] == "31 categories, 1 missing"


def test_few_doses_and_codes_that_begin_with_numbers_are_categories():
    assert decide(words("10 mg", "20 mg", "50 mg", "20 mg"))[1] == "3 categories"
    assert decide(words(*(f"{i}{'abcdefghijklmnop'[i % 16]}" for i in range(40))))[1] == "40 categories"
    assert decide(words(*(f"{i} Main Street" for i in range(40))))[1] == "40 categories"


def test_words_of_which_some_are_numbers_stay_words():
    values, said = decide(words("1", "x", "y", "2"))
    assert values.tolist() == ["1", "x", "y", "2"]
    assert said == "4 categories"


def test_a_number_can_stand_for_a_missing_value():
    frame = Frame(("c",), (np.array([1.0, -999.0, 3.0]),), named=True)
    values, said = decide(frame, na=("-999", "?"))
    np.testing.assert_array_equal(values, [1, np.nan, 3])
    assert said == "numbers, 1 missing"
    values, said = decide(words("1", "-999", "-999.0"), na=("-999",))
    np.testing.assert_array_equal(values, [1, np.nan, np.nan])


def test_a_sign_for_a_missing_value_in_text_stays_a_category_and_is_said():
    values, said = decide(words("icu", "?", "er", None))
    assert values.tolist() == ["icu", "?", "er", None]
    assert said == "3 categories, 1 missing, among them '?' (missing? then name it with --na)"
    values, said = decide(words("icu", "?", "er", None), na=("?",))
    assert values.tolist() == ["icu", None, "er", None]
    assert said == "2 categories, 2 missing"


def test_dates_are_found_and_their_order_is_said():
    values, said = decide(words("2020-01-31", "?", "2021-12-01 13:30"))
    assert values.astype(str).tolist() == ["2020-01-31T00:00:00.000000", "NaT", "2021-12-01T13:30:00.000000"]
    assert said == "dates (year-month-day) -> year, month, day, weekday, hour, 1 missing ('?')"
    assert "day/month/year" in decide(words("31/01/2020", "01/02/2020"))[1]
    with pytest.raises(UsageError, match=r"nothing tells days from months.*--types 'c=date:dmy' or"):
        decide(words("03/01/2020", "01/02/2020"))
    values, _ = decide(words("03/01/2020", "01/02/2020"), "date:mdy")
    assert values.astype("M8[D]").astype(str).tolist() == ["2020-03-01", "2020-01-02"]
    with pytest.raises(UsageError, match=r"holds mostly dates, but row 1 .from 0. holds 'soon'"):
        decide(words("2020-01-31", "soon", "2020-02-01"))
    numbers = Frame(("c",), (np.array([20200131.0, np.nan]),), named=True)
    assert decide(numbers, "date")[0].astype(str)[0].startswith("2020-01-31")
    assert decide(numbers)[1] == "numbers, 1 missing"


def test_what_the_user_asks_for_must_be_possible():
    with pytest.raises(UsageError, match=r"should hold numbers, but row 1 .from 0. holds 'x'.*--na 'x'"):
        decide(words("1", "x", "y", "z"), "number")
    with pytest.raises(UsageError, match="should hold dates, but row 0"):
        decide(words("a", "b"), "date")
    assert parse_types(["a=number", "b c = date:dmy", "x=y=words"]) == {
        "a": "number", "b c": "date:dmy", "x=y": "category",
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"There is no type of a column 'float'. Choose from: number, category"):
        parse_types(["a=float"])
    with pytest.raises(UsageError, match="must be COLUMN=TYPE"):
        parse_types(["age"])


def test_a_data_frames_own_types_are_kept_but_a_stray_word_is_refused():
    frame = make_frame(pd.DataFrame({"zip": ["1", "2"], "kind": pd.Categorical(["1", "x"]), "gap": ["1", "?"]}))
    decided = frame.decide_types()
    assert (
        describe_columns(decided.types or ()) == "zip: 2 categories; kind: 2 categories; gap: numbers, 1 missing ('?')"
    )
    with pytest.raises(UsageError, match=r"X\['age'\]\.astype\('category'\)"):
        make_frame(pd.DataFrame({"age": [50, "old", 61]})).decide_types()


def test_many_columns_are_described_together():
    columns = tuple(np.zeros(2) for _ in range(30))
    frame = Frame((*(f"x{i}" for i in range(30)), "w"), (*columns, np.array(["a", "b"], dtype=object)), named=True)
    assert (
        describe_columns(frame.decide_types().types or ())
        == "30 columns of numbers without missing values; w: 2 categories"
    )

"""Tables become what a standard pipeline of scikit-learn would make of them, whatever kind of table they are."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from seqdg.base import UsageError
from seqdg.data import Frame, make_frame
from seqdg.data.scaling import LIMIT
from seqdg.estimator.model_inputs import learn_table_input


def applied(train, new=None):
    frame = make_frame(train)
    inputs, notes = learn_table_input(frame).read(frame if new is None else make_frame(new))
    return inputs.numpy(), notes


def test_numbers_and_words_become_what_a_standard_pipeline_makes_of_them(hospitals):
    x, _, _ = hospitals
    while x["age"].notna().sum() % 2 == 0:
        x = x.iloc[1:]  # of two ages in the middle, the pipeline would take the mean and we the lower
    numbers = [name for name in x.columns if name != "smoker"]
    pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    standard = ColumnTransformer([("numbers", pipeline, numbers), ("words", words, ["smoker"])])
    want = standard.fit_transform(x.assign(smoker=x["smoker"].fillna("~missing")))[:, :-1]
    got, notes = applied(x)
    assert notes == []
    assert got.shape == want.shape
    assert x["age"].isna().sum() > 5
    np.testing.assert_allclose(got, want, atol=1e-9)


def test_the_same_rows_as_frame_matrix_or_list_are_the_same():
    rows = [[1.0, 2.0], [3.0, float("nan")], [5.0, 7.0]]
    want, _ = applied(rows)
    for same in (np.array(rows), pd.DataFrame(rows), np.array(rows, dtype=object), np.array(rows, dtype=np.float32)):
        np.testing.assert_allclose(applied(same)[0], want, atol=1e-12)


def test_a_column_that_never_varies_is_nothing_whatever_it_becomes():
    got, _ = applied(pd.DataFrame({"a": [2.0, 2.0], "b": [0.0, 1.0]}), pd.DataFrame({"a": [9], "b": [0]}))
    assert got.tolist() == [[0.0, -1.0]]


def test_a_column_without_any_value_is_nothing():
    got, _ = applied(pd.DataFrame({"a": [None, None], "b": [0.0, 1.0]}))
    assert got[:, 0].tolist() == [0.0, 0.0]


def test_huge_and_tiny_numbers_stay_finite():
    train = pd.DataFrame({"a": [1e308, -1e308, 0.0], "b": [5e-324, 0.0, 1e-320], "c": [1e300, 2e300, 3e300]})
    new = pd.DataFrame({"a": [-1.7e308], "b": [1e308], "c": [-1e308]})
    for rows in (train, new):
        got, _ = applied(train, rows)
        assert np.isfinite(got).all()
        assert np.abs(got).max() <= LIMIT


def test_a_word_never_seen_is_no_word_and_is_noted():
    train = pd.DataFrame({"c": ["u", "v", "v"]})
    got, notes = applied(train, pd.DataFrame({"c": ["w", None, "u"]}))
    assert got.tolist() == [[0, 0], [0, 0], [1, 0]]
    assert notes == ["Column 'c' has categories that were not in the training data: w."]


def test_columns_are_found_by_name_in_any_order_and_others_are_ignored(hospitals):
    x, _, _ = hospitals
    frame = make_frame(x)
    preprocessing = learn_table_input(frame)
    shuffled = x[list(x.columns)[::-1]].assign(extra=1)
    np.testing.assert_array_equal(preprocessing.read(make_frame(shuffled))[0], preprocessing.read(frame)[0])


def test_a_missing_column_is_named():
    frame = make_frame(pd.DataFrame({"age": [1.0, 2.0], "height": [1.0, 2.0], "c": ["u", "v"]}))
    preprocessing = learn_table_input(frame)
    with pytest.raises(UsageError, match=r"no column 'age': .* needs it\. Did you mean 'Age' for 'age'\?"):
        preprocessing.read(make_frame(pd.DataFrame({"Age": [1.0], "height": [1.0], "c": ["u"]})))
    with pytest.raises(UsageError, match="The input has no columns 'age', 'c': the model was trained with them"):
        preprocessing.read(make_frame(pd.DataFrame({"height": [1.0]})))


def test_types_that_changed_are_mended_where_they_can_be():
    frame = make_frame(pd.DataFrame({"n": [1.0, 3.0], "c": ["1", "2"], "t": [True, False]}))
    preprocessing = learn_table_input(frame)
    same = pd.DataFrame({"n": ["1.0", " 3 "], "c": [1.0, 2.0], "t": ["true", "False"]})
    np.testing.assert_array_equal(preprocessing.read(make_frame(same))[0], preprocessing.read(frame)[0])
    with pytest.raises(UsageError, match=r"Column 'n' held numbers when .* row 1 .* holds 'three'"):
        preprocessing.read(make_frame(pd.DataFrame({"n": ["1", "three"], "c": ["1", "2"], "t": [1, 0]})))


def test_pandas_categories_are_words_even_where_they_are_numbers():
    frame = make_frame(pd.DataFrame({"c": pd.Categorical([3, 1, 3])}))
    assert learn_table_input(frame).vocabulary == {"c": ("1", "3")}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (pd.DataFrame({"when": pd.to_timedelta(["1 h", "2 h"])}), "Column 'when' holds times of day or durations"),
        (pd.DataFrame({"when": [datetime.time(8), None]}), "Column 'when' holds times of day or durations"),
        (pd.DataFrame({"when": [datetime.date(2020, 1, 1), 3]}), "Column 'when' holds dates and other things"),
        (pd.DataFrame({"a": [1.0, np.inf]}), "contains infinity: column 'a' in 1 row"),
        (pd.DataFrame({"a": [[1], [2]]}), "Column 'a' holds a list"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Several columns have the same name: a"),
        (pd.DataFrame({"id": [f"p{i}" for i in range(2000)]}), "has 2000 categories in 2000 rows"),
        (pd.DataFrame({"a": [10**400, 1]}, dtype=object), "a number too large"),
        (np.zeros((2, 2, 2)), "A table has rows and columns"),
    ],
)
def test_what_is_no_number_and_no_word_is_refused_in_a_sentence(table, sentence):
    with pytest.raises(UsageError, match=sentence):
        learn_table_input(make_frame(table))


def test_a_frame_can_leave_out_columns():
    frame = Frame(("a", "b"), (np.zeros(2), np.ones(2)), named=True)
    assert frame.without(["a"]).names == ("b",)


def test_dates_become_their_parts_whether_they_come_as_dates_or_as_words():
    when = ["2020-01-31 12:00", None, "2021-03-01", "2022-12-24"]
    dates = pd.DataFrame({"when": pd.to_datetime(pd.Series(when), format="ISO8601"), "n": [1.0, 2.0, 3.0, 4.0]})
    frame = make_frame(dates).decide_types()
    preprocessing = learn_table_input(frame)
    assert preprocessing.numeric == ("n", "when.year", "when.month", "when.day", "when.weekday", "when.hour")
    raw, _, _ = preprocessing.encode(frame)
    np.testing.assert_array_equal(raw[0], [1, 2020, 1, 31, 4, 12])
    assert np.isnan(raw[1, 1:]).all()
    want, _ = preprocessing.read(frame)
    zone = dates.assign(when=dates["when"].dt.tz_localize("Europe/Berlin"))
    objects = dates.assign(when=[None if pd.isna(d) else d.to_pydatetime() for d in dates["when"]])
    for same in (zone, objects, dates.assign(when=when)):
        np.testing.assert_array_equal(preprocessing.read(make_frame(same))[0], want)
    with pytest.raises(UsageError, match=r"held dates .* when the model was fitted, but now row 1 .* holds '3/4/2020'"):
        preprocessing.read(make_frame(pd.DataFrame({"when": ["2020-01-31", "3/4/2020"], "n": [1, 2]})))


def test_dates_in_words_are_read_in_the_order_of_the_training_rows():
    frame = make_frame(pd.DataFrame({"when": ["31/01/2020", "01/02/2020"]})).decide_types()
    preprocessing = learn_table_input(frame)
    raw, _, _ = preprocessing.encode(make_frame(pd.DataFrame({"when": ["01/02/2021", "?"]})))
    np.testing.assert_array_equal(raw[0], [2021, 2, 1, 0, 0])
    assert np.isnan(raw[1]).all()


def test_numbers_that_stand_for_a_missing_value_do_so_in_new_rows_too():
    frame = make_frame(pd.DataFrame({"a": [1.0, 3.0, -999.0], "w": ["u", "v", "x"]})).decide_types(na=("-999", "x"))
    preprocessing = learn_table_input(frame)
    assert preprocessing.vocabulary == {"w": ("u", "v")}
    got, notes = preprocessing.read(make_frame(pd.DataFrame({"a": [-999, 1], "w": ["x", "u"]})))
    gaps, _ = preprocessing.read(make_frame(pd.DataFrame({"a": [np.nan, 1], "w": [None, "u"]})))
    np.testing.assert_array_equal(got, gaps)
    assert notes == []


def test_truth_in_words_is_the_same_where_it_comes_as_truth():
    words = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "smoker": ["true", "false", None, "true"]})
    usual, notes = applied(words)
    assert notes == []
    truth = [True, False, None, True]
    for same in (
        pd.Series(truth, dtype=object),
        pd.Series(truth, dtype="boolean"),
        pd.Series([1.0, 0.0, None, 1.0]),
        pd.Series(["TRUE", "False", "", "true"]),
    ):
        found, notes = applied(words, words.assign(smoker=same))
        np.testing.assert_array_equal(found, usual)
        assert notes == []
    found, notes = applied(words, words.assign(smoker=["true", "perhaps", None, "2"]))
    assert notes == ["Column 'smoker' has categories that were not in the training data: perhaps, 2."]

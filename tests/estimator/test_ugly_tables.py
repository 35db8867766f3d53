"""Ugly tables: either a fit that predicts, or a sentence; never a traceback from inside."""

from __future__ import annotations

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seqdg
from seqdg.base import UsageError
from seqdg.data import open_table

NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(10**30), 10**30),
    st.sampled_from([0, 1, -1, 1e308, -1e308, 5e-324, 1e-300, 2**53 + 1, True, False, np.float32(0.1), np.int8(3)]),
)
WORDS = st.one_of(
    st.text(max_size=4), st.sampled_from(["", " ", "NA", "nan", "1", "1.0", "True", "ß", "a,b", '"', "\n"])
)
MISSING = st.sampled_from([None, float("nan"), pd.NA, pd.NaT])
STRANGE = st.sampled_from([
    [1], {"a": 1}, (), 1j, b"bytes", object, 10**400, decimal.Decimal("1.5"),
    datetime.date(2020, 1, 1), pd.Timestamp("2020"),
])  # fmt: skip
CELLS = [NUMBERS, WORDS, st.one_of(NUMBERS, MISSING), st.one_of(WORDS, MISSING), st.one_of(NUMBERS, WORDS, MISSING)]


@st.composite
def columns(draw, rows):
    cell = draw(st.sampled_from([*CELLS, MISSING, st.one_of(NUMBERS, STRANGE), st.just(draw(NUMBERS))]))
    values = draw(st.lists(cell, min_size=rows, max_size=rows))
    kind = draw(st.sampled_from(["object", "infer", "category"]))
    series = pd.Series(values, dtype=object)
    try:
        if kind == "infer":
            return series.infer_objects()
        return series.astype("category") if kind == "category" else series
    except (TypeError, ValueError, OverflowError, RuntimeWarning):  # what pandas cannot sort, or hold as a number
        return series


def listed(cells, rows):
    return st.lists(cells, min_size=rows, max_size=rows)


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 12))
    names = draw(st.lists(st.one_of(st.text(max_size=3), st.integers(0, 9)), min_size=1, max_size=3))
    frame = pd.concat([draw(columns(rows)) for _ in names], axis=1)
    frame.columns = pd.Index(names, dtype=object)
    two_classes = [i % 2 for i in range(rows)]
    y = draw(st.one_of(st.just(two_classes), st.just(two_classes), listed(st.one_of(WORDS, MISSING, NUMBERS), rows)))
    named = st.sampled_from(["n", "s", 1, 1.0])
    domains = draw(
        st.one_of(st.none(), listed(named, rows), listed(named, rows), listed(st.one_of(named, MISSING), rows))
    )
    return frame, y, domains


def said(error: UsageError) -> str:
    assert str(error).strip()
    assert "Traceback" not in str(error)
    return "said"


def fits_or_says(frame, y, domains) -> str:
    estimator = seqdg.DomainClassifier(steps=2, hidden=(), batch=4, evaluations=1)
    try:
        estimator.fit(frame, y, domains=domains)
    except UsageError as error:
        return said(error)
    p = estimator.predict_proba(frame)
    assert p.shape == (len(frame), len(estimator.classes_))
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1)
    assert set(estimator.predict(frame)) <= set(estimator.classes_)
    return "fitted"


OUTCOMES: list[str] = []
PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=PATIENT)
@given(tables())
def test_an_ugly_data_frame_fits_or_says_why_not(table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        OUTCOMES.append(fits_or_says(*table))


def test_the_ugly_tables_were_of_both_kinds():
    if not OUTCOMES:
        pytest.skip("The test above did not run in this process.")
    assert {"said", "fitted"} <= set(OUTCOMES)


@pytest.mark.soak
@settings(max_examples=500, suppress_health_check=PATIENT)
@given(tables())
def test_many_more_ugly_data_frames_fit_or_say_why_not(table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits_or_says(*table)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=PATIENT)
@given(st.integers(1, 10).flatmap(lambda n: st.lists(columns(n), min_size=1, max_size=3)))
def test_a_model_reads_any_other_table_or_says_why_not(columns_of_new):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train = pd.DataFrame({"a": [0.0, 1.0, 2.0, np.nan], "b": ["u", "v", None, "u"], "c": [1, 2, 3, 4]})
        model = seqdg.DomainClassifier(steps=1, hidden=(), batch=2, evaluations=1).fit(
            train, [0, 1, 0, 1], domains=[0, 0, 1, 1]
        )
        new = pd.concat(columns_of_new, axis=1)
        new.columns = pd.Index(["a", "b", "c"][: new.shape[1]])
        try:
            p = model.predict_proba(new)
        except UsageError as error:
            said(error)
            return
        assert new.shape[1] == 3
        assert np.isfinite(p).all()


@settings(max_examples=80)
@given(st.binary(max_size=80) | st.text(alphabet='ab1.,;"\n\r\t eE-', max_size=80).map(str.encode))
def test_any_bytes_as_a_csv_are_a_table_or_a_sentence(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "ugly.csv"
    path.write_bytes(content)
    try:
        frame = open_table(path).read()
    except UsageError as error:
        said(error)
        return
    assert len(frame) > 0
    assert len({len(c) for c in frame.columns}) == 1

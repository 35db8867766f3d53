"""Which columns of a table are unlike those of every training domain."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import seqdg
from command import seqdg as command
from seqdg.data import make_frame
from seqdg.estimator.shifts import Watch, profile_columns


def make_table(seed=0, rows=300, shift=0.0, missing=0.02, new=0.0):
    draw = np.random.default_rng(seed)
    site = draw.integers(0, 3, rows)
    age = draw.normal(50, 10, rows) + 3 * site + shift
    age[draw.random(rows) < missing] = np.nan
    stain = np.where(draw.random(rows) < 0.3 + 0.1 * site, "red", "blue").astype(object)
    stain[draw.random(rows) < new] = "green"
    return pd.DataFrame({"age": age, "stain": stain}), site


def profile(**how):
    table, site = make_table(**how)
    return json.loads(json.dumps(profile_columns(make_frame(table), site, ["a", "b", "c"])))


def watch(table, parts=1):
    seen = Watch(profile())
    frame = make_frame(table)
    for rows in np.array_split(np.arange(len(table)), parts):
        part = frame.take(rows)
        seen.add(dict(zip(part.names, part.columns, strict=True)))
    return seen.list_unlike()


@pytest.mark.parametrize("seed", range(1, 21))
def test_rows_that_are_drawn_alike_are_not_named(seed):
    table, site = make_table(seed, rows=150)
    assert watch(table[site == 1]) == []


def test_a_column_that_moved_is_named_with_how_far():
    (sentence,) = watch(make_table(5, shift=25)[0])
    assert sentence.startswith("Column 'age' is unlike that of every training domain: its mean is 7")
    assert "away (0 is alike, 1 has nothing in common), and training domains at most 0." in sentence


def test_the_same_is_said_however_the_rows_come():
    table = make_table(5, shift=25)[0]
    assert watch(table) == watch(table, parts=7)


def test_missing_values_and_new_categories_are_named():
    (sentence,) = watch(make_table(6, missing=0.5)[0])
    assert sentence.startswith("Column 'age' is missing in 49 % of the rows, in training domains in 1 to 3 %")
    (sentence,) = watch(make_table(6, new=0.9)[0])
    assert sentence.startswith("Column 'stain' is unlike that of every training domain. The nearest")


def test_a_few_rows_are_not_judged():
    assert watch(make_table(5, rows=19, shift=100)[0]) == []


def test_domains_that_differ_widely_allow_a_new_one_to():
    draw = np.random.default_rng(0)
    site = np.repeat([0, 1, 2], 100)
    frame = make_frame(pd.DataFrame({"x": draw.normal(size=300) + 3 * site}))
    seen = Watch(profile_columns(frame, site, ["a", "b", "c"]))
    seen.add({"x": draw.normal(size=100) + 9})
    assert seen.list_unlike() == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("drift")
    table, site = make_table()
    y = np.where(table["age"].fillna(50) > 53, "ill", "well")
    model = seqdg.DomainClassifier("logistic", verbose=0).fit(table, y, domains=site.astype(str))
    model.save(path / "model")
    make_table(7)[0].to_csv(path / "like.csv", index=False)
    make_table(7, shift=25)[0].to_csv(path / "unlike.csv", index=False)
    return path


def test_predict_notes_what_is_unlike_and_strict_refuses_it(folder):
    done = command("predict", "model", "like.csv", "--out", "like-out.csv", "--strict", cwd=folder)
    assert done.returncode == 0
    assert "unlike" not in done.stderr
    done = command("predict", "model", "unlike.csv", "--out", "out.csv", cwd=folder)
    assert done.returncode == 0
    assert "note: Column 'age' is unlike that of every training domain" in done.stderr
    done = command("predict", "model", "unlike.csv", "--out", "strict.csv", "--strict", cwd=folder)
    assert done.returncode == 2
    assert "--strict refuses such a table" in done.stderr
    assert not (folder / "strict.csv").exists()

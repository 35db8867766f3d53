"""Categories and free text of a table as numbers; missing values and scales; classes cut from a measurement."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import HashingVectorizer

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset
from seqdg.data.features.domain_files import encode_text, hash_ngrams

TEXTS = ["good book, very good", "bad film", "good film", "", "bad book indeed"]


def write(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)


def spec(**options):
    return DataSpec("toy", path=("t.csv",), **options)


def test_hashed_ngrams_are_marks_of_length_one():
    x = hash_ngrams(TEXTS, size=64)
    lengths = np.linalg.norm(x, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 1, 0, 1], rtol=1e-6)
    counts = HashingVectorizer(n_features=64, ngram_range=(1, 2), norm=None, alternate_sign=False)
    np.testing.assert_array_equal(x > 0, counts.transform(TEXTS).toarray() > 0)
    np.testing.assert_array_equal(hash_ngrams(TEXTS[2:3], size=64)[0], x[2])  # a text is encoded as if it were alone


def test_a_text_column_becomes_hashed_ngrams_after_the_numbers(tmp_path):
    write(tmp_path, "domain,label,title,body,age\na,0,good,film,3\nb,1,bad,book,4\na,1,bad,film,5\nb,0,good,book,6\n")
    data = load_dataset(spec(text=("title", "body"), hash_size=32), tmp_path)
    assert data.shape == (33,)
    assert data.x[:, 0].tolist() == [3, 5, 4, 6]
    want = hash_ngrams(["good film", "bad film", "bad book", "good book"], 32)
    np.testing.assert_array_equal(data.x[:, 1:].numpy(), want)


def test_an_encoder_of_the_users_makes_the_numbers(tmp_path, monkeypatch):
    write(tmp_path, "domain,label,words\na,0,one\nb,1,three\na,1,\nb,0,12\n")
    (tmp_path / "mine.py").write_text("def count(texts):\n    return [[len(t), t.count('e')] for t in texts]\n")
    data = load_dataset(spec(text=("words",), encode=f"{tmp_path}/mine.py:count"), tmp_path)
    assert data.x.tolist() == [[3, 1], [0, 0], [5, 2], [2, 0]]


@pytest.mark.parametrize(
    ("encode", "sentence"),
    [
        ("nowhere_at_all:count", "There is no module 'nowhere_at_all'"),
        ("json:nothing", "json has no function 'nothing'"),
        ("json", "Give a function of yours as package:function"),
        ("builtins:sorted", "The encoder 'builtins:sorted' failed"),
        ("{path}/mine.py:short", r"returned shape [1, 1] for 2 texts"),
        ("{path}/mine.py:flat", r"returned shape [2] for 2 texts"),
        ("{path}/broken.py:f", "broken.py cannot be imported (SyntaxError"),
    ],
)
def test_what_is_wrong_with_an_encoder_is_one_sentence(tmp_path, encode, sentence):
    (tmp_path / "mine.py").write_text("short = lambda texts: [[1.0]]\nflat = lambda texts: [1.0, 2.0]\n")
    (tmp_path / "broken.py").write_text("def f(\n")
    with pytest.raises(UsageError) as caught:
        encode_text(["a", "b"], encode.format(path=tmp_path), 8, (1, 1))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_encoder_needs_a_column_of_text():
    with pytest.raises(UsageError, match="`text` names no column"):
        spec(encode="mine:count")


def test_a_category_becomes_a_column_for_each_value_and_a_missing_one_none(tmp_path):
    write(tmp_path, "domain,label,wind,t\na,0,N,1\nb,1,S,2\na,1,,3\nb,0,N,4\n")
    data = load_dataset(spec(categories=("wind",)), tmp_path)
    assert data.x.tolist() == [[1, 1, 0], [3, 0, 0], [2, 0, 1], [4, 1, 0]]


def test_a_label_that_is_measured_is_cut_into_classes(tmp_path):
    write(tmp_path, "domain,label,t\na,35,1\nb,35.5,2\na,75,3\nb,80,4\na,,5\nb,3,6\n")
    cut = {"cuts": (35.0, 75.0), "drop_other_labels": True}
    data = load_dataset(spec(**cut), tmp_path, held_out=())
    assert data.classes == ("up to 35", "35 to 75", "above 75")
    assert data.y.tolist() == [0, 1, 1, 2, 0]
    assert "1 row without a label left out." in data.notes
    named = load_dataset(spec(classes=("low", "middle", "high"), **cut), tmp_path, held_out=())
    assert named.classes == ("low", "middle", "high")
    assert named.y.tolist() == data.y.tolist()
    problem = "The column 'label' has 1 empty cell: fill in every one."
    assert problem in check_dataset(spec(cuts=(35.0,)), tmp_path).problems


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cuts": (75.0, 35.0)}, "Give numbers that rise"),
        ({"cuts": (35.0,), "classes": ("a", "b", "c")}, "1 cuts make 2 classes, but 3 are named"),
        ({"ngrams": (2, 1)}, "Give the shortest and the longest"),
        ({"hash_size": 1}, "at least 2 columns"),
        ({"scale": True, "normalize": "l2"}, "Leave one of them out"),
    ],
)
def test_a_table_that_contradicts_itself_is_a_sentence(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        spec(**options)


def test_gaps_are_wrong_unless_trials_fill_them(tmp_path):
    write(tmp_path, "domain,label,t\na,0,1\nb,1,\na,1,3\nb,0,4\n")
    (problem,) = check_dataset(spec(), tmp_path).problems
    assert "`scale = true` fills missing values" in problem
    data = load_dataset(spec(scale=True), tmp_path)
    assert data.numbers == 1
    assert torch.isnan(data.x).sum() == 1
    write(tmp_path, "domain,label,t\na,0,1\nb,1,inf\na,1,3\nb,0,4\n")
    assert "infinite features" in check_dataset(spec(scale=True), tmp_path).problems[0]


def test_scaling_is_part_of_the_fingerprint(tmp_path):
    write(tmp_path, "domain,label,t\na,0,1\nb,1,2\na,1,3\nb,0,4\n")
    plain, scaled = (load_dataset(spec(scale=scale), tmp_path) for scale in (False, True))
    assert plain.fingerprint != scaled.fingerprint

"""The `[data]` table of a benchmark file."""

from __future__ import annotations

import pytest

from seqdg.data.spec import DataSpec
from seqdg.errors import UsageError


def test_a_table_becomes_a_spec_and_one_name_a_list_of_one():
    spec = DataSpec.from_table("b", {"path": "set", "domains": ["a", "b"], "counts": {"a": 3}, "size": 32})
    assert spec == DataSpec("b", path=("set",), domains=("a", "b"), counts={"a": 3}, size=32)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"pth": "x"}, r"There is no key in the \[data\] table of b 'pth'. Did you mean 'path'\?"),
        ({"format": "image"}, "There is no data format 'image'. Did you mean 'images'?"),
        ({"normalize": "l3"}, "There is no normalization 'l3'"),
        ({"label_base": 2}, "label_base is 2. Give 0 or 1"),
        ({"size": 0}, "size is 0"),
        ({"size": "big"}, r"size in \[data\] is 'big'. It must be int."),
        ({"domains": ["a", 1]}, r"domains in \[data\] is \['a', 1\]. It must be a list of strings."),
        ({"counts": {"a": "3"}}, "It must be a table of whole numbers."),
        ({"drop_other_labels": 1}, "It must be bool."),
        ({"domains": ["a", "a"]}, "domains names one of them twice: a, a."),
        ({"domains": ["a"], "counts": {"b": 1}}, "There is no domain of b 'b'"),
    ],
)
def test_a_mistake_in_the_table_is_named(table, said):
    with pytest.raises(UsageError, match=said):
        DataSpec.from_table("b", table)

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqdg.base import tree


@pytest.fixture
def a():
    return {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor([5.0, 6.0])}


@pytest.fixture
def b():
    return {"b": torch.tensor([10.0, 20.0]), "w": torch.tensor([[1.0, 0.0], [0.0, -1.0]])}


def test_adding_goes_by_name_whatever_the_order_and_scales_the_second(a, b):
    got = tree.add(a, b, -2.0)
    assert_close(got, {"w": torch.tensor([[-1.0, 2.0], [3.0, 6.0]]), "b": torch.tensor([-15.0, -34.0])})
    assert list(got) == list(a)
    assert_close(tree.add(a, b), {name: a[name] + b[name] for name in a})
    assert_close(tree.add(a, b, torch.tensor(0.5)), {name: a[name] + 0.5 * b[name] for name in a})


def test_dot_is_the_inner_product_of_all_entries_in_one_row(a, b):
    row_a, row_b = (torch.cat([t["w"].flatten(), t["b"]]) for t in (a, b))
    assert_close(tree.dot(a, b), row_a @ row_b)
    assert_close(tree.squared_norm(a), row_a @ row_a)
    assert_close(tree.scale(a, 3.0), {name: 3 * value for name, value in a.items()})


@pytest.mark.parametrize("combine", [tree.add, tree.dot, lambda a, b: tree.stack([a, b])])
def test_a_name_that_only_one_side_has_is_an_error_that_names_it(a, combine):
    less = {"w": a["w"]}
    for one, other in ((a, less), (less, a)):
        with pytest.raises(KeyError, match="'b'"):
            combine(one, other)


def test_unstacking_is_the_inverse_of_stacking(a, b):
    stacked = tree.stack([a, b, a])
    assert stacked["w"].shape == (3, 2, 2)
    assert_close(tree.unstack(stacked), [a, {name: b[name] for name in a}, a])


def test_prefixes_come_off_as_they_went_on(a):
    prefixed = tree.with_prefix(a, "head.")
    assert list(prefixed) == ["head.w", "head.b"]
    assert_close(tree.under_prefix(prefixed | {"body.w": a["w"]}, "head."), a)


def test_detached_values_pass_no_gradient():
    def loss(w):
        return tree.dot(w, tree.detach(w))

    w = {"w": torch.tensor([2.0, 3.0])}
    assert_close(torch.func.grad(loss)(w), w)

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from seqdg.nets import Net, mlp
from seqdg.paper.alignment import compute, measure_alignment


@pytest.fixture
def linear():
    """Without bias: the gradient of a domain is a sum of outer products of its inputs."""
    net = Net(nn.Linear(2, 2, bias=False), "none").to(dtype=torch.float64)
    return net, {name: torch.zeros_like(w) for name, w in net.params().items()}


def _domains(*inputs):
    return torch.tensor(inputs, dtype=torch.float64)[:, None, :].repeat(1, 5, 1)


def test_domains_that_use_different_inputs_have_orthogonal_gradients(linear):
    net, zero = linear
    inner, cosine = measure_alignment(net, zero, _domains([1, 0], [0, 1]), torch.zeros(2, 5, dtype=torch.int64))
    assert inner.tolist() == [0.0]
    assert cosine.tolist() == [0.0]


def test_equal_domains_have_cosine_1(linear):
    net, zero = linear
    inner, cosine = measure_alignment(net, zero, _domains([1, 2], [1, 2]), torch.zeros(2, 5, dtype=torch.int64))
    assert cosine.tolist() == pytest.approx([1.0])
    assert inner.tolist() == pytest.approx([0.5**2 * 2 * (1 + 4)])  # (p - y) x at p = 1/2


def test_domains_that_contradict_each_other_have_cosine_minus_1(linear):
    net, zero = linear
    y = torch.stack([torch.zeros(5), torch.ones(5)]).long()
    _, cosine = measure_alignment(net, zero, _domains([1, 2], [1, 2]), y)
    assert cosine.tolist() == pytest.approx([-1.0])


def test_a_domain_that_is_learned_has_no_gradient_and_the_cosine_is_0_not_nan(linear):
    net, zero = linear
    _, cosine = measure_alignment(net, zero, _domains([1, 0], [0, 0]), torch.zeros(2, 5, dtype=torch.int64))
    assert cosine.tolist() == [0.0]


def test_every_pair_is_as_computed_one_by_one():
    net = Net(mlp(6, (5,), 3), "none").to(dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 9, 6, generator=g, dtype=torch.float64), torch.randint(3, (4, 9), generator=g)
    weights = {name: w.requires_grad_() for name, w in net.params().items()}
    flat = []
    for i in range(4):
        found = torch.autograd.grad(net.loss(weights, (x[i], y[i])), list(weights.values()))
        flat.append(torch.cat([part.flatten() for part in found]))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    inner, cosine = measure_alignment(net, {name: w.detach() for name, w in weights.items()}, x, y)
    torch.testing.assert_close(inner, torch.stack([flat[i] @ flat[j] for i, j in pairs]))
    torch.testing.assert_close(cosine, torch.stack([cosine_similarity(flat[i], flat[j], 0) for i, j in pairs]))


def test_curves_have_a_point_for_every_look_and_start_alike_for_all_algorithms(dataset, study):
    found = compute(study(dataset(), ["agg", "fo-s-mldg", "ensemble"], trials=2))
    assert found["pairs"] == [["a", "b"], ["a", "c"], ["b", "c"]]
    agg, smldg = found["curves"]["agg"], found["curves"]["fo-s-mldg"]
    assert agg["at"] == [0, 15, 30, 45, 60]
    for what in ("inner", "cosine", "loss"):
        assert len(agg[what]) == 5
        assert agg[what][0] == pytest.approx(smldg[what][0], rel=1e-4)
    assert agg["loss"][-1] < agg["loss"][0]
    assert found["refused"]["ensemble"].startswith("ensemble deploys several networks")


def test_domains_drawn_alike_have_gradients_that_agree(dataset, study):
    found = compute(study(dataset(), ["agg"], steps=2, points=1))
    assert found["curves"]["agg"]["cosine"][0] > 0.9

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from seqdg.paper.similarity import compute, compute_cosines


def test_identical_weights_have_similarity_1():
    w = torch.randn(4, 5, dtype=torch.float64)
    found = compute_cosines({"layer.weight": w.expand(3, 4, 5), "layer.bias": torch.ones(3, 4, dtype=torch.float64)})
    assert found["layer"].tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_a_million_equal_weights_are_no_more_than_the_same():
    w = torch.rand(1, 1_000_000, generator=torch.Generator().manual_seed(0)).expand(2, -1)
    assert compute_cosines({"w": w})["w"].tolist() == pytest.approx([1.0], abs=1e-12)


def test_orthogonal_weights_have_similarity_0_and_opposite_ones_minus_1():
    assert compute_cosines({"w": torch.eye(2)})["w"].tolist() == [0.0]
    assert compute_cosines({"w": torch.tensor([[1.0, 2.0], [-1.0, -2.0]])})["w"].tolist() == pytest.approx([-1.0])


def test_a_layer_is_its_weights_and_biases_together():
    g = torch.Generator().manual_seed(0)
    copies = {f"{layer}.{part}": torch.randn(3, *shape, generator=g, dtype=torch.float64)
              for layer in ("one", "two") for part, shape in (("weight", (4, 2)), ("bias", (4,)))}  # fmt: skip
    found = compute_cosines(copies)
    assert list(found) == ["one", "two"]
    flat = torch.cat([copies["two.weight"].flatten(1), copies["two.bias"]], 1)
    want = torch.stack([cosine_similarity(flat[i], flat[j], 0) for i, j in ((0, 1), (0, 2), (1, 2))])
    torch.testing.assert_close(found["two"], want)


def test_copies_start_the_same_and_part_in_training(dataset, study):
    found = compute(study(dataset(code=3.0), ["undo-bias", "s-undo-bias"], settings=["undo-bias.lam=0"]))
    curves = found["curves"]["undo-bias"]["layers"]
    assert list(curves) == ["linear1", "linear2", "head"]
    for curve in curves.values():
        assert curve["mean"][0] == pytest.approx(1.0, abs=1e-6)
        assert curve["mean"][-1] < 0.999
    assert set(found["curves"]) == {"undo-bias", "s-undo-bias"}


def test_branches_of_the_head_alone_have_one_curve(dataset, study):
    found = compute(study(dataset(), ["undo-bias"], settings=["undo-bias.branches=head"], steps=4))
    assert list(found["curves"]["undo-bias"]["layers"]) == ["head"]


def test_an_algorithm_without_domain_specific_weights_gets_a_sentence(dataset, study):
    found = compute(study(dataset(), ["agg"]))
    assert found["curves"] == {}
    assert found["refused"]["agg"].startswith("agg has no domain-specific weights, so there is no similarity")

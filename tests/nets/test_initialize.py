"""First weights: torch's own rules, drawn from a given generator."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqdg.base import UsageError
from seqdg.nets import efficientnet_lite0, initialize, mlp, resnet18

MAKERS = {
    "mlp": lambda: mlp(7, (6, 5), 3, batchnorm=True),
    "resnet18": lambda: resnet18(3),
    "efficientnet-lite0": lambda: efficientnet_lite0(3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_weights_are_bit_for_bit_those_of_torch_under_the_same_seed(name: str):
    got = initialize(MAKERS[name], torch.Generator().manual_seed(5))
    want = MAKERS[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        for layer in want.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
    for key, tensor in want.state_dict().items():
        assert torch.equal(got.state_dict()[key], tensor), key


def test_the_global_random_state_is_neither_read_nor_changed():
    before = torch.get_rng_state()
    first = initialize(MAKERS["mlp"], torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        second = initialize(MAKERS["mlp"], torch.Generator().manual_seed(5))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_other_seeds_give_other_weights():
    first = initialize(MAKERS["mlp"], torch.Generator().manual_seed(5))
    second = initialize(MAKERS["mlp"], torch.Generator().manual_seed(6))
    assert not torch.equal(first.head.weight, second.head.weight)


def test_a_layer_without_a_rule_is_named():
    with pytest.raises(UsageError, match=r"The layer 1 is a PReLU"):
        initialize(lambda: nn.Sequential(nn.Linear(2, 2), nn.PReLU()), torch.Generator())

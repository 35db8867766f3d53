from __future__ import annotations

import pytest
import torch

from seqdg.training.optimizers import OPTIMIZERS, Rates


def _walk(name, rates, make, steps=7):
    """Weights of ours and of torch's optimizer after the same directions."""
    torch.manual_seed(0)
    weights = {"a": torch.randn(3, 2, dtype=torch.float64), "b": torch.randn(4, dtype=torch.float64)}
    theirs = {k: v.clone().requires_grad_() for k, v in weights.items()}
    optimizer, ours = make(list(theirs.values())), OPTIMIZERS[name]
    slots = ours.init(weights)
    for _ in range(steps):
        direction = {k: torch.randn_like(v) for k, v in weights.items()}
        weights, slots = ours.update(weights, direction, slots, rates)
        for k, v in theirs.items():
            v.grad = direction[k]
        optimizer.step()
    return weights, {k: v.detach() for k, v in theirs.items()}


@pytest.mark.parametrize(
    ("name", "rates", "make"),
    [
        ("sgd", Rates(0.1, 0.9, 0.3), lambda ps: torch.optim.SGD(ps, lr=0.1)),
        ("momentum", Rates(0.1, 0.9, 0.3), lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.3)),
        ("adam", Rates(0.1, 0.9, 0.3), lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.3)),
        ("adam-l2", Rates(0.1, 0.9, 0.3), lambda ps: torch.optim.Adam(ps, lr=0.1, weight_decay=0.3)),
    ],
)
def test_updates_are_those_of_torch(name, rates, make):
    ours, theirs = _walk(name, rates, make)
    for key, value in ours.items():
        torch.testing.assert_close(value, theirs[key])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_name_absent_from_the_direction_is_left_alone(name):
    weights = {"a": torch.ones(2), "b": torch.ones(2)}
    ours = OPTIMIZERS[name]
    slots = ours.init(weights)
    weights, slots = ours.update(weights, {"a": torch.ones(2), "b": torch.ones(2)}, slots, Rates(0.1, 0.9, 0.5))
    new, after = ours.update(weights, {"a": torch.ones(2)}, slots, Rates(0.1, 0.9, 0.5))
    assert torch.equal(new["b"], weights["b"])
    assert not torch.equal(new["a"], weights["a"])
    for slot, values in slots.items():
        assert torch.equal(after[slot]["b"], values["b"])

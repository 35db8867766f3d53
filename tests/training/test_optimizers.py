from __future__ import annotations

import pytest
import torch

from seqdg.training import OPTIMIZERS, Rates


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


def _make_stack(trials, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = {"a": (trials, 3, 2), "b": (trials, 4)}
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}, generator


SAME = Rates(0.1, 0.9, 0.3)
OWN = [Rates(0.1, 0.9, 0.3), Rates(0.2, 0.5, 0.0), Rates(0.05, 0.0, 0.1)]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("rates", [[SAME] * 3, OWN, [SAME], [SAME._replace(momentum=0.0)] * 2])
def test_an_update_in_place_of_a_stack_is_the_definition_for_each_of_its_trials(name, rates):
    ours, trials = OPTIMIZERS[name], len(rates)
    weights, generator = _make_stack(trials)
    slots = torch.func.vmap(ours.init)(weights)
    each = [({n: w[i].clone() for n, w in weights.items()}) for i in range(trials)]
    held = [ours.init(w) for w in each]
    whole = rates[0] if len(set(rates)) == 1 else Rates(*torch.tensor(rates, dtype=torch.float64).T)
    for _ in range(4):
        steps = {n: torch.randn(w.shape, generator=generator, dtype=w.dtype) for n, w in weights.items()}
        given = {"a": steps["a"].mT.contiguous().mT, "b": steps["b"]}  # in another memory order
        ours.update_in_place(weights, given, slots, whole)
        for i in range(trials):
            each[i], held[i] = ours.update(each[i], {n: d[i] for n, d in steps.items()}, held[i], rates[i])
    for i in range(trials):
        for key, value in weights.items():
            torch.testing.assert_close(value[i], each[i][key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_in_place_leaves_a_name_alone_that_the_direction_does_not_have(name):
    weights, _ = _make_stack(2)
    slots = torch.func.vmap(OPTIMIZERS[name].init)(weights)
    before = {n: w.clone() for n, w in weights.items()}
    OPTIMIZERS[name].update_in_place(weights, {"a": torch.ones(2, 3, 2, dtype=torch.float64)}, slots, SAME)
    assert torch.equal(weights["b"], before["b"])
    assert not torch.equal(weights["a"], before["a"])


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rates", [[SAME] * 3, OWN])
def test_an_update_on_the_gpu_is_that_of_the_cpu(name, dtype, rates):
    ours = OPTIMIZERS[name]
    whole = rates[0] if len(set(rates)) == 1 else Rates(*torch.tensor(rates, dtype=dtype).T.contiguous())
    ends = []
    for device in ("cpu", "cuda"):
        weights, generator = _make_stack(3, dtype)
        steps = [
            {n: torch.randn(w.shape, generator=generator, dtype=dtype) for n, w in weights.items()} for _ in "abcd"
        ]
        weights = {n: w.to(device) for n, w in weights.items()}
        slots = torch.func.vmap(ours.init)(weights)
        there = Rates(*(r.to(device) if isinstance(r, torch.Tensor) else r for r in whole))
        for direction in steps:
            ours.update_in_place(weights, {n: d.to(device) for n, d in direction.items()}, slots, there)
        ends.append({n: w.cpu() for n, w in weights.items()})
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    for key, value in ends[0].items():
        torch.testing.assert_close(ends[1][key], value, rtol=tolerance, atol=tolerance)

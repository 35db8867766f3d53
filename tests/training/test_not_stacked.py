"""Algorithms that decide by numbers in Python, and those that return new weights."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.func import grad_and_value

import seqdg
from seqdg.base import UsageError, tree
from seqdg.core import Algorithm, Number, register, setting
from seqdg.nets import Net
from seqdg.testing import Rows, check_algorithm


@dataclass(frozen=True)
class Clipped(Algorithm):
    """AGG whose direction is no longer than `most`, decided in Python (for these tests, 2026).

    most: the length.
    """

    most: float = setting(0.5, above=0.0)

    def gradient(self, net, params, episode):
        direction, value = grad_and_value(lambda w: net.losses(w, episode).mean())(params)
        length = float(tree.squared_norm(direction)) ** 0.5  # a number of Python's
        return (tree.scale(direction, self.most / length), value) if length > self.most else (direction, value)


@register("clipped-alone")
@dataclass(frozen=True)
class ClippedAlone(Clipped):
    """The same, which says so (for these tests, 2026).

    most: the length.
    """

    stackable = False


@register("clipped-unsaid")
@dataclass(frozen=True)
class ClippedUnsaid(Clipped):
    """The same, which does not (for these tests, 2026).

    most: the length.
    """


@register("two-steps")
@dataclass(frozen=True)
class TwoSteps(Algorithm):
    """Two plain steps down the mean loss, each of half the learning rate (for these tests, 2026).

    part: of the rate, in each step.
    """

    part: Number = setting(0.5, above=0.0)
    moves = True

    def gradient(self, net, params, episode):
        gradient = grad_and_value(lambda w: net.losses(w, episode).mean())
        direction, value = gradient(params)
        first = tree.add(params, direction, -self.part * episode.rate)
        return tree.add(first, gradient(first)[0], -self.part * episode.rate), value


def train(name, out, trials=3, **settings):
    return seqdg.run(
        "rotated-mnist", [name], held_out=["0"], trials=trials, steps=40, out=out, settings={name: settings},
        precision="float64", save_weights=True, progress=False, workers=0,
    ).records()  # fmt: skip


def losses(records):
    return torch.tensor([[sum(e.source["log_loss"]) for e in r.history] for r in records], dtype=torch.float64)


@pytest.mark.parametrize("name", ["clipped-alone", "clipped-unsaid"])
def test_several_seeds_of_what_decides_by_numbers_train_as_each_alone(name, tmp_path, caplog):
    together = train(name, tmp_path / "all")
    assert [r.status for r in together] == ["done"] * 3
    assert ("Trials cannot be stacked" in caplog.text) == (name == "clipped-unsaid")
    alone = train(name, tmp_path / "one", trials=1)
    assert torch.allclose(losses(together[:1]), losses(alone), rtol=1e-9)
    assert len({r.weights for r in together}) == 3
    plain = train("agg", tmp_path / "agg", trials=1)
    assert not torch.allclose(losses(alone), losses(plain))  # it does clip


def test_one_seed_that_decides_by_numbers_is_not_recorded_with_its_first_decision(tmp_path):
    (record,) = train("clipped-alone", tmp_path, trials=1, most=0.05)
    (other,) = train("clipped-unsaid", tmp_path / "other", trials=1, most=0.05)
    assert torch.allclose(losses([record]), losses([other]), rtol=1e-9)


def test_the_contract_holds_for_what_is_not_stacked_and_for_new_weights():
    check_algorithm(ClippedAlone(most=0.05))
    check_algorithm(TwoSteps())
    check_algorithm(seqdg.build("two-steps+ema"))


def test_new_weights_are_taken_as_they_are_with_the_rate_of_the_step(tmp_path):
    settings = {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.5, "schedule": "cosine", "warmup": 0.1}
    (record,) = train("two-steps", tmp_path, trials=1, **settings)
    half = train("two-steps", tmp_path / "half", trials=1, **{**settings, "momentum": 0.1, "weight_decay": 0.0})
    assert record.history[-1].source == half[0].history[-1].source  # no optimizer acts on them
    slow = train("two-steps", tmp_path / "slow", trials=1, **{**settings, "lr": 0.02})
    assert record.history[-1].source != slow[0].history[-1].source
    one = {"lr": 0.2, "optimizer": "sgd", "schedule": "cosine", "warmup": 0.1}
    near = train("agg", tmp_path / "agg", trials=1, **one)  # of two half steps, one is the whole but for curvature
    assert torch.allclose(losses([record]), losses(near), rtol=0.05)


def test_what_acts_on_a_direction_is_refused_around_new_weights():
    net = Net(nn.Linear(3, 2), "none")
    with pytest.raises(UsageError, match="SAM changes a direction, and TwoSteps returns new weights"):
        seqdg.build("two-steps+sam").check(net, 3)


def test_the_contract_is_checked_on_a_users_net_and_rows():
    generator = torch.Generator().manual_seed(0)
    net = Net(nn.Sequential(nn.Embedding(11, 6), nn.Flatten(), nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, 4)), "none")
    tokens = [(torch.randint(11, (9, 4), generator=generator), torch.arange(9) % 4) for _ in range(3)]
    check_algorithm(seqdg.build("agg"), net, Rows(tokens, 4))

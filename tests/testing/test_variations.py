"""The checks on settings can fail: each of these toys breaks one promise, and is told which."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from seqdg import UsageError
from seqdg.base import tree
from seqdg.core import Number, Numbers, setting
from seqdg.testing import check_algorithm
from toys import Pull, Pulled, Sound, TwoStages, failure, toy


@toy
class Ignoring(Sound):
    """A setting for nothing (nobody, 2024). strength: decay. power: of the loss. extra: nothing."""

    extra: Number = setting(1.0)


@toy
class LossOnly(Sound):
    """A setting that only the loss shows (nobody, 2024). strength: decay. power: of the loss. extra: added."""

    extra: Number = setting(1.0)

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) + self.extra


@toy
class IgnoringChoice(Sound):
    """A choice for nothing (nobody, 2024). strength: decay. power: of the loss. way: none."""

    way: str = setting("left", choices=("left", "right"))


@toy
class IgnoringSwitch(Sound):
    """A switch for nothing (nobody, 2024). strength: decay. power: of the loss. deep: no."""

    deep: bool = setting(False)


@toy
class IgnoringPosition(Sound):
    """A weight per domain, the last of which is lost (nobody, 2024). strength: decay. power: of the loss. w: weight."""

    w: Numbers = setting(1.0, per_position=True)

    def check(self, net, sources):
        if isinstance(self.w, tuple) and len(self.w) != sources:
            raise UsageError(f"w takes {sources} values, not {len(self.w)}.")

    def loss(self, net, params, episode):
        w = self.w if isinstance(self.w, tuple) else (self.w,) * episode.domains
        w = (*w[:-1], w[0])
        losses = [w[i] * net.loss(params, episode.minibatch(i)) for i in range(episode.domains)]
        return sum(losses) ** self.power + self.strength * tree.squared_norm(params)


@toy
class IgnoringWithReason(Ignoring):
    """A setting for nothing, and it says so (nobody, 2024). strength: decay. power: of the loss. extra: nothing."""

    inert: ClassVar[tuple[str, ...]] = ("extra",)


@toy
class TwoStagesWithoutGoal(TwoStages):
    """Two stages, none of which uses the goal (nobody, 2024). goal: nothing. share: of the first."""

    def stages(self):
        return ((self.share, Pull()), (1 - self.share, Pulled()))


@pytest.mark.parametrize(
    ("kind", "culprit"),
    [
        (Ignoring, "extra is ignored: extra = 1.6 instead of 1.0 changes no direction."),
        (LossOnly, "extra is ignored: extra = 1.6 instead of 1.0 changes no direction."),
        (IgnoringChoice, "way is ignored: way = right instead of left changes no direction."),
        (IgnoringSwitch, "deep is ignored: deep = True instead of False changes no direction."),
        (IgnoringPosition, "w_3 is ignored: w = (1.0, 1.0, 1.6) instead of (1.0, 1.0, 1.0) changes no direction."),
        (TwoStagesWithoutGoal, "goal is ignored: goal = 0.55 instead of 0.3 changes no direction."),
    ],
)
def test_a_setting_that_is_ignored_is_caught(kind, culprit):
    assert f"'each setting changes the direction': {culprit}" in failure(kind())


def test_a_setting_that_is_declared_inert_may_be_ignored():
    check_algorithm(IgnoringWithReason())


@toy
class OtherTuples(IgnoringPosition):
    """A number counts twice, a tuple once (nobody, 2024). strength: decay. power: of the loss. w: weight."""

    def loss(self, net, params, episode):
        w = self.w if isinstance(self.w, tuple) else (2 * self.w,) * episode.domains
        losses = [w[i] * net.loss(params, episode.minibatch(i)) for i in range(episode.domains)]
        return sum(losses) ** self.power + self.strength * tree.squared_norm(params)


def test_a_number_that_differs_from_its_repetition_is_caught():
    assert "w = (1.0, 1.0, 1.0) does not act as w = 1.0: the direction of stage 1 at '" in failure(OtherTuples())


@toy
class ComparesSettings(Sound):
    """Decides by the value of a setting (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) * (2.0 if self.strength > 0.05 else 1.0)


@toy
class RoundsTensors(Sound):
    """Takes a tensor for another number (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        extra = 0.5 * tree.squared_norm(params) if isinstance(self.strength, torch.Tensor) else 0.0
        return super().loss(net, params, episode) + extra


def test_settings_that_do_not_act_as_tensors_are_caught():
    title = "'settings given as 0-d tensors act as numbers do': "
    assert f"{title}it raises RuntimeError" in failure(ComparesSettings())
    assert f"{title}as tensors, strength = 0.1, power = 1 do not act as numbers do: the " in failure(RoundsTensors())


@toy
class Widening(Sound):
    """A number that changes shapes (nobody, 2024). strength: decay. power: of the loss. width: of a spare head."""

    width: float = setting(20.0, least=1.0)

    def init(self, net, params, sources, generator):
        return params | {"spare": torch.ones(int(self.width), dtype=params["0.bias"].dtype)}


def test_a_number_that_changes_shapes_without_being_static_is_caught():
    assert "a numeric setting changes the shapes of the weights; declare it with static=True." in failure(Widening())


@toy
class Padded(Sound):
    """A choice that text cannot hold (nobody, 2024). strength: decay. power: of the loss. way: of counting."""

    way: str = setting("one", choices=("one", " two"))

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) * (1.0 if self.way == "one" else 2.0)


def test_a_setting_that_does_not_survive_printing_is_caught():
    assert "'settings survive a round trip through their printed form': " in failure(Padded())

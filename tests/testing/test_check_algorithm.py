"""Sound algorithms of many forms pass; what has the wrong form, type, number of domains or words is told so."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from seqdg import Algorithm, UsageError
from seqdg.base import tree
from seqdg.core import setting
from seqdg.testing import check_algorithm
from toys import Sound, TwoStages, failure, toy


@toy
class Branches(Sound):
    """A net per source domain, deployed as their mean, with a step that depends on progress and key (nobody, 2024).

    strength: of the weight decay.   power: of the loss.   start: scale of the branches.   width: of a spare head.
    reduce: how branches are averaged.   both: whether the mean is trained too.
    """

    start: float = setting(0.5)
    width: int = setting(2, least=1)
    reduce: str = setting("mean", choices=("mean", "first-twice"))
    both: bool = setting(True)

    def init(self, net, params, sources, generator):
        made = {}
        for name, w in params.items():
            draw = torch.randn((sources, *w.shape), generator=generator, dtype=w.dtype)
            made[name] = w + self.start * draw
        return made | {"spare": torch.randn((self.width,), generator=generator, dtype=w.dtype)}

    def loss(self, net, params, episode):
        total = 0.5 * self.strength * tree.squared_norm(params) * (1 + episode.progress)
        for i in range(episode.domains):
            row = episode.domain.narrow(0, i, 1)
            branch = {name: params[name].index_select(0, row).squeeze(0) for name in net.names}
            total = total + net.loss(branch, episode.minibatch(i)) ** self.power
            if self.both:
                total = total + net.loss(self.deploy(params, {}), episode.minibatch(i))
        return total

    def deploy(self, params, memory):
        first = 1.0 if self.reduce == "first-twice" else 0.0
        return {n: w.mean(0) + first * w.narrow(0, 0, 1).squeeze(0) for n, w in params.items() if n != "spare"}


@pytest.mark.parametrize("kind", [Sound, Branches, TwoStages])
def test_a_sound_algorithm_passes(kind):
    check_algorithm(kind())


@toy
class DoubleOnly(Sound):
    """A constant in float64 (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        direction, value = super().gradient(net, params, episode)
        return {name: d.double() for name, d in direction.items()}, value


@toy
class DoubleStart(Sound):
    """A start in float64 (nobody, 2024). strength: decay. power: of the loss."""

    def init(self, net, params, sources, generator):
        return params | {"extra": torch.ones(2, dtype=torch.float64)}


def test_what_does_not_stay_in_float32_is_caught():
    assert "'float64 and float32': the direction of stage 1 in float32 is torch.float64" in failure(DoubleOnly())
    assert "init of a float32 net returns 'extra' as torch.float64." in failure(DoubleStart())


@toy
class NeedsThree(Sound):
    """Fails for fewer than three domains (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) + net.loss(params, episode.minibatch(2))


@toy
class Mute(NeedsThree):
    """Refuses without a reason (nobody, 2024). strength: decay. power: of the loss."""

    def check(self, net, sources):
        if sources < 3:
            raise UsageError("No.")


@toy
class NeverContent(Sound):
    """Takes no number of domains (nobody, 2024). strength: decay. power: of the loss."""

    needs: ClassVar[int] = 100


def test_a_number_of_domains_that_fails_without_saying_what_is_needed_is_caught():
    said = failure(NeedsThree())
    assert "with 1 source domain, which it accepts (`needs = 2` in the class refuses that), stage 1 raises" in said
    assert "with 1 source domains it does not say how many are needed, but: No." in failure(Mute())
    assert "'three or more source domains work': it takes no number" in failure(NeverContent())


@toy
class Undocumented(Algorithm):
    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


@toy
class WithoutPaper(Undocumented):
    """Something from somewhere."""


@toy
class WithoutSetting(Sound):
    """Something (nobody, 2024). strength: decay."""


def test_a_docstring_that_says_too_little_is_caught():
    assert "Undocumented has no docstring." in failure(Undocumented())
    assert "the docstring of WithoutPaper does not name the paper, with its year." in failure(WithoutPaper())
    assert "the docstring of WithoutSetting does not explain the setting 'power'. Add a line `power: " in failure(
        WithoutSetting()
    )


def returns(change: Any) -> Algorithm:
    @toy
    class Malformed(Sound):
        """Returns something else (nobody, 2024). strength: decay. power: of the loss."""

        def gradient(self, net, params, episode):
            return change(*super().gradient(net, params, episode))

    return Malformed()


@toy
class Dead(Algorithm):
    """Carries weights that no gradient reaches (nobody, 2024)."""

    def init(self, net, params, sources, generator):
        return params | {"dead": torch.ones_like(params["0.bias"])}

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean() + params["dead"].detach().sum()


@toy
class Shares(Sound):
    """Trains too little (nobody, 2024). strength: decay. power: of the loss."""

    def stages(self):
        return ((0.2, self), (0.7, self))


def test_a_malformed_answer_is_caught():
    assert "has shape (2,), but it must be a single number" in failure(returns(lambda d, v: (d, torch.stack([v, v]))))
    assert "has 'more', which is not among the weights" in failure(returns(lambda d, v: (d | {"more": v}, v)))
    assert "at '0.bias', but the weights are" in failure(returns(lambda d, v: (d | {"0.bias": v}, v)))
    assert "'0.bias' of stage 1 is not finite" in failure(returns(lambda d, v: (d | {"0.bias": d["0.bias"] / 0}, v)))
    lacking = failure(returns(lambda d, v: ({n: g for n, g in d.items() if n != "0.bias"}, v)))
    assert "'0.bias' is among the weights that init returns, but no stage's direction trains it." in lacking
    assert "'dead' is among the weights that init returns, but no stage's direction trains it." in failure(Dead())
    assert "the shares of the stages are [0.2, 0.7], but they must be above 0 and add up to 1 or more." in failure(
        Shares()
    )


@toy
class Renames(Sound):
    """Begins with other weights than it was given (nobody, 2024). strength: decay. power: of the loss."""

    def enter(self, net, params, memory):
        return params | {"fresh": torch.zeros(2)}, memory


@toy
class Resets(Sound):
    """Begins by changing what it was given (nobody, 2024). strength: decay. power: of the loss."""

    def enter(self, net, params, memory):
        params["0.bias"].zero_()
        return params, memory


def test_a_stage_that_does_not_begin_with_the_weights_it_was_given_is_caught():
    assert "stage 1 enters with weights of other names or shapes than it was given." in failure(Renames())
    assert "enter of stage 1 changes weights['0.bias']; work on a copy." in failure(Resets())

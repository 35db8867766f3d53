"""The checks can fail: each of these toys breaks one promise, and is told which."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch.func import grad, grad_and_value

from seqdg import Algorithm, UsageError, tree
from seqdg.algorithm import Number, Numbers, setting
from seqdg.algorithms.mldg import MLDG
from seqdg.testing import ContractError, check_algorithm

registered_nowhere = dataclass(frozen=True)


@registered_nowhere
class Sound(Algorithm):
    """Weighted aggregation, for these tests (nobody, 2024).

    strength: of the weight decay.   power: of the loss.
    """

    strength: Number = setting(0.1, least=0.0)
    power: Number = setting(1.0, above=0.0, most=1.0)

    def loss(self, net, params, episode):
        total = torch.stack([net.loss(params, episode.minibatch(i)) for i in range(episode.domains)]).sum()
        return total**self.power + 0.5 * self.strength * tree.squared_norm(params)


@registered_nowhere
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
                total = total + net.loss(self.deploy(params), episode.minibatch(i))
        return total

    def deploy(self, params):
        first = 1.0 if self.reduce == "first-twice" else 0.0
        return {n: w.mean(0) + first * w.narrow(0, 0, 1).squeeze(0) for n, w in params.items() if n != "spare"}


@registered_nowhere
class _Pull(Algorithm):
    """The first stage of TwoStages (nobody, 2024).

    goal: where the weights of the pull go.
    """

    goal: Number = 0.0

    def loss(self, net, params, episode):
        return 0.5 * (params["pull"] - self.goal - net.loss(params, episode.minibatch(0)).detach()) ** 2

    def gradient(self, net, params, episode):
        value = self.loss(net, params, episode)
        return {"pull": grad(lambda w: self.loss(net, params | {"pull": w}, episode))(params["pull"])}, value


@registered_nowhere
class _Pulled(Algorithm):
    """The second stage of TwoStages (nobody, 2024)."""

    def gradient(self, net, params, episode):
        total = lambda w: net.losses(w, episode).mean() + params["pull"].detach() * tree.squared_norm(w)  # noqa: E731
        return grad_and_value(total)({name: params[name] for name in net.names})


@registered_nowhere
class TwoStages(Algorithm):
    """Learns a weight decay, then trains with it (nobody, 2024).

    goal: of the weight decay.   share: of the first stage.
    """

    goal: Number = setting(0.3)
    share: float = setting(0.2, above=0.0, most=0.9, static=True)

    def init(self, net, params, sources, generator):
        return params | {"pull": torch.zeros((), dtype=next(iter(params.values())).dtype)}

    def stages(self):
        return ((self.share, _Pull(self.goal)), (1 - self.share, _Pulled()))


@pytest.mark.parametrize("kind", [Sound, Branches, TwoStages])
def test_a_sound_algorithm_passes(kind):
    check_algorithm(kind())


def failure(algorithm: Algorithm) -> str:
    with pytest.raises(ContractError) as caught:
        check_algorithm(algorithm)
    message = str(caught.value)
    assert message.startswith(f"{type(algorithm).__name__} on an MLP")
    assert "\n" not in message
    return message


@registered_nowhere
class MetaTestDetached(MLDG):
    """MLDG whose meta-test weights are cut off (nobody, 2024). alpha: step. beta: weight."""

    def loss(self, net, params, episode):
        step, so_far = grad_and_value(lambda w: net.losses(w, episode.part(0, episode.domains - 1)).mean())(params)
        ahead = tree.detach(tree.add(params, step, -self.alpha))
        return so_far + self.beta * net.loss(ahead, episode.minibatch(episode.domains - 1))

    def check_path(self, net, length):
        pass


@registered_nowhere
class MetaTestToACopy(MLDG):
    """MLDG whose meta-test gradient goes to a copy of the net (nobody, 2024). alpha: step. beta: weight."""

    def init(self, net, params, sources, generator):
        return params | tree.with_prefix(params, "copy.")

    def gradient(self, net, params, episode):
        own = {name: params[name] for name in net.names}
        before = episode.part(0, episode.domains - 1)
        step, so_far = grad_and_value(lambda w: net.losses(w, before).mean())(own)
        ahead = tree.add(tree.under_prefix(params, "copy."), step, -self.alpha)
        new, value = grad_and_value(net.loss)(ahead, episode.minibatch(episode.domains - 1))
        return step | tree.with_prefix(tree.scale(new, self.beta), "copy."), so_far + self.beta * value

    loss = Algorithm.loss

    def deploy(self, params):
        return {name: w for name, w in params.items() if not name.startswith("copy.")}


@pytest.mark.parametrize("kind", [MetaTestDetached, MetaTestToACopy])
def test_a_meta_test_gradient_that_never_reaches_the_model_is_caught(kind):
    message = failure(kind())
    assert "'each source domain's data changes the direction'" in message
    assert "number 3 of 3 on the path" in message
    assert "never reaches the model" in message


@registered_nowhere
class FirstTwo(Sound):
    """Only the first two domains of the path (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode.part(0, min(2, episode.domains)))


@registered_nowhere
class LabelsOfOne(Sound):
    """All domains with the labels of the first (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode._replace(y=episode.y.narrow(0, 0, 1).expand_as(episode.y)))


def test_a_domain_that_is_ignored_is_caught():
    assert "x of source domain" in failure(FirstTwo())
    message = failure(LabelsOfOne())
    assert "y of source domain" in message
    assert "number 2 of 3" in message


@registered_nowhere
class Noisy(Sound):
    """Noise from the global generator (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode._replace(x=episode.x + 0.1 * torch.rand(episode.x.shape)))


@registered_nowhere
class NoisyPython(Sound):
    """Noise from Python's generator (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return random.random() * super().loss(net, params, episode)


@registered_nowhere
class NoisyStart(Sound):
    """A start from the global generator (nobody, 2024). strength: decay. power: of the loss."""

    def init(self, net, params, sources, generator):
        return {name: w + torch.rand_like(w) for name, w in params.items()}


@pytest.mark.parametrize("kind", [Noisy, NoisyPython, NoisyStart])
def test_a_draw_from_a_global_generator_is_caught(kind):
    message = failure(kind())
    assert "'deterministic': it draws from a global random number generator" in message


calls: list[int] = []


@registered_nowhere
class Remembers(Sound):
    """Another loss each time (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        calls.append(1)
        return super().loss(net, params, episode) * len(calls)


def test_a_memory_between_calls_is_caught():
    assert "'deterministic': stage 1, " in failure(Remembers())


@registered_nowhere
class ChangesWeights(Sound):
    """Steps by itself (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        found = super().gradient(net, params, episode)
        params["0.bias"] -= 0.1 * found[0]["0.bias"]
        return found


@registered_nowhere
class AddsWeights(Sound):
    """Leaves something behind (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        found = super().gradient(net, params, episode)
        params["memory"] = torch.zeros(())
        return found


@registered_nowhere
class ChangesBuffers(Sound):
    """Counts running statistics (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        for buffer in net._training.buffers():
            buffer += 1.0
        return super().gradient(net, params, episode)


@registered_nowhere
class ChangesEpisode(Sound):
    """Scales the inputs in place (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        episode.x.mul_(2.0)
        return super().gradient(net, params, episode)


@registered_nowhere
class ChangesInputs(Sound):
    """Scales what it is asked about (nobody, 2024). strength: decay. power: of the loss."""

    def predict(self, net, deployed, x):
        return net(deployed, x.mul_(1.1))


@pytest.mark.parametrize(
    ("kind", "culprit"),
    [
        (ChangesWeights, "the gradient of stage 1 changes weights['0.bias']"),
        (AddsWeights, "the gradient of stage 1 changes weights['memory']"),
        (ChangesBuffers, "the gradient of stage 1 changes net._training['1.running_mean']"),
        (ChangesEpisode, "the gradient of stage 1 changes episode.x"),
        (ChangesInputs, "deploy, statistics or predict changes the inputs x"),
    ],
)
def test_a_change_of_inputs_or_buffers_is_caught(kind, culprit):
    assert f"'inputs and buffers untouched': {culprit}; work on a copy." in failure(kind())


@registered_nowhere
class Doubled(Sound):
    """A direction twice too long (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        direction, value = super().gradient(net, params, episode)
        return tree.scale(direction, 2.0), value


def test_a_direction_that_is_not_the_gradient_is_caught():
    assert "in stage 1, the direction is not the gradient of the loss: '" in failure(Doubled())


@registered_nowhere
class Ignoring(Sound):
    """A setting for nothing (nobody, 2024). strength: decay. power: of the loss. extra: nothing."""

    extra: Number = setting(1.0)


@registered_nowhere
class IgnoringChoice(Sound):
    """A choice for nothing (nobody, 2024). strength: decay. power: of the loss. way: none."""

    way: str = setting("left", choices=("left", "right"))


@registered_nowhere
class IgnoringSwitch(Sound):
    """A switch for nothing (nobody, 2024). strength: decay. power: of the loss. deep: no."""

    deep: bool = setting(False)


@registered_nowhere
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


@registered_nowhere
class IgnoringWithReason(Ignoring):
    """A setting for nothing, and it says so (nobody, 2024). strength: decay. power: of the loss. extra: nothing."""

    inert: ClassVar[tuple[str, ...]] = ("extra",)


@registered_nowhere
class TwoStagesWithoutGoal(TwoStages):
    """Two stages, none of which uses the goal (nobody, 2024). goal: nothing. share: of the first."""

    def stages(self):
        return ((self.share, _Pull()), (1 - self.share, _Pulled()))


@pytest.mark.parametrize(
    ("kind", "culprit"),
    [
        (Ignoring, "extra is ignored: extra = 1.6 instead of 1.0 changes no direction."),
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


@registered_nowhere
class OtherTuples(IgnoringPosition):
    """A number counts twice, a tuple once (nobody, 2024). strength: decay. power: of the loss. w: weight."""

    def loss(self, net, params, episode):
        w = self.w if isinstance(self.w, tuple) else (2 * self.w,) * episode.domains
        losses = [w[i] * net.loss(params, episode.minibatch(i)) for i in range(episode.domains)]
        return sum(losses) ** self.power + self.strength * tree.squared_norm(params)


def test_a_number_that_differs_from_its_repetition_is_caught():
    assert "w = (1.0, 1.0, 1.0) does not act as w = 1.0: '" in failure(OtherTuples())


@registered_nowhere
class LooksAtValues(Sound):
    """Decides by the value of the loss (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        total = super().loss(net, params, episode)
        return total if total > 0 else -total


@registered_nowhere
class ForgetsTheStack(Sound):
    """Takes the first trial of a stack for all (nobody, 2024). strength: decay. power: of the loss."""

    def predict(self, net, deployed, x):
        inner = torch._C._functorch
        first = inner.get_unwrapped(x)[0] if inner.is_batchedtensor(x) else x
        return net(deployed, first)


@registered_nowhere
class ComparesSettings(Sound):
    """Decides by the value of a setting (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) * (2.0 if self.strength > 0.05 else 1.0)


def test_what_breaks_under_vmap_is_caught():
    message = failure(LooksAtValues())
    assert "'vmapped equals looped, a trial alone equals the same trial in a group': it raises RuntimeError" in message
    assert "trial 2 of a stack of 3 predicts otherwise than in a loop: 'logits'" in failure(ForgetsTheStack())


@registered_nowhere
class RoundsTensors(Sound):
    """Takes a tensor for another number (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        extra = 0.5 * tree.squared_norm(params) if isinstance(self.strength, torch.Tensor) else 0.0
        return super().loss(net, params, episode) + extra


def test_settings_that_do_not_act_as_tensors_are_caught():
    title = "'settings given as 0-d tensors act as numbers do': "
    assert f"{title}it raises RuntimeError" in failure(ComparesSettings())
    assert f"{title}in stage 1, tensors strength, power do not act as the numbers strength = " in failure(
        RoundsTensors()
    )


@registered_nowhere
class Widening(Sound):
    """A number that changes shapes (nobody, 2024). strength: decay. power: of the loss. width: of a spare head."""

    width: float = setting(20.0, least=1.0)

    def init(self, net, params, sources, generator):
        return params | {"spare": torch.ones(int(self.width), dtype=params["0.bias"].dtype)}


def test_a_number_that_changes_shapes_without_being_static_is_caught():
    assert "a numeric setting changes the shapes of the weights; declare it with static=True." in failure(Widening())


@registered_nowhere
class DoubleOnly(Sound):
    """A constant in float64 (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        direction, value = super().gradient(net, params, episode)
        return {name: d.double() for name, d in direction.items()}, value


@registered_nowhere
class DoubleStart(Sound):
    """A start in float64 (nobody, 2024). strength: decay. power: of the loss."""

    def init(self, net, params, sources, generator):
        return params | {"extra": torch.ones(2, dtype=torch.float64)}


def test_what_does_not_stay_in_float32_is_caught():
    assert "'float64 and float32': the direction of stage 1 in float32 is torch.float64" in failure(DoubleOnly())
    assert "init of a float32 net returns 'extra' as torch.float64." in failure(DoubleStart())


@registered_nowhere
class NeedsThree(Sound):
    """Fails for fewer than three domains (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) + net.loss(params, episode.minibatch(2))


@registered_nowhere
class Mute(NeedsThree):
    """Refuses without a reason (nobody, 2024). strength: decay. power: of the loss."""

    def check(self, net, sources):
        if sources < 3:
            raise UsageError("No.")


@registered_nowhere
class NeverContent(Sound):
    """Takes no number of domains (nobody, 2024). strength: decay. power: of the loss."""

    needs: ClassVar[int] = 100


def test_a_number_of_domains_that_fails_without_saying_what_is_needed_is_caught():
    assert "with 1 source domains, which `check` accepts, stage 1 raises IndexError" in failure(NeedsThree())
    assert "with 1 source domains it does not say how many are needed, but: No." in failure(Mute())
    assert "'three or more source domains work': it takes no number" in failure(NeverContent())


@registered_nowhere
class Padded(Sound):
    """A choice that text cannot hold (nobody, 2024). strength: decay. power: of the loss. way: of counting."""

    way: str = setting("one", choices=("one", " two"))

    def loss(self, net, params, episode):
        return super().loss(net, params, episode) * (1.0 if self.way == "one" else 2.0)


def test_a_setting_that_does_not_survive_printing_is_caught():
    assert "'settings survive a round trip through their printed form': " in failure(Padded())


@registered_nowhere
class Undocumented(Algorithm):
    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


@registered_nowhere
class WithoutPaper(Undocumented):
    """Something from somewhere."""


@registered_nowhere
class WithoutSetting(Sound):
    """Something (nobody, 2024). strength: decay."""


def test_a_docstring_that_says_too_little_is_caught():
    assert "Undocumented has no docstring." in failure(Undocumented())
    assert "the docstring of WithoutPaper does not name the paper, with its year." in failure(WithoutPaper())
    assert "the docstring of WithoutSetting does not explain the setting 'power:'." in failure(WithoutSetting())


def returns(change: Any) -> Algorithm:
    @registered_nowhere
    class Malformed(Sound):
        """Returns something else (nobody, 2024). strength: decay. power: of the loss."""

        def gradient(self, net, params, episode):
            return change(*super().gradient(net, params, episode))

    return Malformed()


@registered_nowhere
class Shares(Sound):
    """Trains too much (nobody, 2024). strength: decay. power: of the loss."""

    def stages(self):
        return ((0.7, self), (0.7, self))


def test_a_malformed_answer_is_caught():
    assert "has shape (2,), but it must be a single number" in failure(returns(lambda d, v: (d, torch.stack([v, v]))))
    assert "has 'more', which is not among the weights" in failure(returns(lambda d, v: (d | {"more": v}, v)))
    assert "at '0.bias', but the weights are" in failure(returns(lambda d, v: (d | {"0.bias": v}, v)))
    assert "'0.bias' of stage 1 is not finite" in failure(returns(lambda d, v: (d | {"0.bias": d["0.bias"] / 0}, v)))
    lacking = failure(returns(lambda d, v: ({n: g for n, g in d.items() if n != "0.bias"}, v)))
    assert "'0.bias' is among the weights that init returns, but no stage's direction trains it." in lacking
    assert "the shares of the stages are [0.7, 0.7], but they must be above 0 and add up to 1." in failure(Shares())

"""The checks on directions can fail: each of these toys breaks one promise, and is told which."""

from __future__ import annotations

import random

import pytest
import torch
from torch.func import grad_and_value

from seqdg import Algorithm
from seqdg.algorithms._look_ahead import LookAhead
from seqdg.base import tree
from seqdg.testing import check_algorithm
from toys import Sound, failure, toy


@toy
class MetaTestDetached(LookAhead):
    """MLDG whose meta-test weights are cut off (nobody, 2024). alpha: step. beta: weight."""

    def loss(self, net, params, episode):
        step, so_far = grad_and_value(lambda w: net.losses(w, episode.part(0, episode.domains - 1)).mean())(params)
        ahead = tree.detach(tree.add(params, step, -self.alpha))
        return so_far + self.beta * net.loss(ahead, episode.minibatch(episode.domains - 1))

    def check_path(self, net, length):
        pass


@toy
class MetaTestToACopy(LookAhead):
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

    def deploy(self, params, memory):
        return {name: w for name, w in params.items() if not name.startswith("copy.")}


@pytest.mark.parametrize("kind", [MetaTestDetached, MetaTestToACopy])
def test_a_meta_test_gradient_that_never_reaches_the_model_is_caught(kind):
    message = failure(kind())
    assert "'each source domain's data changes the direction'" in message
    assert "number 3 of 3 on the path" in message
    assert "never reaches the model" in message


@toy
class FirstTwo(Sound):
    """Only the first two domains of the path (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode.part(0, min(2, episode.domains)))


@toy
class LabelsOfOne(Sound):
    """All domains with the labels of the first (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode._replace(y=episode.y.narrow(0, 0, 1).expand_as(episode.y)))


def test_a_domain_that_is_ignored_is_caught():
    assert "x of source domain" in failure(FirstTwo())
    message = failure(LabelsOfOne())
    assert "y of source domain" in message
    assert "number 2 of 3" in message


@toy
class Noisy(Sound):
    """Noise from the global generator (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return super().loss(net, params, episode._replace(x=episode.x + 0.1 * torch.rand(episode.x.shape)))


@toy
class NoisyPython(Sound):
    """Noise from Python's generator (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        return random.random() * super().loss(net, params, episode)


@toy
class NoisyStart(Sound):
    """A start from the global generator (nobody, 2024). strength: decay. power: of the loss."""

    def init(self, net, params, sources, generator):
        return {name: w + torch.rand_like(w) for name, w in params.items()}


@pytest.mark.parametrize("kind", [Noisy, NoisyPython, NoisyStart])
def test_a_draw_from_a_global_generator_is_caught(kind):
    message = failure(kind())
    assert "'deterministic': it draws from a global random number generator" in message


calls: list[int] = []


@toy
class Remembers(Sound):
    """Another loss each time (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        calls.append(1)
        return super().loss(net, params, episode) * len(calls)


def test_a_memory_between_calls_is_caught():
    assert "'deterministic': the loss of stage 1 differs" in failure(Remembers())


@toy
class ChangesWeights(Sound):
    """Steps by itself (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        found = super().gradient(net, params, episode)
        params["0.bias"] -= 0.1 * found[0]["0.bias"]
        return found


@toy
class AddsWeights(Sound):
    """Leaves something behind (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        found = super().gradient(net, params, episode)
        params["memory"] = torch.zeros(())
        return found


@toy
class ChangesBuffers(Sound):
    """Counts running statistics (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        for buffer in net._training.buffers():
            buffer += 1.0
        return super().gradient(net, params, episode)


@toy
class ChangesEpisode(Sound):
    """Scales the inputs in place (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        episode.x.mul_(2.0)
        return super().gradient(net, params, episode)


@toy
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


@toy
class Doubled(Sound):
    """A direction twice too long (nobody, 2024). strength: decay. power: of the loss."""

    def gradient(self, net, params, episode):
        direction, value = super().gradient(net, params, episode)
        return tree.scale(direction, 2.0), value


def test_a_direction_that_is_not_the_gradient_is_caught():
    assert "in stage 1, the direction is not the gradient of the loss: '" in failure(Doubled())


@toy
class LooksAtValues(Sound):
    """Decides by the value of the loss (nobody, 2024). strength: decay. power: of the loss."""

    def loss(self, net, params, episode):
        total = super().loss(net, params, episode)
        return total if total > 0 else -total


@toy
class ForgetsTheStack(Sound):
    """Takes the first trial of a stack for all (nobody, 2024). strength: decay. power: of the loss."""

    def predict(self, net, deployed, x):
        inner = torch._C._functorch
        first = inner.get_unwrapped(x)[0] if inner.is_batchedtensor(x) else x
        return net(deployed, first)


def test_what_breaks_under_vmap_is_caught():
    message = failure(LooksAtValues())
    assert "'vmapped equals looped, a trial alone equals the same trial in a group': it raises RuntimeError" in message
    assert "trial 2 of a stack of 3 is not as in a loop: the prediction differs" in failure(ForgetsTheStack())


@toy
class Centered(Sound):
    """Logits less their mean over the rows that come together (nobody, 2024). strength: as in Sound. power: too."""

    def predict(self, net, deployed, x):
        logits = net(deployed, x)
        return logits - logits.mean(0)


@toy
class CenteredTogether(Centered):
    """The same, and it says so (nobody, 2024). strength: as in Sound. power: as in Sound."""

    together = 8


def test_only_what_says_so_predicts_a_row_by_the_rows_beside_it():
    assert "the prediction of a row depends on the rows beside it" in failure(Centered())
    check_algorithm(CenteredTogether())

"""What the contract says of a memory that is not kept as it should be."""

from __future__ import annotations

import pytest
import torch

from seqdg import Algorithm
from seqdg.testing import check_algorithm
from toys import Remembers, failure, toy


def test_a_sound_memory_keeps_the_contract():
    check_algorithm(Remembers())


@toy
class Grows(Remembers):
    """As GroupDRO, with a mistake (nobody, 2024).

    eta: how fast.
    """

    def step(self, net, params, memory, episode):
        direction, value, kept = super().step(net, params, {"q": memory["q"][: episode.domains]}, episode)
        return direction, value, {"q": torch.cat([kept["q"], kept["q"][:1]])}


@toy
class Adds(Remembers):
    """As GroupDRO, with a mistake (nobody, 2024).

    eta: how fast.
    """

    def step(self, net, params, memory, episode):
        direction, value, kept = super().step(net, params, memory, episode)
        return direction, value, {**kept, "more": value}


@toy
class Unread(Remembers):
    """As GroupDRO, with a mistake (nobody, 2024).

    eta: how fast.
    """

    def memory(self, net, params, sources):
        return {**super().memory(net, params, sources), "seen": params["0.bias"].new_zeros(())}

    def step(self, net, params, memory, episode):
        direction, value, kept = super().step(net, params, memory, episode)
        return direction, value, {**kept, "seen": memory["seen"] + 1}


@toy
class Explodes(Remembers):
    """As GroupDRO, with a mistake (nobody, 2024).

    eta: how fast.
    """

    def evaluated(self, memory, losses):
        return {"q": memory["q"] / 0.0}


@toy
class InPlace(Remembers):
    """As GroupDRO, with a mistake (nobody, 2024).

    eta: how fast.
    """

    def evaluated(self, memory, losses):
        memory["q"].mul_(2.0)
        return memory


@toy
class Forgets(Algorithm):
    """Forgets its memory when a stage begins (nobody, 2024)."""

    def memory(self, net, params, sources):
        return {"m": params["0.bias"]}

    def enter(self, net, params, memory):
        return params, {}

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (
            Grows(),
            "stage 1 returns 'q' of the memory as torch.float64 of shape (4,), but it was torch.float64 of shape",
        ),
        (Adds(), "stage 1 adds 'more', but a memory keeps its names"),
        (Unread(), "nothing reads 'seen' in its memory: another value there changes no prediction"),
        (Explodes(), "the loss of stage 1 is not a number"),
        (InPlace(), "evaluated changes the memory['q']; work on a copy"),
        (Forgets(), "enter of stage 1 drops 'm', but a memory keeps its names"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Algorithm) else "",
)
def test_a_mistake_with_a_memory_is_named(algorithm, words):
    assert words in failure(algorithm)

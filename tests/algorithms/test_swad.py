from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqdg import UsageError, build
from seqdg.algorithms.agg import AGG
from seqdg.algorithms.swad import SWAD
from seqdg.testing import build_nets


def choose_valley(losses: list[float], converge: int, tolerance: int, ratio: float) -> tuple[int, int] | None:
    """Algorithm 1 of Cha et al. (2021), an evaluation being its iteration: t_s and t_e, or none."""
    start, end, limit = None, len(losses) - 1, None
    for i in range(len(losses)):
        if limit is None:
            window = losses[i - converge + 1 : i + 1] if i + 1 >= converge else []
            if window and window[0] == min(window):
                start = i - converge + 1
                limit = (1 + ratio) * sum(window) / converge
        elif i + 1 >= tolerance and min(losses[i - tolerance + 1 : i + 1]) > limit:
            end = i - tolerance
            break
    return None if start is None else (start, end)


def train(
    algorithm: SWAD, losses: list[float], steps: int, seed: int
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Walk at random, with an evaluation after every so many steps: the means of the segments, the weights at every
    evaluation, and what is deployed then."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(3, generator=g, dtype=torch.float64)
    seen, segments, at, deployed = algorithm.begin({"w": w}), [], [], []
    for loss in losses:
        here = []
        for _ in range(steps):
            here.append(w)
            seen = algorithm.observe(seen, {"w": w}, torch.tensor(0.0))
            w = w + torch.randn(3, generator=g, dtype=torch.float64)
        segments.append(torch.stack(here).mean(0))
        seen = algorithm.judge(seen, torch.tensor([loss - 0.1, loss + 0.1], dtype=torch.float64))
        at.append(w)
        deployed.append(algorithm.average(seen, {"w": w})["w"])
    return segments, at, deployed


def draw_losses(seed: int) -> list[float]:
    """A loss that falls, stays and rises, each for some random time, with noise."""
    g = torch.Generator().manual_seed(seed)
    falls, stays, rises = (int(n) for n in torch.randint(0, 12, (3,), generator=g))
    level = torch.cat([torch.linspace(3, 1, falls + 1), torch.ones(stays), 1 + 0.25 * torch.arange(rises)])
    return (level + 0.1 * torch.rand(len(level), generator=g)).double().tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("converge", "tolerance", "ratio"), [(3, 6, 0.3), (2, 2, 0.1), (3, 3, 0.0), (4, 5, 0.5)])
def test_the_valley_is_that_of_the_published_algorithm_at_every_evaluation(converge, tolerance, ratio):
    algorithm = SWAD(AGG(), converge=converge, tolerance=tolerance, ratio=ratio)
    outcomes = set()
    for seed in range(40):
        losses = draw_losses(seed)
        segments, at, deployed = train(algorithm, losses, 1 + seed % 3, seed)
        for i in range(len(losses)):
            valley = choose_valley(losses[: i + 1], converge, tolerance, ratio)
            if valley is None:
                want = at[i]
                outcomes.add("no valley")
            else:
                start, end = valley
                want = torch.stack(segments[start : end + 1]).mean(0)
                outcomes.add("ended" if end < i else "not ended")
            assert_close(deployed[i], want, rtol=0, atol=1e-12)
    assert outcomes == {"no valley", "ended", "not ended"}


def test_a_loss_that_always_falls_deploys_the_weights_as_they_are():
    _, at, deployed = train(SWAD(AGG()), [float(10 - i) for i in range(9)], 2, 0)
    assert torch.equal(deployed[-1], at[-1])


def test_what_comes_after_the_valley_changes_nothing():
    losses = [2.0, 1.0, 1.1, 1.1, *[5.0] * 7]
    segments, _, deployed = train(SWAD(AGG()), [*losses, 0.1, 0.1, 9.0], 2, 0)
    want = torch.stack(segments[1:4]).mean(0)
    for i in range(len(losses) - 1, len(losses) + 3):
        assert_close(deployed[i], want, rtol=0, atol=1e-12)


def test_a_valley_that_is_all_of_the_training_is_the_plain_mean():
    segments, _, deployed = train(SWAD(AGG()), [1.0] * 12, 3, 0)
    assert_close(deployed[-1], torch.stack(segments).mean(0), rtol=0, atol=1e-12)


def test_the_losses_are_of_the_mean_over_sources(net, weights):
    algorithm = build("agg+swad")
    memory = algorithm.memory(net, weights, 3)
    heard = algorithm.evaluated(memory, torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64))
    assert heard["own.losses"].tolist() == [0.0] * 5 + [3.0]


def test_a_tolerance_below_converge_is_refused():
    with pytest.raises(UsageError, match="tolerance is 2, but it must be at least converge, which is 3"):
        build("agg+swad", tolerance=2).check(build_nets()["an MLP"], 3)

"""Does practice help? Loss on a domain of interest by its place in the path. (The cut figure on relative losses.)"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqdg.algorithms._look_ahead import LookAhead
from seqdg.algorithms.agg import AGG
from seqdg.base.episode import Episode, Params
from seqdg.core import Algorithm, Sequential
from seqdg.nets.net import Net
from seqdg.paper.study import Numbers, Refused, Study, algorithm_of, mean_and_spread, need, of_each, walk
from seqdg.training.sampler import Draws, Sampler
from seqdg.training.stack import Stack
from seqdg.training.upcoming import Upcoming

EPISODES = 16  # on which a loss is taken each time
ELSEWHERE = 7919  # added to a seed: episodes of their own


class Placed(Sampler):
    """The same paths with one source moved to a fixed place, all others in the order in which they were drawn."""

    def __init__(self, seed: int, rows: Sequence[Tensor], batch: int, source: int, place: int) -> None:
        super().__init__(seed, rows, batch)
        self.source, self.place = source, place

    def draw(self, start: int, stop: int) -> Draws:
        drawn = super().draw(start, stop)
        return Draws(*moved(drawn.domain, drawn.rows, self.source, self.place), drawn.key)


def moved(domain: Tensor, rows: Tensor, source: int, place: int) -> tuple[Tensor, Tensor]:
    """domain (step, place) and rows (step, place, batch) with the source at the place."""
    steps, count = domain.shape
    here = (domain == source).nonzero()[:, 1:]
    others = (domain != source).nonzero()[:, 1].reshape(steps, count - 1)
    order = torch.cat([others[:, :place], here, others[:, place:]], 1)
    return domain.gather(1, order), rows.gather(1, order[:, :, None].expand_as(rows))


def ranks(study: Study) -> Numbers:
    """Loss on the domain of interest over the training: with it first, second, ..., last in the path of the sequential
    algorithm; and, with it last, against algorithms with less practice.

    The loss is the one that the algorithm itself takes on that domain: at the weights that its past would lead to.
    """
    interest = study.domain or study.sources[0]
    need(
        interest in study.sources,
        f"The domain of interest is '{interest}', but it must be one that is learned from: {', '.join(study.sources)}.",
    )
    source = study.sources.index(interest)
    last = len(study.sources) - 1

    def curves(name: str, stack: Stack) -> tuple[str, list[Numbers]]:
        kind = _kind(stack.algorithm)
        if kind is None:
            raise Refused(
                f"{name} judges no domain after its past, so a domain's place in the path means nothing to it."
            )
        places = range(last + 1) if kind == "sequential" else [last]
        return kind, [_curve(study, name, source, place) for place in places]

    found, refused = of_each(study, curves)
    return {
        "interest": interest,
        "by_place": {name: each for name, (kind, each) in found.items() if kind == "sequential"},
        "with_it_last": {name: each[-1] for name, (_, each) in found.items()},
        "refused": refused,
    }


def _kind(algorithm: Algorithm) -> str | None:
    if isinstance(algorithm, Sequential) and isinstance(algorithm.base, LookAhead):
        return "sequential"
    return "single" if isinstance(algorithm, LookAhead | AGG) else None


def _curve(study: Study, name: str, source: int, place: int) -> Numbers:
    """Trained with the domain at its place, and judged on other episodes that have it there too."""
    stack = study.stack(name)
    stack.upcoming = Upcoming([Placed(j.seed, j.split.train, j.protocol.batch, source, place) for j in stack.jobs])
    fresh = [Placed(j.seed + ELSEWHERE, j.split.train, j.protocol.batch, source, place) for j in stack.jobs]
    drawn = [sampler.draw(0, EPISODES) for sampler in fresh]
    steps, losses = [], []
    for state in walk(stack, name, study.points, study.tick):
        steps.append(state.step)
        losses.append(_judged(stack, state.params, drawn, place))
    mean, spread = mean_and_spread(torch.stack(losses, 1))
    return {"at": steps, "mean": mean, "spread": spread}


def _judged(stack: Stack, params: Params, drawn: Sequence[Draws], place: int) -> Tensor:
    """(trial,) mean over the episodes."""
    total = []
    progress = torch.zeros(len(stack.jobs), dtype=stack.inputs.dtype, device=stack.inputs.device)

    def one(given: Params, own: Params, episode: Episode) -> Tensor:
        return loss_at(algorithm_of(stack, given), stack.net, own, episode, place)

    for i in range(EPISODES):
        rows = torch.stack([d.rows[i] for d in drawn]).to(stack.inputs.device)
        domain = torch.stack([d.domain[i] for d in drawn]).to(stack.inputs.device)
        key = torch.stack([d.key[i] for d in drawn]).to(stack.inputs.device)
        x, y = stack.inputs.serve(rows)
        total.append(stack.over_trials(one)(stack.numbers, params, Episode(x, y, domain, progress, key)).detach())
    return torch.stack(total).mean(0)


def loss_at(algorithm: Algorithm, net: Net, params: Params, episode: Episode, i: int) -> Tensor:
    """What the algorithm's loss has of the i-th domain of the path, without its weight beta.

    AGG: l(D_i, w). MLDG with D_i as the meta-test domain: l(D_i, w - alpha * grad of the mean over the others).
    S-MLDG: l(D_i, w - alpha_i * grad L_{i-1}(w)), where L_{i-1} is the loss over the path so far. So it is the
    difference that the domain makes to the loss, over beta.
    """
    if isinstance(algorithm, AGG) or i == 0:
        return net.loss(params, episode.minibatch(i))
    if isinstance(algorithm, LookAhead):
        _, beta = algorithm.coefficients(1, 2)
        past = net.losses(params, episode.part(0, i)).mean()
        return (algorithm.loss(net, params, episode.part(0, i + 1)) - past) / beta
    assert isinstance(algorithm, Sequential)
    assert isinstance(algorithm.base, LookAhead)
    so_far = algorithm.base.begin(net, episode)
    for j in range(1, i):
        so_far = algorithm.base.extend(net, so_far, episode, j)
    _, beta = algorithm.base.coefficients(i, episode.domains)
    return (algorithm.base.extend(net, so_far, episode, i)(params) - so_far(params)) / beta

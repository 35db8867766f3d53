"""Does practice help? Loss on a domain of interest by its place in the path. (The cut figure on relative losses.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from seqdg import report
from seqdg.algorithms._look_ahead import LookAhead
from seqdg.algorithms.agg import AGG
from seqdg.base import Episode, Params
from seqdg.core import Algorithm, Sequential, strip_wrappers, with_numbers
from seqdg.nets import Net
from seqdg.paper.study import Numbers, Refused, Study, analyze_each, make_curve, require, trace
from seqdg.training import Draws, Sampler, Stack

EPISODES = 16  # on which a loss is taken each time
ELSEWHERE = 7919  # added to a seed: episodes of their own


class PlacedSampler(Sampler):
    """The same paths with one source moved to a fixed place, all others in the order in which they were drawn."""

    def __init__(self, stack: Stack, source: int, place: int, shift: int = 0) -> None:
        jobs, protocol = stack.jobs, stack.protocol
        seeds, rows = [job.seed + shift for job in jobs], [job.split.train for job in jobs]
        super().__init__(seeds, rows, protocol.batch, device=stack.inputs.device)
        self.source, self.place = source, place

    def draw(self, start: int, stop: int) -> Draws:
        drawn = super().draw(start, stop)
        return Draws(*move_source(drawn.domain, drawn.rows, self.source, self.place), drawn.key)


def move_source(domain: Tensor, rows: Tensor, source: int, place: int) -> tuple[Tensor, Tensor]:
    """Return domain (step, trial, place) and rows (step, trial, place, batch) with the source at the place."""
    here = (domain == source).int().argmax(-1, keepdim=True)
    others = (domain == source).int().argsort(dim=-1, stable=True)[..., :-1]
    order = torch.cat([others[..., :place], here, others[..., place:]], -1)
    return domain.gather(-1, order), rows.gather(-2, order.unsqueeze(-1).expand_as(rows))


def compute(study: Study) -> Numbers:
    """Compute the loss on the domain of interest over the training: with it first, second, ..., last in the path of the
    sequential algorithm; and, with it last, against algorithms with less practice.

    The loss is the one that the algorithm itself takes on that domain: at the weights that its past would lead to.
    """
    interest = study.domain or study.sources[0]
    require(
        interest in study.sources,
        f"The domain of interest is '{interest}', but it must be one that is learned from: {', '.join(study.sources)}.",
    )
    source = study.sources.index(interest)
    last = len(study.sources) - 1

    def judge_each(name: str, stack: Stack) -> tuple[str, list[Numbers]]:
        kind = _classify(stack.algorithm)
        if kind is None:
            raise Refused(
                f"{name} judges no domain after its past, so a domain's place in the path means nothing to it."
            )
        places = range(last + 1) if kind == "sequential" else [last]
        return kind, [_trace_curve(study, name, source, place) for place in places]

    results, refused = analyze_each(study, judge_each)
    return {
        "interest": interest,
        "by_place": {name: each for name, (kind, each) in results.items() if kind == "sequential"},
        "with_it_last": {name: each[-1] for name, (_, each) in results.items()},
        "refused": refused,
    }


def _classify(algorithm: Algorithm) -> str | None:
    algorithm = strip_wrappers(algorithm)
    if isinstance(algorithm, Sequential) and isinstance(algorithm.base, LookAhead):
        return "sequential"
    return "single" if isinstance(algorithm, LookAhead | AGG) else None


def _trace_curve(study: Study, name: str, source: int, place: int) -> Numbers:
    """Train with the domain at its place, and judge it on other episodes that have it there too."""
    stack = study.build_stack(name)
    drawn = PlacedSampler(stack, source, place, shift=ELSEWHERE).draw(0, EPISODES)
    stack = Stack(stack.net, stack.inputs, stack.jobs, sampler=PlacedSampler(stack, source, place))
    steps, losses, _ = trace(study, name, stack, lambda state: _judge(stack, state.params, drawn, place))
    return make_curve(steps, losses)


def _judge(stack: Stack, params: Params, drawn: Draws, place: int) -> Tensor:
    """Return (trial,) the mean over the episodes."""
    losses = []
    progress = torch.zeros(len(stack.jobs), dtype=stack.inputs.dtype, device=stack.inputs.device)

    def judge(numbers: Params, weights: Params, episode: Episode) -> Tensor:
        return compute_loss_at(
            strip_wrappers(with_numbers(stack.algorithm, numbers)), stack.net, weights, episode, place
        )

    for i in range(EPISODES):
        x, y = stack.inputs.serve(drawn.rows[i])
        episode = Episode(x, y, drawn.domain[i], progress, drawn.key[i], rate=progress)
        losses.append(stack.map_over_trials(judge)(stack.numbers, params, episode).detach())
    return torch.stack(losses).mean(0)


def compute_loss_at(algorithm: Algorithm, net: Net, params: Params, episode: Episode, i: int) -> Tensor:
    """Return what the algorithm's loss has of the i-th domain of the path, without its weight beta.

    AGG: l(D_i, w). MLDG with D_i as the meta-test domain: l(D_i, w - alpha * grad of the others' mean or sum).
    S-MLDG: l(D_i, w - alpha_i * grad L_{i-1}(w)), where L_{i-1} is the loss over the path so far. So it is the
    difference that the domain makes to the loss, over beta.
    """
    if isinstance(algorithm, AGG) or i == 0:
        return net.loss(params, episode.minibatch(i))
    if isinstance(algorithm, LookAhead):
        path = episode.part(0, i + 1)
        with_it, past = (replace(algorithm, beta=beta).loss(net, params, path) for beta in (1.0, 0.0))
        return with_it - past
    assert isinstance(algorithm, Sequential)
    assert isinstance(algorithm.base, LookAhead)
    so_far = algorithm.base.begin(net, episode)
    for j in range(1, i):
        so_far = algorithm.base.extend(net, so_far, episode, j)
    _, beta = algorithm.base.coefficients(i, episode.domains)
    return (algorithm.base.extend(net, so_far, episode, i)(params) - so_far(params)) / beta


PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show the loss on the domain of interest by its place in the path."""
    numbers = payload["numbers"]
    interest, by_place, last = numbers["interest"], numbers["by_place"], numbers["with_it_last"]
    figures, tables = [], []
    for name, curves in by_place.items():
        labels = [_name_place(i, len(curves)) for i in range(len(curves))]
        drawn = dict(zip(labels, curves, strict=True))
        caption = f"Loss that {name} takes on {interest}, at the weights that the domains before it lead to."
        title = f"{name} by place of {interest}"
        figures.append(_draw_figure(f"ranks-{name}", title, drawn, caption, report.make_styles(labels)))
        tables.append(_make_table(f"{name}: loss on {interest} by its place", drawn))
    if last:
        caption = f"{interest} last in the path, or the meta-test domain; agg knows no order."
        title = f"With {interest} last"
        figures.append(_draw_figure("ranks-last", title, last, caption, report.pick_styles(looks, last)))
        tables.append(_make_table(f"Loss on {interest} with it last", last))
    about, findings = f"Domain of interest: {interest}.", _state_findings(numbers)
    return report.make_section(payload, "ranks", "Practice: place in the path", figures, tables, findings, about)


def _name_place(i: int, count: int) -> str:
    name = PLACES[i] if i < len(PLACES) else str(i + 1)
    return f"{name}, last" if i == count - 1 else name


def _make_table(caption: str, curves: Mapping[str, Any]) -> report.Table:
    rows = [(name, [f"{_average_later(c):.3f}", f"{c['mean'][-1]:.3f}"]) for name, c in curves.items()]
    return report.Table(caption, ("", "mean, second half", "at the end"), rows)


def _average_later(curve: Mapping[str, Any]) -> float:
    """Return the mean over the second half of the training."""
    return fmean(curve["mean"][len(curve["mean"]) // 2 :])


def _draw_figure(name: str, title: str, curves: Mapping[str, Any], caption: str, looks: report.Looks) -> report.Figure:
    (first, base), *others = curves.items()
    panels = [report.draw_lines({n: (c["at"], c["mean"]) for n, c in curves.items()}, "step", "loss", looks, "Loss")]
    if others:
        relative = {n: (c["at"], [a - b for a, b in zip(c["mean"], base["mean"], strict=True)]) for n, c in others}
        panels.append(report.draw_lines(relative, "step", "difference", looks, f"Minus {first}", level=(0.0, "")))
    return report.Figure(name, title, panels, caption, looks, has_legend=True)


def _state_findings(numbers: Mapping[str, Any]) -> list[str]:
    sentences = []
    for name, curves in numbers["by_place"].items():
        means = [_average_later(c) for c in curves]
        falling = all(a > b for a, b in pairwise(means))
        lower = "is lower when it is last" if means[-1] < means[0] else "does not fall"
        sentences.append(
            f"{name}: the loss on {numbers['interest']} {'falls with every place' if falling else lower} "
            f"({means[0]:.3f} first, {means[-1]:.3f} last, means over the second half of the training)."
        )
    last = {n: _average_later(c) for n, c in numbers["with_it_last"].items()}
    if len(last) > 1:
        order = sorted(last, key=lambda n: last[n])
        sentences.append("With it last, from lowest: " + ", ".join(f"{n} {last[n]:.3f}" for n in order) + ".")
    return sentences


report.register_analysis(report.AnalysisKind(
    "ranks", compute, show, ("agg", "fo-mldg", "fo-s-mldg"), trials=2, steps=200, order=40
))  # fmt: skip

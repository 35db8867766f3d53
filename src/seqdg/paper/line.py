"""How flat is it where averaged weights lie? The loss along the line from the last weights to their average, and from
one algorithm's average to another's (Goodfellow et al., "Qualitatively characterizing neural network optimization
problems", ICLR 2015; Izmailov et al., UAI 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqdg import report
from seqdg.base import Params, tree
from seqdg.bench import Trial
from seqdg.core import Averaging
from seqdg.paper.study import Numbers, Refused, Study, analyze_each, is_one_net, make_curves, walk
from seqdg.training import Stack

MOST = 256  # rows of each source, and of the held-out domain four times as many
POSITIONS = tuple(round(-0.5 + 0.1 * i, 1) for i in range(21))  # on the line: 0 the last weights, 1 their average


def compute(study: Study) -> Numbers:
    """Compute, for each algorithm with an average, loss and accuracy at

        w(t) = (1 - t) * w_last + t * w_average,   t from -0.5 to 1.5

    on training rows of the sources and on the held-out domain; and, from the first algorithm's average to each of the
    others', the same from t = 0 to 1. Seeds share their first weights. An algorithm without an average is given the
    moving one (`+ema`); where that chain is analyzed too, its line is traced once.
    """
    ends: dict[str, tuple[Stack, Params]] = {}
    averaged = {name: _add_average(study.plan[name][0]) for name in study.names}
    inside_averages = replace(study, algorithms=list(averaged.values()))

    def trace(name: str, plain: Stack) -> Numbers:
        if averaged[name] != name and averaged[name] in study.names:
            raise Refused(f"{name} and {averaged[name]} are one training: the line of both is shown for the latter.")
        stack = plain if averaged[name] == name else inside_averages.build_stack(averaged[name])
        last, average = _train(study, name, stack)
        ends[name] = stack, average
        squares = [(average[n] - last[n]).square().flatten(1).sum(1) for n in stack.net.names]
        distance = torch.stack(squares).sum(0).sqrt()
        return {**trace_line(stack, last, average, POSITIONS), "distance": float(distance.mean())}

    curves, refused = analyze_each(study, trace)
    between: Numbers = {}
    if curves:
        first, *others = curves
        inside = [t for t in POSITIONS if 0 <= t <= 1]
        between = {name: trace_line(ends[name][0], ends[first][1], ends[name][1], inside) for name in others}
    return {"curves": curves, "between": between, "refused": refused}


def _add_average(trial: Trial) -> str:
    """Return the algorithm's name with an average at its end."""
    name = trial.short_name
    return name if isinstance(trial.build_algorithm(), Averaging) else f"{name}+ema"


def _train(study: Study, name: str, stack: Stack) -> tuple[Params, Params]:
    """Return (trial, ...) the last weights and their average."""
    if not is_one_net(stack, stack.deploy(stack.start(), 0)):
        raise Refused(f"{name} deploys several networks, so there is no one line between its weights.")
    *_, state = walk(stack, name, 1, study.on_progress)
    return stack.deploy(state, 0), stack.deploy(state, 1)


def trace_line(stack: Stack, start: Params, end: Params, positions: Sequence[float]) -> Numbers:
    """Return loss on the sources, loss and accuracy on the held-out domain at points of the line, means over trials."""
    rows = [_choose_rows(stack, job.split.train, MOST) for job in stack.jobs]
    outside = [_choose_rows(stack, job.split.test, 4 * MOST) for job in stack.jobs]
    mixed = [name for name, value in end.items() if name in start and value.is_floating_point()]
    measured = []
    for t in positions:
        weights = {**end, **tree.mix({n: start[n] for n in mixed}, {n: end[n] for n in mixed}, t)}
        inside, _ = _measure(stack, weights, torch.stack(rows))
        measured.append((inside, *_measure(stack, weights, torch.stack(outside))))
    return make_curves(positions, measured, ("source", "held_out", "accuracy"))


def _choose_rows(stack: Stack, domains: Sequence[Tensor], most: int) -> Tensor:
    """Choose as many rows of every domain, at even distances, as every trial has."""
    every = [domain for job in stack.jobs for domain in (*job.split.train, *job.split.test)]
    count = min(most, *(len(domain) for domain in every))
    return torch.cat([d[torch.linspace(0, len(d) - 1, count).long()] for d in domains])


def _measure(stack: Stack, weights: Params, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return (trial,) the loss and the accuracy in percent on rows (trial, row)."""
    logits, y = stack.predict(stack.recalibrate(weights), rows)
    log_p = logits.double().log_softmax(-1)
    loss = -log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1).mean(1)
    return loss.cpu(), 100 * (logits.argmax(-1) == y).double().mean(1).cpu()


def find_rise(curve: Mapping[str, Any]) -> tuple[float, float]:
    """Return how far the loss on the sources rises half a length to either side of the last weights and of their
    average, a mean of both sides: flat is near 0."""
    at = {round(t, 1): loss for t, loss in zip(curve["at"], curve["source"], strict=True)}
    last, average = ((at[round(t - 0.5, 1)] + at[round(t + 0.5, 1)]) / 2 - at[t] for t in (0.0, 1.0))
    return last, average


def show(payload: report.Payload, looks: report.Looks) -> report.Section:
    """Show the loss along lines between weights."""
    numbers = payload["numbers"]
    curves = numbers["curves"]
    title, looks = "Along the line to the average", report.pick_styles(looks, curves)
    if not curves:
        return report.make_section(payload, "line", title, [], [])
    across = "0: last weights, 1: their average"
    panels = [
        report.draw_lines({n: (c["at"], c[key]) for n, c in curves.items()}, across, words, looks, heading)
        for key, words, heading in (
            ("source", "loss", "Loss on the sources"),
            ("held_out", "loss", "Loss on the held-out domain"),
            ("accuracy", "accuracy in %", "Accuracy on the held-out domain"),
        )
    ]
    rows = []
    for name, c in curves.items():
        last, average = c["at"].index(0.0), c["at"].index(1.0)
        spread = c["accuracy_spread"] or [None] * len(c["at"])
        reached = [report.format_mean(c["accuracy"][i], spread[i], 1) for i in (last, average)]
        rises = [report.format_significant(rise, "+") for rise in find_rise(c)]
        rows.append((name, [*reached, *rises, report.format_significant(c["distance"])]))
    head = ["algorithm", "accuracy, last", "average", "rise around the last", "around the average", "distance"]
    tables = [report.Table("Last weights and their average", head, rows)]
    if numbers["between"]:
        first = next(iter(curves))
        barriers = [
            (name, [report.format_significant(_find_barrier(c), "+")]) for name, c in numbers["between"].items()
        ]
        over = f"From the average of {first}: barrier of the loss on the sources"
        tables.append(report.Table(over, ["to", "barrier"], barriers))
    caption = (
        "Rise: how far the loss on the sources rises half the distance to either side, a mean of both. Barrier: how "
        "far it rises above the straight line between two averages of the same seed; 0 where they lie in one valley."
    )
    figure = report.Figure("line", title, panels, caption, looks, has_legend=True)
    return report.make_section(payload, "line", title, [figure], tables, _state_findings(curves))


def _find_barrier(curve: Mapping[str, Any]) -> float:
    """Return the most by which the loss lies above the straight line between its ends."""
    first, last = curve["source"][0], curve["source"][-1]
    rises: list[float] = [
        loss - (1 - t) * first - t * last for t, loss in zip(curve["at"], curve["source"], strict=True)
    ]
    return max(rises)


def _state_findings(curves: Mapping[str, Any]) -> list[str]:
    flatter = [name for name, c in curves.items() if find_rise(c)[1] < find_rise(c)[0]]
    return [f"The loss on the sources is flatter around the average than around the last weights for {len(flatter)} of "
            f"{len(curves)} algorithms."]  # fmt: skip


report.register_analysis(
    report.AnalysisKind("line", compute, show, ("agg", "coral", "fo-s-mldg", "ffo-s-mldg"), trials=2, order=55)
)

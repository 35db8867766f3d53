"""SWAD: the mean of the weights over a valley of the validation loss, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqdg.base import Params, UsageError, tree
from seqdg.core import Averaging, Number, Range, register, setting
from seqdg.nets import Net


@register("swad")
@dataclass(frozen=True)
class SWAD(Averaging):
    """Stochastic weight averaging, densely (Cha et al., "SWAD", NeurIPS 2021).

    Between two evaluations lies a segment of steps with its mean weights m_i, and l_i is the loss at its end, the mean
    over the sources that have validation rows. The mean of m_s, ..., m_e is deployed:

        s: the first with l_s = min(l_s, ..., l_{s + converge - 1});   limit = (1 + ratio) * mean of these losses
        e: the last before min(l_i, ..., l_{i + tolerance - 1}) > limit, or the last of all

    This is Algorithm 1 of the paper, with a segment (the weights before each of its steps) for its iteration and
    1 + ratio for its r. Until s is known, the weights as they are are deployed. The authors' program differs: its
    valley may begin up to two segments before s, it then counts segment s twice, and at the end of the training it
    leaves out last segments that are all above the limit. Evaluate often: the paper does every 50 to 100 of 5,000
    steps.

    base: the algorithm whose weights are averaged.
    converge: evaluations in which the loss does not fall below that of the first, so that the valley starts there.
    tolerance: evaluations above the limit, so that the valley ended before the first of them.
    ratio: by how much of itself the loss may rise.
    """

    converge: int = setting(3, least=2)
    tolerance: int = setting(6, least=1)
    ratio: Number = setting(0.3, least=0.0, search=Range(0.1, 0.5))
    needs_evaluations: ClassVar[int] = 9

    def check(self, net: Net, sources: int) -> None:
        super().check(net, sources)
        if self.tolerance < self.converge:
            raise UsageError(
                f"tolerance is {self.tolerance}, but it must be at least converge, which is {self.converge}."
            )

    def begin(self, params: Params) -> Params:
        zero = next(iter(params.values())).new_zeros(())
        queue = {name: torch.stack([w] * self.tolerance) for name, w in params.items()}
        return {
            **tree.with_prefix(params, "segment."),
            "steps": zero,  # of the segment
            **tree.with_prefix(queue, "queue."),  # the last segments, of which it is not yet known whether they count
            "losses": zero.expand(self.tolerance).clone(),
            "counts": zero.expand(self.tolerance).clone(),  # 1 for a segment from s on
            "heard": zero,  # evaluations so far
            **tree.with_prefix(params, "valley."),  # the mean of the segments that count for certain
            "length": zero,  # how many those are
            "limit": zero,
            "ended": zero,
        }

    def observe(self, seen: Params, params: Params, progress: Tensor) -> Params:
        steps = seen["steps"]
        mean = tree.mix(params, tree.under_prefix(seen, "segment."), steps / (steps + 1))
        return {**seen, **tree.with_prefix(mean, "segment."), "steps": steps + 1}

    def judge(self, seen: Params, losses: Tensor) -> Params:
        zero, heard = torch.zeros_like(seen["heard"]), seen["heard"] + 1
        queue, recent, counts = tree.under_prefix(seen, "queue."), seen["losses"], seen["counts"]
        started = (counts.sum() + seen["length"] > 0).to(heard)
        # The oldest segment leaves the queue; it joins the valley if it counts and the valley has not ended.
        joins = counts[0] * (1 - seen["ended"])
        length = seen["length"] + joins
        oldest = {name: w[0] for name, w in queue.items()}
        share = torch.where(joins > 0, (length - 1) / length.clamp(min=1), 1.0)
        valley = tree.mix(oldest, tree.under_prefix(seen, "valley."), share)
        segment = tree.under_prefix(seen, "segment.")
        queue = {name: torch.cat([w[1:], segment[name].unsqueeze(0)]) for name, w in queue.items()}
        recent = torch.cat([recent[1:], losses.nanmean().to(recent).unsqueeze(0)])
        # The valley starts where the first of the last `converge` losses is the least of them.
        window = recent[-self.converge :]
        starts = (1 - started) * (heard >= self.converge).to(heard) * (window[0] <= window.min()).to(heard)
        limit = torch.where(starts > 0, (1 + self.ratio) * window.mean(), seen["limit"])
        inside = (torch.arange(self.tolerance, device=counts.device) >= self.tolerance - self.converge).to(counts)
        counts = torch.where(starts > 0, inside, torch.cat([counts[1:], started.unsqueeze(0)]))
        ended = torch.where((started > 0) & (recent.min() > limit), torch.ones_like(zero), seen["ended"])
        return {
            **tree.with_prefix(segment, "segment."), "steps": zero,
            **tree.with_prefix(queue, "queue."), "losses": recent, "counts": counts, "heard": heard,
            **tree.with_prefix(valley, "valley."), "length": length, "limit": limit, "ended": ended,
        }  # fmt: skip

    def average(self, seen: Params, params: Params) -> Params:
        waiting = seen["counts"] * (1 - seen["ended"])
        total = seen["length"] + waiting.sum()
        valley, queue = tree.under_prefix(seen, "valley."), tree.under_prefix(seen, "queue.")
        scale, started = total.clamp(min=1), total > 0
        return {
            name: torch.where(
                started, (seen["length"] * valley[name] + torch.tensordot(waiting, queue[name], 1)) / scale, w
            )
            for name, w in params.items()
        }

"""SMA: the plain mean of the weights from some step on, around any algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from seqdg.base import Params, tree
from seqdg.core import Averaging, Number, Range, register, setting

COUNT = "count"


@register("sma")
@dataclass(frozen=True)
class SMA(Averaging):
    """The mean of the weights from some step on (Arpit et al., "Ensemble of averages", NeurIPS 2022).

        m_t = mean of w_s, ..., w_t,   where s is the first step with progress >= since;   before it, m_t = w_t

    The paper starts at step 100 of 5,000; a short training wants to get somewhere first, hence the later default. In an
    algorithm of several stages the mean is over the last.

    base: the algorithm whose weights are averaged.
    since: the share of the steps after which averaging starts.
    """

    since: Number = setting(0.3, least=0.0, most=1.0, search=Range(0.02, 0.7, log=False))

    def begin(self, params: Params) -> Params:
        first = next(iter(params.values()))
        return {**tree.with_prefix(params, "mean."), COUNT: first.new_zeros(())}

    def observe(self, seen: Params, params: Params, progress: Tensor) -> Params:
        started = (progress >= self.since).to(seen[COUNT].dtype)
        return {**tree.with_prefix(self.average(seen, params), "mean."), COUNT: (seen[COUNT] + 1) * started}

    def average(self, seen: Params, params: Params) -> Params:
        count = seen[COUNT]
        return tree.mix(params, tree.under_prefix(seen, "mean."), count / (count + 1))

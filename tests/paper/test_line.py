"""The loss along lines between weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from seqdg.paper.line import POSITIONS, compute, find_rise, trace_line


def test_the_ends_of_the_line_are_the_last_weights_and_their_average(dataset, study):
    made = study(dataset(), ["agg+sma"], steps=12, trials=2, settings=["agg.precision=float64"])
    stack = made.build_stack("agg+sma")
    state = stack.advance(stack.start(), 12)
    curve = compute(made)["curves"]["agg+sma"]
    assert curve["at"] == list(POSITIONS)
    for view, place in ((0, 0.0), (1, 1.0)):
        weights = stack.deploy(state, view)
        losses = []
        for k, job in enumerate(stack.jobs):
            every = [d for j in stack.jobs for d in (*j.split.train, *j.split.test)]
            count = min(256, *(len(d) for d in every))
            rows = torch.cat([d[torch.linspace(0, len(d) - 1, count).long()] for d in job.split.train])
            x, y = made.dataset.x[rows].double(), made.dataset.y[rows]
            losses.append(float(cross_entropy(stack.net({n: w[k] for n, w in weights.items()}, x), y)))
        assert curve["source"][curve["at"].index(place)] == pytest.approx(sum(losses) / 2, rel=1e-6)


def test_a_line_from_weights_to_themselves_is_flat(dataset, study):
    stack = study(dataset(), ["agg"], steps=3).build_stack("agg")
    weights = stack.deploy(stack.start())
    curve = trace_line(stack, weights, weights, POSITIONS)
    assert curve["source"] == pytest.approx([curve["source"][0]] * len(POSITIONS), rel=1e-5)
    assert find_rise(curve) == pytest.approx((0.0, 0.0), abs=1e-5)


def test_the_rise_of_a_parabola_is_a_quarter_of_its_curvature():
    curve = {"at": list(POSITIONS), "source": [3.0 * (t - 0.7) ** 2 + 1.0 for t in POSITIONS]}
    assert find_rise(curve) == pytest.approx((0.75, 0.75))


def test_an_algorithm_without_an_average_is_given_a_moving_one(dataset, study):
    settings = ["agg.precision=float64"]
    plain = compute(study(dataset(), ["agg"], steps=8, settings=settings))["curves"]["agg"]
    chain = compute(study(dataset(), ["agg+ema"], steps=8, settings=settings))["curves"]["agg+ema"]
    assert plain["source"] == pytest.approx(chain["source"], rel=1e-9)
    assert plain["distance"] > 0


@pytest.mark.parametrize("names", [["agg", "agg+ema"], ["agg+ema", "agg"]])
def test_the_line_of_one_training_is_shown_once(dataset, study, names):
    numbers = compute(study(dataset(), names, steps=4))
    assert list(numbers["curves"]) == ["agg+ema"]
    assert not numbers["between"]
    assert numbers["refused"] == {"agg": "agg and agg+ema are one training: the line of both is shown for the latter."}


def test_averages_of_two_algorithms_are_joined_by_a_line(dataset, study):
    names = ["agg", "fo-s-mldg"]
    numbers = compute(study(dataset(), names, steps=8, settings=[f"{name}.precision=float64" for name in names]))
    line = numbers["between"]["fo-s-mldg"]
    ends = [numbers["curves"][name]["source"][POSITIONS.index(1.0)] for name in names]
    assert [line["source"][0], line["source"][-1]] == pytest.approx(ends, rel=1e-9)

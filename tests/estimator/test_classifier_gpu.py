"""The estimator and the comparison on a GPU, where a training step is captured as a graph."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import seqdg

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("algorithm", ["agg", "fo-s-mldg", "ensemble"])
def test_a_fit_on_a_gpu_is_that_on_a_cpu_to_rounding(hospitals, algorithm, caplog):
    x, y, domains = hospitals
    here, there = (
        seqdg.DomainClassifier(algorithm, steps=40, hidden=(16,), class_weight="balanced", validation=0, device=device)
        .fit(x, y, domains=domains)
        .predict_proba(x)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(here, there, atol=2e-2)
    assert not caplog.records, "not as one graph"


def test_a_comparison_on_a_gpu_preprocesses_every_trial_by_its_own_sources(hospitals, caplog):
    x, y, domains = hospitals
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for device in ("cpu", "cuda"):
            for weight in (None, "balanced"):
                estimator = seqdg.DomainClassifier(steps=40, hidden=(16,), class_weight=weight, device=device)
                found[device, weight] = seqdg.compare(
                    x,
                    y,
                    domains,
                    ["agg", "fo-s-mldg"],
                    estimator=estimator,
                    criterion="log_loss",
                    seeds=1,
                    ensemble=False,
                )
    for weight in (None, "balanced"):
        here, there = found["cpu", weight], found["cuda", weight]
        for name in ("agg", "fo-s-mldg"):
            ours, theirs = here.scores()[name], there.scores()[name]
            np.testing.assert_allclose(list(ours.values()), list(theirs.values()), atol=2e-2)
    assert not caplog.records, "not as one graph"


def test_images_on_a_gpu_with_a_net_of_one_s_own():
    from torch import nn

    draw = np.random.default_rng(0)
    y, domains = np.arange(96) % 2, np.arange(96) // 32
    x = (draw.integers(0, 120, (96, 3, 8, 8)) + 120 * y[:, None, None, None]).astype(np.uint8)
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    model = seqdg.DomainClassifier(net=own, steps=40, lr=0.02, device="cuda").fit(x, y, domains=domains)
    assert model.score(x, y) > 0.9

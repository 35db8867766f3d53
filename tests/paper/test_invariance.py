from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import seqdg
from seqdg.base.episode import Episode
from seqdg.nets import Net, mlp
from seqdg.paper.invariance import BIAS, WEIGHT, DomainClassifier, compute, compute_domain_losses, probe

LN3 = math.log(3)


def test_features_that_know_no_domain_give_the_probe_a_loss_near_ln_n():
    rng = np.random.default_rng(0)
    assert probe([rng.normal(size=(200, 8)) for _ in range(3)]) == pytest.approx(LN3, abs=0.02)


def test_features_that_are_the_domain_give_the_probe_a_loss_near_0():
    rng = np.random.default_rng(0)
    assert probe([20 * np.eye(8)[k] + rng.normal(size=(200, 8)) for k in range(3)]) < 0.02


def test_domains_of_unequal_size_still_have_ln_n_as_chance():
    rng = np.random.default_rng(0)
    assert probe([rng.normal(size=(n, 8)) for n in (400, 100, 50)]) == pytest.approx(LN3, abs=0.03)


def test_more_features_than_rows_do_not_make_domains_seem_told_apart_or_worse_than_chance():
    rng = np.random.default_rng(0)
    assert probe([rng.normal(size=(30, 100)) for _ in range(3)]) == pytest.approx(LN3, abs=0.03)


@pytest.mark.slow
def test_a_planted_invariant_feature_gives_a_domain_loss_near_ln_n(dataset, study):
    found = compute(study(dataset(code=0.0), ["agg", "fo-s-mldg"], trials=2))
    assert found["chance"] == pytest.approx(LN3)
    assert found["first"]["mean"][0] == pytest.approx(LN3, abs=1e-5)  # the classifier starts at 0
    assert found["first"]["mean"] == pytest.approx([LN3] * 5, abs=0.1)
    for name in ("agg", "fo-s-mldg"):
        assert found["probe"][name]["mean"] == pytest.approx(LN3, abs=0.06)
        # A classifier that stays is confused by features that move, so it may end above chance, but not below.
        assert min(found["second"][name]["mean"]) > LN3 - 0.1


def test_a_domain_coded_feature_is_told_with_a_loss_near_0(dataset, study):
    found = compute(study(dataset(code=12.0), ["agg"], steps=150, settings=["agg.lr=1e-6"]))
    assert found["first"]["mean"][0] == pytest.approx(LN3, abs=1e-5)
    assert found["first"]["mean"][-1] < 0.05
    assert found["second"]["agg"]["mean"][0] == pytest.approx(found["first"]["mean"][-1], abs=1e-5)
    assert found["probe"]["agg"]["mean"] < 0.05  # class training at this rate leaves the features as they are


def test_an_ensemble_has_no_one_layer_and_says_so(dataset, study):
    found = compute(study(dataset(), ["agg", "ensemble"]))
    assert list(found["second"]) == ["agg"]
    assert found["refused"]["ensemble"].startswith("ensemble deploys several nets")


@pytest.fixture
def net():
    return Net(mlp(6, (5, 4), 3), "none").to(dtype=torch.float64)


@pytest.fixture
def episode():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 7, 6, generator=g, dtype=torch.float64)
    return Episode(x, torch.randint(3, (3, 7), generator=g), torch.tensor([2, 0, 1]), torch.tensor(0.0))


def test_the_domain_loss_is_the_mean_log_loss_of_the_right_domain_whatever_the_path(net, episode):
    g = torch.Generator().manual_seed(1)
    params = DomainClassifier().init(net, net.params(), 3, g)
    params[WEIGHT] = torch.randn(3, 4, generator=g, dtype=torch.float64)
    params[BIAS] = torch.randn(3, generator=g, dtype=torch.float64)
    want = []
    for row, truth in enumerate((2, 0, 1)):
        logits = net.features(params, episode.x[row]) @ params[WEIGHT].T + params[BIAS]
        want.append(-logits.log_softmax(-1)[:, truth].mean())
    torch.testing.assert_close(compute_domain_losses(net, params, params, episode.x, episode.domain), torch.stack(want))


def test_the_first_phase_leaves_the_head_for_the_classes_alone(net, episode):
    params = DomainClassifier().init(net, net.params(), 3, torch.Generator())
    direction, value = DomainClassifier().gradient(net, params, episode)
    assert set(direction) == set(params) - set(net.head_names)
    assert float(value) == pytest.approx(LN3)
    assert isinstance(DomainClassifier(), seqdg.Algorithm)

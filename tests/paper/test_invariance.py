from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.func import vmap

import seqdg
from seqdg.base import Episode
from seqdg.bench import RowsInMemory, Session, load_benchmark
from seqdg.data import Dataset
from seqdg.nets import Net, NetSpec, mlp
from seqdg.paper import Study
from seqdg.paper.invariance import (
    BIAS,
    WEIGHT,
    DomainClassifier,
    _draw_rows,
    _tell_domain,
    _train_first_phase,
    compute,
    probe,
    show,
)
from seqdg.report import make_styles
from seqdg.training import Protocol

LN3 = math.log(3)


def compute_domain_losses(net, params, classifier, x, domain):
    """(domain,) The mean loss of telling each domain by the features of its inputs (domain, row, *input)."""
    return vmap(lambda rows, truth: _tell_domain(net.features(params, rows), classifier, truth))(x, domain)


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
    assert found["refused"]["ensemble"].startswith("ensemble deploys several networks")


@pytest.fixture(scope="module")
def with_batchnorm():
    """A study of domains that differ in the sign of a product of two inputs, which no normalization removes, on a net
    that normalizes by minibatches."""
    rng = np.random.default_rng(0)
    rows, n = 240, 960
    y, domain = rng.integers(0, 3, n), np.repeat(np.arange(4), rows)
    x = rng.normal(0, 0.2, (n, 12))
    x[np.arange(n), y] += 1.0
    signs = rng.choice([-1.0, 1.0], (n, 3))
    x[:, 6:9] += 2 * signs
    x[:, 9] += 2 * signs[:, 0] * np.where(domain == 0, 1, -1)
    x[:, 10] += 2 * signs[:, 1] * np.where(domain == 1, 1, -1)
    x[:, 3:6] += np.array([0.0, 1.0, 2.0, 3.0])[domain][:, None]  # what pooled statistics move
    data = Dataset("planted", tuple("abcd"), ("x", "y", "z"), torch.from_numpy(x).float(), torch.from_numpy(y),
                   torch.from_numpy(domain), fingerprint="signs")  # fmt: skip
    benchmark = replace(
        load_benchmark("rotated-mnist"), name="signs", net=NetSpec("mlp", hidden=(32, 16), batchnorm=True), tables={},
        batchnorm="recalibrate", protocol=Protocol(test="split", steps=150, batch=16, evaluations=2, lr=0.1),
    )  # fmt: skip
    task = replace(benchmark.make_task(), rows=RowsInMemory(data))
    return Study(benchmark, Session(task), ["agg"], "d", steps=40, first_steps=150, points=2)


def test_the_first_phase_is_judged_with_the_statistics_that_it_was_trained_with(with_batchnorm):
    study = with_batchnorm
    stack = study.build_stack("agg")
    curve, taught = _train_first_phase(study, stack)
    weights = {name: w[0] for name, w in taught.items()}
    rows = torch.stack([_draw_rows(stack.jobs[0], k, 16) for k in range(3)])
    minibatches = []
    for part in torch.split(rows, 16, 1):
        x = stack.inputs.serve(part.flatten()[None])[0][0].reshape(3, 16, -1)
        minibatches.append(compute_domain_losses(stack.net, weights, weights, x, torch.arange(3)).mean())
    judged = curve["mean"]
    assert curve["at"] == [0, 75, 150]
    assert judged[0] == pytest.approx(LN3, abs=1e-5)
    assert judged[-1] == pytest.approx(float(torch.stack(minibatches).mean()), abs=1e-5)
    assert judged[-1] < 0.6


def test_both_phases_meet_and_have_their_own_lengths(with_batchnorm):
    found = compute(with_batchnorm)
    assert found["first"]["at"] == [0, 75, 150]
    assert found["second"]["agg"]["at"] == [0, 20, 40]
    assert found["second"]["agg"]["mean"][0] == pytest.approx(found["first"]["mean"][-1], abs=1e-5)
    payload = {"of": {**with_batchnorm.describe(), "domain": None}, "numbers": found, "command": ""}
    assert payload["of"]["first_steps"] == 150
    assert (
        show(payload, make_styles(["agg"]))
        .text[0]
        .endswith("One seed, 40 steps. Before, 150 of the domain classifier.")
    )


def test_rows_are_drawn_from_all_of_a_source_and_in_whole_minibatches():
    job = SimpleNamespace(split=SimpleNamespace(train=(torch.arange(1000, 2000), torch.arange(7))), seed=3)
    rows = _draw_rows(job, 0, batch=32)
    assert len(rows) == 384 == len(set(rows.tolist()))
    assert rows.min() < 1100
    assert rows.max() >= 1900
    assert len(_draw_rows(job, 0, batch=1)) == 400
    assert sorted(_draw_rows(job, 1, batch=32).tolist()) == list(range(7))


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

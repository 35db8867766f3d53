"""Weights of rows: an integer weight is a repeated row, a constant one changes nothing, all algorithms feel them."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from torch.nn.functional import cross_entropy

import seqdg
from seqdg.base import UsageError
from seqdg.core import build, list_algorithms
from seqdg.testing import Case, build_nets, find_source_count
from seqdg.training import NumberLoss, RowWeighted, WeightedCrossEntropy

REFUSING = [name for name in list_algorithms() if build(name).hard_labels]
WRAPPED = ("agg+mixup", "agg+sam", "fo-s-mldg+sagm", "fo-s-mldg+mixup+sam")
NAMES = [*(n for n in list_algorithms() if n not in REFUSING), *WRAPPED]


def quick(name="agg", **how):
    return seqdg.DomainClassifier(name, **{"steps": 10, "hidden": (4,), "evaluations": 2, "device": "cpu", **how})


def draw_rows(rows=24, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, 3, 1))
    return x, np.arange(rows) % 2, np.repeat(["a", "b"], rows // 2), draw.integers(1, 4, rows)


def list_weights(model):
    return {name: p.tolist() for name, p in model.model_.params.items()}


@pytest.mark.parametrize("criterion", [cross_entropy, WeightedCrossEntropy(torch.tensor([0.5, 1.0, 2.0]).double())])
def test_the_loss_is_the_mean_of_weight_times_loss_row_by_row(criterion):
    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(5, 3, generator=g, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    weight = torch.tensor([1.0, 0.0, 2.5, 1.0, 0.5], dtype=torch.float64)
    factor = getattr(criterion, "weight", torch.ones(3)).double()
    total = 0.0
    for i in range(5):
        p = torch.exp(logits[i, y[i]]) / torch.exp(logits[i]).sum()
        total += float(weight[i] * factor[y[i]] * -torch.log(p))
    found = RowWeighted(criterion)(logits, torch.stack([y.double(), weight], -1))
    assert float(found) == pytest.approx(total / 5, rel=1e-12)


def test_numbers_are_weighted_too():
    outputs, y = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([0.0, 0.0, 4.0])
    weighted = RowWeighted(NumberLoss("squared"))
    assert weighted.is_regression
    assert float(weighted(outputs, torch.stack([y, torch.tensor([1.0, 0.5, 3.0])], -1))) == pytest.approx(
        (1 + 2 + 3) / 3
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_weights_reach_every_algorithm_that_learns_by_the_loss(name):
    """With weights of 1 the direction is the one without; with others it is another."""
    algorithm = build(name)
    net = next(iter(build_nets(algorithm.needs_points).values()))
    case = Case(algorithm, net, find_source_count(algorithm, net))
    params, episode = case.draw_weights(), case.draw_episode()
    weight = torch.rand(episode.y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    weighted, moved = net.with_criterion(RowWeighted(net.criterion)), False
    for stage in range(len(case.stages)):
        packed = [
            episode._replace(y=torch.stack([episode.y.double(), w], -1)) for w in (torch.ones_like(weight), weight)
        ]
        plain = case.compute_step(stage, params, episode)[0]
        ones, other = (replace(case, net=weighted).compute_step(stage, params, e)[0] for e in packed)
        for parameter, value in plain.items():
            assert torch.allclose(ones[parameter], value, rtol=1e-7, atol=1e-9), parameter
            moved |= not torch.allclose(other[parameter], value, rtol=1e-5, atol=1e-8)
    assert moved


def test_algorithms_that_read_labels_past_the_loss_are_refused_in_a_sentence(hospitals):
    assert {"ccsa", "selfreg", "cdann", "rsc", "cad"} <= set(REFUSING)
    x, y, domains = hospitals
    weight = np.arange(len(y)) + 1.0
    with pytest.raises(UsageError, match="cdann reads the label of each row outside the loss"):
        quick("cdann").fit(x, y, domains=domains, sample_weight=weight)
    with pytest.raises(UsageError, match="cdann reads the label"):
        seqdg.compare(x, y, domains, ["cdann"], estimator=quick(), seeds=1, sample_weight=weight)
    with pytest.raises(UsageError, match="knn weighs no rows"):
        quick("knn").fit(x, y, domains=domains, sample_weight=weight)


@pytest.mark.parametrize("name", ["agg", "fo-s-mldg", "vrex", "coral"])
def test_integer_weights_are_repeated_rows_where_every_step_sees_all_rows(name):
    """Each domain is a whole minibatch, so a step's loss is the mean over its rows, or over their copies.

    Rows that are drawn once in every round make a step of `agg` the same; a loss that is a sum over domains too.
    """
    x, y, domains, weight = draw_rows()
    weight[domains == "b"] = weight[domains == "a"]  # so that both domains have as many copies
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for layer in (module[1], module[3]):
            layer.reset_parameters()
    copies = np.repeat(np.arange(len(y)), weight)
    how = {"net": module, "validation": 0, "steps": 6, "optimizer": "sgd", "lr": 0.1}
    weighted = quick(name, batch=12, **how).fit(x, y, domains=domains, sample_weight=weight)
    if name == "coral":  # which aligns rows whatever they weigh: copies are another alignment
        plain = quick(name, batch=12, **how).fit(x, y, domains=domains)
        assert list_weights(plain) != list_weights(weighted)
        return
    repeated = quick(name, batch=len(copies) // 2, **how).fit(x[copies], y[copies], domains=domains[copies])
    for parameter, value in weighted.model_.params.items():
        assert torch.allclose(value, repeated.model_.params[parameter], rtol=1e-4, atol=1e-6), parameter


def test_constant_weights_change_nothing_to_the_bit(hospitals):
    x, y, domains = hospitals
    plain = quick().fit(x, y, domains=domains)
    for constant in (3.0, np.full(len(y), 0.1), [2] * len(y)):
        assert list_weights(quick().fit(x, y, domains=domains, sample_weight=constant)) == list_weights(plain)


@pytest.mark.slow
def test_weights_are_relative_within_a_domain_and_reach_comparisons(hospitals):
    x, y, domains = hospitals
    weight = np.where(y == "ill", 2.0, 1.0)
    one = quick().fit(x, y, domains=domains, sample_weight=weight)
    scaled = quick().fit(x, y, domains=domains, sample_weight=weight * np.where(domains == "west", 8.0, 1.0))
    assert list_weights(one) == list_weights(scaled)  # a domain counts the same whatever its rows weigh
    assert list_weights(one) != list_weights(quick().fit(x, y, domains=domains))
    assert (one.predict(x) == "ill").sum() > (quick().fit(x, y, domains=domains).predict(x) == "ill").sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, plain = (
            seqdg.compare(x, y, domains, ["agg"], estimator=quick(), seeds=1, rules=("source-val",), sample_weight=w)
            for w in (weight, None)
        )
    assert list_weights(found.estimator) == list_weights(one)
    assert found.scores() != plain.scores()


def test_classic_models_get_the_weights_as_their_own(hospitals):
    x, y, domains = hospitals
    numbers = x[["age", "pressure", "visits"]].fillna(50.0)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    model = quick("logistic", validation=0).fit(numbers, y, domains=domains, sample_weight=weight)
    plain = quick("logistic", validation=0).fit(numbers, y, domains=domains)
    assert np.abs(model.predict_proba(numbers) - plain.predict_proba(numbers)).max() > 1e-3
    z = (numbers - numbers.mean()) / numbers.std(ddof=0)
    own = LogisticRegression(C=1.0).fit(z, y, sample_weight=weight / weight.mean())
    assert model.predict_proba(numbers) == pytest.approx(own.predict_proba(z), abs=0.02)


@pytest.mark.parametrize("routing", [False, True])
def test_the_last_step_of_a_pipeline_gets_the_weights(hospitals, routing):
    x, y, domains = hospitals
    numbers = x[["age", "pressure", "visits"]].fillna(50.0)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    found = []
    with config_context(enable_metadata_routing=routing):
        for own in (LogisticRegression(), make_pipeline(FunctionTransformer(), LogisticRegression())):
            model = quick(own).fit(numbers, y, domains=domains, sample_weight=weight)
            found.append(model.predict_proba(numbers))
        plain = quick(LogisticRegression()).fit(numbers, y, domains=domains).predict_proba(numbers)
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    assert np.abs(found[0] - plain).max() > 1e-3


def test_a_pipeline_whose_last_step_weighs_nothing_refuses_weights(hospitals):
    x, y, domains = hospitals
    own = make_pipeline(FunctionTransformer(), KNeighborsClassifier())
    with pytest.raises(UsageError, match="weighs no rows"):
        quick(own).fit(x, y, domains=domains, sample_weight=np.arange(1, len(y) + 1))


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(3), "has shape \\[3\\], but there are 240 rows"),
        (np.ones((240, 2)), "1D array or scalar"),
        (-np.ones(240), "below 0"),
        (np.full(240, np.nan), "no number in 240 rows"),
        (["a"] * 240, "a number for every row"),
    ],
)
def test_weights_that_cannot_be_are_refused_in_a_sentence(hospitals, weight, words):
    x, y, domains = hospitals
    with pytest.raises(UsageError, match=words):
        quick().fit(x, y, domains=domains, sample_weight=weight)


def test_a_domain_without_weight_is_refused_and_rows_without_weight_do_not_count(hospitals):
    x, y, domains = hospitals
    with pytest.raises(UsageError, match="Every row of west has weight zero"):
        quick().fit(x, y, domains=domains, sample_weight=(domains != "west").astype(float))
    x, y, domains, weight = draw_rows()
    weight = np.where(np.arange(len(y)) % 4 == 0, 0, weight)
    changed = np.where(weight[:, None, None] == 0, -x, x)
    module = nn.Sequential(nn.Flatten(), nn.Linear(3, 2))
    one, other = (
        quick(net=module, validation=0).fit(rows, y, domains=domains, sample_weight=weight) for rows in (x, changed)
    )
    assert list_weights(one) == list_weights(other)

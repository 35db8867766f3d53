"""DANN: the features learn against the domain classifier, by exactly its own gradient reversed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms.agg import AGG


def domain_loss(net, params, episode, sources):
    """Of the domain classifier on features that are not reversed, row by row (their sources as plain numbers: within
    grad, torch 2.6 cannot look into a tensor)."""
    total = 0.0
    for row, source in enumerate(sources):
        z = net.features(params, episode.x[row])
        hidden = torch.tanh(z @ params["domain.hidden.weight"].T + params["domain.hidden.bias"])
        logits = hidden @ params["domain.output.weight"].T + params["domain.output.bias"]
        total = total + cross_entropy(logits, torch.full((len(logits),), source))
    return total / episode.domains


@pytest.fixture
def params(net, weights):
    return build("dann", hidden=6).init(net, weights, 3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("lam", [0.0, 0.4, 3.0])
def test_the_feature_gradient_is_minus_lambda_times_the_domain_classifiers(net, weights, params, episode_of, lam):
    episode = episode_of(3)._replace(progress=torch.tensor(0.07, dtype=torch.float64))
    ramp = 2 / (1 + math.exp(-0.7)) - 1
    got, value = build("dann", hidden=6, lam=lam).gradient(net, params, episode)
    labels, label_value = AGG().gradient(net, weights, episode)
    sources = episode.domain.tolist()
    domains = grad(lambda p: domain_loss(net, p, episode, sources))(params)
    assert_close(value, label_value + domain_loss(net, params, episode, sources))
    for name in got:
        if name.startswith("domain."):
            assert_close(got[name], domains[name])
        elif name in net.head_names:
            assert_close(got[name], labels[name])
        else:
            assert_close(got[name], labels[name] - lam * ramp * domains[name])


def test_the_ramp_begins_at_nothing_and_ends_at_lambda(net, weights, params, episode_of):
    episode = episode_of(3)
    labels, _ = AGG().gradient(net, weights, episode)
    sources = episode.domain.tolist()
    domains = grad(lambda p: domain_loss(net, p, episode, sources))(params)
    for progress, share in ((0.0, 0.0), (1.0, 2 / (1 + math.exp(-10)) - 1)):
        at = episode._replace(progress=torch.tensor(progress, dtype=torch.float64))
        got, _ = build("dann", hidden=6, lam=0.5).gradient(net, params, at)
        assert_close(got["0.weight"], labels["0.weight"] - 0.5 * share * domains["0.weight"])


def test_the_domain_classifier_is_not_deployed(net, params):
    assert set(build("dann").deploy(params, {})) == set(net.names)


@pytest.mark.parametrize("name", ["dann", "mmd-aae"])
def test_a_net_that_learns_no_features_is_refused(name):
    for module in (nn.Linear(3, 2), nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), nn.Conv1d(1, 2, 3)):
        with pytest.raises(UsageError, match="learns none: give it a hidden layer"):
            build(name).check(Net(module, "none"), 3)


@pytest.mark.parametrize("name", ["dann", "crossgrad", "metareg", "mmd-aae"])
def test_one_source_domain_is_refused_where_two_are_needed(net, name):
    with pytest.raises(UsageError, match="needs at least 2 source domains, but there is 1"):
        build(name).check(net, 1)


@pytest.mark.parametrize(
    "setting",
    ["dann.lam", "crossgrad.epsilon_label", "crossgrad.epsilon_domain", "crossgrad.clip",
     "crossgrad.alpha_label", "crossgrad.alpha_domain", "metareg.start",
     "metareg.alpha", "metareg.meta_rate", "mmd-aae.reconstruction", "mmd-aae.mmd", "mmd-aae.adversary"],
)  # fmt: skip
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_weights_of_losses_must_be_finite_and_not_negative(setting, value):
    algorithm, name = setting.split(".")
    with pytest.raises(UsageError, match=f"{name} is {value}, but it must be"):
        build(algorithm, **{name: value})

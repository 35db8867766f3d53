"""Undo-Bias and S-Undo-Bias against appendix B of the paper, written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, jacrev
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms import _branches as branches
from seqdg.algorithms.agg import AGG


def tied(algorithm, net, weights, sources):
    return algorithm.init(net, weights, sources, torch.Generator())


def untied(algorithm, net, weights, sources):
    g = torch.Generator().manual_seed(4)
    start = tied(algorithm, net, weights, sources)
    return {name: w + 0.3 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in start.items()}


def copies_of(params, sources):
    """The weights of each source domain, by the net's names."""
    common, own = branches.select_shared(params), branches.select_copies(params)
    return [{**common, **{name: w[i] for name, w in own.items()}} for i in range(sources)]


def distance(a, b, names):
    return torch.cat([(a[name] - b[name]).flatten() for name in names]).norm()


def average(trees):
    return {name: torch.stack([t[name] for t in trees]).mean(0) for name in trees[0]}


@pytest.mark.parametrize("which", ["all", "head", "0"])
@pytest.mark.parametrize("sources", [2, 3, 5])
def test_directions_of_equal_copies_add_up_to_n_times_those_of_aggregation(net, weights, episode_of, which, sources):
    algorithm, episode = build("undo-bias", branches=which, lam=100.0), episode_of(sources)
    direction, _ = algorithm.gradient(net, tied(algorithm, net, weights, sources), episode)
    want, _ = AGG().gradient(net, weights, episode)
    got = {
        **branches.select_shared(direction),
        **{name: d.sum(0) for name, d in branches.select_copies(direction).items()},
    }
    assert_close(got, {name: sources * want[name] for name in got})
    assert set(got) == set(want)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("which", ["all", "head"])
def test_the_loss_is_that_of_the_appendix(net, weights, episode_of, which, squared):
    algorithm, episode = build("undo-bias", branches=which, lam=0.7, squared=squared), episode_of(3)
    params = untied(algorithm, net, weights, 3)
    names, copies = list(branches.select_copies(params)), copies_of(params, 3)
    want = 0.0
    for row, source in enumerate(episode.domain.tolist()):
        away = distance(copies[source], average(copies), names)
        want = want + net.loss(copies[source], (episode.x[row], episode.y[row])) + 0.7 * (away**2 if squared else away)
    assert_close(algorithm.loss(net, params, episode), want)


def test_without_lambda_every_copy_is_a_net_of_its_own_domain(net, weights, episode_of):
    algorithm, episode = build("undo-bias", lam=0.0), episode_of(3)
    params = untied(algorithm, net, weights, 3)
    direction, _ = algorithm.gradient(net, params, episode)
    for row, source in enumerate(episode.domain.tolist()):
        want = grad(net.loss)(copies_of(params, 3)[source], (episode.x[row], episode.y[row]))
        assert_close({name: d[source] for name, d in branches.select_copies(direction).items()}, want)


@pytest.mark.parametrize("name", ["undo-bias", "s-undo-bias"])
def test_lambda_moves_copies_and_never_their_mean(net, weights, episode_of, name):
    episode, free, bound = episode_of(4), build(name, lam=0.0), build(name, lam=1000.0)
    params = untied(free, net, weights, 4)
    loose, tight = (algorithm.gradient(net, params, episode)[0] for algorithm in (free, bound))
    assert_close(bound.deploy(tight, {}), free.deploy(loose, {}), rtol=0, atol=1e-11)
    assert not torch.allclose(tight["branch.0.weight"], loose["branch.0.weight"])


@pytest.mark.parametrize("name", ["undo-bias", "s-undo-bias"])
def test_equal_copies_get_no_kick_from_the_norm(net, weights, episode_of, name):
    episode, free, bound = episode_of(3), build(name, lam=0.0), build(name, lam=1000.0)
    params = tied(free, net, weights, 3)
    assert_close(bound.gradient(net, params, episode)[0], free.gradient(net, params, episode)[0])


def test_undo_bias_does_not_depend_on_the_order_of_the_path(net, weights, episode_of):
    algorithm, episode = build("undo-bias"), episode_of(3)
    params, order = untied(algorithm, net, weights, 3), torch.tensor([2, 0, 1])
    turned = episode._replace(x=episode.x[order], y=episode.y[order], domain=episode.domain[order])
    assert_close(algorithm.gradient(net, params, turned), algorithm.gradient(net, params, episode))


def test_the_minimizer_with_the_squared_norm_tends_to_that_of_aggregation_as_one_over_lambda(episode_of):
    net = Net(nn.Linear(3, 1).double(), "none", loss=lambda guess, y: ((guess.squeeze(-1) - y) ** 2).mean())
    episode = episode_of(3)._replace(y=episode_of(3).y.double())

    def minimizer(algorithm):
        """Of a quadratic loss: one Newton step from zero."""
        shapes = {n: w.shape for n, w in algorithm.init(net, net.params(), 3, torch.Generator()).items()}

        def loss(flat):
            parts = flat.split([s.numel() for s in shapes.values()])
            return algorithm.loss(
                net, {n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}, episode
            )

        zero = torch.zeros(sum(s.numel() for s in shapes.values()), dtype=torch.float64)
        best = torch.linalg.solve(jacrev(grad(loss))(zero), -grad(loss)(zero))
        parts = best.split([s.numel() for s in shapes.values()])
        found = algorithm.deploy({n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}, {})
        return torch.cat([found[name].flatten() for name in net.names])

    goal = minimizer(AGG())
    away = [(minimizer(build("undo-bias", lam=lam, squared=True)) - goal).norm() for lam in (1e2, 1e3, 1e4)]
    assert away[0] > 1e-4
    assert_close(away[0] / away[1], torch.tensor(10.0, dtype=torch.float64), rtol=0.05, atol=0)
    assert_close(away[1] / away[2], torch.tensor(10.0, dtype=torch.float64), rtol=0.01, atol=0)


def test_s_undo_bias_with_two_domains_by_hand(net, weights, episode_of):
    algorithm, episode = build("s-undo-bias", lam=2.0), episode_of(2)
    params = untied(algorithm, net, weights, 2)
    copies, (first, second) = copies_of(params, 2), episode.domain.tolist()
    away = distance(copies[second], copies[first], net.names)
    losses = [net.loss(copies[s], (episode.x[row], episode.y[row])) for row, s in enumerate((first, second))]
    direction, value = algorithm.gradient(net, params, episode)
    assert_close(value, losses[0] + losses[1] + 2.0 * away)
    for row, (source, sign) in enumerate([(first, -1.0), (second, 1.0)]):
        alone = grad(net.loss)(copies[source], (episode.x[row], episode.y[row]))
        for name in net.names:
            pull = sign * 2.0 * (copies[second][name] - copies[first][name]) / away
            assert_close(direction[f"branch.{name}"][source], alone[name] + pull)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("which", ["all", "head"])
def test_s_undo_bias_with_three_domains_is_the_length_3_example_of_the_paper(net, weights, episode_of, which, squared):
    algorithm, episode = build("s-undo-bias", lam=0.7, branches=which, squared=squared), episode_of(3)
    params = untied(algorithm, net, weights, 3)
    names, one, two, three = (
        list(branches.select_copies(params)),
        *(copies_of(params, 3)[s] for s in episode.domain.tolist()),
    )
    power = 2 if squared else 1
    want = sum(net.loss(w, (episode.x[row], episode.y[row])) for row, w in enumerate((one, two, three)))
    want = want + 0.7 * distance(two, one, names) ** power
    want = want + 0.7 * distance(three, average([one, two]), names) ** power
    assert_close(algorithm.loss(net, params, episode), want)


def test_later_domains_reach_the_copies_of_earlier_ones(net, weights, episode_of):
    algorithm, episode = build("s-undo-bias", lam=2.0), episode_of(3)
    params = untied(algorithm, net, weights, 3)
    first, last = episode.domain[0], episode.domain[2]
    moved = {name: torch.where((torch.arange(3) == last).reshape(-1, *[1] * (w.dim() - 1)), w + 1, w)
             for name, w in params.items()}  # fmt: skip
    before, after = (algorithm.gradient(net, p, episode)[0]["branch.0.weight"][first] for p in (params, moved))
    assert (before - after).abs().max() > 1e-3


def test_the_mean_of_the_copies_is_deployed(net, weights):
    algorithm = build("s-undo-bias", branches="head")
    params = untied(algorithm, net, weights, 3)
    deployed = algorithm.deploy(params, {})
    assert set(deployed) == set(net.names)
    assert_close(deployed, average(copies_of(params, 3)))


def test_branches_are_chosen_by_the_start_of_a_name_or_by_a_pattern(net):
    assert branches.select_names(net, "0") == ("0.weight", "0.bias")
    assert branches.select_names(net, "*.bias") == ("0.bias", "2.bias")
    assert branches.select_names(net, "head") == ("2.weight", "2.bias")


@pytest.mark.parametrize("name", ["undo-bias", "s-undo-bias"])
def test_branches_that_match_no_weight_are_refused_before_training(net, name):
    with pytest.raises(UsageError, match=r"branches 'layer4'.*this net has: 0, 2\."):
        build(name, branches="layer4").check(net, 3)


def test_a_net_without_a_linear_end_has_no_head_to_branch():
    net = Net(nn.Sequential(nn.Flatten(), nn.Conv1d(1, 2, 3)), "none")
    with pytest.raises(UsageError, match="'head' \\(of a net that ends in a linear layer\\)"):
        build("undo-bias", branches="head").check(net, 3)


@pytest.mark.parametrize("lam", [-1.0, float("nan"), float("inf")])
def test_lambda_must_be_finite_and_not_negative(lam):
    with pytest.raises(UsageError, match="lam is"):
        build("s-undo-bias", lam=lam)


def test_undo_bias_of_a_single_domain_is_refused(net):
    with pytest.raises(UsageError, match="at least 2 source domains"):
        build("undo-bias").check(net, 1)


@pytest.mark.parametrize("name", ["undo-bias", "s-undo-bias"])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("which", ["all", "head"])
@pytest.mark.parametrize("sources", [2, 4])
def test_the_direction_is_the_gradient_of_the_loss_in_every_weight(
    net, weights, episode_of, name, squared, which, sources
):
    settings = {"lam": 0.7, "squared": squared, "branches": which}
    algorithm, episode = build(name, **settings), episode_of(sources)
    params = untied(algorithm, net, weights, sources)
    direction, value = algorithm.gradient(net, params, episode)
    assert_close(direction, grad(lambda w: algorithm.loss(net, w, episode))(params))
    assert_close(value, algorithm.loss(net, params, episode))

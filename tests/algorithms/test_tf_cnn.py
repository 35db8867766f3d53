"""TF-CNN: Tucker's form against sums by loops in float64, and one net per domain as the limit of full rank."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Net, UsageError, build
from seqdg.algorithms.tf_cnn import factor, group_factors, multiply


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def params(net, weights):
    start = build("tf-cnn", branches="all").init(net, weights, 3, torch.Generator().manual_seed(0))
    return {name: w + 0.4 * draw(*w.shape, seed=i) for i, (name, w) in enumerate(start.items())}


def literal_slices(p, name):
    """V[d, a, b] = sum over q, r, s of G[q, r, s] U0[d, q] U1[a, r] U2[b, s], one entry at a time."""
    core, across = p[f"tucker.{name}.core"], p[f"tucker.{name}.0"]
    if core.dim() == 2:
        return [sum(across[d, q] * core[q] for q in range(len(core))) for d in range(len(across))]
    rows, columns = p[f"tucker.{name}.1"], p[f"tucker.{name}.2"]
    slices = []
    for d in range(len(across)):
        entries = [
            sum(
                core[q, r, s] * across[d, q] * rows[a, r] * columns[b, s]
                for q, r, s in product(*map(range, core.shape))
            )
            for a in range(len(rows))
            for b in range(len(columns))
        ]
        slices.append(torch.stack(entries).reshape(len(rows), len(columns)))
    return slices


def test_a_domain_learns_with_its_slice_and_the_agnostic_one(net, params, episode_of, literal_loss):
    episode = episode_of(3)
    got, value = build("tf-cnn", branches="all").gradient(net, params, episode)
    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    slices = {name: literal_slices(leaves, name) for name in net.names}
    want = 0.0
    for x, y, domain in zip(episode.x, episode.y, episode.domain, strict=True):
        own = [slices[name][int(domain)] + slices[name][3] for name in net.names]
        want = want + literal_loss(own, (x, y)) / 3
    assert_close(value, want.detach())
    gradients = torch.autograd.grad(want, list(leaves.values()))
    assert all(g.abs().max() > 1e-6 for g in gradients)
    assert_close(got, dict(zip(leaves, gradients, strict=True)))


def test_the_agnostic_slice_alone_is_deployed(net, params):
    deployed = build("tf-cnn", branches="all").deploy(params, {})
    assert set(deployed) == set(net.names)
    for name in net.names:
        assert_close(deployed[name], literal_slices(params, name)[3])
    changed = {**params, "tucker.0.weight.0": params["tucker.0.weight.0"].index_fill(0, torch.arange(3), 7.0)}
    assert_close(build("tf-cnn", branches="all").deploy(changed, {}), deployed)


def test_of_full_rank_it_is_one_net_per_domain(net, weights, episode_of, literal_loss):
    """Any N networks are held, each with its own loss; and the gradient of a slice is that of its own domain alone."""
    episode = episode_of(3)
    params = build("tf-cnn", rank=1.0, branches="all").init(net, weights, 3, torch.Generator().manual_seed(0))
    nets = {name: draw(3, *w.shape, seed=5) for name, w in weights.items()}
    for name, factors in group_factors(params).items():
        wanted = torch.cat([nets[name] - weights[name], weights[name].unsqueeze(0)])
        inverse = torch.linalg.inv(factors["0"])
        core = torch.tensordot(inverse, wanted, 1)
        for axis in range(1, wanted.dim() if wanted.dim() > 2 else 1):
            core = torch.tensordot(core, torch.linalg.inv(factors[str(axis)]), ([axis], [1])).movedim(-1, axis)
        params[f"tucker.{name}.core"] = core
    got, value = build("tf-cnn", rank=1.0, branches="all").gradient(net, params, episode)
    each = [
        literal_loss([nets[name][int(d)] for name in net.names], (x, y))
        for x, y, d in zip(episode.x, episode.y, episode.domain, strict=True)
    ]
    assert_close(value, sum(each) / 3)
    ensemble, _ = build("ensemble").gradient(net, {f"branch.{n}": w for n, w in nets.items()}, episode)
    for name in ("0.bias", "2.bias"):  # their core is seen through the matrix of domains alone
        across = params[f"tucker.{name}.0"]
        own = across[:3] + across[3]
        assert_close(got[f"tucker.{name}.core"], own.T @ ensemble[f"branch.{name}"] / 3)


def test_at_the_start_every_domain_has_the_nets_weights_projected_to_the_rank(net, weights, episode_of):
    for rank in (1.0, 0.5):
        algorithm = build("tf-cnn", rank=rank, branches="all")
        start = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
        deployed = algorithm.deploy(start, {})
        assert_close(algorithm.loss(net, start, episode_of(3)), net.losses(deployed, episode_of(3)).mean())
        for name, w in weights.items():
            if rank == 1.0 or w.dim() == 1:
                assert_close(deployed[name], w)
            else:
                assert torch.linalg.matrix_rank(deployed[name]) == 2  # of 3 and 4
                assert_close(deployed[name], deployed[name] @ torch.linalg.pinv(deployed[name]) @ w)


def test_a_kernel_of_four_axes_comes_back_whole_and_has_the_shape_of_its_ranks():
    kernel = draw(5, 4, 3, 3)
    factors = factor(kernel, 2, 1.0, torch.Generator())
    assert_close(multiply(factors, factors["0"][2:])[0], kernel)
    small = factor(kernel, 2, 0.5, torch.Generator())
    assert small["core"].shape == (2, 3, 2, 2, 2)
    assert multiply(small, small["0"]).shape == (3, 5, 4, 3, 3)


def test_the_head_alone_may_be_factored(net, weights, episode_of):
    algorithm = build("tf-cnn", branches="head")
    params = algorithm.init(net, weights, 3, torch.Generator().manual_seed(0))
    assert {"0.weight", "0.bias"} < set(params)
    assert "2.weight" not in params
    assert set(algorithm.deploy(params, {})) == set(net.names)
    assert algorithm.gradient(net, params, episode_of(3))[0]["0.weight"].any()


def test_one_source_or_branches_that_the_net_has_not_are_refused_with_a_sentence(net):
    with pytest.raises(UsageError, match="needs at least 2 source domains"):
        build("tf-cnn").check(net, 1)
    with pytest.raises(UsageError, match="belongs to branches 'head'"):
        build("tf-cnn", branches="head").check(Net(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "none"), 3)

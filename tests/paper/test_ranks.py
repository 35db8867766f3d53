from __future__ import annotations

import pytest
import torch

import seqdg
from seqdg.base import Episode, UsageError
from seqdg.nets import Net, mlp
from seqdg.paper.ranks import compute, compute_loss_at, move_source


def test_the_source_is_moved_to_its_place_and_all_others_keep_their_order():
    domain = torch.tensor([[2, 0, 1, 3], [0, 1, 2, 3], [3, 2, 1, 0]])
    rows = 10 * domain[:, :, None] + torch.arange(2)
    for place in range(4):
        got, lines = move_source(domain, rows, 1, place)
        assert got[:, place].tolist() == [1, 1, 1]
        torch.testing.assert_close(lines, 10 * got[:, :, None] + torch.arange(2))
        for before, after in zip(domain.tolist(), got.tolist(), strict=True):
            assert [d for d in before if d != 1] == [d for d in after if d != 1]


@pytest.fixture
def net():
    return Net(mlp(5, (4,), 3), "none").to(dtype=torch.float64)


@pytest.fixture
def episode():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 8, 5, generator=g, dtype=torch.float64)
    return Episode(x, torch.randint(3, (3, 8), generator=g), torch.arange(3), torch.tensor(0.0))


def _literal(net, params, episode, i, alpha, beta):
    """Algorithm 1 of the paper, up to the i-th domain: the loss of that one at the weights it is judged at."""
    w = {name: p.clone().requires_grad_() for name, p in params.items()}
    total = net.loss(w, episode.minibatch(0))
    here = total
    for j in range(1, i + 1):
        step = torch.autograd.grad(total, list(w.values()), create_graph=True)
        ahead = {name: p - alpha[j - 1] * s for (name, p), s in zip(w.items(), step, strict=True)}
        here = net.loss(ahead, episode.minibatch(j))
        total = total + beta[j] * here
    return here.detach()


@pytest.mark.parametrize("i", [0, 1, 2])
def test_the_loss_at_a_place_is_that_of_algorithm_1(net, episode, i):
    algorithm = seqdg.build("s-mldg", alpha=(0.2, 0.5), beta=(1.3, 0.7))
    want = _literal(net, net.params(), episode, i, (0.2, 0.5), (1.0, 1.3, 0.7))
    torch.testing.assert_close(compute_loss_at(algorithm, net, net.params(), episode, i), want)


@pytest.mark.parametrize(("reduction", "divisor"), [("mean", 2), ("sum", 1)])
def test_mldg_judges_its_meta_test_domain_one_step_ahead_of_the_others(net, episode, reduction, divisor):
    w = {name: p.clone().requires_grad_() for name, p in net.params().items()}
    past = (net.loss(w, episode.minibatch(0)) + net.loss(w, episode.minibatch(1))) / divisor
    step = torch.autograd.grad(past, list(w.values()))
    ahead = {name: p.detach() - 0.4 * s for (name, p), s in zip(w.items(), step, strict=True)}
    want = net.loss(ahead, episode.minibatch(2))
    for name in ("mldg", "fo-mldg"):
        algorithm = seqdg.build(name, alpha=0.4, beta=2.0, reduction=reduction)
        got = compute_loss_at(algorithm, net, net.params(), episode, 2)
        torch.testing.assert_close(got, want)


def test_without_look_ahead_the_place_means_nothing(net, episode):
    algorithm = seqdg.build("fo-s-mldg", alpha=0.0)
    plain = net.loss(net.params(), episode.minibatch(0))
    for place in range(3):
        domain, rows = move_source(episode.domain[None], torch.arange(3)[None, :, None], 0, place)
        path = episode._replace(x=episode.x[rows[0, :, 0]], y=episode.y[rows[0, :, 0]], domain=domain[0])
        torch.testing.assert_close(compute_loss_at(algorithm, net, net.params(), path, place), plain)


def test_where_all_domains_are_the_same_every_practice_lowers_the_loss(net, episode):
    same = episode._replace(x=episode.x[:1].expand(3, -1, -1), y=episode.y[:1].expand(3, -1))
    losses = [
        float(compute_loss_at(seqdg.build("fo-s-mldg", alpha=0.05), net, net.params(), same, i)) for i in range(3)
    ]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.slow
def test_curves_are_there_for_every_place_and_for_less_practice_with_it_last(dataset, study):
    found = compute(study(dataset(), ["agg", "fo-mldg", "fo-s-mldg", "ensemble"], domain="b", trials=2))
    assert found["interest"] == "b"
    assert [len(c["mean"]) for c in found["by_place"]["fo-s-mldg"]] == [5, 5, 5]
    assert list(found["with_it_last"]) == ["agg", "fo-mldg", "fo-s-mldg"]
    assert found["with_it_last"]["fo-s-mldg"] == found["by_place"]["fo-s-mldg"][-1]
    assert all(c["mean"][-1] < c["mean"][0] for c in found["with_it_last"].values())
    assert "place in the path means nothing" in found["refused"]["ensemble"]


def test_before_training_a_later_place_has_the_lower_loss_on_domains_drawn_alike(dataset, study):
    made = study(dataset(), ["fo-s-mldg"], steps=1, points=1, settings=["fo-s-mldg.alpha=0.3"])
    first, second, third = (c["mean"][0] for c in compute(made)["by_place"]["fo-s-mldg"])
    assert first > second > third


def test_the_domain_of_interest_must_be_a_source(dataset, study):
    with pytest.raises(UsageError, match=r"The domain of interest is 'd', but it must be .*: a, b, c\."):
        compute(study(dataset(), ["agg"], domain="d"))

"""T3A: templates of the surest supports, by lists and loops."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import vmap

from seqdg import Net, UsageError, build
from seqdg.testing import check_algorithm


def literal_logits(weights, x, filter_k):
    """As the paper's algorithm: supports by class, sorted by entropy, cut, normalized, averaged."""
    w1, b1, w2, b2 = weights.values()
    features = [torch.tanh(w1 @ row + b1) for row in x]
    supports = {k: [] for k in range(len(w2))}

    def entropy(z):
        p = torch.softmax(w2 @ z + b2, 0)
        return float(-sum(q * q.log() for q in p))

    for k, row in enumerate(w2):
        supports[k].append((entropy(row), row))
    for z in features:
        supports[int((w2 @ z + b2).argmax())].append((entropy(z), z))
    templates = []
    for k in range(len(w2)):
        kept = sorted(supports[k], key=lambda pair: pair[0])
        kept = kept if filter_k == -1 else kept[:filter_k]
        mean = sum(z / z.norm() for _, z in kept) / len(kept)
        templates.append(mean / mean.norm())
    return torch.stack([torch.stack([z @ t for t in templates]) for z in features])


@pytest.mark.parametrize("filter_k", [1, 2, 3, 5, 100, -1])
def test_predictions_are_those_of_the_published_algorithm(net, weights, filter_k):
    g = torch.Generator().manual_seed(filter_k + 1)
    x = 2 * torch.randn(17, 3, generator=g, dtype=torch.float64)
    got = build("t3a", filter_k=filter_k).predict(net, weights, x)
    torch.testing.assert_close(got, literal_logits(weights, x, filter_k))


def test_a_stack_predicts_as_a_loop(net, weights):
    x = torch.randn(3, 12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t3a = build("t3a", filter_k=2)
    got = vmap(lambda batch: t3a.predict(net, weights, batch))(x)
    torch.testing.assert_close(got, torch.stack([t3a.predict(net, weights, batch) for batch in x]))


def test_with_the_heads_rows_alone_it_is_the_head_up_to_their_lengths(net, weights):
    """A head that is far surer of its own weights than of any row keeps them alone when one support is kept."""
    large = {**weights, "2.weight": 30 * weights["2.weight"], "2.bias": torch.zeros_like(weights["2.bias"])}
    x = 0.01 * torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    head = large["2.weight"]
    got = build("t3a", filter_k=1).predict(net, large, x)
    torch.testing.assert_close(got, net.features(large, x) @ (head / head.norm(dim=1, keepdim=True)).T)


def test_supports_of_the_batch_move_a_prediction(net, weights):
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t3a = build("t3a")
    assert not torch.allclose(t3a.predict(net, weights, x)[:6], t3a.predict(net, weights, x[:6]), atol=1e-3)


def test_it_trains_as_agg(net, weights, episode_of):
    got = build("t3a").gradient(net, weights, episode_of(3))
    torch.testing.assert_close(got, build("agg").gradient(net, weights, episode_of(3)))


@pytest.mark.parametrize("filter_k", [1, -1])
def test_the_contract_is_kept_where_few_or_all_supports_are_kept(filter_k):
    check_algorithm(build("t3a", filter_k=filter_k))


def test_no_support_at_all_and_a_net_without_a_head_are_refused(net):
    with pytest.raises(UsageError, match="filter_k is 0, but a class needs at least 1 support"):
        build("t3a", filter_k=0).check(net, 3)
    with pytest.raises(UsageError, match=r"filter_k is -2.*at least -1"):
        build("t3a", filter_k=-2)
    with pytest.raises(UsageError, match="T3A works on the features that enter the head"):
        build("t3a").check(Net(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "none"), 3)

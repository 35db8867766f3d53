"""RSC: which features are muted, in which rows, by the paper's equations and NumPy's percentiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from seqdg import UsageError, build
from seqdg.algorithms.rsc import percentile


def literal_mask(logits_of, z, y, feature_share, row_share):
    """Row by row and feature by feature: 0 where muted."""
    rows, width = z.shape
    mask = torch.ones(rows, width, dtype=z.dtype)
    for r in range(rows):
        row = z[r].detach().clone().requires_grad_()
        towards = torch.autograd.grad(logits_of(row)[y[r]], row)[0].numpy()
        for f in range(width):
            if towards[f] >= np.percentile(towards, 100 * (1 - feature_share)):
                mask[r, f] = 0
    changes = [
        float((torch.softmax(logits_of(z[r]), 0) - torch.softmax(logits_of(mask[r] * z[r]), 0))[y[r]])
        for r in range(rows)
    ]
    for r in range(rows):
        if changes[r] < np.percentile(changes, 100 * (1 - row_share)):
            mask[r] = 1
    return mask


@pytest.mark.parametrize(
    ("feature_share", "row_share"), [(1 / 3, 1 / 3), (0.5, 0.2), (0.0, 0.0), (0.9, 0.7), (1.0, 0.4)]
)
@pytest.mark.parametrize("n", [1, 3])
def test_the_direction_is_that_of_the_published_equations(
    net, weights, theta, episode_of, assert_direction, n, feature_share, row_share
):
    episode = episode_of(n)
    got, value = build("rsc", feature_share=feature_share, row_share=row_share).gradient(net, weights, episode)
    w1, b1, w2, b2 = theta
    x, y = episode.x.flatten(0, 1), episode.y.flatten()
    z = torch.tanh(x @ w1.T + b1)
    mask = literal_mask(lambda row: row @ w2.T.detach() + b2.detach(), z.detach(), y, feature_share, row_share)
    want = cross_entropy((z * mask) @ w2.T + b2, y)
    torch.testing.assert_close(value, want.detach())
    assert_direction(got, torch.autograd.grad(want, theta))


def test_where_all_is_muted_only_the_head_s_bias_learns(net, weights, episode_of):
    got, _ = build("rsc", feature_share=1.0, row_share=1.0).gradient(net, weights, episode_of(3))
    assert not got["0.weight"].any()
    assert not got["2.weight"].any()
    assert got["2.bias"].all()


@pytest.mark.parametrize("share", [0.0, 0.1, 1 / 3, 0.5, 2 / 3, 0.99, 1.0])
@pytest.mark.parametrize("size", [1, 2, 4, 7, 31])
def test_a_percentile_is_numpys(size, share):
    values = torch.randn((3, size), generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    want = np.percentile(values.numpy(), 100 * share, axis=1)
    torch.testing.assert_close(percentile(values, share).squeeze(1), torch.from_numpy(want))


def test_what_lies_at_the_percentile_counts_as_among_the_largest_in_every_precision():
    values = torch.randn(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        assert (values.to(dtype) < percentile(values.to(dtype), 1 - 1 / 3)).sum() == 2


@pytest.mark.parametrize("setting", ["feature_share", "row_share"])
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_share_lies_between_0_and_1(setting, value):
    with pytest.raises(UsageError, match=f"{setting} is {value}, but it must be at"):
        build("rsc", **{setting: value})

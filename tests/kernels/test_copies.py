from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from seqdg.algorithms._branches import Contrasts

MATRICES = {
    "mean": [[2 / 3, -1 / 3, -1 / 3], [-1 / 3, 2 / 3, -1 / 3], [-1 / 3, -1 / 3, 2 / 3]],
    "path": [[-1.0, 1.0, 0.0], [-0.5, -0.5, 1.0]],
}


def _make(trials, matrix, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (trials, 3, 40, 70), "b": (trials, 3, 5)}
    copies, directions = (
        {n: torch.randn(s, generator=generator, dtype=dtype) for n, s in shapes.items()} for _ in "ab"
    )
    strengths = torch.rand(trials, len(matrix), generator=generator, dtype=dtype)
    of_trials = torch.tensor(matrix, dtype=dtype).expand(trials, -1, -1)
    trees = [{n: t.to(device) for n, t in tree.items()} for tree in (copies, directions)]
    return of_trials.to(device), *trees, strengths.to(device)


def _apply(matrix, copies, directions, strengths):
    contrasts = Contrasts(matrix, copies)
    return contrasts.measure(), {n: contrasts.add_pull(n, strengths, d) for n, d in directions.items()}


@pytest.mark.parametrize("name", MATRICES)
def test_contrasts_and_their_pull_are_what_the_matrix_says(name):
    matrix, copies, directions, strengths = _make(2, MATRICES[name])
    squares, pulled = vmap(_apply)(matrix, copies, directions, strengths)
    for t in range(2):
        rows = [
            {n: sum(matrix[t, r, j] * w[t, j] for j in range(3)) for n, w in copies.items()}
            for r in range(matrix.shape[1])
        ]
        for r, row in enumerate(rows):
            torch.testing.assert_close(squares[t, r], sum((a**2).sum() for a in row.values()))
        for n, d in directions.items():
            for j in range(3):
                want = d[t, j] + sum(matrix[t, r, j] * strengths[t, r] * row[n] for r, row in enumerate(rows))
                torch.testing.assert_close(pulled[n][t, j], want)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equal_copies_are_at_no_distance_to_the_last_bit(name, device):
    matrix, copies, directions, strengths = _make(2, MATRICES[name], torch.float32, device)
    same = {n: w[:, :1].expand(w.shape).contiguous() for n, w in copies.items()}
    squares, pulled = vmap(_apply)(matrix, same, directions, strengths)
    assert not squares.any()
    assert all(torch.equal(pulled[n], d) for n, d in directions.items())


@pytest.mark.gpu
@pytest.mark.parametrize("name", MATRICES)
def test_the_kernels_of_contrasts_are_the_formulas(name):
    there = vmap(_apply)(*_make(3, MATRICES[name], device="cuda"))
    here = vmap(_apply)(*_make(3, MATRICES[name]))
    torch.testing.assert_close(there[0].cpu(), here[0], rtol=1e-12, atol=1e-12)
    for n, value in here[1].items():
        torch.testing.assert_close(there[1][n].cpu(), value, rtol=1e-12, atol=1e-12)

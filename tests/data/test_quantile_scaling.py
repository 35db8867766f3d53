"""Numbers as normal scores of their place among those seen, by constants of the training rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.testing import assert_close

import seqdg
from seqdg.base import UsageError
from seqdg.data.scaling import KNOTS, QUANTILE, SCALINGS, TAIL, Scaling, keep_as_is, learn_scaling
from seqdg.estimator import export_onnx


def draw(rows, columns=3, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def score_literally(value, column):
    """Interpolate between the quantiles of a column whose values all differ."""
    share = np.linspace(0, 1, KNOTS)
    knots = np.quantile(column, share)
    return np.interp(value, knots, norm.ppf(np.clip(share, TAIL, 1 - TAIL)))


def test_values_become_the_normal_scores_of_their_places():
    x, new = draw(200), 3 * draw(50, seed=1)
    found = learn_scaling(x, QUANTILE)(new)
    for j in range(3):
        assert_close(found[:, j].numpy(), score_literally(new[:, j].numpy(), x[:, j].numpy()), rtol=0, atol=1e-9)


def test_an_increasing_change_of_a_column_changes_what_lies_at_the_knots_in_nothing():
    x = draw(KNOTS, 1)  # as many rows as knots: every row is a quantile
    assert_close(learn_scaling(x, QUANTILE)(x), learn_scaling(x.exp(), QUANTILE)(x.exp()), rtol=0, atol=1e-9)


def test_values_far_away_are_as_far_as_the_last_that_was_seen():
    scaling = learn_scaling(draw(100), QUANTILE)
    assert_close(scaling(torch.full((1, 3), 1e30).double()), scaling(torch.full((1, 3), 1e3).double()))
    assert scaling(torch.full((1, 3), -1e30).double()).max() == pytest.approx(norm.ppf(TAIL))


def test_a_value_of_many_rows_is_one_knot_in_the_middle_of_their_shares():
    x = torch.tensor([0.0] * 70 + [1.0] * 30).double()[:, None]
    low, high = learn_scaling(x, QUANTILE)(torch.tensor([[0.0], [1.0]]).double()).flatten().tolist()
    assert low == pytest.approx(norm.ppf(0.35), abs=0.05)
    assert high == pytest.approx(norm.ppf(0.85), abs=0.05)


def test_gaps_are_filled_and_columns_that_never_vary_become_zero():
    x = torch.cat([draw(40, 1), torch.full((40, 1), 7.0).double(), torch.full((40, 1), torch.nan).double()], 1)
    x[3, 0] = torch.nan
    found = learn_scaling(x, QUANTILE)(x)
    assert bool(torch.isfinite(found).all())
    assert abs(float(found[3, 0])) < 0.1, "the median has the score 0"
    assert bool((found[:, 1:] == 0).all())


def test_a_stack_has_the_constants_of_every_trial():
    a, b, new = draw(60), 5 * draw(60, seed=1), draw(2 * 9, seed=2).reshape(2, 3, 3, 3)
    each = [learn_scaling(x, QUANTILE) for x in (a, b)]
    stacked = Scaling(*(torch.stack(c) for c in zip(*each, strict=True)))
    assert_close(stacked(new), torch.stack([each[0](new[0]), each[1](new[1])]))


@pytest.mark.parametrize("kind", SCALINGS)
def test_few_operations_give_the_same(kind):
    x = draw(100)
    x[:60, 2] = 0.25  # many quantiles that are one value
    new = 2 * draw(40, seed=1)
    new[0], new[1], new[2] = torch.nan, 1e30, -1e30
    scaling = learn_scaling(x, kind)
    assert_close(scaling.in_few_operations(new), scaling(new), rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("kind", SCALINGS)
def test_blocks_of_rows_give_the_same_to_the_bit(kind, monkeypatch):
    each = [learn_scaling(x, kind) for x in (draw(100), 5 * draw(100, seed=1))]
    stacked = Scaling(*(torch.stack(c) for c in zip(*each, strict=True)))
    new = 2 * draw(50, seed=2)
    new[0], new[1] = torch.nan, 1e30
    both = new.expand(2, *new.shape)
    wanted, rows, scale = (each[0](new), stacked(both)), [], Scaling.__call__
    monkeypatch.setattr("seqdg.data.scaling.BLOCK", 60)
    monkeypatch.setattr(Scaling, "__call__", lambda self, x: rows.append(x.shape[-2]) or scale(self, x))
    assert_close(each[0].in_blocks(new), wanted[0], rtol=0, atol=0, equal_nan=True)
    assert rows == [20, 20, 10]
    rows.clear()
    assert_close(stacked.in_blocks(both), wanted[1], rtol=0, atol=0, equal_nan=True)
    assert rows == [10] * 5
    assert each[0].in_blocks(new[:0]).shape == (0, 3)


def test_words_stay_as_they_are_where_they_are_known():
    numbers = learn_scaling(draw(50), QUANTILE)
    words = keep_as_is(torch.tensor([True, False]), numbers)
    assert words(torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double()).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert words.knots.shape[1] == numbers.knots.shape[1]


def test_quantiles_of_many_rows_are_those_of_a_sample():
    x = draw(30_000, 1)
    near = learn_scaling(x, QUANTILE)(torch.tensor([[0.0], [1.0]]).double()).flatten()
    assert_close(near, torch.tensor([0.0, 1.0]).double(), rtol=0, atol=0.1)


@pytest.fixture(scope="module")
def rows():
    made = np.random.default_rng(4)
    x = made.lognormal(0, 2, (120, 4))
    return x, (x[:, 0] > x[:, 1]).astype(int), np.arange(120) % 3


QUICK = {"steps": 20, "hidden": (8,), "evaluations": 2, "device": "cpu"}


@pytest.mark.slow
def test_a_model_is_saved_and_exported_with_its_quantiles(rows, tmp_path):
    x, y, domains = rows
    model = seqdg.DomainClassifier("agg", scaling="quantile", **QUICK).fit(x, y, domains=domains)
    model.save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m", device="cpu")
    assert loaded.scaling == "quantile"
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    np.testing.assert_allclose(model.predict_proba(1e9 * x + 1e9), model.predict_proba(1e12 * x + 1e12))
    onnxruntime = pytest.importorskip("onnxruntime")
    export_onnx(loaded.model_, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"numbers": x})[0]
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)


def test_trials_are_scaled_by_their_own_sources(rows):
    """What a held-out domain holds does not change what a trial learns without it."""
    x, y, domains = rows
    changed = x.copy()
    changed[domains == 0] *= 30
    estimator = seqdg.DomainClassifier(scaling="quantile", **QUICK)
    records = []
    for values in (x, changed):
        found = seqdg.compare(
            values, y, domains, ["agg"], estimator=estimator, seeds=1, rules=("source-val",), baseline=None, refit=False
        )
        records.append(next(o.record for o in found.outcomes["source-val"] if o.held_out == "0"))
    np.testing.assert_allclose(records[0].losses, records[1].losses, rtol=1e-3)


def test_another_scaling_is_unknown(rows):
    x, y, domains = rows
    with pytest.raises(UsageError, match="There is no scaling 'robust'"):
        seqdg.DomainClassifier(scaling="robust", **QUICK).fit(x, y, domains=domains)

"""A temperature that fits the validation rows of the sources, and changes no prediction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import seqdg
from digits import TASK, make_plan, train
from seqdg.base import UsageError
from seqdg.bench import Group, Request
from seqdg.estimator import export_onnx
from seqdg.training import Protocol
from seqdg.training.metrics import DEVIATION, fit_temperature


def draw_rows(trials, rows, classes=3, seed=0):
    """Logits z, and labels that are drawn with the probabilities softmax(z)."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(trials, rows, classes, generator=generator, dtype=torch.float64)
    p = z.softmax(-1).flatten(0, 1)
    return z, torch.multinomial(p, 1, generator=generator).reshape(trials, rows)


def measure(z, y, temperature):
    """The log loss and the prior, literally."""
    total = 0.0
    for row, label in zip(z.tolist(), y.tolist(), strict=True):
        odds = [np.exp(v / temperature) for v in row]
        total -= np.log(odds[label] / sum(odds))
    return total + np.log(temperature) ** 2 / (2 * DEVIATION**2)


def test_scaled_logits_get_their_temperature_back():
    z, y = draw_rows(1, 20_000)
    scales = torch.tensor([0.25, 1.0, 3.0])
    found = fit_temperature(z * scales[:, None, None], y.expand(3, -1), torch.ones(3, 20_000, dtype=torch.bool))
    torch.testing.assert_close(found, scales.double(), rtol=0.03, atol=0.0)


def test_it_minimizes_the_log_loss_and_the_prior():
    z, y = draw_rows(1, 40, seed=1)
    found = float(fit_temperature(3 * z, y, torch.ones(1, 40, dtype=torch.bool))[0])
    at = [measure(3 * z[0], y[0], found * factor) for factor in (0.999, 1.0, 1.001)]
    assert at[1] < at[0]
    assert at[1] < at[2]


def test_rows_that_do_not_count_change_nothing_and_trials_are_fitted_as_alone():
    z, y = draw_rows(3, 60, seed=2)
    mask = torch.arange(60) < torch.tensor([60, 35, 0])[:, None]
    found = fit_temperature(z, y, mask)
    alone = [fit_temperature(z[i : i + 1, :n], y[i : i + 1, :n], mask[i : i + 1, :n]) for i, n in ((0, 60), (1, 35))]
    torch.testing.assert_close(found[:2], torch.cat(alone))
    assert found[2] == 1


def test_few_rows_that_are_all_right_do_not_make_it_sure():
    z = torch.tensor([[[2.0, 0.0], [0.0, 2.0]]])
    found = float(fit_temperature(z, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool))[0])
    assert 0.7 < found < 1


def test_logits_that_are_no_numbers_have_the_temperature_one():
    z, y = draw_rows(1, 5)
    z[0, 2, 1] = torch.nan
    assert fit_temperature(z, y, torch.ones(1, 5, dtype=torch.bool)).tolist() == [1.0]


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(3)
    x = draw.standard_normal((240, 5))
    y = (x[:, 0] + 1.5 * draw.standard_normal(240) > 0).astype(int)
    return x, y, np.arange(240) % 3


@pytest.fixture(scope="module")
def both(rows):
    """A net that is far too sure, calibrated and not."""
    x, y, domains = rows
    how = {"steps": 150, "hidden": (32,), "evaluations": 1, "lr": 0.01, "device": "cpu"}
    return [seqdg.DomainClassifier("agg", calibrate=c, **how).fit(x, y, domains=domains) for c in (True, False)]


def test_a_model_predicts_the_same_classes_but_is_as_sure_as_the_validation_rows_say(both, rows):
    calibrated, plain = both
    np.testing.assert_array_equal(calibrated.predict(rows[0]), plain.predict(rows[0]))
    temperature = calibrated.model_.temperature
    assert temperature > 1.3
    assert plain.model_.temperature == 1
    np.testing.assert_allclose(calibrated.decision_function(rows[0]) * temperature, plain.decision_function(rows[0]))
    for domain, metrics in calibrated.validation_.items():
        assert metrics["accuracy"] == plain.validation_[domain]["accuracy"]
    loss = [np.mean([m["log_loss"] for m in model.validation_.values()]) for model in both]
    assert loss[0] < loss[1]


def test_the_temperature_is_saved_and_on_the_card(both, rows, tmp_path):
    both[0].save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(rows[0]), both[0].predict_proba(rows[0]))
    assert f"the temperature {both[0].model_.temperature:.3f}" in (tmp_path / "m" / "card.md").read_text()
    both[1].save(tmp_path / "plain")
    assert "temperature" not in (tmp_path / "plain" / "card.md").read_text()


@pytest.mark.slow
def test_the_onnx_form_is_calibrated_too(both, rows, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export_onnx(both[0].model_, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"numbers": rows[0]})[0]
    np.testing.assert_allclose(found, both[0].predict_proba(rows[0]), atol=1e-5)


def test_held_out_rows_are_judged_with_the_temperature_of_the_sources():
    plan = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=2, steps=6, settings=["agg.evaluations=1"]))
    plain = train(Group(plan.trials))
    sure = Group(tuple(replace(t, protocol=replace(t.protocol, calibrate=True)) for t in plan.trials))
    assert {t.key for t in sure.trials}.isdisjoint(t.key for t in plan.trials)
    for before, after in zip(plain, train(sure), strict=True):
        a, b = before.history[-1], after.history[-1]
        assert a.held_out["accuracy"] == b.held_out["accuracy"]
        assert np.mean(b.source["log_loss"]) <= np.mean(a.source["log_loss"])
        assert b.held_out["log_loss"] != a.held_out["log_loss"]
    assert TASK.protocol.calibrate is False


def test_what_is_neither_true_nor_false_is_refused():
    with pytest.raises(UsageError, match="calibrate is 3"):
        Protocol(calibrate=3)  # type: ignore[arg-type]


def test_weighted_rows_are_summed_as_many_as_they_are_worth():
    z, y = draw_rows(1, 40, seed=1)
    weight = torch.rand(1, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    every = torch.ones(1, 40, dtype=torch.bool)
    found = float(fit_temperature(3 * z, y, every, weight)[0])

    def measure_weighted(temperature):
        total, worth = 0.0, float(weight.sum() / (weight**2).sum())
        for row, label, w in zip(3 * z[0], y[0], weight[0], strict=True):
            odds = [np.exp(float(v) / temperature) for v in row]
            total -= worth * float(w) * np.log(odds[label] / sum(odds))
        return total + np.log(temperature) ** 2 / (2 * DEVIATION**2)

    assert measure_weighted(found) < min(measure_weighted(found * factor) for factor in (0.999, 1.001))
    equal = torch.full((1, 40), 0.25, dtype=torch.float64)
    torch.testing.assert_close(fit_temperature(3 * z, y, every, equal), fit_temperature(3 * z, y, every))
    assert found != pytest.approx(float(fit_temperature(3 * z, y, every)[0]), rel=1e-3)

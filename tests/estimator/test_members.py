"""Deep ensembles: the members of one trial are trained as one stack, and judged, served and kept as one model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import seqdg
from digits import make_plan, make_session, train
from seqdg.base import Folder, UsageError
from seqdg.bench import Group, InProcess, MemorySink, Request, build_stack, execute
from seqdg.bench.soup import list_mixtures
from seqdg.estimator import export_onnx
from seqdg.estimator.fitting import make_task
from seqdg.estimator.recipe import make_recipe
from seqdg.estimator.user_data import make_user_data, read_input
from seqdg.training import Saving, list_seeds, pool_outputs

QUICK = {"steps": 12, "hidden": (8,), "evaluations": 3, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(5)
    x = draw.standard_normal((90, 4))
    y = (x[:, 0] + 0.7 * draw.standard_normal(90) > 0).astype(int) + (x[:, 1] > 1)
    return x, y, np.arange(90) % 3


def test_the_probabilities_are_the_mean_of_those_of_its_members():
    logits = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pooled = pool_outputs(logits, 3)
    for trial in range(2):
        for row in range(5):
            mean = sum(torch.softmax(logits[3 * trial + m, row], 0) for m in range(3)) / 3
            torch.testing.assert_close(pooled[trial, row].exp(), mean)
    assert pool_outputs(logits, 1) is logits


def test_no_two_trials_share_a_seed_and_one_member_has_the_trial_s():
    assert list_seeds(7, 1) == (7,)
    assert [s for seed in range(4) for s in list_seeds(seed, 3)] == list(range(12))


@pytest.mark.parametrize("algorithm", ["agg", "fo-s-mldg+ema", "undo-bias"])
def test_an_ensemble_predicts_the_mean_of_models_trained_alone(algorithm, rows):
    x, y, domains = rows
    how = {**QUICK, "validation": 0.0}
    together = seqdg.DomainClassifier(algorithm, members=3, random_state=1, **how).fit(x, y, domains=domains)

    def fit_one(seed):
        return seqdg.DomainClassifier(algorithm, members=1, random_state=seed, **how).fit(x, y, domains=domains)

    alone = [fit_one(s) for s in (3, 4, 5)]
    mean = sum(m.predict_proba(x) for m in alone) / 3
    np.testing.assert_allclose(together.predict_proba(x), mean, atol=1e-5)
    assert np.abs(alone[0].predict_proba(x) - mean).max() > 1e-3, "its members differ"


@pytest.mark.slow
def test_an_ensemble_is_saved_loaded_described_and_exported_as_one(rows, tmp_path):
    x, y, domains = rows
    model = seqdg.DomainClassifier("agg+ema", members=3, **QUICK).fit(x, y, domains=domains)
    model.save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    assert loaded.members == 3
    assert "an ensemble of 3 networks" in (tmp_path / "m" / "card.md").read_text()
    onnxruntime = pytest.importorskip("onnxruntime")
    export_onnx(loaded.model_, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"numbers": x})[0]
    np.testing.assert_allclose(found, model.predict_proba(x), atol=1e-5)


def test_it_is_judged_as_an_ensemble_on_the_folds_of_compare(rows):
    x, y, domains = rows
    estimator = seqdg.DomainClassifier(**{**QUICK, "evaluations": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = seqdg.compare(
            x, y, domains, ["agg"], estimator=estimator, seeds=2, members=2, rules=("source-val",), refit=True
        )
    assert found.estimator.members == 2
    assert found.estimator.model_.members == 2
    for outcome in found.outcomes["source-val"]:
        held = domains == int(outcome.held_out)
        # As each member would be trained alone, on the validation rows that all have in common.
        seeds = list_seeds(outcome.seed, 2)
        p = sum(predict_alone(x, y, domains, held, seed) for seed in seeds) / 2
        right = np.unique(y)[p.argmax(1)] == y[held]
        assert outcome.value == pytest.approx(right.mean(), abs=1e-9)


def predict_alone(x, y, domains, held, seed):
    """What a net of this seed, trained without a domain, says of it."""
    estimator = seqdg.DomainClassifier("agg", **{**QUICK, "evaluations": 1})
    recipe = make_recipe(estimator.get_params(deep=False), 0)
    user_data = make_user_data(read_input(x), y, domains, recipe, keep_missing=True)
    task, *_ = make_task(user_data, recipe, scaled=False)
    held_out = (str(domains[held][0]),)
    trial = task.make_trial("agg", {}, recipe.protocol, held_out, seed)
    stack = build_stack(Group((trial,)), task, torch.device("cpu"), sets_precision=False)
    state = stack.advance(stack.start(), 12)
    logits = stack.predict(stack.deploy(state), torch.from_numpy(np.flatnonzero(held))[None])[0]
    return torch.softmax(logits[0].double(), -1).numpy()


REQUEST = Request(
    algorithms=["agg", "agg+ema", "agg+swad"], held_out=["0", "75"], trials=2, steps=9,
    settings=["agg.members=2", "agg.evaluations=9"],
)  # fmt: skip


def told(record):
    return record.key, record.status, record.history, record.losses


@pytest.mark.slow
def test_a_record_is_of_an_ensemble_and_the_same_stacked_or_alone():
    plan = make_plan(REQUEST)
    sink = MemorySink()
    execute(plan, make_session(), InProcess(), sink)
    assert len(sink.records) == 12
    assert {r.stacked for r in sink.records.values()} == {8}
    assert all(r.description["protocol"]["members"] == 2 for r in sink.records.values())
    (group,) = plan.groups
    trial = group.trials[-1]
    alone = train(replace(group, trials=(trial,)))[0]
    stacked = sink.records[trial.key]
    assert alone.key == stacked.key
    assert alone.losses == pytest.approx(stacked.losses, rel=1e-4)
    assert alone.history[-1].held_out["log_loss"] == pytest.approx(stacked.history[-1].held_out["log_loss"], rel=1e-3)


def test_one_member_has_the_key_of_a_trial_without_the_field():
    plain = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=2))
    one = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=2, settings=["agg.members=1"]))
    assert plain.trials[0].key == one.trials[0].key
    assert "members" not in plain.trials[0].description()["protocol"]


@pytest.mark.slow
def test_an_interrupted_ensemble_resumes_to_the_same_bits(tmp_path: Path):
    (group,) = make_plan(REQUEST).groups
    whole = train(group)
    saving = Saving(Folder(tmp_path), checkpoint=1e-9)

    def stop(step: int) -> None:
        if step >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(group, stop, saving)
    assert [told(r) for r in train(group, saving=saving)] == [told(r) for r in whole]


def test_the_ensemble_s_own_metrics_are_of_the_mean_probabilities():
    (group,) = make_plan(replace(REQUEST, algorithms=["agg"], held_out=["0"], trials=1)).groups
    (record,) = train(group)
    singles = [train(replace(group, trials=(m,)))[0] for m in group.trials[0].members]
    losses = [r.history[-1].held_out["log_loss"][0] for r in singles]
    assert record.history[-1].held_out["log_loss"][0] < sum(losses) / 2  # by Jensen's inequality


def test_ensembles_are_not_mixed_again():
    (group,) = make_plan(replace(REQUEST, algorithms=["agg"])).groups
    with pytest.raises(UsageError, match="is an ensemble already"):
        list_mixtures(train(group), "ensemble")


@pytest.mark.parametrize("members", [0, -1, 2.5, "many", True])
def test_a_wrong_number_of_members_is_refused(members, rows):
    x, y, domains = rows
    with pytest.raises(UsageError, match="members is"):
        seqdg.DomainClassifier(members=members, **QUICK).fit(x, y, domains=domains)


def test_numbers_are_averaged_as_they_are():
    numbers = torch.randn(6, 5, 1, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(pool_outputs(numbers, 2)[1, :, 0], ((numbers[2] + numbers[3]) / 2)[:, 0].double())

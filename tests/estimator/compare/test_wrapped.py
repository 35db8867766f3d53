"""A chain of names through all that an estimator does: fit, save, load, predict, choose, refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import seqdg
from command import seqdg as run_command
from seqdg.base import UsageError

CHAIN = "fo-s-mldg+mixup+ema"


@pytest.fixture(scope="module")
def wrapped(hospitals):
    x, y, domains = hospitals
    model = seqdg.DomainClassifier(
        CHAIN, settings={"decay": 0.9}, steps=40, hidden=(16, 8), schedule="cosine", warmup=0.1
    )
    return model.fit(x, y, domains=domains)


def test_a_wrapped_model_comes_back_from_its_file(wrapped, hospitals, tmp_path: Path):
    x, _, _ = hospitals
    wrapped.save(tmp_path / "model")
    back = seqdg.DomainClassifier.load(tmp_path / "model")
    assert back.algorithm == CHAIN
    assert back.settings["decay"] == 0.9
    assert (back.schedule, back.warmup) == ("cosine", 0.1)
    np.testing.assert_array_equal(back.predict_proba(x), wrapped.predict_proba(x))
    shown = run_command("show", tmp_path / "model")
    assert shown.returncode == 0
    assert CHAIN in shown.stdout


def test_the_average_is_another_model_than_the_one_inside(hospitals):
    x, y, domains = hospitals
    how = {"steps": 40, "hidden": (16, 8), "stop": 40}
    plain, averaged = (
        seqdg.DomainClassifier(name, **how).fit(x, y, domains=domains).predict_proba(x) for name in ("agg", "agg+ema")
    )
    assert np.abs(plain - averaged).max() > 1e-3


def test_swad_hears_every_evaluation_before_the_step_that_is_kept(hospitals):
    """Refitted up to the same step, it deploys the same weights."""
    x, y, domains = hospitals
    how = {"steps": 60, "hidden": (16, 8), "lr": 0.05, "evaluations": 12}
    chosen = seqdg.DomainClassifier("agg+swad", settings={"ratio": 5.0}, **how).fit(x, y, domains=domains)
    again = seqdg.DomainClassifier("agg+swad", settings={"ratio": 5.0}, stop=chosen.step_, **how)
    again.fit(x, y, domains=domains)
    np.testing.assert_array_equal(again.predict_proba(x), chosen.predict_proba(x))
    last = seqdg.DomainClassifier("agg+swad", settings={"ratio": 5.0}, stop=60, **how).fit(x, y, domains=domains)
    plain = seqdg.DomainClassifier("agg", stop=60, **how).fit(x, y, domains=domains)
    assert np.abs(last.predict_proba(x) - plain.predict_proba(x)).max() > 1e-4, "the valley is found"


def test_swad_without_validation_or_evaluations_is_refused(hospitals):
    x, y, domains = hospitals
    for how, words in (
        ({"validation": 0}, r"agg\+swad reads the loss on validation rows, but validation is 0"),
        ({"evaluations": 8}, r"agg\+swad needs at least 9 evaluations on validation rows, but there are 8"),
        ({"steps": 5}, r"at least 9 evaluations on validation rows, but there are 5"),
    ):
        with pytest.raises(UsageError, match=words):
            seqdg.DomainClassifier("agg+swad", **how).fit(x, y, domains=domains)


def test_mixup_around_what_reads_labels_is_refused(hospitals):
    x, y, domains = hospitals
    with pytest.raises(UsageError, match=r"mixup gives a row two: drop \+mixup"):
        seqdg.DomainClassifier("rsc+mixup").fit(x, y, domains=domains)


def test_a_schedule_changes_the_model_and_a_bad_one_is_a_sentence(hospitals):
    x, y, domains = hospitals
    how = {"steps": 30, "hidden": (8,), "stop": 30}
    models = [
        seqdg.DomainClassifier("agg", schedule=s, warmup=w, **how).fit(x, y, domains=domains).predict_proba(x)
        for s, w in (("constant", 0.0), ("cosine", 0.0), ("steps", 0.0), ("constant", 0.5))
    ]
    for i, one in enumerate(models):
        assert all(np.abs(one - other).max() > 1e-4 for other in models[:i])
    with pytest.raises(UsageError, match="Did you mean 'cosine'"):
        seqdg.DomainClassifier("agg", schedule="cosin").fit(x, y, domains=domains)


def test_an_instance_has_the_name_of_its_chain(hospitals):
    x, y, domains = hospitals
    model = seqdg.DomainClassifier(seqdg.build(CHAIN), steps=10, hidden=(8,)).fit(x, y, domains=domains)
    assert model.model_.name == CHAIN
    assert json.loads(json.dumps(model.model_.facts))["parameters"]["algorithm"] == CHAIN


@pytest.mark.slow
def test_chains_are_compared_and_one_is_chosen(hospitals):
    x, y, domains = hospitals
    template = seqdg.DomainClassifier(steps=20, hidden=(8,), evaluations=10)
    found = seqdg.compare(x, y, domains, ["agg", "agg+ema", "agg+swad"], estimator=template, seeds=1, ensemble=False)
    assert {"agg", "agg+ema", "agg+swad"} <= {word for line in str(found).splitlines() for word in line.split()}
    assert torch.isfinite(torch.tensor(found.estimator.predict_proba(x))).all()

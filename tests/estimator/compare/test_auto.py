"""What is left to the data becomes numbers when a model is fitted."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

import seqdg
from seqdg.algorithms.vrex import VREx
from seqdg.base import UsageError
from seqdg.estimator.recipe import adapt_recipe, choose_steps, choose_widths
from seqdg.estimator.user_data import make_user_data, read_input
from seqdg.training import Protocol


def make_rows(domains, each=12):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((domains * each, 3))
    return x, (x[:, 0] > 0).astype(int), np.repeat(np.arange(domains), each)


def adapt(rows, **parameters):
    x, y, domains = rows
    recipe = seqdg.DomainClassifier(device="cpu", **parameters).make_recipe()
    return adapt_recipe(recipe, make_user_data(read_input(x), y, domains, recipe).dataset)


def test_widths_and_steps_grow_with_the_rows():
    assert [choose_widths(n) for n in (1, 9_999, 10_000, 400_000)] == [(32,), (32,), (128, 64), (256, 128)]
    assert [choose_widths(n, is_regression=True) for n in (1, 2_000, 10_000)] == [(32,), (64, 32), (128, 64)]
    assert [choose_steps(n, 12, Protocol(domains_per_step=8)) for n in (700, 400_000, 10**7)] == [500, 4700, 5000]
    assert choose_steps(10**6, 4, Protocol(), is_image=True) == 500


def test_a_step_meets_some_of_many_domains():
    assert [adapt(make_rows(n)).protocol.domains_per_step for n in (2, 8, 9, 36)] == [0, 0, 8, 8]
    assert adapt(make_rows(10)).protocol.domains_per_step == 8
    assert adapt(make_rows(10), domains_per_step=0).protocol.domains_per_step == 0


@pytest.mark.slow
def test_an_algorithm_that_needs_all_domains_meets_all_alone_and_among_others(monkeypatch):
    x, y, domains = rows = make_rows(10)
    estimator = seqdg.DomainClassifier(steps=4, evaluations=2, device="cpu")
    monkeypatch.setattr(VREx, "needs_all", True)
    assert adapt(rows, algorithm="vrex").protocol.domains_per_step == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = seqdg.compare(
            x, y, domains, ["vrex", "agg"], estimator=estimator, seeds=1, select="source-val", rules=("source-val",),
            refit=False, ensemble=False,
        )  # fmt: skip
    records = [outcome.record for outcome in found.outcomes["source-val"]]
    met = {r.algorithm: r.description["protocol"].get("domains_per_step", 0) for r in records}
    assert met == {"vrex": 0, "agg": 8}


def test_small_nets_of_a_table_are_an_ensemble_and_other_nets_are_not():
    rows = make_rows(3)
    assert adapt(rows).protocol.members == 4
    assert adapt(rows, net="mlp", hidden=(5,)).protocol.members == 4
    assert adapt(rows, members=2).protocol.members == 2
    assert adapt(rows, net=torch.nn.Linear(3, 2)).protocol.members == 1
    assert adapt(rows, algorithm="logistic").protocol.members == 1
    images = np.zeros((6, 3, 8, 8), np.uint8)
    assert adapt((images, np.arange(6) % 2, np.arange(6) // 3)).protocol.members == 1
    assert adapt((images, np.arange(6) % 2, np.arange(6) // 3), net="mlp").protocol.members == 1


def test_numbers_stay_as_they_are_and_the_card_has_numbers(tmp_path):
    x, y, domains = make_rows(3)
    model = seqdg.DomainClassifier("agg", steps=6, device="cpu").fit(x, y, domains=domains)
    assert model.hidden == "auto", "a parameter stays as it was given"
    model.save(tmp_path / "m")
    parameters = json.loads((tmp_path / "m" / "model.json").read_text())["facts"]["parameters"]
    assert parameters["hidden"] == [32]
    assert parameters["members"] == 4
    assert parameters["steps"] == 6
    assert parameters["domains_per_step"] == 0
    assert seqdg.DomainClassifier.load(tmp_path / "m", device="cpu").hidden == (32,)
    assert adapt((x, y, domains), net="mlp").net.hidden == (32,)
    assert adapt((x, y, domains), net="mlp", hidden=(5,)).net.hidden == (5,)


@pytest.mark.parametrize(
    ("name", "value"), [("steps", "many"), ("hidden", "wide"), ("domains_per_step", "some"), ("members", "few")]
)
def test_other_words_are_refused(name, value):
    x, y, domains = make_rows(2)
    with pytest.raises(UsageError, match=f"{name} is '{value}'.*'auto'"):
        seqdg.DomainClassifier(device="cpu", **{name: value}).fit(x, y, domains=domains)

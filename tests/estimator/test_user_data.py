"""Which rows a fit validates on, and how trials of a stack are each preprocessed by their own sources."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from seqdg.base import UsageError
from seqdg.bench import task as bench_task
from seqdg.estimator import DomainClassifier
from seqdg.estimator.compare import compare
from seqdg.estimator.fitting import make_task
from seqdg.estimator.model_inputs import learn_table_input
from seqdg.estimator.user_data import draw_validation, make_user_data, read_input
from seqdg.training import make_loss


def test_validation_takes_a_share_of_every_class_of_every_domain():
    y, domain = np.tile(np.repeat([0, 1], [40, 10]), 3), np.repeat([0, 1, 2], 50)
    mask = draw_validation(y, domain, 0.2, seed=0).numpy()
    for d in range(3):
        assert mask[(domain == d) & (y == 0)].sum() == 8
        assert mask[(domain == d) & (y == 1)].sum() == 2
    assert (draw_validation(y, domain, 0.2, seed=0).numpy() == mask).all()
    assert (draw_validation(y, domain, 0.2, seed=1).numpy() != mask).any()


def test_validation_never_takes_the_last_row_of_a_class_but_one_of_a_domain_that_has_two():
    mask = draw_validation(np.array([0, 1, 1, 0, 1]), np.array([0, 0, 0, 1, 1]), 0.9, seed=0).numpy()
    assert not mask[0]
    assert mask[1:3].sum() == 1
    assert mask[3:].sum() == 1
    assert not draw_validation(np.array([0]), np.array([0]), 0.5, seed=0).any()


def make_inputs(user_data, recipe, held_out):
    """The inputs of a stack of trials, each with one domain held out."""
    task, *_ = make_task(user_data, recipe, scaled=False)
    trials = [task.make_trial("agg", {}, recipe.protocol, (name,), seed=0) for name in held_out]
    return task.make_inputs(trials, task.build_net(trials[0]).normalization, torch.device("cpu"))


@pytest.mark.parametrize(("scaling", "gap"), [("standard", 2e-5), ("quantile", 1e-3)])
def test_trials_are_preprocessed_as_if_their_sources_were_all_there_is(hospitals, scaling, gap):
    """What is learned for a trial with a domain held out is what `learn_table_input` finds in the other domains."""
    x, y, domains = hospitals
    x = x.assign(smoker=np.where(domains == "west", "vapes", x["smoker"]))
    frame = read_input(x)
    recipe = DomainClassifier(scaling=scaling).make_recipe()
    user_data = make_user_data(frame, y, domains, recipe, keep_missing=True)
    numbers = len(user_data.input.numeric)
    names = ("west", "east")
    inputs = make_inputs(user_data, recipe, names)
    got, _ = inputs.serve(torch.arange(len(y)).repeat(2, 1))
    for i, name in enumerate(names):
        own = learn_table_input(read_input(x[domains != name]), scaling)
        want, _ = own.read(frame)
        places = [*range(numbers)]
        for word in own.vocabulary["smoker"]:
            places.append(numbers + user_data.input.vocabulary["smoker"].index(word))
        np.testing.assert_allclose(got[i][:, places].numpy(), want, atol=gap)
        rest = [j for j in range(got.shape[-1]) if j not in places]
        assert len(rest) == (name == "west")
        assert not got[i][:, rest].any()


def test_rows_that_are_scaled_beforehand_are_those_that_are_scaled_as_they_are_drawn(hospitals, monkeypatch):
    x, y, domains = hospitals
    user_data = make_user_data(read_input(x), y, domains, DomainClassifier().make_recipe(), keep_missing=True)
    assert torch.isnan(user_data.dataset.x).any()
    held_out, recipe = ("east", "west", "east"), DomainClassifier().make_recipe()
    ready = make_inputs(user_data, recipe, held_out)
    monkeypatch.setattr(bench_task, "READY", 0)
    drawn = make_inputs(user_data, recipe, held_out)
    rows = torch.randint(
        len(y), (4, 3, 2, 5), generator=torch.Generator().manual_seed(0)
    )  # (step, trial, domain, batch)
    for one, other in zip(drawn.load_steps(rows, rows), ready.load_steps(rows, rows), strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    for one, other in zip(drawn.serve(rows[0, :, 0]), ready.serve(rows[0, :, 0]), strict=True):
        assert torch.equal(one, other)
    assert drawn.size == ready.size


@pytest.mark.slow
def test_a_table_too_large_to_be_preprocessed_beforehand_gives_the_same_comparison(hospitals, monkeypatch):
    x, y, domains = hospitals
    how = {"estimator": DomainClassifier(steps=6, hidden=(4,), evaluations=2), "seeds": 1, "refit": False}

    def found():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compare(x, y, domains, ["agg", "fo-s-mldg"], **how)

    ready = found()
    monkeypatch.setattr(bench_task, "READY", 0)
    assert str(found()) == str(ready)


def test_balanced_weights_give_every_class_the_same_say():
    labels = [torch.tensor([0] * 9 + [1]), torch.tensor([0] * 7 + [1] * 3)]
    loss = make_loss("balanced", labels, ["a", "b"])
    assert torch.allclose(loss.weight * torch.tensor([0.8, 0.2]), torch.tensor([0.5, 0.5]))
    logits, y = torch.randn(6, 2), torch.tensor([0, 1, 0, 0, 1, 0])
    each = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    assert torch.allclose(loss(logits, y), (loss.weight[y] * each).mean())


def test_a_fit_without_domains_warns_and_a_comparison_without_them_is_refused(hospitals):
    x, y, _ = hospitals
    with pytest.warns(UserWarning, match="No domains were given, so all rows count as one domain"):
        DomainClassifier("agg", steps=2, hidden=()).fit(x, y)
    with pytest.raises(UsageError, match="compare holds out every domain in turn: give domains"):
        compare(x, y, None)


def test_a_domain_for_every_row_is_refused(hospitals):
    x, y, _ = hospitals
    with pytest.raises(UsageError, match="240 different domains in 240 rows, so that most have one row"):
        DomainClassifier("agg", steps=2).fit(x, y, domains=np.arange(len(y)))


def test_empty_columns_of_new_rows_are_warned_of_and_rows_without_any_value_refused(fitted, hospitals):
    x, _, _ = hospitals
    with pytest.warns(UserWarning, match=r"Columns without a value in all 240 rows: age, smoker\. Is it"):
        fitted.predict(x.assign(age=np.nan, smoker=None))
    fitted.predict(x.assign(age=np.nan).iloc[:2])
    with pytest.raises(UsageError, match="No column that the model reads holds any value"):
        fitted.predict(x.iloc[:3].map(lambda cell: None))

"""The estimator as scikit-learn and its users meet it."""

from __future__ import annotations

import pickle
import warnings
from datetime import date

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

import seqdg
from seqdg.base import UsageError
from seqdg.results import CRITERIA

# Checks of scikit-learn that do not pass, by name, each with the reason. (One skips itself: that of array libraries
# other than numpy, which needs the variable SCIPY_ARRAY_API. Columns in another order than in the fit are not an error
# here but fixed by name; `check_estimator` does not look at that.)
WEIGHTS = "Minibatches are drawn at random: a weight is a repeated row on average, or where a step sees all rows."
EXEMPT: dict[str, str] = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}
SKIPS = {"check_array_api_input"}


def quick(*args, **parameters):
    return seqdg.DomainClassifier(*args, **{"steps": 30, "hidden": (8,), **parameters})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        ("fo-s-mldg", {"steps": 60, "hidden": (16,), "members": 1}),
        pytest.param("agg", {"steps": 60, "hidden": (16,), "members": 1}, marks=pytest.mark.soak),
        pytest.param("fo-s-mldg+ema", {}, marks=pytest.mark.soak),
    ],
)
def test_it_passes_scikit_learn_s_own_checks(algorithm, how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke many
        results = check_estimator(seqdg.DomainClassifier(algorithm, **how), expected_failed_checks=EXEMPT, on_skip=None)
    assert len(results) > 40
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= SKIPS | EXEMPT.keys()


@pytest.mark.slow
def test_what_it_says_holds_together(fitted, hospitals):
    x, y, _ = hospitals
    p, logits = fitted.predict_proba(x), fitted.decision_function(x)
    assert p.shape == (len(x), 2)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), logits)
    np.testing.assert_array_equal(fitted.predict(x), fitted.classes_[p.argmax(1)])
    assert fitted.score(x, y) == np.mean(fitted.predict(x) == y) > 0.6
    assert set(fitted.validation_) == {"north", "east", "south", "west"}
    assert set(fitted.validation_["east"]) == {name for name, unit in CRITERIA.items() if unit.is_defined(2)}


@pytest.mark.slow
def test_the_same_fit_twice_is_the_same_and_another_seed_another(fitted, hospitals):
    x, y, domains = hospitals
    again = clone(fitted).fit(x, y, domains=domains)
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))
    other = clone(fitted).set_params(random_state=1).fit(x, y, domains=domains)
    assert np.abs(other.predict_proba(x) - fitted.predict_proba(x)).max() > 1e-3


def test_a_row_s_prediction_does_not_depend_on_its_company(fitted, hospitals):
    x, _, _ = hospitals
    alone = np.concatenate([fitted.predict_proba(x.iloc[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, fitted.predict_proba(x)[:20], atol=1e-12)


def test_columns_that_the_model_does_not_read_may_hold_anything(fitted, hospitals):
    x, _, _ = hospitals
    more = x.assign(taken_on=pd.Timestamp("2020-01-01"), scan=[object()] * len(x))
    np.testing.assert_array_equal(fitted.predict_proba(more), fitted.predict_proba(x))


def test_columns_in_another_order_are_mended_by_name(fitted, hospitals):
    x, _, _ = hospitals
    np.testing.assert_array_equal(fitted.predict_proba(x[x.columns[::-1]]), fitted.predict_proba(x))
    with pytest.raises(UsageError, match="The input has no column 'visits'"):
        fitted.predict(x.drop(columns="visits"))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        positions = fitted.predict_proba(x.to_numpy(dtype=object))
    np.testing.assert_array_equal(positions, fitted.predict_proba(x))


@pytest.mark.slow
def test_domains_reach_it_through_a_pipeline_and_cross_validation():
    draw = np.random.default_rng(0)
    x, y, domains = draw.standard_normal((80, 3)), np.arange(80) % 2, np.arange(80) // 20
    x[:, 0] += 2 * y
    steps = [("scale", StandardScaler()), ("dg", quick("mldg"))]  # mldg refuses a single domain
    with (
        pytest.raises(UsageError, match="needs at least 2 source domains"),
        pytest.warns(match="No domains were given"),
    ):
        Pipeline(steps).fit(x, y)
    assert Pipeline(steps).fit(x, y, dg__domains=domains).score(x, y) > 0.7
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(
            Pipeline(steps), x, y, cv=LeaveOneGroupOut(), params={"domains": domains, "groups": domains}
        )
    assert len(scores) == 4
    assert scores.mean() > 0.6
    plain = cross_val_score(quick("mldg"), x, y, cv=LeaveOneGroupOut(), groups=domains, params={"domains": domains})
    assert len(plain) == 4


@pytest.mark.slow
def test_a_grid_search_over_settings_and_algorithms():
    draw = np.random.default_rng(0)
    x, y, domains = draw.standard_normal((60, 3)), np.arange(60) % 2, np.arange(60) // 20
    grid = [
        {"algorithm": ["fo-s-mldg"], "settings": [{"alpha": 0.01}, {"alpha": np.float64(0.5)}]},
        {"algorithm": ["agg"], "steps": np.array([3, 5])},
    ]
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(quick(steps=5), grid, cv=LeaveOneGroupOut(), error_score="raise")
        search.fit(x, y, domains=domains, groups=domains)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.predict(x).shape == (60,)


@pytest.mark.slow
def test_an_algorithm_may_be_given_as_built(hospitals):
    x, y, domains = hospitals
    built = quick(seqdg.build("fo-s-mldg", alpha=0.3)).fit(x, y, domains=domains)
    named = quick("fo-s-mldg", settings={"alpha": 0.3}).fit(x, y, domains=domains)
    np.testing.assert_array_equal(built.predict_proba(x), named.predict_proba(x))
    assert built.model_.name == "fo-s-mldg"


def test_it_can_be_pickled_by_those_who_wish_to(fitted, hospitals):
    x, _, _ = hospitals
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


def test_a_net_of_one_s_own_is_trained_and_left_as_it_was():
    draw = np.random.default_rng(0)
    y, domains = np.arange(120) % 2, np.arange(120) // 40
    x = draw.standard_normal((120, 5, 4)).astype(np.float32) + y[:, None, None]

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(x.mean(1))

    own = Mean()
    before = own.head.weight.detach().clone()
    model = quick(net=own, steps=60, lr=0.05).fit(torch.from_numpy(x), y, domains=domains)
    assert model.score(x, y) > 0.9
    assert torch.equal(own.head.weight, before)
    with pytest.raises(UsageError, match=r"The model reads arrays \(row, 5, 4\), not \[2, 4, 4\]"):
        model.predict(x[:2, :4])
    with pytest.raises(UsageError, match=r"The net gives \[2, 2\] for 2 rows, but it must give a tensor \[2, 3\]"):
        quick(net=own).fit(x, np.arange(120) % 3, domains=domains)
    with pytest.raises(UsageError, match=r"The net cannot read rows of shape \(5, 3\), float32 \("):
        quick(net=own).fit(x[:, :, :3], y, domains=domains)


def frozen_backbone() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
    return nn.Sequential(body.requires_grad_(False), nn.Linear(6 * 16, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["agg", "fo-s-mldg", "undo-bias", "ensemble", "crossgrad"])
def test_layers_that_the_user_froze_stay_as_they_are_and_are_saved(algorithm, tmp_path):
    draw = np.random.default_rng(0)
    y, domains = np.arange(90) % 2, np.arange(90) // 30
    x = (draw.random((90, 1, 6, 6)) * (1 + y[:, None, None, None]) / 2).astype(np.float32)
    torch.manual_seed(0)
    own = frozen_backbone()
    model = quick(algorithm, net=own, lr=0.02).fit(x, y, domains=domains)
    assert model.score(x, y) > 0.8
    assert model.model_.batchnorm == "frozen"
    assert not any(name.endswith(("0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias")) for name in model.model_.params)
    model.save(tmp_path / "m")
    other = frozen_backbone().requires_grad_()
    before = other[0][0].weight.detach().clone()
    loaded = seqdg.DomainClassifier.load(tmp_path / "m", net=other)
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    for name, weight in loaded.model_.module.state_dict().items():
        if name.startswith("0."):
            assert torch.equal(weight, own.state_dict()[name])
    assert torch.equal(other[0][0].weight, before)
    with pytest.raises(UsageError, match="its constants differ"):
        seqdg.DomainClassifier.load(tmp_path / "m", net=nn.Sequential(nn.Flatten(), nn.Linear(36, 2)))


def test_images_of_other_sizes_are_resized():
    draw = np.random.default_rng(0)
    y, domains = np.arange(48) % 2, np.arange(48) // 16
    x = (draw.integers(0, 120, (48, 3, 8, 8)) + 120 * y[:, None, None, None]).astype(np.uint8)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    model = quick(net=own, steps=40, lr=0.02).fit(x, y, domains=domains)
    assert model.score(x, y) > 0.9
    large = np.repeat(np.repeat(x, 2, axis=2), 2, axis=3)
    assert model.predict_proba(large).shape == (48, 2)
    np.testing.assert_allclose(model.predict_proba(x / 255.0), model.predict_proba(x), atol=1e-5)
    with pytest.raises(UsageError, match=r"images \(row, 3, height, width\), but the input has shape \[48, 1, 8, 8\]"):
        model.predict(x[:, :1])
    with pytest.raises(UsageError, match="reads images"):
        quick(net="resnet18").fit(x[:, :1], y, domains=domains)


def test_class_weights_move_the_balance():
    draw = np.random.default_rng(0)
    y = (draw.random(300) < 0.1).astype(int)
    x, domains = draw.standard_normal((300, 2)) + 0.7 * y[:, None], np.arange(300) // 100
    found = {
        w: quick("agg", class_weight=w, steps=80).fit(x, y, domains=domains).predict(x).mean()
        for w in (None, "balanced")
    }
    assert found[None] < 0.1 < found["balanced"]
    given = quick("agg", class_weight={0: 1, 1: 9.0}, steps=80).fit(x, y, domains=domains).predict(x).mean()
    assert abs(given - found["balanced"]) < 0.1


X4, Y4 = np.arange(16.0).reshape(8, 2), np.arange(8) % 2


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"algorithm": "mlgd"}, "There is no algorithm 'mlgd'. Did you mean 'mldg'?"),
        ({"algorithm": 3}, "algorithm is 3, but it must be a name"),
        ({"settings": {"gamma": 1}}, "fo-s-mldg+ema has no setting 'gamma'"),
        ({"settings": 3}, "settings are names with values"),
        ({"steps": 0}, "steps is 0, but at least 1 is needed"),
        ({"steps": "many"}, "steps is 'many', but it must be a number"),
        ({"lr": None}, "lr is None, but it must be a number"),
        ({"lr": -1.0}, "lr is -1.0, but it must be a finite number"),
        ({"validation": 1.0}, "validation is 1.0, but it must be a share"),
        ({"stop": 1000}, "stop is 1000, but it must be a number of steps from 1 to 30"),
        ({"net": "resnet19"}, "There is no net 'resnet19'"),
        ({"net": 5}, "net is 5, but it must be a name"),
        ({"hidden": 5}, "hidden is 5, but it must be 'auto' or the widths"),
        ({"batchnorm": "off"}, "There is no BatchNorm policy 'off'"),
        ({"criterion": "f1"}, "There is no criterion 'f1'"),
        ({"class_weight": "even"}, "There is no class weight 'even'"),
        ({"class_weight": {7: 1.0}}, "There is no class '7'"),
        ({"class_weight": {0: 0, 1: 0}}, "gives no weight to any row"),
        ({"class_weight": 5}, "class_weight is 5, but it must be None"),
        ({"device": "tpu"}, "There is no device 'tpu'"),
        ({"augment": "strong"}, "There is no augmentation 'strong'"),
        ({"random_state": -3}, "random_state is -3"),
        ({"optimizer": "lion"}, "There is no optimizer 'lion'"),
        ({"image_size": 0}, "image_size is 0"),
        ({"lr": 1e30, "optimizer": "sgd"}, "Training diverged within"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(parameters, sentence):
    with pytest.raises(UsageError) as caught:
        quick(**parameters).fit(X4, Y4, domains=Y4)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("x", "y", "domains", "sentence"),
    [
        (X4, ["a", None] * 4, None, "4 rows without a label (from 0: 1, 3, 5, 7)"),
        (X4, [0.0, np.nan] * 4, None, "4 rows without a label"),
        (X4, Y4, ["n", None] * 4, "There is no domain for 4 rows (from 0: 1, 3, 5, 7)"),
        (X4, Y4, ["n"] * 7, "There are 8 labels but 7 domains"),
        (X4, [1] * 8, None, "There is only one class, 1"),
        (X4[:7], Y4, None, "X has 7 rows and y 8"),
        (np.eye(24), np.arange(24), None, "y has 24 different labels in 24 rows, each of them in a single row"),
        (np.eye(24), [*range(20), 0, 1, 2, 3], None, "24 rows, 16 of them in a single row"),
        (X4, np.linspace(0, 1, 8), None, "Unknown label type: continuous"),
        (X4, [0.0, np.inf] * 4, None, "Input y contains infinity"),
        (X4[:0], Y4[:0], None, "0 sample(s)"),
        (X4[:, 0], Y4, None, "Expected 2D array, got 1D array instead"),
        (pd.DataFrame(index=range(8)), Y4, None, "The table has 8 rows and 0 columns"),
        (pd.DataFrame({"a": []}), [], None, "The table has 0 rows and 1 columns"),
        (X4, [(1, 2)] * 8, None, "y should be a 1d array"),
        (X4, pd.to_datetime(["2020-01-01", "2021-01-01"] * 4), None, "The labels are dates: give them as text"),
        (X4, np.array([date(2020, 1, 1), date(2021, 1, 1)] * 4), None, "The labels are dates: give them as text"),
        (pd.DataFrame({"a": [None] * 8}, dtype=object), Y4, ["n", "s"] * 4, "No column of the table holds any value"),
    ],
)
def test_bad_rows_labels_and_domains_are_refused_in_a_sentence(x, y, domains, sentence):
    with pytest.raises(UsageError) as caught:
        quick().fit(x, y, domains=domains)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("of", ["y", "domains"])
def test_an_index_in_another_order_is_warned_of(of):
    x, given = pd.DataFrame(X4), {"y": pd.Series(Y4), "domains": pd.Series(["n", "s"] * 4)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(x, **given)
        quick().fit(x.set_axis(range(10, 18)), **given)  # an index of its own says nothing
        quick().fit(x, **{name: list(values) for name, values in given.items()})
    with pytest.warns(UserWarning, match=rf"The index of {of} has the entries of X's in another order"):
        quick().fit(x, **{**given, of: given[of][::-1]})


def test_a_class_that_only_one_domain_has_is_noted():
    model = quick().fit(X4, [0, 0, 0, 1, 2, 1, 0, 1], domains=["n"] * 4 + ["s"] * 4)
    assert model.notes_ == ["The class '2' is missing from n."]


def test_all_rows_can_be_trained_on_and_the_last_step_kept():
    model = quick(validation=0).fit(X4, Y4, domains=Y4)
    assert model.step_ == 30
    assert model.validation_ == {}
    assert quick(stop=7).fit(X4, Y4, domains=Y4).step_ == 7


class Flat(torch.nn.Module):
    """A net that cannot read 0 rows."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x.view(x.size(0), -1))


def test_without_validation_a_net_never_sees_zero_rows():
    x, y = np.random.default_rng(0).standard_normal((40, 4)), np.arange(40) % 2
    model = seqdg.DomainClassifier("agg", net=Flat(), validation=0, steps=5).fit(x, y, domains=np.arange(40) // 20)
    assert model.step_ == 5
    assert model.validation_ == {}


def test_a_training_that_diverges_stops_at_the_next_evaluation():
    x, y = np.random.default_rng(0).standard_normal((40, 4)), np.arange(40) % 2
    wild = seqdg.DomainClassifier("agg", steps=100, evaluations=10, optimizer="sgd", lr=1e30)
    with pytest.raises(seqdg.UsageError, match="Training diverged within 10 steps"):
        wild.fit(x, y, domains=np.arange(40) // 20)


def test_a_fit_leaves_torch_as_it_is_set():
    def flags():
        cudnn = torch.backends.cudnn
        return cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32

    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = False, True
    before = flags()
    x, y = np.random.default_rng(0).standard_normal((40, 4)), np.arange(40) % 2
    seqdg.DomainClassifier("agg", steps=2).fit(x, y, domains=np.arange(40) // 20)
    assert flags() == before

"""The estimators of scikit-learn that are candidates by name: what they fit, how rows weigh, and how they are kept."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from seqdg import UsageError
from seqdg.bench import Group, RowsInMemory, Session, Task, find_learner
from seqdg.bench.learners.estimators import is_of_sklearn, read_skops, write_skops
from seqdg.data import Dataset
from seqdg.nets import Net, NetSpec
from seqdg.training import Protocol

BOTH = ("hist-gradient-boosting", "random-forest", "extra-trees", "svc", "knn")
BALANCED = ("logistic", "ridge", "hist-gradient-boosting", "random-forest", "extra-trees", "svc")


def make_rows(seed: int = 0, rows: int = 90):
    """Rows of three domains whose classes a line tells."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 4)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] + 0.2 * draw.normal(size=rows) > 0).astype(np.int64)
    return x, y + (x[:, 2] > 0.8), np.arange(rows) % 3


def fit(name: str, x, y, domain, classes: int, seed: int = 0, **changes):
    learner = find_learner(name)
    return learner.fit(x, y, domain, classes, seed, **{**learner.settings, **changes})


def make_task(rows: int = 90, **changes) -> Task:
    x, y, domain = make_rows(rows=rows)
    validation = torch.arange(rows) % 5 == 0
    dataset = Dataset(
        "toy", ("a", "b", "c"), ("p", "q", "r"), torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(domain),
        "toy", validation,
    )  # fmt: skip
    protocol = Protocol(steps=1, split="official")
    return Task("toy", RowsInMemory(dataset), NetSpec("mlp"), "none", protocol, **changes)


def make_trial(task: Task, name: str, seed: int = 0, held_out=("c",), **settings):
    from seqdg.core import describe_settings

    texts = describe_settings(find_learner(name).build_settings(name, **settings))
    return task.make_trial(name, texts, task.protocol, held_out, seed)


@pytest.mark.parametrize("name", ["logistic", *BOTH])
def test_they_tell_classes_apart_and_give_probabilities_that_follow_the_row(name):
    x, y, domain = make_rows(rows=300)
    predict, (new, truth, _) = fit(name, x, y, domain, 3), make_rows(1, rows=300)
    p = predict(new)
    assert (p.argmax(1) == truth).mean() > 0.75
    assert np.allclose(p.sum(1), 1)
    assert np.array_equal(predict(new[5:6]), p[5:6]) or np.allclose(predict(new[5:6]), p[5:6], atol=1e-12)
    moved = new.copy()
    moved[:, 0] -= 3.0
    assert not np.allclose(predict(moved), p)


@pytest.mark.parametrize("name", ["ridge", *BOTH])
def test_they_predict_numbers_where_there_are_no_classes(name):
    x, _, domain = make_rows(rows=300)
    new = make_rows(1, rows=300)[0]
    said = fit(name, x, x[:, 0] + x[:, 1], domain, 0)(new)
    assert said.shape == (300,)
    assert np.corrcoef(said, new[:, 0] + new[:, 1])[0, 1] > 0.8


def test_they_are_those_of_scikit_learn_with_these_settings():
    x, y, domain = make_rows()
    wide = x.astype(np.float64)
    logistic = LogisticRegression(C=0.3, max_iter=300, tol=1e-3).fit(wide, y)
    assert np.array_equal(fit("logistic", x, y, domain, 3, inverse_decay=0.3)(x), logistic.predict_proba(wide))
    number = wide[:, 0] ** 2
    ridge = Ridge(alpha=5.0).fit(wide, number)
    assert np.array_equal(fit("ridge", x, number, domain, 0, decay=5.0)(x), ridge.predict(wide))
    boosting = HistGradientBoostingRegressor(max_iter=7, learning_rate=0.2, early_stopping=False, random_state=0)
    said = fit("hist-gradient-boosting", x, number, domain, 0, rounds=7, rate=0.2)(x)
    assert np.array_equal(said, boosting.fit(wide, number).predict(wide))
    forest = RandomForestClassifier(9, random_state=4).fit(wide, y)
    assert np.array_equal(fit("random-forest", x, y, domain, 3, seed=4, trees=9)(x), forest.predict_proba(wide))


@pytest.mark.parametrize("name", ["logistic", "ridge"])
def test_balanced_rows_make_a_domain_count_the_same_however_often_it_is_repeated(name):
    x, y, domain = make_rows()
    classes = 3 if name == "logistic" else 0
    repeated = np.concatenate([np.arange(90), *[np.flatnonzero(domain == 0)] * 4])
    strong = {"inverse_decay": 1e6} if classes else {"decay": 0.0}  # a penalty would count for less beside more rows
    plain = fit(name, x, y, domain, classes, **strong)(x)
    again = fit(name, x[repeated], y[repeated], domain[repeated], classes, balance=True, **strong)(x)
    pooled = fit(name, x[repeated], y[repeated], domain[repeated], classes, **strong)(x)
    assert np.abs(again - plain).max() < 0.02
    assert np.abs(pooled - plain).max() > 2 * np.abs(again - plain).max()


@pytest.mark.parametrize("name", BALANCED)
def test_every_one_that_weighs_rows_answers_to_their_weights(name):
    x, y, domain = make_rows()
    classes = 0 if name == "ridge" else 3
    heavy = np.where(y == 0, 20.0, 1.0)
    learner = find_learner(name)
    assert learner.weighs
    new = make_rows(1)[0]
    said = learner.fit(x, y, domain, classes, 0, weight=heavy, **learner.settings)(new)
    assert not np.allclose(said, fit(name, x, y, domain, classes)(new))


def test_a_class_that_no_source_has_gets_no_probability_and_one_class_alone_gets_all():
    x, y, domain = make_rows()
    p = fit("logistic", x, np.where(y == 1, 2, y), domain, 4)(x)
    assert p.shape == (90, 4)
    assert np.allclose(p[:, [1, 3]], 0)
    assert np.array_equal(fit("svc", x, np.full(90, 2), domain, 4)(x), np.tile([0.0, 0, 1, 0], (90, 1)))


def test_a_machine_with_few_rows_of_a_class_still_tells_it():
    x, y, domain = make_rows()
    y[:] = x[:, 0] > 0
    y[:2] = 2
    p = fit("svc", x, y, domain, 3)(x)
    assert np.allclose(p.sum(1), 1)
    assert p[:, 2].max() > 0


def test_many_rows_are_refused_by_svc_and_make_the_trees_of_a_forest_smaller():
    x, y, domain = make_rows()
    forest = find_learner("random-forest")
    many, few = np.zeros(400_000), np.zeros(720)
    assert forest.make(many, many, 3, 0, **forest.settings).max_samples == 10_000
    assert forest.make(many, many, 3, 0, **forest.settings).max_leaf_nodes == 4096
    assert forest.make(few, few, 3, 0, **forest.settings).max_leaf_nodes is None
    assert find_learner("extra-trees").make(many, many, 3, 0, **forest.settings).bootstrap
    grown = fit("extra-trees", x, y, domain, 3, most_rows=30).estimator
    assert max(tree.tree_.n_node_samples[0] for tree in grown.estimators_) <= 30
    assert "from 30 of 90 rows" in forest.describe_fit(90, **{**forest.settings, "most_rows": 30})[0]
    assert len(fit("knn", x, y, domain, 3, most_rows=30).estimator._fit_X) == 30
    task = make_task(20_000)
    with pytest.raises(UsageError, match=r"svc compares every row .* fewer than 20,000 rows, and toy has 20,000"):
        find_learner("svc").check(make_trial(task, "svc"), task, Net(torch.nn.Linear(4, 3), "none"))


def test_seeds_share_one_fit_where_nothing_is_drawn(monkeypatch):
    task = make_task()
    learner = find_learner("logistic")
    fits = []
    monkeypatch.setattr(type(learner), "make", lambda self, *about, **s: fits.append(1) or LogisticRegression())
    trials = tuple(make_trial(task, "logistic", seed) for seed in range(3))
    assert len({learner.share(trial, task) for trial in trials}) == 1
    records = learner.train(Group(trials), Session(task))
    assert len(fits) == 1
    assert [r.key for r in records] == [t.key for t in trials]
    assert len({r.key for r in records}) == 3
    assert [r.description["seed"] for r in records] == [0, 1, 2]
    drawn = replace(trials[0], protocol=replace(task.protocol, split="random"))
    assert learner.share(drawn, task) != learner.share(replace(drawn, seed=1), task), "then they have other rows"
    forest = find_learner("random-forest")
    one, two = (make_trial(task, "random-forest", seed, trees=5) for seed in (0, 1))
    assert forest.share(one, task) != forest.share(two, task)
    values = [r.history[0].source["log_loss"] for r in forest.train(Group((one, two)), Session(task))]
    assert values[0] != values[1]


def test_class_weights_reach_the_fit():
    record = []
    for weight in (None, {"p": 1.0, "q": 50.0, "r": 1.0}):
        task = make_task(class_weight=weight)
        trial = make_trial(task, "logistic")
        find_learner("logistic").check(trial, task, Net(torch.nn.Linear(4, 3), "none"))
        record.append(find_learner("logistic").train_one(trial, task)[0](task.dataset().x.numpy()))
    assert record[1][:, 1].mean() > record[0][:, 1].mean() + 0.2
    task = make_task(class_weight="balanced")
    with pytest.raises(UsageError, match="knn weighs no classes"):
        find_learner("knn").check(make_trial(task, "knn"), task, Net(torch.nn.Linear(4, 3), "none"))


class Foreign(ClassifierMixin, BaseEstimator):
    """A user's own class."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self


def double(x):
    return 2 * x


def test_only_what_is_of_scikit_learn_is_written_and_read():
    x, y, _ = make_rows()
    x = x.astype(np.float64)
    whole = make_pipeline(StandardScaler(), FunctionTransformer(np.sign), LogisticRegression()).fit(x, y)
    assert np.array_equal(read_skops(write_skops(whole)).predict_proba(x), whole.predict_proba(x))
    with pytest.raises(UsageError, match=r"A model of Foreign holds .*Foreign, and only scikit-learn's own classes"):
        write_skops(Foreign().fit(x, y))
    with pytest.raises(UsageError, match="double, and only scikit-learn's own"):
        write_skops(make_pipeline(FunctionTransformer(double), LogisticRegression()).fit(x, y))
    import skops.io

    with pytest.raises(UsageError, match="Foreign, which is not scikit-learn's own: it is not loaded"):
        read_skops(skops.io.dumps(Foreign().fit(x, y)))
    assert is_of_sklearn("sklearn.tree._tree.Tree")
    assert not is_of_sklearn("sklearn.utils.validation.check_array"), "a function may run anything"
    assert not is_of_sklearn("sklearn.base.nothing")
    assert not is_of_sklearn("sklearn.no_module.Tree")
    assert not is_of_sklearn("os.system")
    assert not is_of_sklearn("sklearn.utils.fixes.os"), "a module of another package"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "random-forest", "hist-gradient-boosting"])
def test_the_same_model_is_the_same_bytes(name, monkeypatch):
    x, y, domain = make_rows()
    one, other = (fit(name, x, y, domain, 3).estimator for _ in range(2))
    first = write_skops(one)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(10**9))
    assert write_skops(other) == first
    assert np.array_equal(read_skops(first).predict_proba(x), one.predict_proba(x))

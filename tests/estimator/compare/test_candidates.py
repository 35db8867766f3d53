"""Candidates of every kind: names, estimators and pipelines of scikit-learn, judged on the same folds as networks."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import seqdg
from seqdg import DomainClassifier, UsageError
from seqdg.bench import find_learner
from seqdg.estimator.compare.comparing import NETS, choose_learners, list_usual, name_candidates
from seqdg.estimator.compare.folds import Sweep
from seqdg.estimator.user_data import make_user_data

TEMPLATE = DomainClassifier(steps=3, evaluations=1, device="cpu", hidden=(4,))
NAMES = ("north", "east", "south")


def make_rows(seed: int = 0, each: int = 40):
    """Rows whose class no line tells; the last column is noise and has other units in every domain."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(len(NAMES) * each, 3))
    x[:, 2] += 5 * np.repeat(np.arange(len(NAMES)), each)
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "other"), np.repeat(NAMES, each)


def compare(*candidates, **how):
    usual = {
        "estimator": TEMPLATE,
        "seeds": 1,
        "rules": ("source-val",),
        "select": "source-val",
        "baseline": None,
        "ensemble": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return seqdg.compare(*make_rows(), list(candidates), **{**usual, **how})


class Watcher(ClassifierMixin, BaseEstimator):
    """A user's own class, which remembers what it saw."""

    seen: list = []  # noqa: RUF012

    def fit(self, x, y):
        self.seen.append(np.array(x))
        self.classes_ = np.unique(y)
        return self

    def predict(self, x):
        return np.full(len(x), self.classes_[0])


def test_objects_are_named_by_their_class_pipelines_by_their_last_step_and_all_are_told_apart():
    objects = [
        RandomForestClassifier(), make_pipeline(PCA(2), LogisticRegression()), RandomForestClassifier(5), "logistic",
        RandomForestClassifier(6),
    ]  # fmt: skip
    names = ["RandomForestClassifier", "LogisticRegression", "RandomForestClassifier-2", "logistic"]
    assert list(name_candidates(objects)) == [*names, "RandomForestClassifier-3"]


@pytest.mark.slow
def test_an_object_that_wins_is_fitted_saved_loaded_and_shown(tmp_path: Path):
    tree = DecisionTreeClassifier(min_samples_leaf=2)
    found = compare("agg", make_pipeline(PCA(2), LogisticRegression()), tree)
    assert found.winner.algorithm == "DecisionTreeClassifier"
    assert found.winner.settings["estimator"].estimator is tree
    assert "DecisionTreeClassifier (estimator = DecisionTreeClassifier(min_samples_leaf=2)) was chosen" in str(found)
    assert not hasattr(tree, "tree_"), "what was given stays as it is"
    x, y, _ = make_rows(1)
    p = found.estimator.predict_proba(x)
    assert (found.estimator.predict(x) == y).mean() > 0.6
    found.estimator.save(tmp_path / "model")
    again = DomainClassifier.load(tmp_path / "model", device="cpu")
    assert np.array_equal(again.predict_proba(x), p)
    assert again.get_params()["algorithm"].min_samples_leaf == 2
    assert not np.array_equal(again.predict_proba(x + 1.0), p)
    again.fit(*make_rows()[:2], domains=make_rows()[2])
    assert np.array_equal(again.predict_proba(x), p), "it can be fitted anew, to the same model"
    assert "# A model trained by DecisionTreeClassifier" in (tmp_path / "model" / "card.md").read_text()


def test_what_cannot_be_saved_is_said_before_anything_trains(monkeypatch):
    monkeypatch.setattr(Watcher, "seen", [])
    words = r"Watcher is compared and may win, but cannot be saved: A model of Watcher holds .*Watcher"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=words):
            seqdg.compare(*make_rows(), [Watcher()], estimator=TEMPLATE, seeds=1, baseline=None)
    assert not Watcher.seen


def test_a_class_of_the_users_own_is_compared_but_not_saved(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Watcher, "seen", [])
    found = compare(Watcher())
    assert any(note.startswith("Watcher is compared and may win, but cannot be saved") for note in found.notes)
    assert set(found.scores()) == {"Watcher", "chosen"}
    with pytest.raises(UsageError, match=r"A model of Watcher holds .*Watcher, and only scikit-learn's own classes"):
        found.estimator.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    x, _, domains = make_rows()
    assert len(Watcher.seen) == 5, "with none held out, with each, and the final fit"
    matched = []
    for seen in sorted(Watcher.seen[:4], key=len)[:3]:
        assert len(seen) == 0.8 * 80, "rows for validation are left out, as for a net"
        for out in NAMES:
            sources = x[domains != out]
            scaled = (sources[:, 2] - sources[:, 2].mean()) / sources[:, 2].std()
            matched += [out] if np.abs(seen[:, 2][:, None] - scaled).min(1).max() < 1e-5 else []
    assert sorted(matched) == sorted(NAMES), "each is scaled by its sources alone"


def test_what_gives_no_probabilities_is_judged_by_its_scores():
    found = compare(LinearSVC(), LogisticRegression())
    a, b = (found.scores()[name]["average"] for name in ("LinearSVC", "LogisticRegression"))
    assert abs(a - b) < 0.1
    fitted = DomainClassifier(LinearSVC(), device="cpu").fit(*make_rows()[:2], domains=make_rows()[2])
    assert np.allclose(fitted.predict_proba(make_rows(1)[0]).sum(1), 1)


def test_a_seed_decides_what_an_object_without_one_draws():
    x, y, domains = make_rows()
    new = make_rows(1)[0]

    def fit(seed, **parameters):
        forest = RandomForestClassifier(5, **parameters)
        model = DomainClassifier(forest, validation=0.0, random_state=seed, device="cpu")
        return model.fit(x, y, domains=domains).predict_proba(new)

    assert np.array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))
    assert np.array_equal(fit(1, random_state=7), fit(2, random_state=7)), "its own comes first"


@pytest.mark.slow
def test_workers_train_objects_too():
    alone, together = (compare(DecisionTreeClassifier(random_state=0), "knn", workers=w, refit=False) for w in (0, 1))
    assert alone.scores() == together.scores()


def test_one_that_cannot_be_trained_is_left_out_with_a_note_where_others_were_named():
    found = compare("knn", "ridge", LinearRegression(), refit=False)
    assert list(found.algorithms) == ["knn"]
    notes = "\n".join(found.notes)
    assert "ridge was left out: ridge is a regressor, and the data is a classification task" in notes
    assert "LinearRegression was left out: LinearRegression is a regressor, and the data is a classification" in notes
    with pytest.raises(UsageError, match="ridge is a regressor"):
        compare("ridge", LinearRegression())
    with pytest.raises(UsageError, match="There is no algorithm 'knm'"):
        compare("knn", "knm")


def test_what_is_no_candidate_is_refused_in_a_sentence():
    for candidate, words in (
        (LogisticRegression, "A candidate is the class LogisticRegression, but it must be a name"),
        (3, "A candidate is 3, but it must be a name"),
        (DomainClassifier("agg"), "`estimator` sets how networks are trained"),
    ):
        with pytest.raises(UsageError, match=words):
            compare(candidate)
    with pytest.raises(UsageError, match="candidates is 'agg', but it must be a list"):
        seqdg.compare(*make_rows(), "agg")
    with pytest.raises(UsageError, match="LogisticRegression is an object of your own: set C on the object itself"):
        compare(LogisticRegression(), settings={"LogisticRegression": {"C": 3.0}})


def test_the_usual_candidates_are_of_both_kinds_for_rows_and_nets_for_images():
    x, y, domains = make_rows()
    recipe = TEMPLATE.make_recipe()
    rows = list_usual(make_user_data(x, y, domains, recipe).dataset)
    assert len(rows) >= 10
    assert {"agg", "fo-s-mldg+ema", "logistic", "hist-gradient-boosting", "random-forest", "svc"} <= set(rows)
    images = make_user_data(np.zeros((120, 1, 4, 4), np.uint8), y, domains, DomainClassifier(net="mlp").make_recipe())
    assert list_usual(images.dataset) == NETS


def test_the_leaderboard_has_a_row_for_each_candidate_the_best_first():
    found = compare("agg", "knn", DecisionTreeClassifier(max_depth=1), refit=False)
    board = found.leaderboard()
    assert list(board.iloc[-1][["candidate", "fit_seconds", "chosen"]]) == ["majority-class", 0, False]
    assert board.iloc[-1][["rank", "source_val"]].isna().all()
    board = board[:-1]
    names = ["rank", "candidate", "held_out", "worst", "stderr", "source_val", "fit_seconds", "predict_seconds"]
    assert list(board.columns) == [*names, "chosen", "transductive"]
    assert list(board["rank"]) == [1, 2, 3]
    assert sorted(board["held_out"], reverse=True) == list(board["held_out"])
    assert list(board["candidate"][board["chosen"]]) == [found.winner.algorithm]
    for _, row in board.iterrows():
        scores = found.scores()[row["candidate"]]
        each = [100 * scores[name] for name in NAMES]  # in %, as it is printed
        assert row["held_out"] == pytest.approx(np.mean(each))
        assert row["worst"] == min(each)
        assert row["stderr"] == pytest.approx(np.std(each, ddof=1) / np.sqrt(3))
        own = [o for o in found.outcomes["source-val"] if o.algorithm == row["candidate"]]
        assert min(o.record.serving for o in own) > 0
        assert row["predict_seconds"] == pytest.approx(np.mean([o.record.serving for o in own]))
        assert min(o.record.seconds for o in own) > 0
        assert row["fit_seconds"] == pytest.approx(np.mean([o.record.seconds for o in own]))
        validated = np.mean([o.record.history[-1].source["accuracy"] for o in own])
        assert row["source_val"] == pytest.approx(100 * validated)
    first = str(found).splitlines()[2].split()[0]
    assert first == board["candidate"][0], "the text is in this order too"


def test_the_leaderboard_of_an_error_begins_with_the_smallest():
    board = compare("knn", DecisionTreeClassifier(), criterion="log_loss", refit=False).leaderboard()
    assert list(board["candidate"]) == ["knn", "DecisionTreeClassifier", "majority-class"]
    assert board["held_out"][0] < board["held_out"][1]


@pytest.mark.slow
def test_a_usual_candidate_that_needs_more_domains_than_a_nested_comparison_leaves_gives_way():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = seqdg.compare(*make_rows(each=20), estimator=TEMPLATE, seeds=1, refit=False)
    assert len(found.algorithms) == 10
    assert found.nested
    assert "coral+ema was left out: pairs of the 3 domains are held out to judge the choice" in str(found)
    named = compare("agg", "coral+ema", select="leave-one-out", refit=False)
    assert list(named.algorithms) == ["agg", "coral+ema"]


def test_a_usual_candidate_that_would_take_minutes_gives_way_unless_it_is_named(monkeypatch):
    boosting = type(find_learner("hist-gradient-boosting"))
    monkeypatch.setattr(boosting, "most_work", 100)
    sweep = Sweep(
        make_user_data(*make_rows(), TEMPLATE.make_recipe(), keep_missing=True), TEMPLATE.make_recipe(), range(1),
        within=False,
    )  # fmt: skip
    learners, notes = choose_learners(None, "agg", sweep)
    assert "hist-gradient-boosting" not in learners
    assert "hist-gradient-boosting was left out: for so many rows, inputs and classes it would take" in "".join(notes)
    assert "hist-gradient-boosting" in choose_learners(["hist-gradient-boosting"], "agg", sweep)[0]
    monkeypatch.undo()
    assert "hist-gradient-boosting" in choose_learners(None, "agg", sweep)[0]

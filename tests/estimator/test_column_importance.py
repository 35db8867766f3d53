"""Permutation importance by domain: what a column is worth where the model was trained, and beyond."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.data import make_frame
from seqdg.estimator.column_importance import Importance, judge
from seqdg.results import Spread, estimate_spread


class Rule(ClassifierMixin, BaseEstimator):
    """A model without training: it says class 1 where its first column is positive."""

    def fit(self, X, y):
        return self

    def score(self, X, y):
        return float(((np.asarray(X)[:, 0] > 0) == y).mean())


@pytest.fixture(scope="module")
def sites():
    """Of five sites: `good` means the same everywhere, `local` has another zero at each, `noise` means nothing."""
    draw = np.random.default_rng(0)
    site = np.repeat(np.arange(5), 80)
    good, local, noise = draw.standard_normal((3, 400))
    return pd.DataFrame({"good": good, "local": local + 8 * site, "noise": noise}), (good + local > 0) * 1, site


def test_the_drop_is_the_score_before_minus_the_mean_score_after_shuffles_within_a_domain():
    """Of a rule that reads one column perfectly, a shuffle leaves the share of rows that keep their class by chance."""
    x = np.array([[1.0, 5], [-1, 5], [1, 5], [-1, 5], [1, 5], [1, 5], [1, 5], [1, 5]])
    y, domains = (x[:, 0] > 0).astype(int), [0, 0, 0, 0, 1, 1, 1, 1]
    found = seqdg.importance(Rule(), x, y, domains, repeats=50)
    assert found.scores.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    by_domain = {(r.held_out, r.column): r for r in found.by_domain().itertuples()}
    assert by_domain["1", "x0"].unseen == 0.0  # all rows of domain 1 have one sign: shuffles within it change nothing
    assert by_domain["0", "x0"].unseen == pytest.approx(0.5, abs=0.1)  # of 4 rows, half keep their class by chance
    assert by_domain["0", "x1"].unseen == by_domain["0", "x1"].seen == 0.0


def test_what_transfers_is_told_from_what_holds_at_some_sites_only(sites):
    bins = make_column_transformer((KBinsDiscretizer(60, strategy="uniform"), ["local"]), remainder="passthrough")
    found = seqdg.importance(make_pipeline(bins, LogisticRegression()), *sites, repeats=2)
    rows = found.frame().set_index("column")
    assert rows.loc["good", "verdict"] == "transfers"
    assert rows.loc["local", "verdict"] == "does not transfer"
    assert rows.loc["noise", "verdict"] == "little"
    assert rows.loc["local", "seen"] > 0.1
    assert abs(rows.loc["local", "unseen"]) < 0.1
    text = str(found)
    assert "does not transfer: helps where the model was trained, and less or not at all beyond" in text
    assert "each held out in turn" in text


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(sites):
    x, y, site = sites
    one, same, other = (
        seqdg.importance(LogisticRegression(), x, y, site, random_state=s, repeats=1).drops for s in (0, 0, 1)
    )
    assert (one == same).all()
    assert (one != other).any()


def test_frames_arrays_and_tables_of_seqdg_give_the_same_drops(sites):
    x, y, site = sites
    as_frame = seqdg.importance(LogisticRegression(), x, y, site, repeats=1)
    as_array = seqdg.importance(LogisticRegression(), x.to_numpy(), y, site, repeats=1)
    assert as_frame.drops == pytest.approx(as_array.drops)
    model = seqdg.DomainClassifier("agg", steps=10, hidden=(4,), evaluations=1, device="cpu")
    drops = [seqdg.importance(model, t, y, site, repeats=1, columns=["good"]).drops for t in (x, make_frame(x))]
    assert drops[0] == pytest.approx(drops[1])
    assert not hasattr(model, "model_")  # it stays as it is


def test_verdicts_follow_the_intervals():
    sure, unsure = Spread(0.1, 0.01, 0.05, 0.15), Spread(0.1, 0.1, -0.2, 0.4)
    assert judge(unsure, sure, unsure) == "transfers"
    assert judge(sure, unsure, sure) == "does not transfer"
    assert judge(sure, unsure, unsure) == "varies"
    assert judge(sure, Spread(-0.1, 0.01, -0.15, -0.05), sure) == "misleads"
    assert judge(unsure, unsure, sure) == "little"
    assert judge(Spread(0.3), Spread(0.3), Spread(0.0)) == "little"  # one domain alone decides nothing


def test_an_interval_is_student_s():
    """mean +- t * s / sqrt(n) with t(2) = 4.302653 at 95 %."""
    spread = estimate_spread([1.0, 2.0, 3.0, float("nan")])
    assert (spread.mean, spread.error) == (2.0, pytest.approx(1 / np.sqrt(3)))
    assert spread.high - spread.mean == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert estimate_spread([1.0]) == Spread(1.0)


def test_of_many_columns_and_domains_some_are_drawn():
    drops = np.random.default_rng(0).standard_normal((3, 30, 2))
    found = Importance(tuple(f"c{i}" for i in range(30)), ("a", "b", "c"), drops, np.ones((3, 2)), 5, "accuracy")
    assert "10 columns that matter less are not drawn." in found.figure().caption
    assert "10 columns that matter less are not shown." in str(found)
    assert found.figure().name == "importance"
    assert [len(panel.rows) for panel in found.figure().panels] == [20, 20]  # a dot for each column
    model, site = Rule(), np.repeat(np.arange(12), 2)
    assert len(seqdg.importance(model, np.ones((24, 1)), np.ones(24), site, repeats=1).domains) == 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": ["goood"]}, "goood.*good"),
        ({"columns": []}, "No column was named"),
        ({"repeats": 0}, "at least 1"),
        ({"domains": np.zeros(400)}, "only the domain"),
        ({"X": np.ones((400, 2, 2))}, "give a table"),
        ({"y": np.zeros(3)}, "3 labels|y 3"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_sentence(sites, change, words):
    x, y, site = sites
    given = {"X": x, "y": y, "domains": site, **change}
    with pytest.raises(UsageError, match=words):
        seqdg.importance(Rule(), **given)


@pytest.mark.slow
def test_the_command_writes_frames_and_a_picture(sites, tmp_path):
    x, y, site = sites
    x.assign(y=y, site=site, extra=1.0).to_csv(tmp_path / "table.csv", index=False)
    model = seqdg.DomainClassifier("agg", steps=20, hidden=(4,), device="cpu").fit(x, y, domains=site)
    model.add_facts(label="y", domain="site")
    model.save(tmp_path / "model")
    words = ["importance", "model", "table.csv", "--out", "out", "--repeats", 2, "--device", "cpu"]
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "good" in done.stdout
    assert "extra" not in done.stdout  # the model does not read it
    for score, said in (
        ("accurracy", "has no score 'accurracy'. Did you mean 'accuracy'?"),
        ("f1_samples", "does not suit"),
    ):
        refused = command("importance", "model", "table.csv", "--scoring", score, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr.splitlines()[-1]
    frame = pd.read_csv(tmp_path / "out" / "importance.csv")
    assert set(frame["column"]) == {"good", "local", "noise"}
    assert len(pd.read_csv(tmp_path / "out" / "by_domain.csv")) == 15
    assert "Unseen domains" in (tmp_path / "out" / "importance.svg").read_text()


def test_of_a_regressor_the_drop_is_of_r_squared(sites):
    x, _, site = sites
    model = seqdg.DomainRegressor("ridge", device="cpu")
    found = seqdg.importance(model, x, 3.0 * x["good"].to_numpy(), site, repeats=1)
    assert "Drop of R²" in str(found)
    rows = found.frame().set_index("column")
    assert rows.loc["good", "verdict"] == "transfers"
    assert rows.loc["good", "unseen"] > 1.0

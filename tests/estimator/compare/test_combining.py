"""The weighted ensemble of a comparison: what it sees, what it reaches, and the model: fitted, saved and loaded."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.bench import ArrayLearner, register_learner
from seqdg.estimator import DomainClassifier, DomainRegressor
from seqdg.estimator.compare.combining import combine_candidates, measure, predict_together
from seqdg.estimator.compare.comparing import make_searches, name_candidates
from seqdg.estimator.compare.folds import KeptRecords, Sweep
from seqdg.estimator.recipe import WEIGHTED, WeightedEnsemble
from seqdg.estimator.user_data import make_user_data, read_input
from seqdg.training import calibrate

NAMES = ("logistic", "knn", "agg")
QUICK = {"steps": 50, "lr": 0.01, "hidden": (8,), "evaluations": 2, "members": 2, "device": "cpu"}


@register_learner("unkept")
class Unkept(ArrayLearner):
    """Says the same of every row, and does not say how it is saved."""

    def fit(self, x, y, domain, classes, seed):
        return lambda rows: np.full((len(rows), classes), 1 / classes)


def compared(hospitals, names=NAMES, kind=DomainClassifier, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = {"estimator": kind(**QUICK), "seeds": 2, "baseline": None, "rules": ()}
        return seqdg.compare(*hospitals, list(names), **{**usual, **how})


@pytest.fixture(scope="module")
def found(hospitals):
    return compared(hospitals)


@pytest.fixture(scope="module")
def saved(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("ensemble") / "model"
    found.estimator.save(path)
    return path


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def swept(hospitals, folder, names=("logistic", "knn")):
    x, y, domains = hospitals
    recipe = DomainClassifier("agg", **QUICK).make_recipe()
    sweep = Sweep(make_user_data(read_input(x), y, domains, recipe, keep_missing=True), recipe, range(1), within=True)
    sweep.sink = KeptRecords(folder, "test", criterion="accuracy")
    searches = make_searches(name_candidates(names), {}, 1, "random", recipe)
    sweep.run(searches, [(), *((d,) for d in sweep.domains)], "both")
    return sweep


def judge_ensemble(sweep):
    """The accuracy on east of the ensemble that is weighed without it."""
    ((outputs, _),) = predict_together(sweep, ("east",), NAMES, "both").values()
    return measure(sweep, "east", outputs)["accuracy"]


@pytest.mark.slow
def test_the_weights_that_are_judged_on_a_domain_have_seen_nothing_of_it(hospitals, tmp_path):
    x, y, domains = hospitals
    wrong = np.where(domains == "east", np.where(y == "ill", "healthy", "ill"), y)
    weights, reached = [], []
    for i, labels in enumerate((y, wrong)):
        sweep = swept((x, labels, domains), tmp_path / str(i))
        weights.append({d: sweep.weigh((d,), sweep.choose_members((d,), NAMES, "both"))[0] for d in sweep.domains})
        reached.append(judge_ensemble(sweep))
        sweep.sink.close()
    assert weights[0]["east"] == weights[1]["east"]
    assert weights[0]["west"] != weights[1]["west"]
    assert reached[1] == pytest.approx(1 - reached[0])


@pytest.mark.slow
def test_what_is_judged_is_the_mean_of_the_members_that_held_the_domain_out(hospitals, tmp_path):
    sweep = swept(hospitals, tmp_path)
    judged = judge_ensemble(sweep)
    weights, members = sweep.weigh(("east",), sweep.choose_members(("east",), NAMES, "both"))
    told = [sweep.predict(("east",), member, "east") for member in members]
    each = [w * calibrate(p, t) for w, p, t in zip(weights.shrunk, told, weights.temperatures, strict=True)]
    y, _ = sweep.take_labels("east")
    assert judged == pytest.approx(np.mean(sum(each).argmax(1) == y))
    for member, p in zip(members, told, strict=True):  # what is kept is what the record was measured on
        (record,) = sweep.list_records(("east",), member)
        assert record.history[0].held_out["accuracy"][0] == pytest.approx(np.mean(p.argmax(1) == y))
    combination = combine_candidates(sweep, NAMES, "both")
    assert [o.value for o in combination.outcomes if o.held_out == "east"] == [judged]
    sweep.sink.close()


@pytest.mark.slow
def test_the_ensemble_is_the_winner_and_a_single_pick_stands_beside_it(found):
    assert found.winner.algorithm == WEIGHTED
    scores = found.scores()
    assert found.expected == scores[WEIGHTED]["average"]
    assert list(scores) == [*NAMES, "chosen", WEIGHTED]
    board = found.leaderboard()
    assert set(board["candidate"]) == {*scores, "majority-class"}
    assert board.loc[board["chosen"], "candidate"].tolist() == [WEIGHTED]
    assert board["weight"].sum() == pytest.approx(1)
    assert sum(member.weight for member in found.members) == pytest.approx(1)
    assert found.pick.algorithm in NAMES
    text = str(found)
    assert f"{WEIGHTED} averages the probabilities of 3 of 3 candidates" in text
    assert "A single pick, selected in the same way, reaches" in text


def test_the_fitted_ensemble_averages_its_members_and_is_an_estimator(found, hospitals):
    x, y, _ = hospitals
    model = found.estimator
    p = model.predict_proba(x)
    parts = [
        member.weight * calibrate(DomainClassifier._restore(one, None, "cpu").predict_proba(x), member.temperature)
        for one, member in model.model_.members
    ]
    np.testing.assert_allclose(p, sum(parts), atol=1e-12)
    np.testing.assert_array_equal(model.predict(x), model.classes_[p.argmax(1)])
    assert model.score(x, y) == np.mean(model.predict(x) == y)
    assert set(model.validation_) == {"east", "north", "south", "west"}


def test_a_copy_of_the_ensemble_is_fitted_to_other_rows_like_any_estimator(found, hospitals):
    x, y, domains = hospitals
    again = clone(found.estimator).fit(x, y, domains=domains)
    np.testing.assert_array_equal(again.predict_proba(x), found.estimator.predict_proba(x))


def test_a_saved_ensemble_predicts_the_same(found, saved, hospitals):
    x, _, _ = hospitals
    loaded = DomainClassifier.load(saved, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x), found.estimator.predict_proba(x))
    assert isinstance(loaded.algorithm, WeightedEnsemble)
    assert [m.algorithm for m in loaded.algorithm.members] == [m.algorithm for m in found.members]
    kept = {path.relative_to(saved).parts[0] for path in saved.rglob("*")}
    assert kept == {"members", "model.json", "card.md"}


def test_the_command_line_shows_members_and_predicts(found, saved, hospitals, tmp_path):
    x, _, _ = hospitals
    shown = command("show", saved).stdout
    for member in found.members:
        assert f"| {member.algorithm} | {member.weight:.3f} |" in shown
    x.to_csv(tmp_path / "new.csv", index=False)
    command("predict", saved, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert len(lines) == 1 + len(x)
    np.testing.assert_allclose(float(lines[1].split(",")[1]), found.estimator.predict_proba(x)[0, 0], atol=1e-6)


@pytest.mark.parametrize("damage", ["missing", "weights", "exchanged", "description"])
def test_a_member_that_is_missing_or_changed_is_named(copied, damage):
    place = copied / "members" / "2"
    if damage == "missing":
        shutil.rmtree(place)
        sentence = "has no members/2: it is not all of the model"
    elif damage == "weights":
        content = bytearray((place / "model.safetensors").read_bytes())
        content[-1] ^= 1
        (place / "model.safetensors").write_bytes(content)
        sentence = "members/2/model.safetensors was changed"
    elif damage == "exchanged":
        shutil.rmtree(place)
        shutil.copytree(copied / "members" / "1", place)
        sentence = "members/2/model.json was changed"
    else:
        text = json.loads((copied / "model.json").read_text())
        text["ensemble"][0]["weight"] = 1.0
        (copied / "model.json").write_text(json.dumps(text))
        sentence = "model.json was changed"
    with pytest.raises(UsageError, match=sentence):
        DomainClassifier.load(copied)


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_to_the_same_ensemble(hospitals, found, tmp_path):
    def stop(progress):
        if progress.trials_done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compared(hospitals, runs=tmp_path, on_progress=stop, refit=False)
    says = []
    again = compared(hospitals, runs=tmp_path, on_message=says.append, refit=False)
    assert "Going on from" in says[0]
    assert again.members == found.members
    assert again.scores() == found.scores()
    damaged = next((tmp_path / "predictions").glob("*.safetensors"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0\0")
    assert compared(hospitals, runs=tmp_path, refit=False).members == found.members  # it is trained again


@pytest.mark.slow
def test_members_that_cannot_be_saved_are_compared_and_left_out_of_the_ensemble(hospitals):
    found = compared(hospitals, ("logistic", "knn", "unkept"), seeds=1)
    assert [m.algorithm for m in found.members if m.algorithm == "unkept"] == []
    assert "unkept" in found.scores()
    assert any(n.startswith("unkept is compared, but is no member of the ensemble") for n in found.notes)
    alone = compared(hospitals, ("logistic", "unkept"), seeds=1, refit=False)
    assert alone.winner.algorithm == "logistic"
    assert "There is no ensemble: fewer than 2 candidates can be saved." in alone.notes


def test_one_candidate_is_no_ensemble(hospitals):
    found = compared(hospitals, ["logistic"], seeds=1, refit=False)
    assert (found.winner.algorithm, found.members) == ("logistic", ())
    assert "There is no ensemble: only 1 candidate is compared." in found.notes


@pytest.mark.slow
def test_candidates_that_are_the_same_count_once(hospitals):
    same = [LogisticRegression(), LogisticRegression(), LogisticRegression(C=0.1), "knn", "knn"]
    found = compared(hospitals, same, seeds=1, refit=False)
    assert list(found.algorithms) == ["LogisticRegression", "LogisticRegression-3", "knn"]
    assert "LogisticRegression-2 is the same as LogisticRegression: it is compared once." in found.notes
    assert "knn is named more than once: it is compared once." in found.notes


def test_who_is_far_behind_is_named_and_one_member_may_have_all_weight(hospitals):
    x, _, domains = hospitals
    draw = np.random.default_rng(0)
    x = x.assign(age=draw.normal(size=len(x)))
    y = np.where(x["age"] > 0, "old", "young")
    found = compared((x, y, domains), ("logistic", "constant"), seeds=1)
    assert [(m.algorithm, m.weight) for m in found.members] == [("logistic", 1.0)]
    assert "constant is far behind on held-out domains, and not in the ensemble." in found.notes
    assert "All weight is on logistic: the ensemble is this one model." in found.notes
    assert found.estimator.score(x, y) > 0.9


@register_learner("constant")
class Constant(Unkept):
    """Says the same of every row."""

    def check_saving(self):
        """It is never fitted for good."""


@pytest.mark.slow
def test_numbers_are_averaged_as_they_are(hospitals, tmp_path):
    x, y, domains = hospitals
    number = np.where(y == "ill", 30.0, 10.0) + x["visits"].to_numpy()
    found = compared((x, number, domains), ("ridge", "knn", "agg"), DomainRegressor, seeds=1)
    assert found.criterion == "rmse"
    assert f"{WEIGHTED} averages the numbers of 3 of 3 candidates" in str(found)
    parts = [
        member.weight * DomainRegressor._restore(one, None, "cpu").predict(x)
        for one, member in found.estimator.model_.members
    ]
    np.testing.assert_allclose(found.estimator.predict(x), sum(parts))
    found.estimator.save(tmp_path / "model")
    loaded = DomainRegressor.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict(x), found.estimator.predict(x))


@pytest.mark.slow
def test_weights_of_rows_count_in_the_weights_of_members(hospitals):
    weight = np.where(np.arange(len(hospitals[2])) % 2, 10.0, 0.1)
    plain, weighed = (compared(hospitals, ("logistic", "random-forest"), seeds=1, refit=False, sample_weight=w)
                      for w in (None, weight))  # fmt: skip
    assert plain.members != weighed.members


def test_two_domains_are_judged_almost_nested(hospitals):
    x, y, domains = hospitals
    two = np.isin(domains, ["east", "west"])
    found = compared((x[two], y[two], domains[two]), ("logistic", "knn"), seeds=1, refit=False)
    assert not found.nested
    assert found.members


def test_transductive_members_make_the_ensemble_transductive(hospitals, tmp_path):
    x, _, domains = hospitals
    found = compared(hospitals, ("logistic", "t3a"), seeds=1)
    assert found.estimator.model_.together > 0
    found.estimator.save(tmp_path / "model")
    here = domains == "east"
    loaded = DomainClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x[here]), found.estimator.predict_proba(x[here]))


def test_an_algorithm_is_needed_where_one_is_meant(found, hospitals):
    with pytest.raises(UsageError, match="A weighted ensemble is several algorithms"):
        found.estimator.make_recipe()
    with pytest.raises(UsageError, match="at least one member, each with a weight above 0"):
        WeightedEnsemble(())


def test_a_comparison_is_a_short_text_and_in_a_notebook_its_leaderboard(found):
    assert len(repr(found)) < 400
    assert found.sentence in repr(found)
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + len(found.leaderboard())
    assert "<td>weighted-ensemble</td>" in html
    assert found.sentence in html.replace("&#x27;", "'")


@pytest.mark.slow
def test_domains_may_be_a_column_of_the_frame_and_progress_is_shown_unless_it_is_silenced(
    hospitals, capsys, monkeypatch
):
    x, y, domains = hospitals
    whole = x.assign(hospital=domains)
    for silent in (False, True):
        with monkeypatch.context() as patch:
            patch.setenv("FORCE_COLOR", "1")  # rich takes that for a terminal
            named = seqdg.compare(
                whole, y, "hospital", ["logistic"], baseline=None, seeds=1, verbose=0 if silent else 1
            )
        assert bool(capsys.readouterr().err) is not silent
    given = seqdg.compare(x, y, domains, ["logistic"], baseline=None, seeds=1, verbose=0)
    assert named.scores() == given.scores()
    assert "hospital" not in named.estimator.feature_names_in_
    named.estimator.predict(whole)  # the column may stay
    with pytest.raises(seqdg.UsageError, match="X has no column 'hospitol'"):
        seqdg.compare(whole, y, "hospitol", ["logistic"])

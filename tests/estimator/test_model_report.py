"""The page on a model: what it keeps of held-out domains, and what it shows of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, logit

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.estimator import DomainClassifier, DomainRegressor, read_description
from seqdg.estimator.model_report import build_model_page, describe_predictions, fit_calibration
from seqdg.results import predict_next_domain

QUICK = {"steps": 50, "lr": 0.01, "hidden": (8,), "evaluations": 2, "members": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def found(hospitals):
    how = {"estimator": DomainClassifier(**QUICK), "seeds": 1, "baseline": None, "rules": (), "verbose": 0}
    return seqdg.compare(*hospitals, ["logistic", "knn", "agg"], **how)


def test_slope_and_intercept_are_those_that_the_rows_were_drawn_with():
    draw = np.random.default_rng(0)
    p = draw.uniform(0.02, 0.98, 200_000)
    hit = draw.random(len(p)) < expit(-0.7 + 0.5 * logit(p))
    fitted = fit_calibration(p, hit, np.ones(len(p)))
    assert fitted["slope"] == pytest.approx(0.5, abs=0.02)
    right = fit_calibration(p, draw.random(len(p)) < p, np.ones(len(p)))
    assert right["slope"] == pytest.approx(1, abs=0.02)
    assert right["intercept"] == pytest.approx(0, abs=0.02)
    shifted = fit_calibration(p, draw.random(len(p)) < expit(logit(p) + 0.4), np.ones(len(p)))
    assert shifted["intercept"] == pytest.approx(0.4, abs=0.02)


def test_a_slope_that_no_rows_tell_is_left_out():
    p = np.array([0.1, 0.2, 0.8, 0.9])
    assert fit_calibration(p, p > 0.5, np.ones(4))["slope"] is None  # predictions separate the rows
    assert fit_calibration(p, p > 0, np.ones(4)) == {"slope": None, "intercept": None}


def test_bins_are_means_of_rows_with_like_predictions_and_a_weight_of_two_is_a_row_twice():
    draw = np.random.default_rng(1)
    p = draw.random(40)
    y = (draw.random(40) < p).astype(int)
    outputs = np.stack([1 - p, p], 1)
    about = describe_predictions(y, None, [outputs])
    order = np.argsort(p)
    assert about["bins"][0] == pytest.approx([p[order[:4]].mean(), y[order[:4]].mean(), 4])
    assert about["bins"][-1][0] == pytest.approx(p[order[-4:]].mean())
    weight = np.where(np.arange(40) < 10, 2.0, 1.0)
    twice = describe_predictions(np.r_[y[:10], y], None, [np.r_[outputs[:10], outputs]])
    weighted = describe_predictions(y, weight, [outputs])
    assert weighted["confusion"] == twice["confusion"]
    assert weighted["slope"] == pytest.approx(twice["slope"], abs=1e-3)


def test_the_confusion_of_several_seeds_is_their_mean_and_json_holds_it():
    y = np.array([0, 1, 2, 2])
    right, wrong = np.eye(3)[y], np.eye(3)[[1, 1, 2, 2]]
    about = describe_predictions(y, None, [right, wrong])
    assert about["confusion"] == [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 2]]
    assert json.loads(json.dumps(about)) == about


def test_of_numbers_the_line_is_that_of_least_squares():
    x = np.linspace(0, 1, 50)
    about = describe_predictions(3 + 2 * x, None, [x])
    assert about["slope"] == pytest.approx(2)
    assert about["intercept"] == pytest.approx(3.5)
    assert "confusion" not in about


def test_inconsistency_is_cochrans_and_0_where_rows_explain_all():
    assert predict_next_domain([0.8, 0.8, 0.8], [100] * 3).inconsistency == 0
    assert predict_next_domain([0.8], [100]).inconsistency is None
    scores, n = [0.6, 0.8, 0.9], 200
    y = np.array([np.log((n * p + 0.5) / (n * (1 - p) + 0.5)) for p in scores])
    pooled = np.mean(scores)
    center = (n * pooled + 0.5) / (n + 1)
    q = ((y - y.mean()) ** 2).sum() * (n + 1) * center * (1 - center)
    assert predict_next_domain(scores, [n] * 3).inconsistency == pytest.approx(1 - 2 / q)


@pytest.mark.slow
def test_confusion_matrices_agree_with_the_accuracy_of_each_held_out_domain(found):
    assert set(found.told) == set(found.domains)
    for domain, about in found.told.items():
        matrix = np.array(about["confusion"])
        assert matrix.sum() == found.rows[domain]
        assert matrix.trace() / matrix.sum() == pytest.approx(found.scores()["weighted-ensemble"][domain], abs=1e-6)


@pytest.mark.slow
def test_a_single_pick_has_its_own_matrices(hospitals):
    how = {"estimator": DomainClassifier(**QUICK), "seeds": 2, "ensemble": False, "baseline": None, "verbose": 0}
    found = seqdg.compare(*hospitals, ["logistic", "knn"], **how)
    for domain, about in found.told.items():
        matrix = np.array(about["confusion"])
        assert matrix.trace() / matrix.sum() == pytest.approx(found.scores()["chosen"][domain], abs=1e-3)


@pytest.mark.slow
def test_the_page_of_a_comparison_is_that_of_its_model(found, tmp_path):
    found.estimator.save(tmp_path / "model")
    page = found.report(tmp_path / "page")
    assert page == tmp_path / "page" / "report.html"
    result = command("report", tmp_path / "model")
    assert result.stdout.strip() == str(tmp_path / "model" / "report.html")
    ours, its = (build_model_page(text) for text in (read_description(tmp_path / "model"), _describe(found)))
    assert [s.title for s in ours.sections if s.name != "notes"] == [s.title for s in its.sections if s.name != "notes"]
    assert ours.answers == its.answers
    titles = {s.title for s in ours.sections}
    assert titles >= {"Leaderboard", "The next domain", "Domain by domain", "Errors by class", "Calibration"}
    html = page.read_text()
    assert "I² = " in html
    assert found.sentence in html
    assert "http://" not in html.replace("http://www.w3.org", "")  # it needs no network
    seqdg.DomainClassifier.load(tmp_path / "model")  # the page in its directory does no harm


def _describe(found):
    facts = {"estimate": found.describe(), "comparison": found.describe_candidates(), "notes": list(found.notes)}
    return json.loads(json.dumps({"algorithm": found.winner.algorithm, "facts": facts}))


def test_every_candidate_has_a_dot_for_each_domain(found):
    page = build_model_page(_describe(found))
    (figure,) = page.sections[0].figures
    dots = {(row["label"], row["look"]) for row in figure.panels[0].rows}
    names = ["logistic", "knn", "agg", "weighted-ensemble", "chosen"]
    assert dots >= {(name, look) for name in names for look in (*found.domains, "average")}


@pytest.mark.slow
def test_numbers_to_predict_have_a_page_without_classes(hospitals, tmp_path):
    X, _, domains = hospitals
    y = X["age"].fillna(50).to_numpy(float) * 3.3
    how = {"estimator": DomainRegressor(**QUICK), "seeds": 1, "baseline": None, "verbose": 0}
    found = seqdg.compare(X, y, domains, ["ridge", "knn"], **how)
    names = [s.name for s in build_model_page(_describe(found)).sections]
    assert "errors" not in names
    assert "calibration" in names
    assert found.report(tmp_path / "page.html").is_file()


@pytest.mark.slow
def test_importance_is_shown_where_it_was_measured(found, hospitals):
    X, y, domains = hospitals
    measured = seqdg.importance(found.estimator, X, y, domains, repeats=1)
    page = build_model_page(_describe(found), measured)
    (section,) = [s for s in page.sections if s.name == "importance"]
    assert section.figures
    assert section.tables
    (section,) = [s for s in build_model_page(_describe(found)).sections if s.name == "importance"]
    assert "--data" in section.text[0]


def test_a_model_without_a_comparison_has_no_report(hospitals, tmp_path):
    seqdg.DomainClassifier("agg", **QUICK, verbose=0).fit(*hospitals).save(tmp_path / "model")
    with pytest.raises(UsageError, match="No domain was held out when this model was fitted"):
        build_model_page(read_description(tmp_path / "model"))
    result = command("report", tmp_path / "model")
    assert result.returncode == 2
    assert "No domain was held out" in result.stderr
    result = command("report", tmp_path / "model", "--baseline", "agg")
    assert "its report has no options but --data" in result.stderr

"""What people expect of a scikit-learn estimator: groups, metadata routing, sparse matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score

import seqdg
from seqdg.base import UsageError
from seqdg.estimator import user_data


def quick(**how):
    return seqdg.DomainClassifier("agg", **{"steps": 10, "hidden": (4,), "evaluations": 2, "device": "cpu", **how})


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    site, y = np.repeat(["a", "b", "c"], 30), draw.integers(0, 2, 90)
    x = np.where(draw.random((90, 5)) < 0.3, draw.standard_normal((90, 5)) + y[:, None], 0.0)
    return x, y, site


def test_groups_are_domains_by_another_name(rows):
    x, y, site = rows
    by_domains, by_groups = quick().fit(x, y, domains=site), quick().fit(x, y, groups=site)
    assert (by_domains.predict_proba(x) == by_groups.predict_proba(x)).all()
    assert by_groups.domains_.tolist() == ["a", "b", "c"]
    assert quick().fit(x, y, domains=site, groups=site).domains_.tolist() == ["a", "b", "c"]
    with pytest.raises(UsageError, match="the two differ"):
        quick().fit(x, y, domains=site, groups=site[::-1])


@pytest.mark.slow
def test_groups_reach_the_splitter_and_fit_alike(rows):
    """With each site held out, a fold's model has seen the other two."""
    x, y, site = rows
    with config_context(enable_metadata_routing=True):
        scores = cross_val_score(quick(), x, y, cv=LeaveOneGroupOut(), params={"groups": site})
        search = GridSearchCV(quick(), {"lr": [0.003, 0.03]}, cv=LeaveOneGroupOut()).fit(x, y, groups=site)
    kept = site != "a"
    assert scores[0] == quick().fit(x[kept], y[kept], domains=site[kept]).score(x[~kept], y[~kept])
    assert search.best_estimator_.domains_.tolist() == ["a", "b", "c"]
    assert len(search.cv_results_["params"]) == 2


def test_weights_are_routed_where_they_are_asked_for(rows):
    x, y, site = rows
    with config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        params = {"groups": site, "sample_weight": np.where(y == 1, 5.0, 1.0)}
        weighted = cross_val_score(model, x, y, cv=LeaveOneGroupOut(), params=params)
    kept = site != "a"
    alone = quick().fit(x[kept], y[kept], domains=site[kept], sample_weight=params["sample_weight"][kept])
    assert weighted[0] == alone.score(x[~kept], y[~kept])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix, sp.lil_array])
def test_a_sparse_matrix_is_the_dense_one(rows, kind):
    x, y, site = rows
    dense, thin = quick().fit(x, y, domains=site), quick().fit(kind(x), y, domains=site)
    assert (dense.predict_proba(x) == thin.predict_proba(kind(x))).all()
    assert thin.n_features_in_ == 5
    with pytest.raises(UsageError, match="4 features"):
        thin.predict(kind(x[:, :4]))


def test_sparse_rows_are_predicted_some_at_a_time(rows, monkeypatch):
    x, y, site = rows
    model = quick().fit(x, y, domains=site)
    monkeypatch.setattr(user_data, "TOGETHER", 35)
    parts = list(user_data.split_sparse(sp.coo_matrix(x)))
    assert [p.shape[0] for p in parts] == [7] * 12 + [6]
    assert model.predict_proba(sp.csr_matrix(x)) == pytest.approx(model.predict_proba(x), abs=1e-12)


def test_a_sparse_matrix_that_no_memory_holds_is_refused_in_a_sentence():
    huge = sp.csr_matrix((10_000_000, 1_000_000))
    with pytest.raises(UsageError, match=r"10000000 rows and 1000000 columns it needs about .*TruncatedSVD"):
        quick().fit(huge, np.zeros(10_000_000))


def test_sparse_matrices_are_compared_and_gaps_in_them_are_kept(rows):
    x, y, site = rows
    holes = x.copy()
    holes[0, 0] = np.nan
    dense, thin = (quick().fit(z, y, domains=site).predict_proba(z) for z in (holes, sp.csr_matrix(holes)))
    assert (dense == thin).all()
    found = seqdg.compare(
        sp.csr_matrix(x), y, groups=site, candidates=["agg"], estimator=quick(), seeds=1, rules=("source-val",)
    )
    assert found.domains == ("a", "b", "c")

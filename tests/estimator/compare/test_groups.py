"""Many domains are held out in groups: as many trainings as groups, and a score for every domain by itself."""

from __future__ import annotations

import numpy as np
import pytest

import seqdg
from seqdg.estimator.compare.folds import group_domains


def test_few_domains_are_held_out_alone_and_many_in_groups_of_like_size():
    few = {f"d{i}": i + 1 for i in range(20)}
    assert group_domains(few) == {d: (d,) for d in few}
    draw = np.random.default_rng(0)
    rows = {f"d{i:03}": int(n) for i, n in enumerate(draw.lognormal(4, 1, 234))}
    folds = group_domains(rows)
    groups = set(folds.values())
    assert len(groups) == 10
    assert sorted(d for group in groups for d in group) == sorted(rows)
    assert all(d in folds[d] for d in rows)
    assert {len(group) for group in groups} == {23, 24}
    sizes = [sum(rows[d] for d in group) for group in groups]
    assert max(sizes) < 1.4 * min(sizes)
    assert group_domains(rows) == folds, "always the same"


@pytest.fixture(scope="module")
def many():
    """24 domains of 12 rows, of which the first number and the domain's own offset tell the class."""
    draw = np.random.default_rng(1)
    domain = np.repeat(np.arange(24), 12)
    x = draw.normal(size=(288, 3)) + draw.normal(size=(24, 3))[domain]
    return x, (x[:, 0] + 0.5 * draw.normal(size=288) > 0).astype(int), domain


@pytest.mark.slow
def test_a_domain_is_scored_by_a_model_that_has_met_none_of_its_group(many):
    x, y, domain = many
    how = {"baseline": None, "seeds": 1, "ensemble": False}
    found = seqdg.compare(x, y, domain, ["logistic", "knn"], {"logistic": {"inverse_decay": 0.5}}, **how)
    outcomes = [o for o in found.outcomes[found.select] if o.algorithm == "logistic"]
    assert [o.held_out for o in outcomes] == [str(d) for d in range(24)]
    assert len({o.record.key for o in outcomes}) == 10
    said = "24 domains are held out in 10 groups of 2 or 3: a candidate is trained 10 times"
    assert any(said in note for note in found.notes)
    folds = group_domains({str(d): 12 for d in range(24)})
    for outcome in outcomes[:3]:
        inside = np.isin(domain.astype(str), folds[outcome.held_out])
        alone = seqdg.DomainClassifier("logistic", settings={"inverse_decay": 0.5}, device="cpu")
        same = [other for other in outcomes if other.record.key == outcome.record.key]
        assert {o.held_out for o in same} == set(folds[outcome.held_out])
        alone.fit(x[~inside], y[~inside], domains=domain[~inside])
        here = domain == int(outcome.held_out)
        said = (alone.predict(x[here]) == y[here]).mean()
        assert outcome.value == pytest.approx(said, abs=0.1), (
            "but for which rows of the sources are left out to validate"
        )
    assert found.next_domain is not None
    assert len(found.next_domain.known) == 24
    assert set(found.scores()["logistic"]) >= {str(d) for d in range(24)}


@pytest.mark.slow
def test_an_ensemble_and_a_net_are_compared_over_groups(many):
    x, y, domain = many
    net = seqdg.DomainClassifier("agg", steps=20, members=1, device="cpu")
    found = seqdg.compare(x, y, domain, ["agg", "logistic"], seeds=1, estimator=net)
    assert found.leaderboard()["held_out"].notna().all()
    assert found.expected > 0.6
    assert found.estimator.predict(x).shape == (288,)


@pytest.mark.slow
def test_pairs_of_groups_are_held_out_where_that_is_asked_for(many):
    x, y, domain = many
    found = seqdg.compare(
        x, y, domain, ["logistic"], baseline=None, seeds=1, ensemble=False, nested=True, refit=False, rules=["both"]
    )
    assert found.nested
    assert found.expected > 0.6

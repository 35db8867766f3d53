"""The benchmark of choices: what its tables are computed from, on records that the test writes."""

from __future__ import annotations

import importlib.util
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from seqdg.estimator.compare.comparison import RULES, STOPPED
from seqdg.results import predict_next_domain

DOMAINS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def choice():
    path = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "choice.py"
    spec = importlib.util.spec_from_file_location("choice", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["choice"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["choice"]


def make_records(name="office", criterion="accuracy", candidates=("logistic", "agg", "svc"), seed=0):
    draw = np.random.default_rng(seed)
    about = {"set": name, "rows": dict.fromkeys(DOMAINS, 200), "criterion": criterion, "variance": 1.0}
    records = [about]
    for candidate in candidates:
        for held_out in [*((d,) for d in DOMAINS), *combinations(DOMAINS, 2)]:
            curves = {d: draw.uniform(0.4, 0.9, 3).tolist() for d in DOMAINS}
            source = {d: v for d, v in curves.items() if d not in held_out}
            reached = {d: curves[d] for d in held_out}
            records.append({
                "set": name, "candidate": candidate, "held_out": list(held_out), "seed": 0, "source": source,
                "reached": reached,
            })  # fmt: skip
    return records


def change(records, domain):
    """The same with other values of a domain wherever it is held out."""
    changed = []
    for r in records:
        reached = {d: [1 - x for x in v] if d == domain else v for d, v in r.get("reached", {}).items()}
        changed.append({**r, "reached": reached} if "reached" in r else r)
    return changed


@pytest.mark.parametrize("criterion", ["accuracy", "rmse"])
def test_no_rule_sees_how_a_candidate_does_on_the_domain_that_it_chooses_for(choice, criterion):
    records = make_records(criterion=criterion)
    one, other = (choice.Outcomes(r, "office") for r in (records, change(records, "b")))
    for rule in RULES:
        assert one.choose("b", rule)[0] == other.choose("b", rule)[0], rule
    assert any(one.choose("b", rule)[1] != other.choose("b", rule)[1] for rule in RULES)


def test_scores_of_a_domain_are_those_of_pairs_at_the_step_that_validates_best(choice):
    records = make_records()
    found = choice.Outcomes(records, "office")
    by_place = {(r["candidate"], tuple(r["held_out"])): r for r in records if "held_out" in r}
    scores, step = found.score("svc", "b", "both")
    assert step is None

    def best(r):
        return int(np.argmax(np.mean(list(r["source"].values()), axis=0)))

    outer = by_place["svc", ("b",)]
    for score, s in zip(scores, ("a", "c", "d"), strict=True):
        inner = by_place["svc", tuple(sorted(("b", s)))]
        assert score == pytest.approx((outer["source"][s][best(outer)] + inner["reached"][s][best(inner)]) / 2)
    almost, _ = found.score("svc", "b", STOPPED, nested=False)
    curves = [by_place["svc", (s,)]["reached"][s] for s in ("a", "c", "d")]
    assert almost == pytest.approx(np.array(curves)[:, np.mean(curves, axis=0).argmax()].tolist())


def test_an_interval_is_of_trainings_that_the_domain_had_no_part_in(choice):
    records = make_records(candidates=("agg", "svc"))
    found = choice.Outcomes(records, "office")
    cases = choice.judge_intervals(found, 0.9, None)
    assert len(cases) == 2 * 4
    scores = [found.reach("agg", (s, "a"), s) for s in ("b", "c", "d")]
    expected = predict_next_domain(scores, [200] * 3, "accuracy", 0.9)
    assert cases[0][1] == pytest.approx(100 * expected.width)
    assert cases[0][0] == (expected.low <= found.reach("agg", ("a",), "a") <= expected.high)


def test_the_tables_and_the_picture_are_written_and_a_cut_line_does_no_harm(choice, tmp_path, capsys):
    import json

    lines = [json.dumps(r) for r in (*make_records(), *make_records("beijing", "rmse", ("ridge", "agg", "svc"), 1))]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + '\n{"set": "office", "cand', encoding="utf-8")
    choice.report(tmp_path, choice.SETS)
    printed = capsys.readouterr().out
    assert (tmp_path / "choice.md").read_text(encoding="utf-8").strip() == printed.strip()
    for part in ("| `both-near` |", "| always linear |", "| **all** | 3 | 24 |", "| 1 times |"):
        assert part in printed, part
    assert (tmp_path / "calibration.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_rank_is_shared_by_those_alike(choice):
    assert [choice.rank([3.0, 2.0, 2.0, 1.0], v) for v in (3.0, 2.0, 1.0)] == [1.0, 2.5, 4.0]


def test_jobs_put_averages_with_their_training_and_fits_by_themselves(choice):
    jobs = list(choice.list_jobs("office", ["agg", "agg+ema", "svc"], choice.list_targets(DOMAINS)))
    assert sum(job.candidates == ("svc",) for job in jobs) == 10
    (net,) = [job for job in jobs if "agg" in job.candidates]
    assert (net.candidates, len(net.targets)) == (("agg", "agg+ema"), 10)

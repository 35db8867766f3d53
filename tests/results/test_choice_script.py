"""The benchmark of choices: it decides as `compare` does, sees nothing of what it is judged on, and goes on."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seqdg import compare
from seqdg.estimator.compare.comparison import CHOSEN
from seqdg.results import predict_next_domain

DOMAINS = ("a", "b", "c", "d")
CANDIDATES = ("logistic", "knn", "extra-trees")


@pytest.fixture(scope="module")
def choice():
    path = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "choice.py"
    spec = importlib.util.spec_from_file_location("choice", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["choice"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["choice"]


def make_table(rows=50):
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows * len(DOMAINS), 3))
    domain = np.repeat(DOMAINS, rows)
    shift = np.array([0.0, 0.5, 1.0, 1.5]).repeat(rows)
    label = np.where(x[:, 0] ** 2 + x[:, 1] + shift + draw.normal(size=len(x)) > 1.2, "ill", "well")
    return pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "w": x[:, 2] + shift, "label": label, "domain": domain})


def train_here(choice, folder, out, candidates=CANDIDATES):
    """Train in this process, and return what is known of the one table."""
    texts = ["--folder", folder, "--out", out, "--candidates", ",".join(candidates), "--seeds", "0", "--quick"]
    options = choice.parse_options([str(text) for text in texts])
    file = choice.SeedFile(out / "seed-0.npz")
    jobs = choice.list_jobs("sites", choice._read_set("sites", options), options)
    file.expect("sites", [c for job in jobs for c in job.candidates])
    for job in jobs:
        file.add(*choice.train_job(job, options))
    file.write()
    return choice.read_records(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    make_table().to_csv(folder / "sites.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def records(choice, folder, tmp_path_factory):
    ((_, its),) = train_here(choice, folder, tmp_path_factory.mktemp("out"))
    return its


@pytest.mark.slow
def test_it_decides_and_judges_as_compare_does(choice, records):
    table = make_table()
    comparison = compare(
        table[["u", "v", "w"]], table["label"], table["domain"], list(CANDIDATES), baseline=None, seeds=1, refit=False
    )
    scores = comparison.scores()
    for case in choice.judge(records):
        name = case["way"].removeprefix("always ").replace("linear", "logistic")
        row = {"shrunk": "weighted-ensemble", "pick": CHOSEN}.get(case["way"], name)
        if row in scores:
            assert case["points"] == pytest.approx(100 * scores[row][case["domain"]], abs=1e-3), case
    assert {"shrunk", "pick", "always linear"} <= {case["way"] for case in choice.judge(records)}


def test_what_is_decided_for_a_domain_does_not_depend_on_its_labels(choice, records):
    arrays = {**records.arrays, "sites/y/1": 1 - records.arrays["sites/y/1"]}
    candidates = {}
    for name, its in records.about["candidates"].items():
        reached = {k: [1 - v if d == "1" else v for d, v in zip(k.split("-"), each, strict=True)]
                   for k, each in its["reached"].items()}  # fmt: skip
        candidates[name] = {**its, "reached": reached}
    other = choice.SetRecords("sites", {**records.about, "candidates": candidates}, arrays)
    for one, changed in ((records.weigh(1, CANDIDATES), other.weigh(1, CANDIDATES)),):
        assert one == changed
    assert [records.score_sources(c, 1) for c in CANDIDATES] == [other.score_sources(c, 1) for c in CANDIDATES]
    assert records.weigh(0, CANDIDATES) != other.weigh(0, CANDIDATES)


@pytest.mark.slow
def test_the_same_call_goes_on_where_it_stopped_and_writes_a_table(choice, folder, tmp_path):
    script = [sys.executable, choice.__file__, "--folder", folder, "--out", tmp_path, "--candidates", "logistic,knn",
              "--seeds", "0,1", "--processes", "1"]  # fmt: skip

    def call(*more):
        return subprocess.run([*script, *more], capture_output=True, text=True, timeout=300, check=True).stdout

    assert "The time is over: 4 jobs are left for the same call." in call("--minutes", "0.0001")
    printed = call()
    assert "0 of 4 jobs are done already." in printed
    assert "| shrunk |" in printed
    assert "4 of 4 jobs are done already." in call()
    cases = [json.loads(line) for line in (tmp_path / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {case["seed"] for case in cases} == {0, 1}
    assert "| linear |" in call("--gains")


def test_whole_numbers_of_which_there_are_many_are_predicted_as_numbers(choice, tmp_path):
    table = make_table().assign(label=np.arange(200) % 40)
    table.to_csv(tmp_path / "ages.csv", index=False)
    table.assign(label=table["label"] % 3).to_csv(tmp_path / "grades.csv", index=False)
    options = choice.parse_options(["--folder", str(tmp_path), "--quick"])
    kinds = {}
    for name in ("ages", "grades"):
        sweep = choice.make_sweep(choice.cut(choice.list_sets(options)[name](), 3), options, 0)
        kinds[name] = sweep.user_data.dataset.is_regression
    assert kinds == {"ages": True, "grades": False}


def test_a_difference_is_paired_over_domains_and_sets_count_the_same(choice):
    one = {"s": {"a": 3.0, "b": 5.0}, "t": {"a": 10.0, "b": 10.0, "c": 10.0}}
    other = {"s": {"a": 1.0, "b": 1.0}, "t": {"a": 9.0, "b": 9.0, "c": 9.0}}
    mean, low, high = choice.compare_ways(one, other)
    assert mean == pytest.approx(2.0)
    noise = np.sqrt(2.0 / 2) / 2
    assert (low, high) == pytest.approx((2 - 1.645 * noise, 2 + 1.645 * noise))


def test_an_interval_for_a_domain_is_made_without_it(choice, records):
    found = list(choice._list_intervals(records))
    assert len(found) == len(CANDIDATES) * len(DOMAINS)
    reached = records.about["candidates"]["knn"]["reached"]
    scores = [reached["-".join(map(str, sorted((2, s))))][sorted((2, s)).index(s)] for s in (0, 1, 3)]
    ahead = predict_next_domain(scores, [50] * 3)
    holds, width = found[len(DOMAINS) * records.candidates.index("knn") + 2]
    assert holds == (ahead.low <= reached["2"][0] <= ahead.high)
    assert width == pytest.approx(100 * ahead.width)
    assert "| sites | 3 | 12 |" in choice.format_intervals([(0, records)])

"""pandas, polars and DuckDB open a packed run and find the numbers of its records."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from pages import ROOT, list_blocks
from seqdg.results import EVALUATIONS, TRIALS, open_run

SNIPPETS = [block.text for block in list_blocks(ROOT / "docs" / "publishing.md") if "trials.parquet" in block.text][1:]


def read_pandas(path):
    pandas = pytest.importorskip("pandas")
    return pandas.read_parquet(path).to_dict("records")


def read_polars(path):
    return pytest.importorskip("polars").read_parquet(path).to_dicts()


def read_duckdb(path):
    found = pytest.importorskip("duckdb").sql(f"SELECT * FROM '{path}'")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@pytest.mark.parametrize("read", [read_pandas, read_polars, read_duckdb])
def test_it_has_a_row_for_each_trial_and_one_for_each_domain_of_each_evaluation(packed, read):
    records = open_run(packed).records()
    trials, evaluations = read(packed / TRIALS), read(packed / EVALUATIONS)
    assert [t["key"] for t in trials] == [r.key for r in records]
    for trial, record in zip(trials, records, strict=True):
        assert (trial["algorithm"], trial["seed"], trial["status"]) == (record.algorithm, record.seed, record.status)
        assert json.loads(trial["settings"]) == record.description["settings"]
        assert json.loads(trial["protocol"]) == record.description["protocol"]
        named = trial["held_out"]
        assert ([named] if record.is_tabled else json.loads(named)) == list(record.held_out)
        assert trial["finished"].year > 2020
        assert list(trial["losses"]) == record.losses
    expected = [
        (r.key, e.step, part, domain, *(values[c][i] for c in ("accuracy", "log_loss")))
        for r in records
        for e in r.history
        for part in ("source", "held_out", "held_out_fifth", "held_out_rest")
        for values in [getattr(e, part)]
        for i, domain in enumerate([d for d in ["0", "15", "30", "45", "60", "75"] if d not in r.held_out])
        if part == "source" or i < len(r.held_out)
        for domain in [domain if part == "source" else r.held_out[i]]
    ]
    names = ("key", "step", "part", "domain", "accuracy", "log_loss")
    assert [tuple(row[name] for name in names) for row in evaluations] == expected


@pytest.mark.parametrize("text", SNIPPETS, ids=lambda text: text.split()[1])
@pytest.mark.usefixtures("published_runs")
def test_what_the_docs_show_runs(text, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    pytest.importorskip(text.split()[1])
    exec(text, {})
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("art_painting", "sketch", "agg"))


def test_the_docs_show_all_three():
    assert [text.split()[1] for text in SNIPPETS] == ["pandas", "polars", "duckdb"]


def test_means_of_a_published_run_by_pandas_are_those_of_its_table(published_runs):
    pandas = pytest.importorskip("pandas")
    folder = published_runs / "pacs-features"
    trials, rows = (pandas.read_parquet(folder / name) for name in (TRIALS, EVALUATIONS))
    last = rows[(rows.part == "held_out") & (rows.step == 1500)].merge(trials, on="key")
    means = last.groupby(["domain", "algorithm"]).accuracy.mean()
    table = (folder / "tables" / "accuracy-last.md").read_text()
    cells = dict(re.findall(r"^\| (\w+) \| \**([\d.]+) ±", table, re.MULTILINE))
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        assert np.isclose(100 * means[domain, "agg"], float(cells[domain]), atol=0.051)

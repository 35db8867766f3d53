"""Fixed splits: train, validation and test domains from lists or a split column, all test domains held out at once."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
import torch

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench import Request, Session, Trial, find_learner, load_benchmark
from seqdg.bench.reruns import rebuild_trial
from seqdg.report import Results
from seqdg.report.page import build_page, render_page
from seqdg.report.run_contents import describe_missing, list_commands, read_contents
from seqdg.results import Store, pack, select_outcomes
from seqdg.results.record import pack_history, unpack_history
from seqdg.results.runs import Archive
from seqdg.training import split_rows

CITIES = ("rome", "oslo", "lima", "kiev", "bonn", "riga")
LISTS = 'train_domains = ["rome", "oslo", "lima"]\nvalidation_domains = ["kiev"]\ntest_domains = ["bonn", "riga"]\n'
FILE = """
[data]
path = "t.csv"
domain_column = "city"
label_column = "ill"
group_column = "region"
{data}
[net]
name = "mlp"
hidden = [4]
[protocol]
steps = 6
evaluations = 3
batch = 8
trials = 2
{protocol}
"""


def write(folder, protocol="", data='ignore = ["part"]', part=None):
    """Write a table of six cities, with parts in words, and a benchmark that reads it."""
    draws = np.random.default_rng(0)
    parts = {"rome": "train", "oslo": "train", "lima": "train", "kiev": "val", "bonn": "test", "riga": "test"}
    lines = ["age,dose,city,ill,region,part"]
    for i in range(240):
        city, ill = CITIES[i % 6 if i < 180 else 4], i // 6 % 2
        age, dose = draws.normal(ill, 1.0), draws.normal(-ill, 1.0)
        word = (part or {}).get((city, i // 6 % 5)) or parts[city]
        lines.append(f"{age},{dose},{city},{'yn'[ill]},{'nsw'[i // 12 % 3]},{word}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "cities.toml").write_text(FILE.format(data=data, protocol=protocol))
    return load_benchmark(str(folder / "cities.toml"))


def plan(folder, *, request=None, **how):
    benchmark = write(folder, **how)
    task = benchmark.make_task(folder)
    return task, benchmark.plan(task, request or Request(algorithms=["agg"]))


COLUMN = 'split_column = "part"'


def test_lists_and_a_split_column_give_the_same_trials(tmp_path):
    _, by_lists = plan(tmp_path, protocol=LISTS)
    _, by_column = plan(tmp_path, data=COLUMN)
    assert [t.key for t in by_lists.trials] == [t.key for t in by_column.trials]
    assert len(by_lists.trials) == 2  # one for each seed, not for each domain
    assert by_lists.trials[0].protocol.train_domains == ("lima", "oslo", "rome")
    assert by_lists.trials[0].held_out == ("bonn", "riga")


def test_domains_that_no_part_names_are_trained_on(tmp_path):
    _, planned = plan(tmp_path, protocol='test_domains = ["riga"]\nvalidation_domains = ["bonn"]')
    assert set(planned.trials[0].protocol.train_domains) == {"rome", "oslo", "lima", "kiev"}


def test_rows_are_split_by_part_and_all_test_domains_are_held_out_at_once(tmp_path):
    task, planned = plan(tmp_path, protocol=LISTS)
    data, trial = task.dataset(), planned.trials[0]
    split = split_rows(data, trial.protocol, trial.held_out, trial.seed)
    named = [{data.domains[d] for d in data.domain[torch.cat(rows)].tolist()} for rows in split[:3]]
    assert named == [{"rome", "oslo", "lima"}, {"rome", "oslo", "lima"}, {"bonn", "riga"}]
    assert [data.rows("bonn").tolist(), data.rows("riga").tolist()] == [rows.tolist() for rows in split.test]
    assert [rows.tolist() for rows in split.outside] == [data.rows("kiev").tolist()]
    assert len(torch.cat(split.train).unique()) + len(torch.cat(split.validation).unique()) == 90
    without = replace(trial.protocol, train_domains=(), validation_domains=())
    assert split_rows(data, without, ("bonn",), 0).outside is None


def test_id_val_rows_validate_the_sources_under_the_official_split(tmp_path):
    marked = {("rome", 0): "id_val", ("oslo", 1): "id_val"}
    task, planned = plan(tmp_path, data=COLUMN, part=marked, protocol='split = "official"')
    data, trial = task.dataset(), planned.trials[0]
    split = split_rows(data, trial.protocol, trial.held_out, trial.seed)
    lengths = dict(zip(trial.protocol.train_domains, map(len, split.validation), strict=True))
    assert lengths == {"rome": 6, "oslo": 6, "lima": 0}
    with pytest.raises(UsageError, match="has id_val rows, and split = 'random' would train on some of them"):
        plan(tmp_path, data=COLUMN, part=marked)


def test_a_description_of_a_fixed_split_is_rebuilt_and_one_of_none_stays_as_it_was(tmp_path):
    task, planned = plan(tmp_path, protocol=LISTS)
    trial = planned.trials[0]
    stored = json.loads(json.dumps(trial.description()))
    again = Trial.from_description(stored, "agg", len(task.dataset().domains) - 1, None)
    assert again.key == trial.key
    assert again.protocol == trial.protocol
    _, plain = plan(tmp_path)
    assert not [name for name in plain.trials[0].description()["protocol"] if name.endswith("_domains")]


WRONG = [
    (
        LISTS.replace("kiev", "cairo"),
        "validation_domains: cities has no domain 'cairo'. Choose from: bonn",
    ),
    (
        LISTS.replace("kiev", "rome"),
        "names the domain 'rome' in train_domains and validation_domains: a domain is in one",
    ),
    (LISTS.replace('"bonn"', '"riga"'), "names the domain 'riga' twice in test_domains"),
    ('validation_domains = ["kiev"]', "leaves no domain to test on: name some in test_domains"),
    (f"test_domains = {json.dumps(CITIES)}", "leaves no domain to learn from"),
    (
        'split = "official"\ntest_domains = ["riga"]',
        "leaves no rows to validate on: .* there are no validation domains",
    ),
    (LISTS + 'held_out = ["riga"]', "has held_out, which are held out in turn, and a fixed split"),
]


@pytest.mark.parametrize(("protocol", "says"), WRONG)
def test_what_makes_no_split_is_refused_in_one_sentence(tmp_path, protocol, says):
    with pytest.raises(UsageError, match=says) as error:
        plan(tmp_path, protocol=protocol)
    assert "\n" not in str(error.value)


def test_a_fixed_split_cannot_hold_out_in_turn_or_be_fixed_twice(tmp_path):
    with pytest.raises(UsageError, match="are held out at once: leave out --held-out"):
        plan(tmp_path, protocol=LISTS, request=Request(["agg"], held_out=["riga"]))
    with pytest.raises(UsageError, match="choose --select domain-val or source-val"):
        plan(tmp_path, protocol=LISTS, request=Request(["agg"], select="leave-one-out"))
    with pytest.raises(UsageError, match=r"has a split column, and its \[protocol\] names domains too"):
        plan(tmp_path, protocol=LISTS, data=COLUMN)


def test_a_rule_for_which_the_split_has_no_rows_is_refused_before_training(tmp_path):
    whole = LISTS + 'split = "official"'  # all rows of the train domains are trained on
    with pytest.raises(UsageError, match="source-val has none to choose by: choose --select domain-val"):
        plan(tmp_path, protocol=whole)
    task, planned = plan(tmp_path, protocol=whole, request=Request(["agg"], select="domain-val"))
    trial = planned.trials[0]
    split = split_rows(task.dataset(), trial.protocol, trial.held_out, 0)
    assert sum(map(len, split.train)) == 90
    with pytest.raises(UsageError, match="has no validation domains to choose by"):
        plan(tmp_path, request=Request(["agg"], select="domain-val"))


def test_check_shows_a_fixed_split_and_refuses_one_that_makes_no_sense(tmp_path):
    write(tmp_path, data=COLUMN)
    done = seqdg("check", tmp_path / "cities.toml", "--data", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fixed split: train lima, oslo, rome; validation kiev; test bonn, riga" in done.stdout
    write(tmp_path, protocol=LISTS.replace("kiev", "rome"))
    done = seqdg("check", tmp_path / "cities.toml", "--data", tmp_path)
    assert done.returncode == 2
    assert "names the domain 'rome' in train_domains and validation_domains" in done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fixed")
    write(folder, data=COLUMN)
    words = ["--algorithms", "agg,fo-s-mldg,dica", "--search", 2, "--workers", 0, "--device", "cpu"]
    done = seqdg("bench", folder / "cities.toml", "--data", folder, *words, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder


def test_every_test_domain_has_its_row_and_all_their_rows_one_together(run):
    results = Results.open(run / "run")
    rows = json.loads(str(results.table(format="json")))
    assert [r["held_out"] for r in rows if r["algorithm"] == "agg"] == ["bonn", "riga", "average", "worst", "together"]
    found = {r["held_out"]: r["mean"] for r in rows if r["algorithm"] == "agg"}
    assert found["average"] == pytest.approx((found["bonn"] + found["riga"]) / 2)
    assert found["worst"] == min(found["bonn"], found["riga"])
    assert found["together"] == pytest.approx((90 * found["bonn"] + 30 * found["riga"]) / 120)
    assert "together: over the rows of all held-out domains at once." in str(results.table())


def test_validation_domains_choose_step_and_settings_by_domain_val(run):
    records = [r for r in Store.open(run / "run").records() if r.algorithm == "fo-s-mldg"]
    for seed in (0, 1):
        tried = [(e.validation["log_loss"][0], -e.step, r.key) for r in records if r.seed == seed for e in r.history]
        best = min(tried, key=lambda t: t[0])
        chosen = [o for o in select_outcomes(records, "domain-val", "log_loss") if o.seed == seed]
        assert [(o.record.key, o.step) for o in chosen] == [(best[2], -best[1])] * 2
        assert [o.held_out for o in chosen] == ["bonn", "riga"]
        assert [o.value for o in chosen] == next(
            e.held_out["log_loss"] for e in chosen[0].record.history if e.step == chosen[0].step
        )


def test_criteria_by_group_are_measured_on_each_domain_and_over_all_held_out_rows(run):
    last = Store.open(run / "run").records()[0].history[-1]
    assert len(last.held_out["worst_group"]) == 2
    assert len(last.together["worst_group"]) == 2
    assert last.together["worst_group"][0] <= last.together["accuracy"][0]
    for name in ("source", "held_out", "validation", "together"):
        assert set(getattr(last, name)) == set(last.source)
    assert last.validation["group_p10"] == [last.together["group_p10"][1]]  # there is one validation domain


@pytest.mark.slow
def test_the_report_status_and_commands_know_a_fixed_split(run):
    contents = read_contents(Store.open(run / "run"))
    assert describe_missing(contents) == []
    assert "--held-out" not in " ".join(list_commands(replace(contents, commands=())))
    for rule in ("source-val", "domain-val"):
        html = render_page(build_page(contents, rule))
        assert "bonn" in html
        assert "together" in html
    done = seqdg("status", run / "run")
    assert "left          0" in done.stdout
    frame = Results.open(run / "run").frame("domain-val")
    assert set(frame["held_out"]) == {"bonn", "riga"}
    with pytest.raises(UsageError, match="needs trials with two domains held out"):
        select_outcomes(contents.records, "leave-one-out")


def test_a_packed_run_has_the_same_tables(run):
    source = Store.open(run / "run")
    pack([(run / "run", source)], run / "run.seqdg")
    packed = Archive(run / "run.seqdg").records()
    for rule in ("source-val", "domain-val", "oracle", "oracle-split"):
        for criterion in ("accuracy", "worst_group", "macro_f1"):
            ours, theirs = (select_outcomes(r, rule, criterion) for r in (source.records(), packed))
            for a, b in zip(ours, theirs, strict=True):
                assert (a.algorithm, a.held_out, a.seed) == (b.algorithm, b.held_out, b.seed)
                assert a.value == pytest.approx(b.value, abs=1e-6)


def test_a_stored_history_comes_back_as_it_was(run):
    history = Store.open(run / "run").records()[0].history
    assert unpack_history(*pack_history(history)) == history
    bare = [replace(e, held_out_fifth={}, held_out_rest={}) for e in history]
    assert unpack_history(*pack_history(bare)) == bare


def test_a_trial_is_rerun_from_its_description_alone(run):
    done = seqdg("rerun", run / "run", "--benchmark", run / "cities.toml", "--data", run, "--sample", 1)
    assert done.returncode == 0, done.stderr
    task = load_benchmark(str(run / "cities.toml")).make_task(run)
    record = next(r for r in Store.open(run / "run").records() if r.algorithm == "agg")
    trial = rebuild_trial(record, task.dataset())
    (again,) = find_learner("agg").train(trial_group(trial), Session(task))
    for criterion in ("accuracy", "worst_group"):
        assert fmean(again.history[-1].held_out[criterion]) == pytest.approx(
            fmean(record.history[-1].held_out[criterion]), abs=0.05
        )


def trial_group(trial):
    from seqdg.bench import Group

    return Group((trial,))


def test_soups_and_ensembles_of_a_fixed_split_have_its_rows(tmp_path):
    write(tmp_path, protocol=LISTS)
    words = ["--algorithms", "agg", "--search", 2, "--trials", 1, "--workers", 0, "--device", "cpu", "--save-weights"]
    out = tmp_path / "run"
    done = seqdg("bench", tmp_path / "cities.toml", "--data", tmp_path, *words, "--out", out)
    assert done.returncode == 0, done.stderr
    done = seqdg("soup", out, "--benchmark", tmp_path / "cities.toml", "--data", tmp_path, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    soup = next(r for r in Store.open(out).records() if r.members)
    assert set(soup.history[-1].together) == set(soup.history[-1].source)
    assert "agg(soup)" in str(Results.open(out).table("domain-val"))

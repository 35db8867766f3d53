from __future__ import annotations

import re

import pytest

import seqdg
from seqdg.base.errors import UsageError
from seqdg.report.published import find_column, find_wrong_averages, load_minutes, load_tables
from seqdg.report.sheet import build_sheet
from seqdg.report.table import render
from seqdg.results.summary import AVERAGE


def test_every_published_average_is_the_mean_of_its_rows_but_for_three_that_the_paper_itself_misprints():
    found = {name: find_wrong_averages(table) for name, table in load_tables().items()}
    assert found == {
        "ixmas": {"MLDG": pytest.approx((79.4 + 95.2 + 99.9 + 95.2 + 90.4) / 5)},
        "vlcs": {},
        "pacs": {},
        "pacs-alexnet": {"MLDG": pytest.approx(71.15), "S-MLDG": pytest.approx(69.475)},
    }


def test_a_misprinted_average_is_pointed_out(run):
    alexnet = build_sheet(_pacs(run, {"name": "alexnet", "weights": "abc"}), against="paper", benchmark="pacs-alexnet")
    assert "The paper prints 70.1 as the average of S-MLDG; the mean of its rows is 69.5." in alexnet.paper.notes


def test_the_published_numbers_are_those_that_the_text_speaks_of():
    ixmas, pacs = load_tables()["ixmas"].values, load_tables()["pacs"].values
    # "Undo-Bias works here, and provides 0.8 % improvement"; "S-MLDG provides a 0.9 % gain over MLDG"
    assert ixmas[AVERAGE, "Undo-Bias"] - ixmas[AVERAGE, "AGG"] == pytest.approx(0.8)
    assert ixmas[AVERAGE, "S-MLDG"] - ixmas[AVERAGE, "MLDG"] == pytest.approx(0.9)
    assert ixmas[AVERAGE, "S-MLDG"] - ixmas[AVERAGE, "AGG"] == pytest.approx(0.6)
    assert max(pacs, key=lambda at: pacs[at] if at[0] == AVERAGE else 0.0) == (AVERAGE, "S-MLDG")
    # "CrossGrad is by far the most expensive with S-MLDG in second place"
    assert sorted(load_minutes(), key=lambda column: -load_minutes()[column])[:2] == ["CrossGrad", "S-MLDG"]
    assert len(load_minutes()) == 9


def test_the_papers_s_mldg_is_our_first_order_one():
    assert find_column("fo-s-mldg") == "S-MLDG"
    assert find_column("s-mldg") is None
    assert find_column("mldg") == find_column("fo-mldg") == "MLDG"


def test_every_algorithm_that_is_named_after_a_column_exists_or_is_known_by_that_name():
    known = {"agg", "mldg", "fo-mldg", "fo-s-mldg", "ffo-s-mldg"}
    assert known <= set(seqdg.list_algorithms())
    assert all(find_column(name) for name in known)


def _vlcs(run, trials=20, **changes):
    domains = ["VOC2007", "LabelMe", "Caltech101", "SUN09"]
    net = {"name": "mlp", "hidden": [1024, 128], "weights": None}
    records = run({a: {d: [0.6 + i / 500 for i in range(trials)] for d in domains} for a in ("agg", "s-mldg")})
    for r in records:
        r.description["net"] = net
        r.description["protocol"] = {"split": "random", "validation": 0.3, "test": "split", **changes}
    return records


def test_the_papers_numbers_stand_beside_ours_row_by_row(run):
    found = build_sheet(_vlcs(run), against="paper", benchmark="vlcs")
    assert found.paper.values["VOC2007", "agg"] == 65.4
    assert found.paper.values["SUN09", "agg"] == 65.8
    assert found.paper.values[AVERAGE, "agg"] == 71.2
    assert not [at for at in found.paper.values if at[1] == "s-mldg"]
    shown = render(found)
    assert re.search(r"^agg .*61\.9", shown, re.M)
    assert re.search(r"^  paper: AGG +65\.4 +60\.6 +93\.1 +65\.8 +71\.2$", shown, re.M)
    assert "In this run but not in the paper's table: s-mldg." in shown


def test_where_the_protocol_is_the_papers_only_what_it_does_not_say_is_noted(run):
    notes = build_sheet(_vlcs(run), against="paper", benchmark="vlcs").paper.notes
    assert not [n for n in notes if n.startswith(("Net:", "Split:", "Trials:", "Average:"))]
    assert [n for n in notes if n.startswith("Selection: the paper does not say")]
    assert [n for n in notes if "DeCAF6" in n and "cannot be seen" in n]


def test_where_the_protocol_differs_it_is_said(run):
    records = [r for r in _vlcs(run, trials=3, test="whole") if r.held_out != ("SUN09",)]
    for r in records:
        r.description["net"] = {"name": "mlp", "hidden": [64], "weights": None}
    notes = "\n".join(build_sheet(records, against="paper", benchmark="vlcs").paper.notes)
    assert "Net: mlp 1024-128 in the paper, mlp 64 here." in notes
    assert "Trials: 20 in the paper, 3 here." in notes
    assert "Split: random, 70 % to train on and 30 % to test on in the paper; here random" in notes
    assert "this run did not hold out S." in notes


def _pacs(run, net):
    records = run({"fo-s-mldg": {d: [0.8, 0.7] for d in ("art_painting", "cartoon", "photo", "sketch")}})
    for r in records:
        r.description["net"] = net
        r.description["protocol"] = {"split": "official", "test": "whole"}
    return records


def test_alexnet_runs_stand_beside_the_alexnet_table_and_all_others_beside_resnet(run):
    alexnet = _pacs(run, {"name": "alexnet", "weights": "abc"})
    assert build_sheet(alexnet, against="paper", benchmark="pacs-alexnet").paper.values["sketch", "fo-s-mldg"] == 59.9
    features = build_sheet(_pacs(run, {"name": "mlp", "hidden": [8]}), against="paper", benchmark="pacs-features")
    assert features.paper.values["sketch", "fo-s-mldg"] == 72.8
    notes = "\n".join(features.paper.notes)
    assert "Net: ResNet-18 from ImageNet weights in the paper, mlp 8 here." in notes
    assert "Inputs: images in the paper, precomputed features here." in notes


def test_a_net_from_scratch_is_not_taken_for_a_pretrained_one(run):
    notes = build_sheet(
        _pacs(run, {"name": "resnet18", "weights": None}), against="paper", benchmark="pacs"
    ).paper.notes
    assert "Net: ResNet-18 from ImageNet weights in the paper, ResNet-18 here." in notes


def test_a_benchmark_of_another_name_is_known_by_its_domains(run):
    own = build_sheet(_pacs(run, {"name": "resnet18", "weights": "abc"}), against="paper", benchmark="my-own-file")
    assert own.paper.table.name == "pacs"


def test_a_benchmark_that_the_paper_has_not_is_refused_in_a_sentence(run):
    records = run({"agg": {"0": [0.5], "15": [0.5]}})
    with pytest.raises(UsageError, match="The paper has no table for 'rotated-mnist'"):
        build_sheet(records, against="paper", benchmark="rotated-mnist")


def test_only_accuracy_can_be_set_beside_the_paper(run):
    with pytest.raises(UsageError, match="The paper gives accuracy alone"):
        build_sheet(_vlcs(run), criterion="log_loss", against="paper", benchmark="vlcs")

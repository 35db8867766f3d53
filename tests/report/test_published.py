from __future__ import annotations

import re
import sys
from importlib.resources import files
from itertools import pairwise

import pytest

import seqdg
from command import seqdg as seqdg_command
from seqdg.base import UsageError
from seqdg.bench import load_benchmark
from seqdg.core import build, flatten_settings
from seqdg.report.published import find_column, find_wrong_averages, load_minutes, load_settings, load_tables
from seqdg.report.sheet import build_sheet
from seqdg.report.table import ResultTable, render
from seqdg.results import AVERAGE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_published_average_is_the_mean_of_its_rows_but_for_four_that_the_paper_itself_misprints():
    found = {name: find_wrong_averages(table) for name, table in load_tables().items()}
    assert found == {
        "ixmas": {"MLDG": pytest.approx((79.4 + 95.2 + 99.9 + 95.2 + 90.4) / 5), "D-MTAE": pytest.approx(89.0)},
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
    assert "In this run and not published there: s-mldg." in shown


def test_where_the_protocol_is_the_papers_only_what_it_does_not_say_is_noted(run):
    departures = _list_departures(_vlcs(run), "vlcs")
    assert not departures.keys() & {"net", "split", "trials", "domains in the average"}
    assert departures["selection"] == ("not given", "source-val")
    assert departures["inputs"] == ("DeCAF6 features", "not recorded")


def test_where_the_protocol_differs_it_is_said(run):
    records = [r for r in _vlcs(run, trials=3, test="whole") if r.held_out != ("SUN09",)]
    for r in records:
        r.description["net"] = {"name": "mlp", "hidden": [64], "weights": None}
    departures = _list_departures(records, "vlcs")
    assert departures["net"] == ("mlp 1024-128", "mlp 64")
    assert departures["trials"] == ("20", "3")
    assert departures["split"] == (
        "random, 70 % to train on and 30 % to test on",
        "random, 70 % to train on and the whole held-out domain to test on",
    )
    assert departures["domains in the average"] == ("all", "all but S")


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
    departures = {name: values for name, *values in features.paper.departures[1:]}
    assert departures["net"] == ["ResNet-18 from ImageNet weights", "mlp 8"]
    assert departures["inputs"] == ["images", "precomputed features"]


def test_a_net_from_scratch_is_not_taken_for_a_pretrained_one(run):
    departures = _list_departures(_pacs(run, {"name": "resnet18", "weights": None}))
    assert departures["net"] == ("ResNet-18 from ImageNet weights", "ResNet-18")


def test_a_benchmark_of_another_name_is_known_by_its_domains(run):
    own = build_sheet(_pacs(run, {"name": "resnet18", "weights": "abc"}), against="paper", benchmark="my-own-file")
    assert own.paper.table.name == "pacs"


def test_a_benchmark_that_the_paper_has_not_is_refused_in_a_sentence(run):
    records = run({"agg": {"0": [0.5], "15": [0.5]}})
    with pytest.raises(UsageError, match="The paper has no table for 'rotated-mnist'"):
        build_sheet(records, against="paper", benchmark="rotated-mnist")


def test_only_accuracy_can_be_set_beside_the_paper(run):
    with pytest.raises(UsageError, match="Accuracy alone is published there"):
        build_sheet(_vlcs(run), criterion="log_loss", against="paper", benchmark="vlcs")


def test_what_the_source_has_commented_out_or_cut_is_there_and_marked(run):
    tables = load_tables()
    assert set(tables["ixmas"].unprinted) == {"DICA", "LRE-SVM", "D-MTAE", "CCSA"}
    assert set(tables["vlcs"].unprinted) == {"DICA", "LRE-SVM", "D-MTAE", "CCSA", "Naive ensemble"}
    alexnet = tables["pacs-alexnet"]
    assert set(alexnet.unprinted) == {"DICA", "LRE-SVM", "D-MTAE", "DSN", "TF-CNN", "Fusion"}
    assert {c for c, why in alexnet.unprinted.items() if why == "cut"} == {"TF-CNN", "Fusion"}
    assert alexnet.values["S", "DSN"] == 58.6
    assert tables["vlcs"].values["C", "Naive ensemble"] == 71.5
    assert not tables["pacs"].unprinted
    notes = "\n".join(build_sheet(_vlcs(run), against="paper", benchmark="vlcs").paper.notes)
    assert "but commented out, and not in this run (averages): DICA 65.7, LRE-SVM 65.8," in notes


def test_a_method_that_the_paper_only_cites_stands_beside_its_cited_numbers(run):
    records = _vlcs(run)
    for r in records:
        r.description["algorithm"] = {"agg": "agg", "s-mldg": "ccsa"}[r.algorithm]
    found = build_sheet(records, against="paper", benchmark="vlcs").paper
    assert found.values["Caltech101", "ccsa"] == 92.3
    assert any("does not train CCSA" in note for note in found.notes)


@pytest.mark.parametrize(("name", "number"), [("dica", 79.7), ("lre-svm", 88.1)])
def test_a_shallow_method_stands_beside_its_numbers(run, name, number):
    records = _vlcs(run)
    for r in records:
        r.description["algorithm"] = {"agg": "agg", "s-mldg": name}[r.algorithm]
    found = build_sheet(records, against="paper", benchmark="vlcs").paper
    assert found.values["Caltech101", name] == number
    assert any("commented out" in note and found.columns[name] in note for note in found.notes)


def test_the_naive_ensemble_stands_beside_the_numbers_that_are_commented_out(run):
    records = _vlcs(run)
    for r in records:
        r.description["algorithm"] = {"agg": "agg", "s-mldg": "ensemble"}[r.algorithm]
    found = build_sheet(records, against="paper", benchmark="vlcs").paper
    assert found.values["Caltech101", "ensemble"] == 71.5
    assert any("commented out" in note and "ensemble" in note for note in found.notes)


def _as_in_the_paper(run, **algorithms):
    """Records on PACS under the paper's own protocol, with these settings by algorithm."""
    domains = ("art_painting", "cartoon", "photo", "sketch")
    records = run({name: {d: [0.8, 0.7] for d in domains} for name in algorithms})
    for r in records:
        settings = dict(algorithms[r.algorithm])
        protocol = {
            "split": "official", "validation": 0.3, "test": "whole", "steps": 3000, "batch": 32, "evaluations": 10,
            "optimizer": "auto", "lr": settings.pop("lr"), "momentum": 0.9, "weight_decay": 5e-05,
            "precision": "float32",
        }  # fmt: skip
        net = {"name": "resnet18", "hidden": [], "pretrained": True, "batchnorm_policy": "frozen", "weights": "abc"}
        r.description.update(net=net, protocol=protocol, settings=settings, size=224, augment="")
    return records


OURS = {"fo-s-mldg": {"alpha": "0.002", "beta": "1.85,", "lr": 0.001}}


def _list_departures(records, benchmark="pacs"):
    """By setting, what the paper has and what the run has."""
    paper = build_sheet(records, against="paper", benchmark=benchmark).paper
    return {name: (there, here) for name, there, here in paper.departures[1:]}


def test_under_the_papers_protocol_and_settings_only_what_it_does_not_give_is_listed(run):
    assert _list_departures(_as_in_the_paper(run, **OURS)) == {
        "batch size of a domain": ("not given", "32"),
        "evaluations": ("not given", "10"),
        "precision": ("not given", "float32"),
        "BatchNorm": ("not given", "frozen"),
        "image size": ("not given", "224"),
        "trials": ("not given", "2"),
        "selection": ("not given", "source-val"),
    }


def test_departures_are_a_table_in_every_format_that_has_notes(run):
    records = _as_in_the_paper(run, **OURS)
    for r in records:
        r.description["protocol"]["steps"] = 300
    sheet = build_sheet(records, against="paper", benchmark="pacs")
    assert re.search(r"^setting +paper +here\n-+\nsteps +3000 +300$", render(sheet), re.M)
    assert "| setting | paper | here |\n|---|---|---|\n| steps | 3000 | 300 |\n" in render(sheet, "markdown")
    assert "\n% steps | 3000 | 300\n" in render(sheet, "latex")
    assert "<tr><th>steps</th><td>3000</td><td>300</td></tr>" in ResultTable(sheet)._repr_html_()


@pytest.mark.parametrize(
    ("part", "change", "setting", "there", "here"),
    [
        ("protocol", {"steps": 300}, "steps", "3000", "300"),
        ("protocol", {"batch": 16}, "batch size of a domain", "not given", "16"),
        ("protocol", {"evaluations": 4}, "evaluations", "not given", "4"),
        ("protocol", {"precision": "bf16"}, "precision", "not given", "bf16"),
        (
            "protocol",
            {"split": "random", "test": "split"},
            "split",
            "official",
            "random, 70 % to train on and 30 % to test on",
        ),
        ("protocol", {"test": "split"}, "split", "official", "official, tested on its validation rows"),
        ("protocol", {"optimizer": "adam"}, "optimizer", "SGD with momentum", "adam"),
        ("protocol", {"momentum": 0.5}, "momentum", "0.9", "0.5"),
        ("protocol", {"weight_decay": 0.0001}, "weight decay", "5e-05", "0.0001"),
        ("protocol", {"schedule": "cosine"}, "schedule", "not given", "cosine"),
        ("protocol", {"lr": 0.002}, "settings of fo-s-mldg", "lr 0.001", "lr 0.002"),
        ("net", {"name": "resnet50"}, "net", "ResNet-18 from ImageNet weights", "ResNet-50 from ImageNet weights"),
        ("net", {"dropout": 0.2}, "dropout", "not given", "0.2"),
        ("net", {"batchnorm_policy": "recalibrate"}, "BatchNorm", "not given", "recalibrate"),
        ("", {"augment": "pacs"}, "augmentation", "not given", "pacs"),
        ("", {"size": 160}, "image size", "not given", "160"),
        ("settings", {"alpha": "0.1"}, "settings of fo-s-mldg", "alpha 0.002", "alpha 0.1"),
        ("settings", {"beta": "1.85"}, "settings of fo-s-mldg", "beta 1, 1, 1.85", "beta 1, 1.85, 1.85"),
        ("settings", {"extra": "2.0"}, "settings of fo-s-mldg", "-", "extra 2"),
        ("settings", {"alpha": "0.1", "extra": "2.0"}, "settings of fo-s-mldg", "alpha 0.002", "alpha 0.1; extra 2"),
    ],
)
def test_every_difference_of_protocol_is_listed(run, part, change, setting, there, here):
    records = _as_in_the_paper(run, **OURS)
    for r in records:
        (r.description[part] if part else r.description).update(change)
    assert _list_departures(records)[setting] == (there, here)


def test_a_dropout_that_the_paper_has_and_the_run_has_not_is_listed(run):
    records = _pacs(run, {"name": "alexnet", "weights": "abc"})
    assert _list_departures(records, "pacs-alexnet")["dropout"] == ("0.5", "none")


@pytest.mark.parametrize(
    ("name", "settings", "same"),
    [
        ("fo-s-mldg", {"alpha": "0.002,0.002", "beta": "1.0,1.0,1.85"}, True),
        ("fo-s-mldg", {"alpha": "0.002", "beta": "7.0,1.0,1.85"}, True),  # the first domain has no beta
        ("s-mldg", {"alpha": "0.002", "beta": "1.85,", "order": "0", "recompute": "true"}, True),
        ("s-mldg", {"alpha": "0.002", "beta": "1.85,", "order": "0", "recompute": "false"}, True),
        ("s-mldg", {"alpha": "0.002", "beta": "1.85,", "order": "2", "recompute": "false"}, False),
        ("ffo-s-mldg", {"alpha": "0.01,0.01", "beta": "1.75,", "lr": 0.9}, True),
        ("ffo-s-mldg", {"alpha": "0.01", "beta": "1.75", "lr": 0.9}, False),
        ("s-undo-bias", {"lam": "100.0", "branches": "head", "squared": "false"}, True),
        ("s-undo-bias", {"lam": "100.0", "branches": "all", "squared": "false"}, False),
    ],
)
def test_settings_are_compared_by_what_they_mean(run, name, settings, same):
    departures = _list_departures(_as_in_the_paper(run, **{name: {"lr": 0.001, **settings}}))
    assert (f"settings of {name}" not in departures) == same


def test_a_published_run_lists_steps_precision_augmentation_and_every_setting_that_differs(published_runs):
    said = seqdg_command("table", published_runs / "study" / "pacs-lite0" / "pixels", "--against", "paper").stdout
    for row in (
        "net ResNet-18 from ImageNet weights efficientnet-lite0 from ImageNet weights",
        "steps 3000 900",
        "precision not given bf16",
        "dropout not given 0.2",
        "augmentation not given pacs",
        "settings of fo-s-mldg lr 0.001 lr 0.0016 or 0.0004 or 0.0008",
        "settings of ffo-s-mldg alpha 0.01; lr 0.9 alpha 0.0165; lr 0.9 or 0.45",
        "settings of agg not given lr 0.01 or 0.005",
        "trials not given 5",
    ):
        assert row in [" ".join(line.split()) for line in said.splitlines()], row


def test_the_page_says_how_far_the_naive_ensemble_is_behind(published_runs):
    table = (published_runs / "pacs-features-search" / "tables" / "accuracy-source-val.md").read_text(encoding="utf-8")
    names, averages = (
        [cell.strip(" *") for cell in line.split("|")[2:-1]]
        for line in table.splitlines() if line.startswith(("| held out", "| average"))
    )  # fmt: skip
    mean = {name: float(cell.split()[0]) for name, cell in zip(names, averages, strict=True)}
    ahead = [f"{mean[name] - mean['ensemble']:.1f}" for name in ("undo-bias", "s-undo-bias")]
    said = " ".join((published_runs / "README.md").read_text(encoding="utf-8").split())
    assert f"`undo-bias` and `s-undo-bias` are {ahead[0]} and {ahead[1]} points above the naive ensemble" in said


def test_runs_of_one_table_stand_beside_the_paper_together(published_runs):
    study = published_runs / "study" / "pacs"
    said = seqdg_command("table", study / "table3", study / "table3-tf32", "--against", "paper").stdout
    lines = said.splitlines()
    rows = [line.split()[0] for line, after in pairwise(lines) if "paper: " in after]
    assert rows == ["agg", "fo-s-mldg", "ffo-s-mldg"]
    compared = [
        line.partition("  ")[0].removeprefix("settings of ") for line in lines if line.startswith("settings of")
    ]
    assert not {"fo-s-mldg", "ffo-s-mldg"} & set(compared), "these are the paper's"
    assert "agg" in compared
    (missing,) = (line for line in lines if line.startswith("Published and not in this run (averages): "))
    assert "CrossGrad 77.8, MetaReg 80.4" in missing


def test_an_algorithm_of_two_runs_stands_beside_domainbeds_numbers_in_both(run):
    domains = ("art_painting", "cartoon", "photo", "sketch")
    records = run({f"coral ({name})": {d: [0.8, 0.7] for d in domains} for name in ("short", "long")})
    sheet = build_sheet(records, against="domainbed")
    assert [sheet.published(AVERAGE, f"coral ({name})") for name in ("short", "long")] == ["86.2", "86.2"]


@pytest.mark.parametrize("table", load_tables())
def test_the_benchmark_files_have_the_settings_of_appendix_c(table):
    ours = load_benchmark(table).tables
    for name, settings in load_settings(table).items():
        defaults = flatten_settings(seqdg.build(name))
        assert {key: ours[name].get(key, defaults.get(key)) for key in settings} == settings


def test_domainbeds_averages_are_the_means_of_their_rows_and_every_column_is_an_algorithm_of_ours():
    table = load_tables("domainbed")["pacs-domainbed"]
    whole = [c for c in table.columns if ("A", c) in table.values]
    assert len(whole) == 14
    assert set(table.columns) - set(whole) == {"SWAD"}
    for column in whole:
        mean = sum(table.values[row, column] for row in "ACPS") / 4
        assert abs(mean - table.values[AVERAGE, column]) <= 0.0501, column
    content = tomllib.loads((files("seqdg") / "report" / "domainbed.toml").read_text(encoding="utf-8"))
    assert all(build(name) for column in table.columns for name in content["columns"][column])


def test_domainbeds_numbers_stand_beside_a_run_on_pacs_with_every_difference_of_protocol(run):
    records = run({"agg": {d: [0.8, 0.7] for d in ("art_painting", "cartoon", "photo", "sketch")}})
    for r in records:
        r.description["net"] = {"name": "resnet50-v1", "weights": "abc", "batchnorm_policy": "frozen"}
    sheet = build_sheet(records, against="domainbed")
    assert sheet.published("photo", "agg") == "97.2"
    assert sheet.published(AVERAGE, "agg") == "85.5"
    text = render(sheet, "text")
    assert "  DomainBed: ERM" in text
    assert "paper" not in text
    assert "CORAL 86.2" in " ".join(sheet.paper.notes)
    departures = {name: values for name, *values in sheet.paper.departures[1:]}
    assert departures["net"] == ["ResNet-50 from ImageNet weights", "ResNet-50 v1 from ImageNet weights"]
    assert departures["settings tried"][0].startswith("20 draws")
    assert "BatchNorm" not in departures  # frozen in both
    assert "selection" not in departures
    assert render(sheet, "csv").splitlines()[0].split(",")[-1] == "domainbed"
    other = build_sheet(records, select="last", against="domainbed")
    assert ("selection", "source-val", "last") in other.paper.departures


def test_domainbeds_numbers_are_refused_where_there_are_none(run):
    with pytest.raises(UsageError, match=r"are of PACS, and this run holds out VOC2007"):
        build_sheet(_vlcs(run, trials=2), against="domainbed")
    with pytest.raises(UsageError, match=r"domainbedd.*paper, domainbed"):
        build_sheet(_vlcs(run, trials=2), against="domainbedd")

"""docs/fidelity.md: current, complete, and every file that it names exists."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest
from torch import nn

import seqdg
from seqdg import Net
from seqdg import bench as seqdg_bench
from seqdg.report.published import load_minutes, load_tables
from seqdg.results import VERSION, open_run


@pytest.fixture(scope="module")
def fidelity(script):
    return script("make_fidelity")


@pytest.fixture(scope="module")
def page(fidelity) -> str:
    return fidelity.PAGE.read_text(encoding="utf-8")


def test_the_page_is_current(fidelity, page, published_runs):
    assert page == fidelity.make_page(), "Run: python scripts/make_fidelity.py"


def test_every_file_that_the_page_names_exists(fidelity, page):
    files = fidelity.list_files(page)
    assert len(files) > 60
    assert not [name for name in files if not (fidelity.ROOT / name).exists()]


def test_every_algorithm_and_column_of_the_paper_appears(fidelity, page):
    assert set(fidelity.ALGORITHMS) <= set(seqdg.list_algorithms())
    for name in fidelity.ALGORITHMS:
        assert f"\n| `{name}` | " in page
    for column in {*load_minutes(), *(c for table in load_tables().values() for c in table.columns)}:
        assert f"\n| {column} | " in page


def test_the_test_that_an_algorithm_is_said_to_have_names_it_or_its_class(fidelity):
    for name, test in fidelity.ALGORITHMS.items():
        text = (fidelity.ROOT / test).read_text(encoding="utf-8")
        algorithm = seqdg.build(name)
        kind = type(getattr(algorithm, "base", algorithm)).__name__
        assert f'"{name}"' in text or kind in text, f"{test} does not mention {name}"


def test_no_setting_of_the_papers_own_methods_departs_from_appendix_c(page):
    _, _, rest = page.partition("\n## Settings against appendix C\n")
    rows = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert len(rows) == 16
    assert all(row.endswith("| the same |") for row in rows)


def test_no_labelled_item_of_the_papers_source_is_forgotten(fidelity, shared_data):
    source = shared_data.parent / "paper.tex"
    if not source.is_file():
        pytest.skip("The paper's source is not here.")
    known = {label for items in fidelity.load_items().values() for item in items for label in item.get("labels", ())}
    assert set(re.findall(r"\\label\{([^}]*)\}", source.read_text(encoding="utf-8"))) == known


def test_no_published_record_nests_gradients_on_a_net_with_norms_that_torch_differentiates_wrongly(published_runs):
    """As the page says: the networks are MLPs without norms and networks whose BatchNorm is frozen."""
    stuck = Net(nn.Sequential(nn.EmbeddingBag(5, 4), nn.Linear(4, 3)), "none")  # which they refuse that nest gradients
    nesting = set()
    for name in seqdg.list_algorithms():
        try:
            seqdg.build(name).check(stuck, 3)
        except seqdg.UsageError as error:
            nesting |= {name} if "differentiates gradients" in str(error) else set()
    assert nesting == {"mldg", "s-mldg", "iga"}
    seen = set()
    for file in published_runs.rglob("trials.parquet"):
        for row in pq.read_table(file, columns=["algorithm", "net"]).to_pylist():
            net = json.loads(row["net"])
            if row["algorithm"].split("+")[0] in nesting:
                seen.add((net["name"], net["batchnorm_policy"], net["batchnorm"]))
    assert seen == {("mlp", "none", False)}


@pytest.fixture(scope="module")
def items(fidelity):
    """What is said of each part of the paper, as one text."""
    every = (item for items in fidelity.load_items().values() for item in items)
    return {item["location"]: f"{item['ours']} {item.get('differs', '')}" for item in every}


def test_the_published_records_are_counted_by_version(items, published_runs):
    """All of the version of today, so that `rerun` trains each of them again."""
    runs = [
        pq.read_table(path, columns=["more"])["more"].to_pylist() for path in published_runs.rglob("trials.parquet")
    ]
    count = sum(map(len, runs))
    said = f"{count:,} trials in {len(runs)} runs, with tables. Their descriptions are of version {VERSION}, today's."
    assert said in items["Published records"]
    assert {json.loads(text).get("version", VERSION) for run in runs for text in run} == {VERSION}


@pytest.fixture(scope="module")
def published(published_runs):
    """The records of the published runs that the page says something of, by their directories."""
    names = ("study/pacs-lite0/pixels", "study/pacs/table3", "study/pacs/table3-tf32")
    return {name: open_run(published_runs / name).records("accuracy") for name in names}


def test_ratios_of_the_papers_costs_are_those_of_its_table(items):
    minutes = load_minutes()
    assert f"({minutes['MLDG'] / minutes['AGG']:.1f} times AGG's)" in items["Section 3.1, MLDG, equation 1"]
    said = f"where the paper has {minutes['S-MLDG'] / minutes['AGG']:.1f}."
    assert said in items["Section 5.4 and Table 4, training cost"]
    said = f"({minutes['MetaReg']:.1f} against AGG's {minutes['AGG']:.1f} minutes)"
    assert said in items["MetaReg (Balaji et al., NeurIPS 2018)"]
    saved = 100 * (1 - minutes["S-Undo-Bias"] / minutes["Undo-Bias"])
    said = f"differ by {saved:.1f} % ({minutes['Undo-Bias']} and {minutes['S-Undo-Bias']} minutes)"
    assert said in items['Appendix B, "S-Undo-Bias saves computation over Undo-Bias"']


def test_costs_of_the_undo_biases_are_those_of_the_pages(fidelity, items, published_runs):
    text = items['Appendix B, "S-Undo-Bias saves computation over Undo-Bias"']
    speed = (fidelity.ROOT / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    cost = (published_runs / "pacs-features" / "tables" / "cost.md").read_text(encoding="utf-8")
    heads = [re.findall(rf"\| `{name}`, head \| (\d\.\d+) ×", speed)[0] for name in ("undo-bias", "s-undo-bias")]
    whole = [
        re.findall(rf"\| {name} \|(?: [\d.]+ \|){{3}} ([\d.]+) \|", cost)[0] for name in ("undo-bias", "s-undo-bias")
    ]
    assert f"ResNet-18: {heads[0]} and {heads[1]} times AGG's step" in text
    assert f"{whole[0]} and {whole[1]} times AGG's)" in text


def test_first_order_s_mldg_takes_as_long_as_is_said(fidelity, items):
    speed = (fidelity.ROOT / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    (ratio,) = re.findall(r"\| `fo-s-mldg` \| (\d\.\d+) ×", speed)[:1]
    assert f"takes {float(ratio):.1f} times AGG's time" in items["Section 5.4 and Table 4, training cost"]


def test_the_single_trial_of_table_3_is_that_of_the_study(fidelity, items):
    rows = (fidelity.ROOT / "docs" / "results" / "study.md").read_text(encoding="utf-8").splitlines()
    (row,) = (r for r in rows if r.startswith("| `fo-mldg` (paper: MLDG), one trial |"))
    ours, paper = row.split(" | ")[5:7]
    assert f"MLDG (first-order) has {ours} ({paper})" in items["Section 5.3 and Table 3, PACS with ResNet-18"]


def test_the_fine_tuned_efficientnet_took_as_many_steps_as_is_said(items, published):
    (steps,) = {r.description["protocol"]["steps"] for r in published["study/pacs-lite0/pixels"]}
    (precision,) = {r.description["protocol"]["precision"] for r in published["study/pacs-lite0/pixels"]}
    said = f"has another net, {steps} steps, {precision}, augmentation and rates of its own."
    assert said in items["Section 5.3 and Table 3, PACS with ResNet-18"]


def test_gradients_align_with_s_mldg_on_one_set_of_the_study_alone(fidelity, items):
    """By the row of cosines that docs/results/study.md has for each of the two, a mean over the training."""
    assert "on one of six sets, Office-Caltech10" in items["Section 4.1, expansion of MLDG and S-MLDG"]
    lines = (fidelity.ROOT / "docs" / "results" / "study.md").read_text(encoding="utf-8").splitlines()
    at = next(
        i for i, line in enumerate(lines) if line.startswith("| cosine between the sources' gradients, mean over")
    )
    sets = next(line for line in reversed(lines[:at]) if line.startswith("| | | ")).split(" | ")[1:]
    plain, sequential = ([float(c.split(",")[0]) for c in row.split(" | ")[2:]] for row in lines[at : at + 2])
    above = [name.partition(",")[0] for name, a, b in zip(sets, plain, sequential, strict=True) if b > a]
    assert above == ["office-caltech10"]


def test_rates_of_vlcs_are_those_of_the_passage_that_is_commented_out():
    benchmark = seqdg_bench.load_benchmark("vlcs")
    assert benchmark.tables["fo-s-mldg"]["lr"] == 0.001
    assert benchmark.protocol.lr == 3 * benchmark.tables["fo-s-mldg"]["lr"]


def test_mldg_on_alexnet_has_the_alpha_of_s_mldg_and_beta_1():
    tables = seqdg_bench.load_benchmark("pacs-alexnet").tables
    assert tables["mldg"]["alpha"] == tables["fo-mldg"]["alpha"] == tables["fo-s-mldg"]["alpha"]
    assert all("beta" not in tables[name] and seqdg.build(name).beta == 1.0 for name in ("mldg", "fo-mldg"))


def test_table_3_ran_on_the_weights_that_pages_name(published):
    """torchvision's IMAGENET1K_V1, of which there is one file."""
    hashes = {r.description["net"]["weights"] for name in published if "pacs/table3" in name for r in published[name]}
    assert len(hashes) == 1

"""docs/fidelity.md: current, complete, and every file that it names exists."""

from __future__ import annotations

import json
import re

import pyarrow.parquet as pq
import pytest
from torch import nn

import seqdg
from seqdg import Net
from seqdg.report.published import load_minutes, load_tables


@pytest.fixture(scope="module")
def fidelity(script):
    return script("make_fidelity")


@pytest.fixture(scope="module")
def page(fidelity) -> str:
    return fidelity.PAGE.read_text(encoding="utf-8")


def test_the_page_is_current(fidelity, page):
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
    """As the page says: the nets are MLPs without norms and nets whose BatchNorm is frozen."""
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
    assert seen == {("mlp", "none", False), ("resnet18", "frozen", False)}

"""The pages of algorithms are what the code says, and the paper's settings are what the paper says."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import seqdg
from seqdg.bench import find_learner, list_learners, load_benchmark
from seqdg.core import collect_rules, list_alone

APPENDIX_C = {
    ("ixmas", "fo-s-mldg"): {"alpha": 0.9, "lr": 0.001, "beta": [2.0]},
    ("ixmas", "ffo-s-mldg"): {"alpha": 1.0, "lr": 0.9, "beta": [1.1]},
    ("ixmas", "s-undo-bias"): {"lr": 0.005, "lam": 1000.0},
    ("vlcs", "fo-s-mldg"): {"alpha": [0.05, 0.6], "lr": 0.001, "beta": [1.2]},
    ("vlcs", "ffo-s-mldg"): {"alpha": 0.3, "lr": 0.01, "beta": [1.5]},
    ("vlcs", "s-undo-bias"): {"lr": 0.01, "lam": 50.0},
    ("pacs", "fo-s-mldg"): {"alpha": 0.002, "lr": 0.001, "beta": [1.85]},
    ("pacs", "ffo-s-mldg"): {"alpha": 0.01, "lr": 0.9, "beta": [1.75]},
    ("pacs", "s-undo-bias"): {"lr": 0.001, "lam": 100.0},
    ("pacs-alexnet", "fo-s-mldg"): {"alpha": 0.001, "lr": 0.0005, "beta": [4.0, 1.0]},
    ("pacs-alexnet", "ffo-s-mldg"): {"alpha": 0.005, "lr": 0.85, "beta": [1.85, 1.0]},
    ("pacs-alexnet", "s-undo-bias"): {"lr": 0.001, "lam": 300.0},
}


@pytest.fixture(scope="module")
def make_docs(script):
    return script("make_docs")


def read_section(page, name):
    return page.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def sections(make_docs):
    """What the page of its family says of each algorithm."""
    families = make_docs.sort_by_family()
    return {
        name: read_section(make_docs.FOLDER / f"{key}.md", name) for key, found in families.items() for name in found
    }


def test_the_pages_of_algorithms_are_current(make_docs):
    pages = make_docs.make_pages()
    assert {*make_docs.FOLDER.glob("*.md"), make_docs.PAGE} == set(pages)
    assert [path.name for path, text in pages.items() if path.read_text() != text] == [], "Run scripts/make_docs.py"


@pytest.mark.parametrize("name", seqdg.list_algorithms())
def test_the_pages_name_every_algorithm_with_the_settings_that_it_takes(make_docs, sections, name):
    assert f'\n| <a id="{name}"></a>[`{name}`](algorithms/' in make_docs.PAGE.read_text()
    own, algorithm = sections[name], seqdg.build(name)
    base = re.search(r"Settings: those of \[`([\w-]+)`\]", own)
    if base is not None:
        assert type(seqdg.build(base[1])) is type(algorithm.base)
        return
    refused = list_alone(algorithm)
    for setting in collect_rules(algorithm):
        assert (f"\n| `{setting}` | " in own) is (setting not in refused)


def test_every_family_names_algorithms_that_exist(make_docs):
    members = [name for family in make_docs.FAMILIES.values() for name in family.members]
    assert len(members) == len(set(members))
    assert set(members) <= set(seqdg.list_algorithms())


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("1/N * sum over i of l(D_i, w)", r"\tfrac{1}{N}\,\sum_{i}l(D_{i},w)"),
        ("w - alpha * stop(grad L_{i-1}(w))", r"w-\alpha \,\operatorname{stop}(\nabla L_{i-1}(w))"),
        ("mean over pairs i < j of d_ij", r"\operatorname*{mean}_{\text{pairs }i<j}d_{ij}"),
        ("x + epsilon_label * |x| * g", r"x+\epsilon_{\text{label}}\,\lvert x\rvert \,g"),
        ("q_i <- q_i * exp(eta * l(D_i, w)) / Z", r"q_{i}\leftarrow q_{i}\,\exp (\eta \,l(D_{i},w))/Z"),
        ("|| w_i - w_0 ||^2", r"\lVert w_{i}-w_{0}\rVert ^{2}"),
    ],
)
def test_equations_of_docstrings_become_latex(script, text, latex):
    assert script("equations").convert(text) == latex


def test_every_equation_of_the_pages_becomes_mathml(make_docs):
    pytest.importorskip("latex2mathml", reason="The site's tools are not installed: pip install '.[docs]'.")
    from latex2mathml.converter import convert

    for page in make_docs.FOLDER.glob("*.md"):
        for block in re.findall(r"^```math\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            assert "<mtable" in convert(block, display="block")


def test_what_list_reads_is_current(make_docs):
    code = "import json; from seqdg.cli.results_commands import build_catalog; print(json.dumps(build_catalog()))"
    words = [sys.executable, "-c", code]  # in a process in which no test has registered anything
    made = json.loads(subprocess.run(words, check=True, capture_output=True, encoding="utf-8").stdout)
    assert json.loads(make_docs.CATALOG.read_text(encoding="utf-8")) == made, "Run: python scripts/make_docs.py"


def test_the_page_names_every_learner_with_its_settings(make_docs):
    learners = [name for name in list_learners() if type(find_learner(name)).__module__.startswith("seqdg.")]
    assert {"dica", "lre-svm"} <= set(learners)
    for name in learners:
        own = read_section(make_docs.FOLDER / "learners.md", name)
        assert all(f"\n| `{setting}` | " in own for setting in find_learner(name).settings if setting != "balance")


def test_costs_are_counted_and_not_written_down(make_docs):
    cost = make_docs.costs()
    assert cost["agg"] == cost["fo-s-mldg"] == cost["ffo-s-mldg"] == "3.0"
    assert float(cost["s-mldg"]) > 2 * 3


@pytest.mark.parametrize(("benchmark", "name"), APPENDIX_C)
def test_the_papers_own_methods_are_set_as_appendix_c_lists_them(benchmark, name):
    table = load_benchmark(benchmark).tables[name]
    assert {key: table[key] for key in APPENDIX_C[benchmark, name]} == APPENDIX_C[benchmark, name]

"""The page of algorithms is what the code says, and the paper's settings are what the paper says."""

from __future__ import annotations

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


def test_the_page_of_algorithms_is_current(make_docs):
    assert make_docs.PAGE.read_text() == make_docs.page(), "Run: python scripts/make_docs.py"


@pytest.mark.parametrize("name", seqdg.list_algorithms())
def test_the_page_names_every_algorithm_with_the_settings_that_it_takes(make_docs, name):
    _, _, rest = make_docs.PAGE.read_text().partition(f"\n## {name}\n")
    own, _, _ = rest.partition("\n## ")
    assert "Cost of a step: " in own
    refused = list_alone(seqdg.build(name))
    for setting in collect_rules(seqdg.build(name)):
        assert (f"\n| `{setting}` | " in own) is (setting not in refused)


def test_the_page_names_every_learner_with_its_settings(make_docs):
    learners = [name for name in list_learners() if type(find_learner(name)).__module__.startswith("seqdg.")]
    assert {"dica", "lre-svm"} <= set(learners)
    for name in learners:
        own = make_docs.PAGE.read_text().partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert all(f"\n| `{setting}` | " in own for setting in find_learner(name).settings)


def test_costs_are_counted_and_not_written_down(make_docs):
    cost = make_docs.costs()
    assert cost["agg"] == cost["fo-s-mldg"] == cost["ffo-s-mldg"] == "3.0"
    assert float(cost["s-mldg"]) > 2 * 3


@pytest.mark.parametrize(("benchmark", "name"), APPENDIX_C)
def test_the_papers_own_methods_are_set_as_appendix_c_lists_them(benchmark, name):
    table = load_benchmark(benchmark).tables[name]
    assert {key: table[key] for key in APPENDIX_C[benchmark, name]} == APPENDIX_C[benchmark, name]

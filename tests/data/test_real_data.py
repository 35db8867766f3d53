"""The real data sets, where they are: published counts, official splits, and what reading them costs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from importlib import resources

import numpy as np
import pytest
import torch

from seqdg.data import DataSpec, check_dataset, load_dataset, open_container
from seqdg.data.image_folder import list_pictures

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACS = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
VALIDATION = {"art_painting": 208, "cartoon": 237, "photo": 171, "sketch": 398}
DATA = ("ixmas", "office-caltech10", "pacs", "pacs-alexnet", "pacs-augmented", "pacs-features", "pacs-lite0", "vlcs")


def benchmark(name: str) -> DataSpec:
    text = (resources.files("seqdg") / "benchmarks" / f"{name}.toml").read_text(encoding="utf-8")
    return DataSpec.from_table(name, tomllib.loads(text)["data"])


@pytest.mark.parametrize("name", DATA)
def test_each_benchmark_says_where_in_the_paper_it_is_from_and_has_a_valid_data_table(name):
    text = (resources.files("seqdg") / "benchmarks" / f"{name}.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    assert table["title"]
    assert table["source"]
    spec = benchmark(name)
    assert spec.domains
    assert spec.classes


def test_office_caltech10_has_the_published_counts(shared_data):
    report = check_dataset(benchmark("office-caltech10"), shared_data)
    assert report.problems == ()
    assert report.counts == {"amazon": 958, "Caltech10": 1123, "dslr": 157, "webcam": 295}
    data = load_dataset(benchmark("office-caltech10"), shared_data)
    assert data.shape == (800,)
    torch.testing.assert_close(data.x.mean(1), torch.zeros(len(data.x)), rtol=0, atol=1e-5)


def test_pacs_features_have_the_published_counts_and_the_official_split(shared_data):
    report = check_dataset(benchmark("pacs-features"), shared_data)
    assert report.problems == ()
    assert report.counts == PACS
    assert report.validation == VALIDATION


def test_features_and_pictures_of_pacs_agree_on_labels_and_split(shared_data):
    spec = benchmark("pacs-lite0")
    features = load_dataset(benchmark("pacs-features"), shared_data)
    _, pictures = list_pictures(open_container(shared_data / "pacs.zip"), spec)
    with np.load(shared_data / "pacs_efficientnet_lite0.npz") as file:
        for domain in spec.domains:
            stems = [path.rpartition(".")[0] for path in file[f"{domain}_path"]]
            labels = dict(zip(stems, features.y[features.rows(domain)].tolist(), strict=True))
            mine = [p for p in pictures if p.domain == domain]
            assert {f"{p.domain}/{p.label}/{p.file.stem}": spec.classes.index(p.label) for p in mine} == labels


@pytest.mark.slow
def test_all_of_pacs_is_decoded_within_a_gigabyte_and_then_opened_without_decoding(shared_data):
    """In a process of its own, whose largest memory is its own."""
    script = """
        import sys
        from pathlib import Path
        import torch
        from test_real_data import benchmark
        from seqdg.data import load_dataset
        from seqdg.training.device import measure_peak_memory
        root = Path(sys.argv[1])
        calls = []
        first = load_dataset(benchmark("pacs-lite0"), root, progress=lambda done, total: calls.append(done))
        assert calls[-1] == 9991
        again = load_dataset(benchmark("pacs-lite0"), root, progress=lambda done, total: 1 / 0)
        assert again.fingerprint == first.fingerprint
        assert again.x.shape == (9991, 3, 227, 227)
        counts = {d: len(again.rows(d)) for d in again.domains}
        valid = {d: int(again.validation[again.rows(d)].sum()) for d in again.domains}
        print(counts, valid, measure_peak_memory(torch.device("cpu")))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(shared_data)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=__file__.rpartition("/")[0])
    said, _, memory = done.stdout.rpartition(" ")
    assert said == f"{PACS} {VALIDATION}"
    assert int(memory) < 2**30

"""Every benchmark of the paper runs, with all its algorithms, on small files in the layout that its data come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from seqdg.bench import load_benchmark
from seqdg.data import load_data
from seqdg.nets import alexnet, initialize, resnet18
from seqdg.results import DONE, Store

PACS = ("art_painting", "cartoon", "photo", "sketch")


def vlcs(root: Path) -> dict[str, np.ndarray]:
    """VLSC/<domain>.mat with one matrix: 4096 features, and the label, from 1."""
    (root / "VLSC").mkdir()
    draw, written = np.random.default_rng(0), {}
    for name in ("VOC2007", "LabelMe", "Caltech101", "SUN09"):
        written[name] = np.abs(draw.normal(size=(20, 4096)))
        content = np.column_stack([written[name], np.arange(20) % 5 + 1])
        scipy.io.savemat(root / "VLSC" / f"{name}.mat", {"data": content})
    return written


def ixmas(root: Path) -> dict[str, np.ndarray]:
    """`desc` with a column per video, `labels` in a row: actions 1 to 10 and 12."""
    folder = root / "dataset/IXMAS_06/baseline_common_dict"
    folder.mkdir(parents=True)
    draw, written = np.random.default_rng(0), {}
    labels = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12] * 4)
    for view in "01234":
        desc = draw.poisson(0.5, size=(2000, len(labels))).astype(float)
        scipy.io.savemat(folder / f"data_cam{view}_bow2000.mat", {"desc": desc, "labels": labels[None, :]})
        written[view] = desc[:, labels <= 5].T
    return written


def pacs(root: Path) -> None:
    """PACS/<domain>/<class>/ with JPEG and PNG, and the official lists, labels from 1."""
    draw, lists = np.random.default_rng(0), root / "pacs_splits"
    lists.mkdir()
    for domain in PACS:
        for number, label in enumerate(load_benchmark("pacs").data["classes"], 1):
            folder = root / "PACS" / domain / label
            folder.mkdir(parents=True)
            for i, part in enumerate(("train", "crossval")):
                name = f"pic_{i:03}.{'png' if domain == 'sketch' else 'jpg'}"
                Image.fromarray(draw.integers(0, 256, (227, 227, 3), dtype=np.uint8)).save(folder / name)
                with (lists / f"{domain}_{part}_kfold.txt").open("a") as file:
                    file.write(f"{domain}/{label}/{name} {number}\n")


@pytest.mark.parametrize(("name", "make"), [("vlcs", vlcs), ("ixmas", ixmas)])
def test_published_feature_files_are_read_as_they_are(tmp_path, name, make):
    written = make(tmp_path)
    data = load_data(load_benchmark(name).data, tmp_path, allow_partial=True, name=name)
    assert data.domains == tuple(written)
    assert len(data.classes) == 5
    for domain, x in written.items():
        np.testing.assert_allclose(data.x[data.rows(domain)].numpy(), x, rtol=1e-6)
        assert data.y[data.rows(domain)].tolist() == [0, 1, 2, 3, 4] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [("vlcs", vlcs), ("ixmas", ixmas)])
def test_every_algorithm_of_a_table_of_features_runs(seqdg, tmp_path, name, make):
    make(tmp_path)
    words = [
        "--data",
        tmp_path,
        "--allow-partial",
        "--trials",
        1,
        "--steps",
        2,
        "--workers",
        0,
        "--out",
        tmp_path / "run",
    ]
    done = seqdg("bench", name, *words, "--held-out", load_benchmark(name).data["domains"][0])
    assert done.returncode == 0, done.stderr
    records = Store.open(tmp_path / "run").records()
    assert [r.algorithm for r in records] == list(load_benchmark(name).algorithms)
    assert {r.status for r in records} == {DONE}
    assert all(r.notes for r in records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "net", "algorithms"),
    [
        ("pacs", resnet18, ("agg", "fo-s-mldg")),
        pytest.param("pacs", resnet18, load_benchmark("pacs").algorithms, marks=pytest.mark.soak),
        pytest.param(  # it is large, and its list that of pacs
            "pacs-alexnet", alexnet, ("agg", "s-undo-bias", "fo-s-mldg"), marks=pytest.mark.soak
        ),
    ],
)
def test_the_algorithms_of_a_table_of_pictures_run(seqdg, tmp_path, name, net, algorithms):
    pacs(tmp_path)
    torch.save(initialize(lambda: net(1000), torch.Generator().manual_seed(0)).state_dict(), tmp_path / "w.pth")
    words = ["--data", tmp_path, "--weights", tmp_path / "w.pth", "--trials", 1, "--steps", 2, "--workers", 0]
    words += [word for a in algorithms for word in ("--set", f"{a}.batch=1", "--set", f"{a}.evaluations=1")]
    words += ["--set", "metareg.inner_steps=1"] if "metareg" in algorithms else []  # each step needs a row of its own
    words += ["--algorithms", ",".join(algorithms), "--held-out", "sketch", "--out", tmp_path / "run"]
    done = seqdg("bench", name, *words, "--allow-partial")
    assert done.returncode == 0, done.stderr
    records = Store.open(tmp_path / "run").records()
    assert [r.algorithm for r in records] == list(algorithms)
    assert {r.status for r in records} == {DONE}
    assert "Partial data: photo has 14 rows where 1670 are published." in records[0].notes

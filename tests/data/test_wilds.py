"""The three sets of WILDS: which rows are for what, on small made copies in the published layout."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from PIL import Image

from seqdg.bench import load_benchmark
from seqdg.data import DataSpec, load_dataset

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))


def describe(name, **changes):
    """The data of a benchmark, with small pictures."""
    text = (resources.files("seqdg") / "benchmarks" / f"{name}.toml").read_text(encoding="utf-8")
    return replace(DataSpec.from_table(name, tomllib.loads(text)["data"]), **{"size": 8, **changes})


def draw(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(out, "PNG")
    path.write_bytes(out.getvalue())


def test_camelyon17_divides_hospitals_as_wilds_does(tmp_path):
    rows = [(f"00{i}", i % 2, 10 * i, i, center, i // 2, split) for i, (center, split) in enumerate(
        [(0, 0), (0, 0), (3, 0), (3, 1), (4, 0), (4, 0), (1, 0), (1, 1), (2, 0), (2, 0)])]  # fmt: skip
    lines = [",patient,node,x_coord,y_coord,tumor,slide,center,split"]
    for i, (patient, node, x, y, center, slide, split) in enumerate(rows):
        lines.append(f"{i},{patient},{node},{x},{y},{i % 2},{slide},{center},{split}")
        name = f"patch_patient_{patient}_node_{node}_x_{x}_y_{y}.png"
        draw(tmp_path / "camelyon17_v1.0" / "patches" / f"patient_{patient}_node_{node}" / name, i)
    (tmp_path / "camelyon17_v1.0" / "metadata.csv").write_text("\n".join(lines) + "\n")
    data = load_dataset(describe("camelyon17", counts={}), tmp_path)
    assert dict(zip(data.domains, data.parts, strict=True)) == {
        "hospital 0": "train", "hospital 3": "train", "hospital 4": "train", "hospital 1": "validation",
        "hospital 2": "test",
    }  # fmt: skip
    assert data.validation.nonzero().flatten().tolist() == [3]
    fixed = load_benchmark("camelyon17").fix_split(data)
    assert fixed.protocol.train_domains == ("hospital 0", "hospital 3", "hospital 4")
    assert (fixed.protocol.validation_domains, fixed.test_domains) == (("hospital 1",), ("hospital 2",))
    assert data.groups == ("0", "1", "2", "3", "4")
    assert data.y.tolist() == [0, 1] * 5


def test_iwildcam_reads_the_parts_of_the_list(tmp_path):
    parts = ("train", "train", "id_val", "id_test", "val", "val", "test", "test")
    lines = ["split,location_remapped,filename,y"]
    for i, part in enumerate(parts):
        lines.append(f"{part},{i // 4 * 2 + i // 6},{i}.jpg,{i % 2}")
        draw(tmp_path / "iwildcam_v2.0" / "train" / f"{i}.jpg", i)
    (tmp_path / "iwildcam_v2.0" / "metadata.csv").write_text("\n".join(lines) + "\n")
    data = load_dataset(describe("iwildcam", class_count=None), tmp_path)
    assert data.domains == ("0", "2", "3")
    assert data.parts == ("train", "validation", "test")
    assert load_benchmark("iwildcam").fix_split(data).test_domains == ("3",)
    assert data.validation.tolist() == [False, False, True, False, False, False, False]


def test_fmow_divides_years_as_wilds_does_and_knows_regions(tmp_path):
    folder = tmp_path / "fmow_v1.1"
    rows = [  # split, time, country
        ("train", "2002-05-01T00:00:00Z", "FRA"), ("val", "2012-12-31T00:00:00Z", "FRA"),
        ("test", "2012-01-01T00:00:00Z", "FRA"), ("val", "2013-01-01T00:00:00Z", "USA"),
        ("train", "2014-01-01T00:00:00Z", "USA"), ("seq", "2010-01-01T00:00:00Z", "USA"),
        ("test", "2016-01-01T00:00:00Z", "KEN"), ("train", "2012-01-01T00:00:00Z", "XXX"),
        ("val", "2015-06-01T00:00:00Z", "FRA"), ("test", "2017-06-01T00:00:00Z", "FRA"),
    ]  # fmt: skip
    lines = ["split,category,timestamp,country_code"]
    for i, (split, time, country) in enumerate(rows):
        lines.append(f"{split},{('airport', 'zoo')[i % 2]},{time},{country}")
        draw(folder / "images" / f"rgb_img_{i}.png", i)
    (folder / "rgb_metadata.csv").write_text("\n".join(lines) + "\n")
    (folder / "country_code_mapping.csv").write_text(
        "name,alpha-3,region\nFrance,FRA,Europe\nUnited States,USA,Americas\nKenya,KEN,Africa\n"
    )
    data = load_dataset(describe("fmow", class_count=None), tmp_path)
    assert dict(zip(data.domains, data.parts, strict=True)) == {
        "2002": "train", "2012": "train", "2013": "validation", "2015": "validation", "2016": "test", "2017": "test",
    }  # fmt: skip
    assert [data.groups[g] for g in data.group] == [
        "Europe",
        "Europe",
        "Americas",
        "Africa",
        "Other",
        "Europe",
        "Europe",
    ]
    with Image.open(folder / "images" / "rgb_img_6.png") as picture:  # pictures are numbered by the whole list
        np.testing.assert_array_equal(data.x[3], np.asarray(picture).transpose(2, 0, 1))

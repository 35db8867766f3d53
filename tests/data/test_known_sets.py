"""The data of the benchmarks that come with the package: layouts on small made trees, real data where they are."""

from __future__ import annotations

import gzip
import io
import json
import sys
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
import torch
from PIL import Image

from seqdg.base import UsageError
from seqdg.data import BUNDLED, DataSpec, check_dataset, load_dataset
from seqdg.data.rotated_mnist import load_colored, load_turned, read_mnist, turn, turn_by

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TERRA = ("bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel")
REAL = {"amazon-reviews": 8000, "wisdm": 5418, "pacs-features": 9991, "parkinsons": 5875}


def read_table(name):
    return tomllib.loads((resources.files("seqdg") / "benchmarks" / f"{name}.toml").read_text(encoding="utf-8"))


def describe(name, **changes):
    """The data of a benchmark, with small pictures."""
    spec = DataSpec.from_table(name, read_table(name)["data"])
    return replace(spec, **{"size": 8 if spec.size else None, **changes})


def draw(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(out, "PNG")
    path.write_bytes(out.getvalue())


def make_folders(top, domains, classes, suffix=".jpg"):
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            draw(top / domain / name / f"{d}_{c}{suffix}", 100 * d + c)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))


CARS = ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe")
STYLES = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
FOLDERS = {
    "pacs-domainbed": ("PACS", ("art_painting", "cartoon", "photo", "sketch"), None),
    "vlcs-domainbed": ("VLCS", ("CALTECH", "LABELME", "SUN", "PASCAL"), None),
    "office-home": ("office_home", ("Art", "Clipart", "Product", "RealWorld"), ("Alarm_Clock", "TV")),
    "terra-incognita": ("terra_incognita", ("location_100", "location_38", "location_43", "location_46"), None),
    "sviro": ("sviro", CARS, tuple("0123456")),
    "domainnet": ("domain_net", STYLES, ("zebra", "zigzag")),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_read_in_the_published_layout(tmp_path, name):
    folder, domains, classes = FOLDERS[name]
    spec = describe(name)
    make_folders(tmp_path / folder, domains, classes or spec.classes)
    (tmp_path / "domain_net_duplicates.txt").write_text("clipart/zebra/0_0.jpg\nreal/zebra/gone.jpg\n")
    data = load_dataset(replace(spec, counts={}, class_count=None), tmp_path)
    assert data.domains == spec.domains
    assert data.classes == (spec.classes or classes)
    assert len(data.y) == len(domains) * len(data.classes) - (name == "domainnet")
    if spec.counts:
        assert set(spec.counts) == set(spec.domains)
        assert any("are published" in problem for problem in check_dataset(spec, tmp_path).problems)


def test_a_count_of_classes_is_compared(tmp_path):
    make_folders(tmp_path / "sviro", FOLDERS["sviro"][1], ("0", "1"))
    spec = describe("sviro")
    assert check_dataset(spec, tmp_path).problems == ("The number of classes is 2 where 7 are published.",)
    assert load_dataset(spec, tmp_path, allow_partial=True).classes == ("0", "1")


def test_terra_incognita_is_the_same_from_folders_and_from_the_annotations(tmp_path):
    lists = tmp_path / "json" / "eccv_18_annotation_files"
    lists.mkdir(parents=True)
    places = (38, 43, 46, 100, 7)
    images = [(p, c) for p in places for c in range(len(TERRA) + 1)]
    spec = describe("terra-incognita-json")
    for part, name in enumerate(spec.files):
        mine = images[part::5]
        content = {
            "images": [{"id": f"{p}-{c}", "file_name": f"{p}-{c}.jpg", "location": p} for p, c in mine],
            "annotations": [{"image_id": f"{p}-{c}", "category_id": c} for p, c in mine],
            "categories": [{"id": c, "name": name} for c, name in enumerate((*TERRA, "car"))],
        }
        (lists / name).write_text(json.dumps(content))
    for seed, (p, c) in enumerate(images):
        draw(tmp_path / "json" / "eccv_18_all_images_sm" / f"{p}-{c}.jpg", seed)
        if p != 7 and c < len(TERRA):
            draw(tmp_path / "folders" / "terra_incognita" / f"location_{p}" / TERRA[c] / f"{p}-{c}.jpg", seed)
    listed = load_dataset(spec, tmp_path / "json")
    foldered = load_dataset(describe("terra-incognita"), tmp_path / "folders")
    assert listed.domains == foldered.domains == ("L100", "L38", "L43", "L46")
    for domain in listed.domains:
        one, other = listed.rows(domain), foldered.rows(domain)
        assert sorted(listed.y[one].tolist()) == sorted(foldered.y[other].tolist()) == list(range(10))
        for row, label in zip(one.tolist(), listed.y[one].tolist(), strict=True):
            same = other[foldered.y[other] == label].item()
            np.testing.assert_array_equal(listed.x[row], foldered.x[same])


def write_mnist(folder, zipped):
    folder.mkdir(parents=True)
    draws = np.random.default_rng(0)
    for name, count in (("train", 20), ("t10k", 10)):
        images = draws.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, magic, values in (("images-idx3", 2051, images), ("labels-idx1", 2049, labels)):
            data = np.array([magic, *values.shape], dtype=">i4").tobytes() + values.tobytes()
            path = folder / f"{name}-{kind}-ubyte"
            path.write_bytes(data) if not zipped else path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(data))


@pytest.mark.parametrize(("place", "zipped"), [("MNIST/raw", False), ("mnist", True)])
def test_rotated_mnist_turns_all_digits_of_the_files(tmp_path, place, zipped):
    write_mnist(tmp_path / place, zipped)
    data = load_dataset(describe("rotated-mnist-full", counts={}), tmp_path, held_out=())
    assert data.domains == ("0", "15", "30", "45", "60", "75")
    assert [len(data.rows(d)) for d in data.domains] == [5] * 6
    images, labels = read_mnist(tmp_path / place.split("/")[0])
    order = np.random.RandomState(0).permutation(30)
    np.testing.assert_array_equal(data.y[data.rows("0")].numpy(), labels[order[::6]])
    np.testing.assert_allclose(data.x[0].numpy() * 255, images[order[0]].reshape(-1), atol=1e-4)


def test_digits_turn_counter_clockwise():
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 14, 20:26] = 255  # to the right of the middle
    turned = turn(image, 75)
    assert turned[0, 2:9].sum() > 0.9 * turned.sum(), "most of it is above the middle"


def test_a_file_of_mnist_that_was_cut_is_a_sentence(tmp_path):
    write_mnist(tmp_path / "MNIST", False)
    path = tmp_path / "MNIST" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="only a part of one"):
        read_mnist(tmp_path / "MNIST")
    path.unlink()
    with pytest.raises(UsageError, match=r"There is no train-images-idx3-ubyte \(nor"):
        read_mnist(tmp_path / "MNIST")


@pytest.fixture(scope="module")
def colored():
    return load_colored()


def test_the_color_of_a_digit_goes_with_its_label_as_the_domain_says(colored):
    assert colored.domains == ("+90%", "+80%", "-90%")
    x = colored.x.reshape(-1, 2, 196)
    assert (x.amax(2) > 0).sum(1).tolist() == [1] * 5000, "every digit has one color"
    color = (x[:, 1].amax(1) > 0).long()
    for domain, share in zip(colored.domains, (0.9, 0.8, 0.1), strict=True):
        rows = colored.rows(domain)
        assert (color[rows] == colored.y[rows]).float().mean().item() == pytest.approx(share, abs=0.03)
    digits = BUNDLED["rotated-mnist"]()
    assert ((digits.y < 5).long() == colored.y).float().mean().item() == pytest.approx(0.75, abs=0.02)


def test_digits_that_were_not_turned_are_as_bundled_and_the_seed_is_fixed(colored):
    digits = BUNDLED["rotated-mnist"]()
    rows = digits.rows("0")
    torch.testing.assert_close(colored.x.reshape(-1, 2, 196).sum(1)[rows], digits.x[rows])
    again = load_colored()
    assert again.fingerprint == colored.fingerprint
    assert torch.equal(again.y, colored.y)


def test_the_domain_that_counts_is_the_one_held_out():
    table = read_table("colored-mnist")
    assert table["protocol"]["held_out"] == ["-90%"]


def test_turned_digits_are_as_many_and_as_wrong_as_asked_and_turned_evenly():
    digits, upright = load_turned(number=3, degrees=90.0, noise=0.25, rows=240), load_turned(3, 0.0, 0.0, 240)
    assert digits.domains == ("1", "2", "3")
    assert digits.validation.reshape(3, 400).sum(1).tolist() == [160] * 3
    assert torch.bincount(digits.y[digits.validation]).tolist() == [48] * 10, "validation rows have true labels"
    assert torch.bincount(upright.y).tolist() == [120] * 10
    bundled = BUNDLED["rotated-mnist"]()
    known = {row.numpy().tobytes(): int(label) for row, label in zip(bundled.x, bundled.y, strict=True)}
    same = [(known[row.numpy().tobytes()], int(y), bool(v)) for row, y, v in
            zip(digits.x, digits.y, digits.validation, strict=True) if row.numpy().tobytes() in known]  # fmt: skip
    assert len(same) > 100, "digits that had the angle of their domain are as they were"
    assert all(true == y for true, y, is_validation in same if is_validation)
    wrong = [true != y for true, y, is_validation in same if not is_validation]
    assert sum(wrong) / len(wrong) == pytest.approx(0.25, abs=0.1)
    quarter = turn_by(upright.x.numpy()[:5], np.full(5, 90.0)).reshape(-1, 14, 14)
    np.testing.assert_allclose(quarter, np.rot90(upright.x[:5].reshape(-1, 14, 14), axes=(1, 2)), atol=1e-5)
    again = load_turned(number=3, degrees=90.0, noise=0.25, rows=240)
    assert again.fingerprint == digits.fingerprint
    assert torch.equal(again.x, digits.x)
    assert len({digits.fingerprint, upright.fingerprint, load_turned(3, 1.0, 0.0, 240).fingerprint}) == 3


def test_turned_digits_that_there_are_too_few_of_are_a_sentence():
    with pytest.raises(UsageError, match="no more than 5,000 in all"):
        load_turned(number=12, rows=300)


@pytest.mark.parametrize("name", [*REAL, pytest.param("beijing-air", marks=pytest.mark.slow)])
def test_a_real_set_is_the_known_copy(shared_data, name):
    check = check_dataset(describe(name), shared_data)
    assert check.problems == ()
    assert sum(check.counts.values()) == {**REAL, "beijing-air": 412029}[name]
    assert check.spec.counts == check.counts
    assert check.fingerprint == check.spec.fingerprint
    assert "This is the known copy" in check.format()


def test_another_copy_is_told_from_the_known_one(tmp_path):
    (tmp_path / "t.csv").write_text("domain,label,t\na,0,1\nb,1,2\na,1,3\nb,0,4\n")
    plain = DataSpec("toy", path=("t.csv",))
    right = load_dataset(plain, tmp_path).fingerprint
    assert "copy" not in check_dataset(plain, tmp_path).format()
    assert "This is the known copy" in check_dataset(replace(plain, fingerprint=right), tmp_path).format()
    other = check_dataset(replace(plain, fingerprint="0" * 64), tmp_path)
    assert other.ok
    assert "This is another copy than the known one" in other.notes[0]
    assert "This is not the known copy" in other.format()
    counted = check_dataset(replace(plain, counts={"a": 2, "b": 2}), tmp_path)
    assert "Counts are as published" in counted.format()

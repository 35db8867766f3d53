"""Pictures in <domain>/<class>/, in a folder or a zip."""

from __future__ import annotations

import io
import shutil
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from seqdg.data import DataSpec, check_dataset, decode, load_dataset

SET = DataSpec("mine", path=("set",))


def problems(spec, root, **options):
    return "\n".join(check_dataset(spec, root, **options).problems)


def test_domains_classes_and_pixels_are_those_of_the_folders(pictures):
    root = pictures()
    data = load_dataset(SET, root)
    assert data.domains == ("art", "photo", "sketch")
    assert data.classes == ("cat", "dog")
    assert data.x.shape == (18, 3, 8, 8)
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1] * 3
    for domain in data.domains:
        for row, name in zip(data.rows(domain)[3:].tolist(), ("dog_0", "dog_1", "dog_2"), strict=True):
            want = Image.open(root / "set" / domain / "dog" / f"{name}.png")
            np.testing.assert_array_equal(data.x[row], np.asarray(want).transpose(2, 0, 1))


def test_a_zip_with_a_folder_above_the_domains_gives_the_same_data_set(pictures, zipped):
    root = pictures()
    folder = load_dataset(SET, root)
    zipped(root / "set", top="PACS/")
    archive = load_dataset(DataSpec("mine", path=("set.zip",)), root)
    assert archive.fingerprint == folder.fingerprint
    np.testing.assert_array_equal(archive.x, folder.x)


def test_a_copy_elsewhere_has_the_same_fingerprint_and_a_changed_pixel_another(pictures):
    root = pictures()
    before = load_dataset(SET, root).fingerprint
    shutil.copytree(root / "set", root / "copy")
    assert load_dataset(DataSpec("mine", path=("copy",)), root).fingerprint == before
    file = root / "set/art/cat/cat_0.png"
    pixels = np.asarray(Image.open(file)).copy()
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(file)
    assert load_dataset(SET, root).fingerprint != before


def test_the_order_of_named_domains_and_classes_is_kept(pictures):
    root = pictures()
    some = load_dataset(DataSpec("mine", path=("set",), domains=("sketch", "art"), classes=("dog", "cat")), root)
    every = load_dataset(SET, root)
    assert some.domains == ("sketch", "art")
    assert len(some.y) == 12
    mine, theirs = some.rows("sketch"), every.rows("sketch")
    np.testing.assert_array_equal(some.x[mine.numpy()], every.x[theirs.numpy()])
    assert torch.equal(some.y[mine], 1 - every.y[theirs])


def test_what_lies_beside_the_domains_and_what_systems_leave_behind_is_passed_over(pictures, zipped):
    root = pictures()
    (root / "set/readme.txt").write_text("about")
    (root / "set/lists").mkdir()
    (root / "set/lists/train.txt").write_text("photo/cat/cat_0.png 1")
    (root / "set/photo/cat/.DS_Store").write_bytes(b"\0")
    (root / "set/photo/cat/Thumbs.db").write_bytes(b"\0")
    (root / "set/__MACOSX/photo/cat").mkdir(parents=True)
    (root / "set/__MACOSX/photo/cat/._cat_0.png").write_bytes(b"\0")
    assert load_dataset(SET, root).domains == ("art", "photo", "sketch")
    zipped(root / "set")
    assert len(load_dataset(DataSpec("mine", path=("set.zip",)), root).y) == 18


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_every_usual_encoding_is_read(pictures, form):
    data = load_dataset(SET, pictures(form=form, size=(20, 20)))
    assert data.x.shape == (18, 3, 20, 20)
    assert data.x[0].std() > 10


def test_a_side_can_be_given_and_is_otherwise_the_largest_found(pictures):
    root = pictures(size=(12, 20))
    assert load_dataset(SET, root).shape == (3, 20, 20)
    assert load_dataset(DataSpec("mine", path=("set",), size=16), root).shape == (3, 16, 16)


@pytest.mark.parametrize(
    ("mode", "value", "want"), [("L", 77, 77), ("I;16", 65535, 255), ("I;16", 0, 0), ("1", 1, 255)]
)
def test_gray_pictures_become_gray_rgb(mode, value, want):
    dtype = {"L": np.uint8, "I;16": np.uint16, "1": bool}[mode]
    out = io.BytesIO()
    Image.fromarray(np.full((4, 4), value, dtype)).save(out, "PNG")
    assert (decode(out.getvalue(), 4) == want).all()


def test_a_palette_with_transparency_keeps_its_colors():
    out = io.BytesIO()
    image = Image.new("RGB", (4, 4), (10, 200, 30)).quantize(2)
    image.save(out, "PNG", transparency=b"\xff\x80")
    assert decode(out.getvalue(), 4)[:, 0, 0].tolist() == [10, 200, 30]


def test_a_large_jpeg_is_shrunk_without_loss_of_brightness():
    ramp = np.repeat(np.linspace(0, 255, 640, dtype=np.uint8)[None, :, None], 480, axis=0).repeat(3, axis=2)
    out = io.BytesIO()
    Image.fromarray(ramp).save(out, "JPEG", quality=95)
    small = decode(out.getvalue(), 32).astype(float)
    assert np.abs(small.mean(axis=(0, 1)) - np.linspace(4, 251, 32)).max() < 3


def test_a_missing_folder_is_named(tmp_path):
    assert (
        problems(SET, tmp_path / "nowhere")
        == f"There is no folder {tmp_path / 'nowhere'}. Give the one that holds set."
    )
    spec = DataSpec("mine", path=("set", "set.zip"))
    assert problems(spec, tmp_path) == f"There is neither 'set' nor 'set.zip' in {tmp_path}."


def test_a_missing_domain_is_named_with_the_nearest_one(pictures):
    root = pictures()
    (root / "set/photo").rename(root / "set/photos")
    spec = DataSpec("mine", path=("set",), domains=("art", "photo", "sketch", "clipart"))
    said = problems(spec, root)
    assert "has no domain 'photo'. Did you mean 'photos'?" in said
    assert "has no domain 'clipart'" in said


def test_an_empty_folder_holds_nothing(tmp_path):
    (tmp_path / "set").mkdir()
    assert "holds no files: expected <domain>/<class>/<picture>" in problems(SET, tmp_path)


def test_an_empty_domain_is_wrong(pictures):
    root = pictures()
    shutil.rmtree(root / "set/photo")
    (root / "set/photo/cat").mkdir(parents=True)
    assert "The domain 'photo' is empty" in problems(SET, root)
    assert "The domain 'photo' is empty" in problems(DataSpec("mine", path=("set",), domains=("art", "photo")), root)


def test_a_class_that_nobody_has_is_wrong_and_one_that_some_have_a_note(pictures):
    root = pictures()
    shutil.rmtree(root / "set/photo/cat")
    spec = DataSpec("mine", path=("set",), classes=("cat", "dog", "horse"))
    assert problems(spec, root) == "No domain has the class 'horse'."
    assert load_dataset(SET, root).notes == ("The class 'cat' is missing from photo.",)


def test_a_class_that_only_the_held_out_domain_has_is_wrong(pictures):
    root = pictures()
    shutil.rmtree(root / "set/photo/cat")
    shutil.rmtree(root / "set/art/cat")
    said = "Only sketch has the class 'cat': with sketch held out, no source domain has it."
    assert problems(SET, root) == said
    assert problems(SET, root, held_out=("sketch",)) == said
    assert problems(SET, root, held_out=("photo",)) == ""


def test_a_single_domain_cannot_be_held_out(pictures):
    root = pictures()
    spec = DataSpec("mine", path=("set",), domains=("photo",))
    assert "There is only the domain 'photo'" in problems(spec, root)
    assert problems(spec, root, held_out=()) == ""


def test_a_folder_that_is_no_class_is_wrong_unless_others_are_to_be_dropped(pictures):
    root = pictures()
    spec = DataSpec("mine", path=("set",), classes=("cat",))
    assert "art has folders that are none of the classes: dog." in problems(spec, root)
    dropping = DataSpec("mine", path=("set",), classes=("cat",), drop_other_labels=True)
    data = load_dataset(dropping, root)
    assert len(data.y) == 9
    assert "art: 3 pictures of other classes left out." in data.notes


def test_a_picture_outside_the_class_folders_is_wrong(pictures):
    root = pictures()
    shutil.copy(root / "set/photo/cat/cat_0.png", root / "set/photo/stray.png")
    assert "'photo/stray.png' does not lie in <domain>/<class>/" in problems(SET, root)


def test_every_broken_file_is_listed(pictures, zipped):
    root = pictures(form="JPEG", size=(64, 64))
    good = (root / "set/art/cat/cat_0.jpg").read_bytes()
    (root / "set/art/cat/cat_1.jpg").write_bytes(good[: len(good) // 2])
    (root / "set/photo/dog/dog_0.jpg").write_bytes(b"")
    (root / "set/photo/dog/dog_1.jpg").write_bytes(b"\xff\xd8\xff" + bytes(200))
    (root / "set/sketch/cat/notes.txt").write_text("not a picture")
    broken = ["art/cat/cat_1.jpg", "photo/dog/dog_0.jpg", "photo/dog/dog_1.jpg", "sketch/cat/notes.txt"]
    listed = check_dataset(SET, root).problems
    assert [p.split("'")[1] for p in listed] == broken
    assert all("cannot be decoded as an image" in p for p in listed)
    zipped(root / "set", top="")
    listed = check_dataset(DataSpec("mine", path=("set.zip",)), root).problems
    assert [p.split("'")[1] for p in listed] == broken


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_a_truncated_picture_is_listed_whatever_its_encoding(pictures, form):
    root = pictures(form=form, size=(64, 64))
    file = next((root / "set/art/cat").iterdir())
    file.write_bytes(file.read_bytes()[:-400])
    assert f"'art/cat/{file.name}' cannot be decoded" in problems(SET, root)


def test_a_zip_whose_bytes_were_damaged_is_noticed(pictures, zipped):
    root = pictures()
    path = zipped(root / "set")
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("PACS/photo/cat/cat_1.png")
    data[info.header_offset + 30 + len(info.filename) + 60] ^= 0xFF
    path.write_bytes(data)
    assert "'PACS/photo/cat/cat_1.png' cannot be decoded as an image (Bad CRC-32" in problems(
        DataSpec("mine", path=("set.zip",)), root
    )


@pytest.mark.parametrize("name", ["../photo/cat/x.png", "/photo/cat/x.png", "C:/photo/x.png", "photo\\..\\..\\x.png"])
def test_a_zip_path_that_climbs_out_is_refused(pictures, zipped, name):
    root = pictures()
    with zipfile.ZipFile(zipped(root / "set"), "a") as archive:
        archive.writestr(name, b"x")
    assert f"the path '{name}' climbs out of the zip" in problems(DataSpec("mine", path=("set.zip",)), root)


def test_what_is_no_zip_is_said_to_be_none(tmp_path):
    (tmp_path / "set.zip").write_bytes(b"PK\x03\x04 cut short")
    assert "cannot be read as a zip" in problems(DataSpec("mine", path=("set.zip",)), tmp_path)
    (tmp_path / "set.rar").write_bytes(b"Rar!")
    assert "is neither a folder nor a .zip" in problems(DataSpec("mine", path=("set.rar",)), tmp_path)


def test_counts_other_than_the_published_ones_are_wrong_or_a_note(pictures):
    root = pictures()
    spec = DataSpec("mine", path=("set",), domains=("art", "photo"), counts={"art": 6, "photo": 7})
    assert problems(spec, root) == "photo has 6 rows where 7 are published."
    assert load_dataset(spec, root, allow_partial=True).notes == (
        "Partial data: photo has 6 rows where 7 are published.",
    )
    report = check_dataset(spec, root)
    assert ["photo", "6", "7", "-", "-"] in [line.split() for line in report.format().splitlines()]
    assert "1 thing is wrong:\n- photo has 6 rows" in report.format()

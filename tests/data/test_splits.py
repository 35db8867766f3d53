"""Official split lists."""

from __future__ import annotations

import shutil

import pytest

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset

SPEC = DataSpec("mine", path=("set",), splits="splits", validation_counts={"art": 2})


@pytest.fixture
def root(pictures, split_lists):
    root = pictures(form="WEBP")
    split_lists(root)
    return root


def problems(root, **options):
    return "\n".join(check_dataset(SPEC, root, **options).problems)


def edit(root, name, old, new):
    path = root / "splits" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_lists_that_say_jpg_are_matched_with_webp_files_by_stem(root):
    data = load_dataset(SPEC, root)
    assert data.validation is not None
    assert data.validation.tolist() == [True, False, False] * 6
    report = check_dataset(SPEC, root)
    assert report.validation == {"art": 2, "photo": 2, "sketch": 2}
    assert ["art", "6", "-", "4", "2"] in [line.split() for line in report.format().splitlines()]


def test_a_list_that_names_absent_files_is_wrong_unless_partial_data_are_allowed(root):
    (root / "set/photo/dog/dog_2.webp").unlink()
    said = "photo_train_kfold.txt names 1 file not there: photo/dog/dog_2."
    assert said in problems(root)
    assert "photo_test_kfold.txt names 1 file" in problems(root)
    assert f"Partial data: {said}" in load_dataset(SPEC, root, allow_partial=True).notes


def test_files_that_the_lists_leave_out_are_wrong_even_then(root):
    shutil.copy(root / "set/photo/dog/dog_2.webp", root / "set/photo/dog/extra.webp")
    said = "The split lists of photo leave 1 file out: photo/dog/extra."
    assert problems(root) == said
    with pytest.raises(UsageError, match="leave 1 file out"):
        load_dataset(SPEC, root, allow_partial=True)


def test_labels_from_0_are_noticed(root):
    edit(root, "art_train_kfold.txt", "art/cat/cat_1.jpg 1", "art/cat/cat_1.jpg 0")
    said = problems(root)
    assert "art_train_kfold.txt: labels that do not fit the class: art/cat/cat_1.jpg 0 (line 1)" in said
    assert "labels count from 1 in the order cat, dog" in said


def test_lines_that_make_no_sense_are_numbered(root):
    edit(root, "art_train_kfold.txt", "art/cat/cat_1.jpg 1", "cat_1.jpg")
    assert "art_train_kfold.txt: lines that are not `domain/class/file label`: 1." in problems(root)


def test_a_file_in_both_lists_is_wrong(root):
    edit(root, "art_crossval_kfold.txt", "art/cat/cat_0.jpg 1", "art/cat/cat_0.jpg 1\nart/cat/cat_1.jpg 1")
    assert "The train and crossval lists of art name 1 file twice: art/cat/cat_1." in problems(root)


def test_two_files_of_one_stem_are_wrong(root):
    shutil.copy(root / "set/photo/dog/dog_2.webp", root / "set/photo/dog/dog_2.png")
    assert "Files that only their ending tells apart match no split list: photo/dog/dog_2." in problems(root)


def test_missing_lists_are_named(root):
    (root / "splits/art_train_kfold.txt").unlink()
    assert "has no art_train_kfold.txt." in problems(root)
    shutil.rmtree(root / "splits")
    assert problems(root) == f"There is no folder {root / 'splits'} with the official split lists."


def test_validation_counts_are_held_against_the_published_ones(root):
    spec = DataSpec("mine", path=("set",), splits="splits", validation_counts={"art": 3})
    assert check_dataset(spec, root).problems == ("art has 2 validation rows where 3 are published.",)


def test_a_split_with_nothing_to_validate_on_is_wrong(root):
    train = (root / "splits/art_test_kfold.txt").read_text()
    (root / "splits/art_train_kfold.txt").write_text(train)
    (root / "splits/art_crossval_kfold.txt").write_text("")
    assert "The official split leaves art no rows to validate on." in problems(root)


def test_lists_with_tabs_windows_line_ends_and_a_byte_order_mark_are_read(root):
    for path in (root / "splits").iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_text().replace(" ", "\t").replace("\n", "\r\n").encode())
    assert load_dataset(SPEC, root).validation.sum() == 6

"""Pictures named by a list, with their labels and domains; folders with other names; pictures to leave out."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset
from seqdg.data.dataset import guess_format

ROWS = [  # file, label, domain, split
    ("x/0.png", "cat", "k7", "0"),
    ("x/1.png", "dog", "k7", "1"),
    ("x/2.png", "cat", "k10", "0"),
    ("y/2.png", "dog", "k10", "1"),
    ("y/4.png", "cat", "k7", "0"),
]


def picture(seed):
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def root(tmp_path):
    """Pictures below pictures/, and list.csv beside it."""
    for i, (name, *_) in enumerate(ROWS):
        path = tmp_path / "root" / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(i))
    lines = ["file,label,domain,valid", *(",".join(row) for row in ROWS)]
    (tmp_path / "root" / "list.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "root"


def spec(path="list.csv", **options):
    return DataSpec("toy", **{"path": (path,), "format": "list", "images": ("pictures",), "size": 8, **options})


def test_a_list_names_the_label_and_the_domain_of_every_picture(root):
    data = load_dataset(spec(validation_column="valid"), root)
    assert (data.domains, data.classes) == (("k10", "k7"), ("cat", "dog"))
    assert data.y.tolist() == [0, 1, 0, 1, 0]
    assert data.domain.tolist() == [1, 1, 0, 0, 1]
    assert data.validation.tolist() == [False, True, False, True, False]
    assert data.x.shape == (5, 3, 8, 8)


def test_json_lists_and_zips_of_pictures_give_the_same(root):
    want = load_dataset(spec(), root).fingerprint
    records = [dict(zip(("file", "label", "domain"), row, strict=False)) for row in ROWS]
    (root / "list.json").write_text(json.dumps(records))
    assert guess_format(root / "list.json") == "list"
    assert load_dataset(spec("list.json"), root).fingerprint == want
    (root / "list.json").write_text(json.dumps({k: [r[k] for r in records] for k in records[0]}))
    assert load_dataset(spec("list.json"), root).fingerprint == want
    with zipfile.ZipFile(root / "pictures.zip", "w") as out:
        for name, *_ in ROWS:
            out.write(root / "pictures" / name, name)
    assert load_dataset(spec(images=("nowhere", "pictures.zip")), root).fingerprint == want


def test_templates_make_names_of_columns_and_keep_leading_zeros(root):
    (root / "list.csv").write_text("folder,n,day,kind\nx,00,2013-05-01,1\nx,01,2014-01-01,0\nx,02,2013-01-01,0\n")
    for i in range(3):
        (root / "pictures" / "x" / f"n_0{i}.png").write_bytes(picture(i))
    options = {"file": "{folder}/n_{n}.png", "domain_column": "{day:.4}", "label_column": "kind", "classes": ("a", "b")}
    data = load_dataset(spec(**options), root, held_out=())
    assert data.domains == ("2013", "2014")
    assert data.y.tolist() == [1, 0, 0]
    (root / "pictures" / "2.png").write_bytes(picture(2))
    rows = check_dataset(spec(**options | {"file": "{row}.png"}), root)
    assert rows.problems[0].startswith("2 files of the list are not in ")
    assert rows.problems[0].endswith("pictures: 0.png, 1.png.")


def test_camera_traps_have_a_row_for_each_picture_and_kind_of_animal(root):
    cct = {
        "images": [{"id": f"i{n}", "file_name": row[0], "location": n % 2 + 38} for n, row in enumerate(ROWS)],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}, {"id": 3, "name": "car"}],
        "annotations": [
            {"image_id": "i0", "category_id": 1, "bbox": [0, 0, 1, 1]},
            {"image_id": "i0", "category_id": 1, "bbox": [2, 2, 1, 1]},
            {"image_id": "i1", "category_id": 2},
            {"image_id": "i1", "category_id": 1},
            {"image_id": "i2", "category_id": 2},
            {"image_id": "i3", "category_id": 3},
        ],
    }
    first = cct | {"images": cct["images"][:2]}
    (root / "a.json").write_text(json.dumps(first))
    (root / "b.json").write_text(json.dumps(cct | {"images": cct["images"][2:]}))
    data = load_dataset(
        spec(
            ".",
            files=("a.json", "b.json"),
            file="{file_name}",
            domain_column="L{location}",
            label_column="category",
            classes=("cat", "dog"),
            drop_other_labels=True,
        ),
        root,
    )
    assert data.domains == ("L38", "L39")
    assert data.domain.tolist() == [0, 1, 1, 0]
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.notes[0] == "1 row of other classes left out."


def test_missing_files_are_named_and_may_be_left_out(root):
    (root / "pictures" / "x" / "1.png").unlink()
    check = check_dataset(spec(), root, held_out=())
    assert len(check.problems) == 1
    assert check.problems[0].startswith("1 file of the list is not in ")
    assert check.problems[0].endswith("pictures: x/1.png.")
    data = load_dataset(spec(), root, allow_partial=True, held_out=())
    assert len(data.y) == 4
    assert any("x/1.png" in note for note in data.notes)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"label_column": "kind"}, "list.csv has no column 'kind'"),
        ({"file": "{folder}/{file}"}, "list.csv has no column 'folder'"),
        ({"file": "{file"}, "no text with columns in braces"),
        ({"images": ("elsewhere",)}, "where the pictures of list.csv should be"),
        ({"classes": ("cat",)}, "has labels that are none of the classes: dog"),
        ({"domains": ("k7", "k8")}, "list.csv has no domain 'k8'"),
        ({"path": "list.json"}, "cannot be read as JSON"),
        ({"path": "one.json"}, "no list of records"),
        ({"path": "traps.json"}, "has no 'image_id' in its annotations"),
        ({"prepare": "builtins:len"}, "'builtins:len' failed"),
        ({"prepare": "nowhere:f"}, "There is no module 'nowhere'"),
    ],
)
def test_what_is_wrong_with_a_list_is_a_sentence(root, options, sentence):
    (root / "list.json").write_text("{")
    (root / "one.json").write_text("3")
    (root / "traps.json").write_text('{"images": [{"id": 1}], "annotations": [{}], "categories": []}')
    problems = check_dataset(spec(**options), root).problems
    assert any(sentence in problem for problem in problems), problems
    assert not any("\n" in problem for problem in problems)


def test_a_missing_value_in_the_list_is_wrong(root):
    (root / "list.csv").write_text("file,label,domain\nx/0.png,,a\nx/1.png,dog,\n")
    problems = check_dataset(spec(), root).problems
    assert "list.csv names no label in 1 row: fill in every one." in problems
    assert "list.csv names no domain in 1 row: fill in every one." in problems


def test_a_function_of_the_users_prepares_the_list(root):
    (root / "mine.py").write_text("def half(frame, folder):\n    return frame[frame['file'].str.startswith('x')]\n")
    assert len(load_dataset(spec(prepare=f"{root}/mine.py:half"), root, held_out=()).y) == 3


def test_a_list_names_groups_and_the_parts_of_a_fixed_split(root):
    parts = ("train", "id_val", "val", "val", "id_test")
    lines = [",".join((*row[:3], "NSNSN"[i], parts[i])) for i, row in enumerate(ROWS)]
    (root / "list.csv").write_text("\n".join(["file,label,domain,region,split", *lines]) + "\n")
    columns = {"group_column": "region", "split_column": "split"}
    data = load_dataset(spec(**columns), root)
    assert (data.groups, data.group.tolist()) == (("N", "S"), [0, 1, 0, 1])
    assert data.parts == ("validation", "train")
    assert data.validation.tolist() == [False, True, False, False]
    assert data.notes == ("1 row called id_test left out.",)
    (root / "list.csv").write_text((root / "list.csv").read_text().replace(",S,", ",,"))
    assert "The group column has 2 empty cells" in check_dataset(spec(**columns), root).problems[0]


def test_folders_may_have_other_names(pictures):
    root = pictures()
    want = load_dataset(DataSpec("toy", path=("set",)), root).fingerprint
    (root / "set" / "art").rename(root / "set" / "Art Work")
    for domain in ("Art Work", "photo"):
        (root / "set" / domain / "cat").rename(root / "set" / domain / "Cat")
    named = DataSpec(
        "toy", path=("set",), domains=("art", "photo", "sketch"), aliases={"Art Work": "art", "Cat": "cat"}
    )
    assert load_dataset(named, root).fingerprint == want
    found = DataSpec("toy", path=("set",), aliases={"Art Work": "art", "Cat": "cat"})
    assert load_dataset(found, root).fingerprint == want


def test_pictures_of_an_exclude_list_are_left_out(pictures):
    root = pictures()
    (root / "twice.txt").write_text("art/cat/cat_0.png\nphoto/dog/dog_2.png\nphoto/dog/gone.png\nother/dog/x.png\n")
    data = load_dataset(DataSpec("toy", path=("set",), exclude=("twice.txt",)), root)
    assert [len(data.rows(d)) for d in data.domains] == [5, 5, 6]
    assert data.notes[-1] == "2 pictures of the exclude list left out. 1 of it are not there."
    with pytest.raises(UsageError, match=r"There is no file .*nowhere\.txt, which `exclude` names"):
        load_dataset(DataSpec("toy", path=("set",), exclude=("nowhere.txt",)), root)

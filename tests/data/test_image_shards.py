"""Pictures in tar shards, in columns of Parquet files and in what `datasets` saves are those of the folder."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from seqdg import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset
from seqdg.data import image_shards as shards_module
from seqdg.data import pictures as pictures_module
from seqdg.data.load import guess_format

SPEC = DataSpec("mine", path=("set",), domains=("art", "photo", "sketch"), classes=("cat", "dog"))


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def list_files(root: Path) -> list[tuple[str, str, bytes]]:
    """Domain, class and content of every picture below set/, in the order in which a folder is read."""
    files = sorted((root / "set").rglob("*.png"))
    return [(path.parts[-3], path.parts[-2], path.read_bytes()) for path in files]


@pytest.fixture
def folder(pictures):
    """A folder of pictures, its data set, and a root for shards of the same."""
    root = pictures()
    return root, load_dataset(SPEC, root), root.parent / "shards"


def assert_same(data, whole) -> None:
    assert (data.domains, data.classes) == (whole.domains, whole.classes)
    np.testing.assert_array_equal(data.y, whole.y)
    np.testing.assert_array_equal(data.domain, whole.domain)
    np.testing.assert_array_equal(data.x, whole.x)


def write_table(root: Path, **options) -> pa.Table:
    rows = list_files(root)
    names = ["cat", "dog"]
    pictures = [{"bytes": content, "path": None} for *_, content in rows]
    label = {"names": names, "_type": "ClassLabel"}
    features = {"image": {"_type": "Image"}, "label": label, "domain": {"dtype": "string", "_type": "Value"}}
    table = pa.table({
        "image": pa.array(pictures, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "label": [names.index(label) for _, label, _ in rows],
        "domain": [domain for domain, *_ in rows],
    })  # fmt: skip
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def test_a_tar_of_folders_is_the_folder(folder):
    root, whole, shards = folder
    (shards / "set").mkdir(parents=True)
    files = sorted((root / "set").rglob("*.png"))
    for i in range(3):
        with tarfile.open(shards / "set" / f"{i:04}.tar", "w") as tar:
            for path in files[i::3]:
                tar.add(path, path.relative_to(root / "set").as_posix())
    assert guess_format(shards / "set") == "shards"
    data = load_dataset(SPEC, shards)
    assert_same(data, whole)
    assert data.fingerprint == whole.fingerprint


@pytest.mark.parametrize("says", ["shard", "json", "file"])
def test_samples_of_webdataset_name_class_and_domain(folder, says):
    root, whole, shards = folder
    (shards / "set").mkdir(parents=True)
    for domain in SPEC.domains:
        with tarfile.open(shards / "set" / f"{domain}-000001.tar", "w") as tar:
            for i, (_, label, content) in enumerate(row for row in list_files(root) if row[0] == domain):
                key = f"{i:06}"
                add(tar, f"{key}.png", content)
                if says == "json":
                    add(tar, f"{key}.json", json.dumps({"label": label, "domain": domain}).encode())
                else:
                    add(tar, f"{key}.cls", str(("cat", "dog").index(label)).encode())
                if says == "file":
                    add(tar, f"{key}.domain", f"{domain}\n".encode())
    assert_same(load_dataset(SPEC, shards), whole)


@pytest.mark.parametrize("together", [2, 32])
def test_parquet_with_bytes_is_the_folder_in_few_rows_at_a_time(folder, monkeypatch, together):
    root, whole, shards = folder
    (shards / "set").mkdir(parents=True)
    table = write_table(root)
    parquet.write_table(table.slice(0, 10), shards / "set" / "0.parquet", row_group_size=4)
    parquet.write_table(table.slice(10), shards / "set" / "1.parquet", row_group_size=100)
    monkeypatch.setattr(shards_module, "TOGETHER", together)
    monkeypatch.setattr(shards_module, "KEPT", 1)  # threads ask for rows that are no longer kept
    assert guess_format(shards / "set") == "shards"
    assert_same(load_dataset(SPEC, shards), whole)


@pytest.mark.parametrize("splits", [(), ("train", "test")])
def test_what_datasets_saves_on_disk_is_the_folder(folder, splits):
    root, whole, shards = folder
    table, top = write_table(root), shards / "set"
    top.mkdir(parents=True)
    if splits:
        (top / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    for i, split in enumerate(splits or ("",)):
        below = top / split
        below.mkdir(exist_ok=True)
        part = table.slice(0, 11) if splits and not i else table.slice(11) if splits else table
        with pa.ipc.new_stream(str(below / "data-00000-of-00001.arrow"), part.schema) as out:
            out.write_table(part, max_chunksize=5)
        (below / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    assert guess_format(top) == "shards"
    assert_same(load_dataset(SPEC, shards), whole)
    next(top.rglob("*.arrow")).unlink()
    with pytest.raises(UsageError, match=r"lacks data-00000-of-00001\.arrow"):
        load_dataset(SPEC, shards)


def test_the_second_load_of_shards_decodes_nothing(folder):
    root, _, shards = folder
    shards.mkdir()
    parquet.write_table(write_table(root), shards / "set.parquet")
    spec = DataSpec("mine", path=("set.parquet",))
    calls: list[int] = []
    load_dataset(spec, shards, progress=lambda done, total: calls.append(done))
    assert calls == list(range(1, 19))
    load_dataset(spec, shards, progress=lambda done, total: calls.append(done))
    assert len(calls) == 18


def test_a_shard_cut_short_is_named(folder):
    root, _, shards = folder
    shards.mkdir()
    with tarfile.open(shards / "set.tar", "w") as tar:
        tar.add(root / "set", ".")
    content = (shards / "set.tar").read_bytes()
    (shards / "set.tar").write_bytes(content[:4000])
    spec = DataSpec("mine", path=("set.tar",))
    with pytest.raises(UsageError, match=r"set\.tar cannot be read to its end .*: it is damaged or cut short"):
        load_dataset(spec, shards)
    with tarfile.open(shards / "set.tar", "w:gz") as tar:
        tar.add(root / "set", ".")
    with pytest.raises(UsageError, match=r"unpack it to a plain \.tar"):
        load_dataset(spec, shards)


def test_a_shard_names_no_file_outside(tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as tar:
        add(tar, "../../a/b/c.png", b"x")
    with pytest.raises(UsageError, match="climbs out of the shard"):
        load_dataset(DataSpec("mine", path=("set.tar",)), tmp_path)


def test_paths_in_place_of_bytes_are_refused(folder):
    shards = folder[2]
    shards.mkdir()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = pa.array([{"bytes": None, "path": f"/data/{i}.png"} for i in range(6)], kind)
    table = pa.table({"image": rows, "label": ["a", "b"] * 3, "domain": ["x", "y", "z"] * 2})
    parquet.write_table(table, shards / "set.parquet")
    with pytest.raises(UsageError, match=r"'image' of .*set\.parquet holds paths such as '/data/0\.png', and no bytes"):
        load_dataset(DataSpec("mine", path=("set.parquet",)), shards)
    parquet.write_table(table.set_column(0, "image", pa.array(["a.png"] * 6)), shards / "set.parquet")
    with pytest.raises(UsageError, match=r"has no column of pictures as bytes .* Where a column holds paths"):
        load_dataset(DataSpec("mine", path=("set.parquet",), format="shards"), shards)
    two = table.append_column("mask", rows)
    parquet.write_table(two, shards / "set.parquet")
    with pytest.raises(UsageError, match=r"several columns of bytes \(image, mask\): name that of pictures in x_key"):
        load_dataset(DataSpec("mine", path=("set.parquet",)), shards)


def test_a_row_without_bytes_is_a_problem_of_its_own(folder):
    root, _, shards = folder
    shards.mkdir()
    table = write_table(root)
    cells = table["image"].to_pylist()
    cells[4] = {"bytes": None, "path": None}
    table = table.set_column(0, "image", pa.array(cells, table.schema.field("image").type))
    parquet.write_table(table, shards / "set.parquet")
    with pytest.raises(UsageError, match=r"'set/4' cannot be decoded .*holds no bytes in this row"):
        load_dataset(DataSpec("mine", path=("set.parquet",)), shards)


def test_a_cropped_picture_keeps_its_aspect_ratio(pictures, tmp_path):
    root = pictures(size=(24, 12))
    whole = load_dataset(DataSpec("mine", path=("set",), size=12), root)
    cropped = load_dataset(DataSpec("mine", path=("set",), size=12, crop=True), root)
    path = sorted((root / "set").rglob("*.png"))[0]
    expected = np.asarray(Image.open(path).convert("RGB"))[:, 6:18].transpose(2, 0, 1)
    np.testing.assert_array_equal(cropped.x[0], expected)
    assert cropped.fingerprint != whole.fingerprint
    assert not np.array_equal(whole.x[0], expected)


def test_few_pictures_are_in_memory_at_once(pictures, monkeypatch):
    """Threads are at most a block ahead of what is written."""
    root = pictures(each=8)
    begun: list[int] = []
    known = pictures_module.decode_file
    monkeypatch.setattr(pictures_module, "BLOCK", 4 * 3 * 8 * 8)
    monkeypatch.setattr(pictures_module, "decode_file", lambda *a, **k: begun.append(1) or known(*a, **k))
    ahead: list[int] = []
    load_dataset(SPEC, root, progress=lambda done, total: ahead.append(len(begun) - done))
    assert len(ahead) == 48
    assert max(ahead) <= max(4, pictures_module.count_cores())


def test_shards_are_checked_as_any_data_are(folder):
    root, _, shards = folder
    shards.mkdir()
    parquet.write_table(write_table(root), shards / "set.parquet")
    assert not check_dataset(DataSpec("mine", path=("set.parquet",)), shards).problems
    with pytest.raises(UsageError, match="column 'kind'"):
        load_dataset(DataSpec("mine", path=("set.parquet",), label_column="kind"), shards)

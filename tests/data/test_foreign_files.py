"""Files that others made read nothing outside their folder, and take no more memory than there is."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from fuzz import make_rows, write_arrays, write_list, write_pictures
from seqdg import UsageError
from seqdg.base import system
from seqdg.data import DataSpec, load_dataset, read_rows

MIB = 2**20


def load_list(root: Path, **options: object) -> object:
    return load_dataset(DataSpec("set", ("data/list.csv",), format="list", **options), root)


def write_odd_list(root: Path, *names: str) -> None:
    """Write a list of pictures whose last rows are of these files."""
    folder = root / "data"
    folder.mkdir()
    write_list(folder / "list.csv")
    with (folder / "list.csv").open("a") as file:
        file.writelines(f"{name},ill,east\n" for name in names)


@pytest.mark.parametrize(
    "name", ["../secret.png", "/dev/zero", "east/../../secret.png", "pipe", "east", "link.png", "elsewhere/hidden.png"]
)
def test_a_list_names_only_files_below_its_folder(name: str, tmp_path: Path) -> None:
    write_odd_list(tmp_path, name)
    os.mkfifo(tmp_path / "data" / "pipe")
    (tmp_path / "outside").mkdir()
    for secret in ("secret.png", "outside/hidden.png"):
        Image.new("RGB", (3, 3)).save(tmp_path / secret)
    (tmp_path / "data" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "data" / "elsewhere").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match=f"The list names what is no file below .*data: '{name}'; say in "):
        load_list(tmp_path)


def test_links_that_stay_below_the_folder_of_a_list_are_followed(tmp_path: Path) -> None:
    write_odd_list(tmp_path, "again/link.png")
    folder, (first, *_) = tmp_path / "data", sorted((tmp_path / "data").rglob("*.png"))
    (folder / "linked").mkdir()
    (folder / "again").symlink_to("linked")
    (folder / "linked" / "link.png").symlink_to(first)
    (tmp_path / "moved").symlink_to(tmp_path / "data")
    spec = DataSpec("set", ("moved/list.csv",), format="list")
    assert load_dataset(spec, tmp_path).files[-1] == "again/link.png"


def test_a_list_may_name_files_elsewhere_where_the_benchmark_names_the_folder(tmp_path: Path) -> None:
    write_odd_list(tmp_path, str(tmp_path / "other.png"))
    Image.new("RGB", (3, 3)).save(tmp_path / "other.png")
    (tmp_path / "data" / "list.csv").write_text(
        "file,label,domain\n"
        + "".join(f"{tmp_path}/data/{f},{c},{d}\n" for f, c, d in write_pictures(tmp_path / "data"))
        + f"{tmp_path}/other.png,ill,east\n"
    )
    dataset = load_list(tmp_path, images=("/",))
    assert len(dataset.y) == 13


def write_npz(path: Path) -> None:
    write_arrays(path)
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": "<f8", "fortran_order": False, "shape": (4 * 10**12, 1)})
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("east_x.npy", made.getvalue() + bytes(80))


def test_an_array_of_thirty_terabytes_is_refused(tmp_path: Path) -> None:
    write_npz(tmp_path / "set.npz")
    with pytest.raises(UsageError, match=r"set\.npz cannot be read as an \.npz file \(Unable to allocate"):
        load_dataset(DataSpec("set", ("set.npz",)), tmp_path)


def write_bomb(path: Path) -> None:
    """Write a small file of many rows."""
    rows, text = 4 * MIB, pa.array(["a", "b"]).take(pa.array(np.arange(4 * MIB) % 2))
    if path.suffix == ".parquet":
        parquet.write_table(pa.table({"x": np.zeros(rows), "state": text, "place": text}), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(b"x,state,place\n" + b"1,a,b\n" * (rows * 4)))
    elif path.suffix == ".npz":
        np.savez_compressed(path, a_x=np.zeros((rows, 4)), a_y=np.zeros(rows), b_x=np.zeros((9, 4)), b_y=np.zeros(9))
    else:
        make_rows().to_excel(path, index=False)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
            file.writestr("xl/media/x.xml", bytes(64 * MIB))


@pytest.mark.parametrize("name", ["x.parquet", "x.csv.gz", "x.npz", "x.xlsx"])
def test_a_small_file_of_more_than_memory_holds_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    write_bomb(path)
    assert path.stat().st_size < 3 * MIB
    monkeypatch.setattr(system, "measure_free_memory", lambda: 80 * MIB)
    with pytest.raises(
        UsageError, match=r"x\.\S+ (so far )?needs at least 0\.\d GiB of memory, and 80% of the 0\.1 GiB"
    ):
        load_dataset(DataSpec("x", (name,)), tmp_path) if name == "x.npz" else read_rows(path, "state", "place")


def test_a_long_text_that_a_parquet_file_stores_once_is_counted_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = pa.array(["x" * (MIB // 4), "y"]).take(pa.array(np.arange(3000) % 2))
    parquet.write_table(pa.table({"text": long, "state": long, "place": long}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < MIB
    monkeypatch.setattr(system, "measure_free_memory", lambda: 80 * MIB)
    with pytest.raises(UsageError, match=r"x\.parquet so far needs at least 0\.4 GiB of memory"):
        read_rows(tmp_path / "x.parquet", "state", "place")


def test_a_picture_of_more_pixels_than_memory_holds_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pictures(tmp_path / "set")
    Image.new("L", (6000, 5000)).save(tmp_path / "set" / "east" / "ill" / "0.png")
    monkeypatch.setattr(system, "measure_free_memory", lambda: 80 * MIB)
    with pytest.raises(
        UsageError, match=r"'east/ill/0\.png' cannot be decoded as an image .A picture on every core needs"
    ):
        load_dataset(DataSpec("set", ("set",)), tmp_path)


def test_names_of_files_that_are_no_text_are_read(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    odd.mkdir()
    make_rows().to_csv(odd / "rows.csv", index=False)
    make_rows().to_csv(odd / "rows.csv.gz", index=False)
    make_rows().to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.parquet").rename(odd / "rows.parquet")
    for name in ("rows.csv", "rows.csv.gz", "rows.parquet"):
        assert len(read_rows(odd / name, "state", "place").y) == 48
    (odd / "set").mkdir()
    write_pictures(odd / "set")
    assert len(load_dataset(DataSpec("set", ("set",)), odd).y) == 12
    (odd / "set" / "east" / "ill" / "0.png").rename(odd / "set" / "east" / "ill" / os.fsdecode(b"\xe9.png"))
    assert len(load_dataset(DataSpec("set", ("set",)), odd).y) == 12
    (odd / "set" / "east").rename(odd / "set" / os.fsdecode(b"\xe9ast"))
    with pytest.raises(UsageError, match=r"The name .*ast' is not in UTF-8: rename the file or folder"):
        load_dataset(DataSpec("set", ("set",)), odd)

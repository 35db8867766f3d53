"""Files and folders come to be whole or not at all."""

from __future__ import annotations

import pytest

from seqdg.base import Folder, replace_file, replace_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_when_all_of_it_is_written(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with replace_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["f"]


def test_a_file_stays_as_it_was_where_writing_fails(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as file:
        file.write(b"new" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_a_folder_is_replaced_whole(tmp_path):
    path = tmp_path / "model"
    for content in ("one", "two"):
        with replace_folder(path) as folder:
            (folder / content).write_text(content)
    assert names(path) == ["two"]
    assert names(tmp_path) == ["model"]


def test_a_folder_stays_as_it_was_where_writing_fails(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("old")
    with pytest.raises(FileNotFoundError), replace_folder(path) as folder:
        (folder / "nowhere" / "new").write_text("new")
    assert names(path) == ["old"]
    assert names(tmp_path) == ["model"]


def test_what_a_crash_left_half_written_is_not_listed_and_removed(tmp_path):
    folder = Folder(tmp_path)
    folder.write("checkpoints/a", b"a")
    (tmp_path / "checkpoints" / ".b.0123.part").write_bytes(b"")
    assert folder.names("checkpoints") == ["checkpoints/a"]
    assert names(tmp_path / "checkpoints") == ["a"]
    assert folder.read("checkpoints/a") == b"a"
    assert folder.read("checkpoints/c") is None

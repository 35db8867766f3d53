"""Files and folders are written whole or not at all; an interrupt that closely follows another is part of it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from seqdg.base import Folder, heed_interrupts_once, hold_interrupts, replace_file, replace_folder, system


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


def test_what_a_crash_left_half_written_is_not_listed_and_can_be_removed(tmp_path):
    folder = Folder(tmp_path)
    folder.write("checkpoints/a", b"a")
    (tmp_path / "checkpoints" / ".b.0123.part").write_bytes(b"")
    assert folder.list_names("checkpoints") == ["checkpoints/a"]
    folder.remove_unfinished("checkpoints")
    assert names(tmp_path / "checkpoints") == ["a"]
    assert folder.read("checkpoints/a") == b"a"
    assert folder.read("checkpoints/c") is None


def test_what_a_killed_process_left_of_a_folder_goes_when_nobody_writes_to_it_any_more(tmp_path):
    old, new, other = (
        tmp_path / f".{name}.part" for name in ("model[1].1a2b3c4d", "model[1].5e6f7a8b", "other.1a2b3c4d")
    )
    for left in (old, new, other):
        left.mkdir()
        (left / "weights").write_bytes(b"half")
    for left in (old, other):
        os.utime(left, (time.time() - 7200,) * 2)
    with replace_folder(tmp_path / "model[1]") as folder:
        (folder / "weights").write_bytes(b"whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([new.name, other.name, "model[1]"])


@pytest.fixture(autouse=True)
def long_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows closely here does so on a busy machine, too."""
    monkeypatch.setattr(system, "MOMENT", 3600.0)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_of_interrupts_that_follow_closely_the_first_alone_is_heeded() -> None:
    before = signal.getsignal(signal.SIGINT)
    with heed_interrupts_once():
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        interrupt()
        with heed_interrupts_once():
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_later_interrupt_is_heeded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "MOMENT", 0.0)
    with heed_interrupts_once():
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                interrupt()


def test_held_interrupts_are_noted_and_a_later_one_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with heed_interrupts_once(), hold_interrupts() as came:
        assert not came
        interrupt()
        interrupt()
        assert len(came) == 2
        monkeypatch.setattr(system, "MOMENT", 0.0)
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_follows_a_held_one_is_part_of_it() -> None:
    with heed_interrupts_once():
        with hold_interrupts() as came:
            interrupt()
        assert came
        interrupt()


def test_a_program_that_handles_interrupts_goes_on_to_do_so() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with heed_interrupts_once(), hold_interrupts() as came:
            interrupt()
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT] * 2
    assert not came

"""Pictures are decoded once, and a cache is whole or made again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from seqdg.base import UsageError
from seqdg.data import DataSpec, check_dataset, load_dataset
from seqdg.data import pictures as cache_module
from seqdg.data.pictures import find_cache_folder

SPEC = DataSpec("mine", path=("set",))


def stored(cache: Path) -> Path:
    (path,) = cache.glob("*.npy")
    return path


def decoded(root: Path) -> list[int]:
    """How many pictures a load decodes."""
    calls: list[int] = []
    load_dataset(SPEC, root, progress=lambda done, total: calls.append(total))
    return calls


def test_the_second_load_decodes_nothing(pictures):
    root = pictures()
    assert decoded(root) == [18] * 18
    assert decoded(root) == []


def test_progress_counts_up_to_the_number_of_pictures(pictures):
    seen: list[tuple[int, int]] = []
    load_dataset(SPEC, pictures(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 18) for i in range(1, 19)]


def test_more_pictures_than_a_block_stay_in_order(pictures, monkeypatch):
    root = pictures()
    whole = np.array(load_dataset(SPEC, root).x)
    stored(find_cache_folder()).unlink()
    monkeypatch.setattr(cache_module, "BLOCK", 4 * 3 * 8 * 8)
    np.testing.assert_array_equal(load_dataset(SPEC, root).x, whole)


def test_images_are_mapped_from_the_file_and_cannot_be_written_to(pictures):
    data = load_dataset(SPEC, pictures())
    assert isinstance(data.x, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        data.x[0] = 0


@pytest.mark.parametrize("left", [0, 5, 60, 1000, -1])
def test_a_cache_cut_short_is_made_again(pictures, cache, left):
    root = pictures()
    whole = np.array(load_dataset(SPEC, root).x)
    path = stored(cache)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.warns(UserWarning, match=rf"{path.name} is damaged or of an older version: its pictures are decoded"):
        np.testing.assert_array_equal(load_dataset(SPEC, root).x, whole)
    assert decoded(root) == []


def test_broken_pictures_leave_no_cache_behind(pictures, cache):
    root = pictures()
    (root / "set/photo/cat/cat_1.png").write_bytes(b"broken")
    check_dataset(SPEC, root)
    assert [p.suffix for p in cache.iterdir()] == [".fingerprint"]


def test_a_changed_picture_is_decoded_anew_even_if_size_and_time_stay(pictures):
    root = pictures()
    before = load_dataset(SPEC, root)
    one, two = root / "set/photo/cat/cat_1.png", root / "set/photo/cat/cat_2.png"
    size = max(one.stat().st_size, two.stat().st_size)
    for file in (one, two):
        file.write_bytes(file.read_bytes().ljust(size, b"\0"))
    padded = load_dataset(SPEC, root)
    np.testing.assert_array_equal(padded.x, before.x)
    stat = one.stat()
    first, second = one.read_bytes(), two.read_bytes()
    time.sleep(0.02)  # a kernel's clock for files may tick every 10 ms
    one.write_bytes(second)
    os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    swapped = load_dataset(SPEC, root)
    assert swapped.fingerprint != padded.fingerprint
    assert first != second
    rows = padded.rows("photo").tolist()
    np.testing.assert_array_equal(swapped.x[rows[1]], before.x[rows[2]])


def test_a_disk_that_fills_up_is_said_so_and_leaves_nothing_behind(pictures, cache):
    root = pictures(size=(64, 64))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(UsageError, match=r"cannot be written to .* set SEQDG_CACHE to another folder"):
            load_dataset(SPEC, root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.suffix for p in cache.iterdir()] == [".fingerprint"]
    assert len(load_dataset(SPEC, root).x) == 18


def test_a_disk_without_room_is_noticed_before_anything_is_decoded(pictures, monkeypatch):
    root = pictures()
    usage = cache_module.shutil.disk_usage(root)._replace(free=1000)
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: usage)
    calls: list[int] = []
    report = check_dataset(SPEC, root, progress=lambda done, total: calls.append(done))
    assert "the disk has too little room" in report.problems[0]
    assert calls == []


def test_a_cache_folder_that_cannot_be_made_is_said_so(pictures, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match="set SEQDG_CACHE to another folder"):
        load_dataset(SPEC, pictures())


@pytest.mark.slow
def test_a_process_killed_while_decoding_leaves_only_what_is_later_removed(pictures, cache):
    root = pictures(size=(32, 32))
    script = f"""
        import os, signal
        from pathlib import Path
        from seqdg.data import DataSpec, load_dataset
        def kill(done, total):
            if done == 9:
                os.kill(os.getpid(), signal.SIGKILL)
        load_dataset(DataSpec("mine", path=("set",)), Path({str(root)!r}), progress=kill)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = cache.glob("*.part")
    assert not list(cache.glob("*.npy"))
    load_dataset(SPEC, root)
    assert left.exists()  # it might still be written to
    os.utime(left, (time.time() - 3600,) * 2)
    load_dataset(DataSpec("mine", path=("set",), size=16), root)
    assert not left.exists()


def test_the_cache_lies_where_the_platform_keeps_such_files(monkeypatch, tmp_path):
    monkeypatch.delenv("SEQDG_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_cache_folder() == tmp_path / "seqdg"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_cache_folder() == Path.home() / "Library" / "Caches" / "seqdg"


def test_of_several_that_want_a_set_one_decodes_it_and_the_others_wait(pictures, cache):
    """Threads here; a lock of a file that each opens for itself keeps processes apart just the same."""
    root = pictures()
    together = Barrier(3)

    def wanted(_: int) -> tuple[int, str, int]:
        calls: list[int] = []
        together.wait()
        data = load_dataset(SPEC, root, progress=lambda done, total: (calls.append(done), time.sleep(0.01)))
        return len(calls), data.fingerprint, int(data.x.astype(int).sum())

    with ThreadPoolExecutor(3) as pool:
        said = sorted(pool.map(wanted, range(3)))
    assert [count for count, *_ in said] == [0, 0, 18]
    assert len({tuple(rest) for _, *rest in said}) == 1
    assert sorted(p.suffix for p in cache.iterdir()) == [".fingerprint", ".npy"]


@pytest.mark.slow
def test_whoever_waits_for_a_process_that_is_killed_decodes_the_set_itself(pictures, cache):
    root = pictures()
    script = f"""
        import time
        from pathlib import Path
        from seqdg.data import DataSpec, load_dataset
        def stall(done, total):
            print("decoding", flush=True)
            time.sleep(60)
        load_dataset(DataSpec("mine", path=("set",)), Path({str(root)!r}), progress=stall)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first, ThreadPoolExecutor(1) as pool:
        assert first.stdout is not None
        assert first.stdout.readline() == "decoding\n"
        second = pool.submit(decoded, root)
        time.sleep(0.2)
        assert not second.done()
        first.kill()
        assert second.result(timeout=30) == [18] * 18
    assert len(list(cache.glob("*.npy"))) == 1

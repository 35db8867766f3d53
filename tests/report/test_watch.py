from __future__ import annotations

from pathlib import Path

import pytest

from seqdg.base import UsageError
from seqdg.report import watch_run
from seqdg.results import Store, lock_directory


@pytest.fixture
def records(run):
    return run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [0.6, 0.7]}})


class Pages:
    """Stands for the report: keeps which version was written with how many trials, and the note beside it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "report.html"
        self.note = directory / "report.html.version.js"
        self.written: list[tuple[str, int]] = []
        self.noted: list[str] = []

    def write(self, results, version: str) -> Path:
        self.noted.append(self.note.read_text() if self.note.exists() else "")
        self.written.append((version, len(results.records())))
        return self.path


def test_a_page_is_written_as_trials_finish_and_the_last_looks_for_no_other(records, tmp_path, monkeypatch):
    store = Store.create(tmp_path / "run", "vlcs")
    store.add(records[:2])
    new = iter([[], [], records[2:3], records[3:]])  # finished by each look; with the last the run is over
    looks = iter([True, True, True, False])

    def is_locked(directory) -> bool:
        store.add(next(new))
        return next(looks)

    monkeypatch.setattr("seqdg.report.results.stored.is_locked", is_locked)
    pages, said = Pages(tmp_path / "run"), []
    assert watch_run([tmp_path / "run"], pages.write, said.append, pause=0.01) == pages.path
    store.close()
    assert pages.written == [("2 done", 2), ("3 done", 3), ("", 4)]
    assert pages.noted == ["", 'seqdgVersion("2 done");\n', 'seqdgVersion("3 done");\n']
    assert said == [f"{pages.path}  {count} done" for count in (2, 3)]
    assert not pages.note.exists()


def test_a_run_that_is_over_is_written_once(records, tmp_path):
    store = Store.create(tmp_path / "run", "vlcs")
    store.add(records)
    store.close()
    pages = Pages(tmp_path / "run")
    watch_run([tmp_path / "run"], pages.write, print, pause=60)
    assert pages.written == [("", 4)]


def test_a_run_that_has_not_begun_is_waited_for(records, tmp_path, monkeypatch):
    directory, steps = tmp_path / "run", iter(["make", "lock", "add"])

    def sleep(seconds: float) -> None:
        step = next(steps)
        if step == "make":
            directory.mkdir()
            lock.__enter__()
        elif step == "add":
            store = Store.create(directory, "vlcs")
            store.add(records)
            store.close()
            lock.__exit__(None, None, None)

    lock = lock_directory(directory)
    monkeypatch.setattr("seqdg.report.results.time.sleep", sleep)
    pages, said = Pages(directory), []
    watch_run([directory], pages.write, said.append)
    assert said == [f"Waiting for a run to begin in {directory}; Ctrl-C ends it."]
    assert pages.written == [("", 4)]


def test_a_directory_without_a_run_is_not_waited_for(tmp_path):
    with pytest.raises(UsageError, match="There are no results in"):
        watch_run([tmp_path], Pages(tmp_path).write, print, pause=60)

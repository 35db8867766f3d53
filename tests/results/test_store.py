"""Records go into a run directory and come out as they were; what cannot be read is said."""

from __future__ import annotations

import math
import shutil
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from seqdg.base import UsageError
from seqdg.results import DIVERGED, DONE, FAILED, FILE, Evaluation, Record, Store, lock_directory


def record(number: int = 0, status: str = DONE) -> Record:
    return Record(
        key=f"key{number}",
        description={"algorithm": "agg", "held_out": ["a,b", "c"], "seed": number, "settings": {"alpha": "0.1"}},
        status=status,
        history=[
            Evaluation(10, {"accuracy": [0.1 + number, 1 / 3], "auroc": [math.inf]}, {"accuracy": [5e-324]}),
            Evaluation(20, {"accuracy": [0.2, -0.0]}, {}),
        ],
        losses=[0.1 * k for k in range(7)],
        seconds=1.5,
        peak_memory=2**40,
        stacked=3,
        device="cpu",
        versions={"torch": "2"},
        commit="abc",
        weights="def",
        error="Traceback",
        notes=["a class is missing from 'c'"],
        finished=1000.0 + number,
    )


def test_a_record_comes_back_equal_in_every_field(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.add([record(0), record(1)])
    assert Store.open(tmp_path).records() == [record(0), record(1)]


def test_numbers_come_back_to_the_last_bit_even_where_they_are_not_numbers(tmp_path: Path) -> None:
    odd = [math.nan, -0.0, math.inf, 0.1 + 0.2]
    Store.create(tmp_path, "bench").add([replace(record(), losses=odd)])
    (back,) = Store.open(tmp_path).records()
    assert math.isnan(back.losses[0])
    assert math.copysign(1, back.losses[1]) == -1
    assert back.losses[2:] == odd[2:]


def test_records_that_do_not_say_when_they_finished_are_given_the_time(tmp_path: Path) -> None:
    Store.create(tmp_path, "bench").add([replace(record(), finished=0.0)])
    assert Store.open(tmp_path).records()[0].finished > 1e9


def test_records_come_in_the_order_of_their_plans_whatever_finished_first(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.begin({"key3": "g", "key1": "g"})
    store.begin({"key2": "g", "key3": "g"})
    store.add([record(i) for i in range(4)])
    assert [r.key for r in store.records()] == ["key3", "key1", "key2", "key0"]
    assert store.planned() == {"key3": "g", "key2": "g"}


def test_only_failed_trials_run_again(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.add([record(0, DONE), record(1, DIVERGED), record(2, FAILED)])
    assert store.finished() == {"key0", "key1"}
    store.add([record(2, DONE)])
    assert store.finished() == {"key0", "key1", "key2"}


def test_a_group_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    broken = replace(record(1), weights=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="weights"):
        store.add([record(0), broken])
    assert Store.open(tmp_path).records() == []


def test_analyses_are_kept_beside_the_records(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.add_analysis("ranks", {"agg": [1, 2.5]})
    store.add_analysis("cost", [])
    store.add_analysis("ranks", None)
    found = Store.open(tmp_path)
    assert [a.payload for a in found.analyses("ranks")] == [{"agg": [1, 2.5]}, None]
    assert [a.name for a in found.analyses()] == ["ranks", "cost", "ranks"]
    assert all(a.created > 1e9 for a in found.analyses())


def test_a_directory_of_another_benchmark_is_refused(tmp_path: Path) -> None:
    Store.create(tmp_path, "one").close()
    with pytest.raises(UsageError, match="holds a run of 'one', not of 'other'"):
        Store.create(tmp_path, "other")


def test_a_store_in_another_format_is_refused_by_readers_and_writers(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.set_meta("schema", "1")
    store.close()
    for use in (lambda: Store.open(tmp_path), lambda: Store.create(tmp_path, "bench")):
        with pytest.raises(UsageError, match=r"written in format 1, .* reads format"):
            use()


def test_an_sqlite_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE)
    other.execute("CREATE TABLE cats (name)")
    other.commit()
    with pytest.raises(UsageError, match="is no store of seqdg"):
        Store.create(tmp_path, "bench")
    assert [row[0] for row in other.execute("SELECT name FROM sqlite_master")] == ["cats"]
    other.close()


def test_a_directory_without_results_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There are no results"):
        Store.open(tmp_path)


def test_a_store_whose_writer_was_killed_at_birth_is_empty_and_made_by_the_next_one(tmp_path: Path) -> None:
    unborn = sqlite3.connect(tmp_path / FILE)
    unborn.execute("PRAGMA journal_mode=WAL")
    unborn.close()
    with pytest.raises(UsageError, match="There are no results"):
        Store.open(tmp_path)
    Store.create(tmp_path, "bench").add([record(0)])
    assert Store.open(tmp_path).records() == [record(0)]


def test_the_file_alone_holds_all_that_was_added_while_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "copy").mkdir()
    store = Store.create(tmp_path / "run", "bench")
    store.add([record(0)])
    shutil.copy(tmp_path / "run" / FILE, tmp_path / "copy" / FILE)  # without the files that SQLite keeps beside it
    assert Store.open(tmp_path / "copy").records() == [record(0)]


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    with lock_directory(tmp_path), pytest.raises(UsageError, match="Another run is writing"), lock_directory(tmp_path):
        pass
    with lock_directory(tmp_path):
        pass


def test_a_reader_sees_what_is_stored_while_the_writer_goes_on(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.add([record(0)])
    reader = Store.open(tmp_path)
    assert len(reader.records()) == 1
    store.add([record(1)])
    assert len(reader.records()) == 2


def many(store: Store, count: int) -> list[Record]:
    """Plan and store records of which no two are alike, a few at a time."""
    records = [replace(record(i), losses=[float(i)] * 200) for i in range(count)]
    store.begin({r.key: "group" for r in records})
    for start in range(0, count, 7):
        store.add(records[start : start + 7])
    return records


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 3 * 4096] = b"\xff" * 3 * 4096
    path.write_bytes(data)


def change_a_number(path: Path) -> None:
    """Change losses of the fourth record, where SQLite does not notice."""
    data, three = path.read_bytes(), struct.pack("<d", 3.0) * 200
    assert data.count(three) == 1
    path.write_bytes(data.replace(three, struct.pack("<d", 3.5) * 200))


def test_a_damaged_store_that_is_opened_to_write_keeps_all_that_is_whole_and_the_damaged_file(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    records = many(store, 60)
    store.add_analysis("ranks", [1, 2])
    store.set_meta("commands", "[]")
    store.close()
    damage_middle(tmp_path / FILE)
    damaged = (tmp_path / FILE).read_bytes()
    with pytest.warns(
        UserWarning, match=rf"{FILE} was damaged \(.*\): it is now {FILE}\.damaged-1, and \d+ whole"
    ) as said:
        store = Store.create(tmp_path, "bench")
    count = len(store.records())
    assert 30 < count < 60
    assert f"and {count} whole records are kept." in str(said[0].message)
    assert all(r in records for r in store.records())
    assert (tmp_path / f"{FILE}.damaged-1").read_bytes() == damaged
    assert len(store.planned()) == 60
    assert store.meta("commands") == "[]"
    assert store.analyses()[0].payload == [1, 2]
    store.add(records)
    store.close()
    again = Store.create(tmp_path, "bench")  # without a warning
    assert again.records() == records
    again.close()
    damage_middle(tmp_path / FILE)
    with pytest.warns(UserWarning, match=rf"it is now {FILE}\.damaged-2"):
        Store.create(tmp_path, "bench")


def test_a_damaged_store_that_is_opened_to_read_shows_what_is_whole_and_stays_as_it_is(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    records = many(store, 60)
    store.close()
    damage_middle(tmp_path / FILE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.warns(
        UserWarning, match=r"is damaged \(.*\), and \d+ whole records are read\. The command that made"
    ) as said:
        reader = Store.open(tmp_path)
    assert 30 < len(reader.records()) < 60
    assert f"and {len(reader.records())} whole records are read." in str(said[0].message)
    assert all(r in records for r in reader.records())
    assert reader.benchmark == "bench"
    with pytest.raises(UsageError, match="readonly"):
        reader.add(records)
    reader.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_number_that_changed_on_disk_is_noticed_before_a_run_goes_on(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    many(store, 5)
    store.close()
    change_a_number(tmp_path / FILE)
    with pytest.warns(UserWarning, match=r"was damaged \(1 record changed on the disk\): .* 4 whole records are kept"):
        store = Store.create(tmp_path, "bench")
    assert {r.seed for r in store.records()} == {0, 1, 2, 4}
    assert store.finished() == {"key0", "key1", "key2", "key4"}


def test_a_number_that_changed_on_disk_is_noticed_by_who_only_reads(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    many(store, 5)
    store.close()
    change_a_number(tmp_path / FILE)
    with pytest.warns(UserWarning, match=r"is damaged \(1 record changed on the disk\), and 4 whole records are read"):
        assert {r.seed for r in Store.open(tmp_path).records("accuracy")} == {0, 1, 2, 4}


def make_and_change(directory: Path, sql: str) -> None:
    """Make a store, and change it as if a bit of it had flipped."""
    store = Store.create(directory, "bench")
    many(store, 5)
    store.set_meta("classes", '["a", "b"]')
    store.add_analysis("ranks", [1, 2])
    store.add_analysis("ranks", [3])
    store.close()
    with closing(sqlite3.connect(directory / FILE)) as db, db:
        db.executescript(sql)


@pytest.mark.parametrize(
    ("sql", "named", "lost"),
    [
        ("UPDATE meta SET value = 'x' WHERE name = 'classes'", "classes changed on the disk", "classes"),
        ("UPDATE meta SET name = 'clasres' WHERE name = 'classes'", "classes changed on the disk", "classes"),
        ("UPDATE analyses SET payload = '[7]' WHERE id = 2", "analysis 2 changed on the disk", "analysis"),
        ("UPDATE planned SET in_group = 'other' WHERE key = 'key3'", "the plan changed on the disk", "plan"),
        ("UPDATE meta SET value = 'x' || value WHERE name = 'sums'", "its sums changed on the disk", ""),
        ("ALTER TABLE trials RENAME COLUMN seconds TO second", "its tables are not as they were made", ""),
    ],
)
def test_what_changed_on_disk_beside_the_records_is_named_and_not_kept(
    tmp_path: Path, sql: str, named: str, lost: str
) -> None:
    make_and_change(tmp_path, sql)
    with pytest.warns(UserWarning, match=rf"is damaged \({named}\), and 5 whole records are read"):
        Store.open(tmp_path).close()
    with pytest.warns(UserWarning, match=rf"was damaged \({named}\): .* and 5 whole records are kept"):
        store = Store.create(tmp_path, "bench")
    assert len(store.records()) == 5
    assert store.meta("classes") == (None if lost == "classes" else '["a", "b"]')
    assert [a.payload for a in store.analyses()] == [[1, 2], [3]][: 1 if lost == "analysis" else 2]
    assert len(store.planned()) == (0 if lost == "plan" else 5)
    store.close()
    Store.create(tmp_path, "bench").close()  # without a warning


def test_a_store_that_was_written_before_there_were_sums_is_read_as_it_is(tmp_path: Path) -> None:
    make_and_change(tmp_path, "DELETE FROM meta WHERE name = 'sums'")
    for store in (Store.open(tmp_path), Store.create(tmp_path, "bench")):
        assert len(store.records()) == len(store.planned()) == 5
        assert len(store.analyses()) == 2
        store.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commands", "null"), ("commands", "[1]"), ("commands", "[" * 100_000), ("classes", "5"),
        ("domains", '["a", 1]'),
        ("commands", '[{"command": "seqdg", "algorithms": "agg", "held_out": [], "seeds": []}]'),
        ("commands", '[{"command": "an odd \\" quote", "algorithms": [], "held_out": [], "seeds": []}]'),
        ("commands", '[{"command": "", "algorithms": [], "held_out": [], "seeds": [], "search": 50}]'),
    ],
)  # fmt: skip
def test_a_store_that_says_of_its_run_what_no_run_says_is_refused(tmp_path: Path, name: str, text: str) -> None:
    """Its sums are right: somebody else's program wrote it."""
    store = Store.create(tmp_path, "bench")
    store.add([record()])
    store.set_meta(name, text)
    with pytest.raises(UsageError, match=r"results\.sqlite is no store that seqdg wrote \(.+\): use another copy"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"description": {"algorithm": 1, "held_out": ["a"], "seed": 0}},
        {"description": {"algorithm": "agg", "held_out": ["a"], "seed": 0, "protocol": 5}},
        {"description": {"algorithm": "agg", "held_out": ["a", 1], "seed": 0}},
        {"versions": 3},
        {"versions": {"seqdg": 3}},
        {"notes": [None]},
        {"peak_memory": "much"},
        {"finished": math.inf},
        {"finished": 1e308},
        {"seconds": -math.inf},
        {"stacked": "\0"},
    ],
)
def test_a_record_that_is_none_is_not_read(tmp_path: Path, changes: dict[str, Any]) -> None:
    store = Store.create(tmp_path, "bench")
    store.add([record(0), replace(record(1), **changes)])
    with pytest.warns(UserWarning, match="1 record changed on the disk"):
        assert Store.open(tmp_path).records() == [record(0)]


def test_of_a_file_that_is_no_database_nothing_is_kept_but_the_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database at all" * 100)
    with pytest.warns(UserWarning, match=r"is damaged \(file is not a database\), and 0 whole records are read"):
        assert Store.open(tmp_path).records() == []
    with pytest.warns(UserWarning, match=r"was damaged \(file is not a database\): .* 0 whole records are kept"):
        store = Store.create(tmp_path, "bench")
    store.add([record(0)])
    assert (tmp_path / f"{FILE}.damaged-1").read_bytes().startswith(b"not a database")
    assert Store.open(tmp_path).records() == [record(0)]


def test_a_run_that_was_killed_while_it_set_a_file_aside_is_found(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.add([record(0)])
    store.close()
    (tmp_path / FILE).rename(tmp_path / f"{FILE}.recovered")
    assert Store.create(tmp_path, "bench").records() == [record(0)]


def test_a_store_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    """As on a file system that is mounted so; root may write where permissions say no, hence the detour."""
    store = Store.create(tmp_path, "bench")
    store.add([record(0)])
    store.close()
    reader = Store(tmp_path / FILE, f"{(tmp_path / FILE).as_uri()}?mode=ro&immutable=1")
    assert reader.records() == [record(0)]
    with pytest.raises(UsageError, match="readonly"):
        reader.add([record(1)])


def test_a_full_disk_is_a_sentence_and_the_store_opens_and_goes_on(tmp_path: Path) -> None:
    """With SQLite's own limit in place of a disk's."""
    store = Store.create(tmp_path, "bench")
    store.add([record(0)])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(UsageError, match=r"Nothing more can be written .* Make room and run the command again"):
        store.add([replace(record(1), losses=[1.0] * 100_000)])
    assert [r.seed for r in Store.open(tmp_path).records()] == [0]
    store.close()
    again = Store.create(tmp_path, "bench")
    again.add([record(1)])
    assert [r.seed for r in Store.open(tmp_path).records()] == [0, 1]


def test_records_for_a_table_have_its_criterion_alone_and_are_otherwise_the_same(tmp_path: Path) -> None:
    Store.create(tmp_path, "bench").add([record(0)])
    (found,) = Store.open(tmp_path).records("accuracy")
    kept = [replace(e, source={"accuracy": e.source["accuracy"]}) for e in record(0).history]
    assert found == replace(record(0), history=kept, losses=[])


def test_a_store_that_is_forgotten_may_be_collected_in_another_thread(tmp_path: Path) -> None:
    held = [Store.create(tmp_path, "b")]
    thread = Thread(target=held.clear)  # an exception in __del__ would be a warning, and that an error
    thread.start()
    thread.join()
    assert Store.open(tmp_path).benchmark == "b"


def test_a_trial_keeps_the_group_that_it_finished_in_and_one_that_failed_does_not(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.begin({"key0": "first", "key1": "first", "key2": "first"})
    store.add([record(0), record(1, FAILED)], "first")
    store.begin({"key2": "second", "key1": "second", "key0": "second"})
    assert store.groups() == {"key0": "first", "key1": "second", "key2": "second"}
    assert set(store.planned()) == {"key0", "key1", "key2"}
    store.begin({"key1": "third"})
    assert store.groups() == {"key0": "first", "key1": "third", "key2": "second"}
    assert store.planned() == {"key1": "third"}


def test_a_trial_that_diverged_keeps_its_group_too(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "bench")
    store.begin({"key0": "first"})
    store.add([record(0, DIVERGED)], "first")
    store.begin({"key0": "second"})
    assert store.groups() == {"key0": "first"}


def test_a_large_run_goes_on_in_time_that_grows_with_it_and_not_with_its_square(tmp_path: Path) -> None:
    work = []
    for count in (100, 400):
        folder = tmp_path / str(count)
        folder.mkdir()
        store = Store.create(folder, "b")
        planned = {record(i).key: "first" for i in range(count)}
        store.begin(planned)
        store.add([record(i) for i in range(count)])
        operations: list[int] = []
        store._db.set_progress_handler(lambda seen=operations: seen.append(100), 100)
        store.begin(planned)
        store._db.set_progress_handler(None, 0)
        work.append(len(operations))
    assert work[1] < 6 * work[0]

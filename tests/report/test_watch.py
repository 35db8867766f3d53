from __future__ import annotations

from seqdg.report import watch
from seqdg.results.store import Store


def test_a_page_is_written_as_trials_finish_and_the_last_looks_for_no_other(run, tmp_path, monkeypatch):
    records = run({"agg": {"V": [0.5, 0.6]}, "mldg": {"V": [0.6, 0.7]}})
    store = Store.create(tmp_path / "run", "vlcs")
    store.add(records[:2])
    looks = iter([True, True, False])

    def is_locked(directory) -> bool:
        goes_on = next(looks)
        if not goes_on:
            store.add(records[2:])
        return goes_on

    monkeypatch.setattr(watch, "is_locked", is_locked)
    note = tmp_path / "run" / "report.html.version.js"
    written, noted = [], []

    def write(results, version):
        noted.append(note.read_text() if note.exists() else "")
        written.append((version, len(results.records())))
        return tmp_path / "run" / "report.html"

    said = []
    watch.watch_run([tmp_path / "run"], write, said.append, pause=0.01)
    store.close()
    assert written == [("2 done", 2), ("4 done", 4), ("", 4)]
    assert noted == ["", 'seqdgVersion("2 done");\n', 'seqdgVersion("4 done");\n']
    assert said == [f"{tmp_path / 'run' / 'report.html'}  {count} done" for count in (2, 4)]
    assert not note.exists()

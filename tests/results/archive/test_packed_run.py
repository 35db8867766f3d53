"""A packed run says what the run says."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest

from seqdg.base import UsageError
from seqdg.report import Results
from seqdg.report.page import build_page
from seqdg.report.run_contents import read_contents
from seqdg.report.table import FORMATS
from seqdg.results import (
    DIVERGED,
    EVALUATIONS,
    FAILED,
    RULES,
    TRIALS,
    Evaluation,
    Store,
    open_run,
    pack,
    read_status,
    thin,
)

CRITERIA = ("accuracy", "balanced_accuracy", "log_loss", "calibration_error")


def table(path, form, rule, criterion):
    return f"{Results.open(path).table(rule, criterion, 'agg', form)}\n"


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "domain-val"])
def test_tables_are_the_same_to_the_last_byte_in_every_format(directory, packed, rule):
    for criterion in CRITERIA:
        for form in FORMATS:
            assert table(packed, form, rule, criterion) == table(directory, form, rule, criterion)


def test_either_of_its_files_stands_for_it(directory, packed):
    for name in (TRIALS, EVALUATIONS):
        assert table(packed / name, "json", "last", "accuracy") == table(directory, "json", "last", "accuracy")


def test_a_folder_of_packed_runs_names_them_and_so_does_one_of_such_folders(packed, tmp_path):
    for place in ("set/kind", "set/other"):
        shutil.copytree(packed, tmp_path / place)
    for folder in (tmp_path / "set", tmp_path):
        with pytest.raises(UsageError) as refusal:
            open_run(folder)
        assert str(refusal.value) == (
            f"There are no results in {folder}. Give a run in it: {tmp_path / 'set/kind'}, {tmp_path / 'set/other'}."
        )


def test_the_report_has_the_same_numbers(directory, packed):
    ours, theirs = (build_page(read_contents(open_run(path))) for path in (packed, directory))
    assert (ours.title, ours.lead, ours.answers, ours.warnings) == (
        theirs.title,
        theirs.lead,
        theirs.answers,
        theirs.warnings,
    )
    for one, other in zip(ours.sections, theirs.sections, strict=True):
        if one.name != "training":  # its loss curve is thinned
            assert replace(one, code=()) == replace(other, code=())


def test_commands_travel_without_the_paths_of_a_machine(directory, packed):
    (before,), (after,) = (json.loads(open_run(path).meta("commands")) for path in (directory, packed))
    assert before["command"].endswith(f"--out {directory}")
    assert after["command"] == before["command"].replace(str(directory), "run")
    assert {**after, "command": ""} == {**before, "command": ""}


def test_the_status_is_the_same(directory, packed):
    assert replace(read_status(packed), active=False) == replace(read_status(directory), active=False)


def test_records_are_the_same_but_for_thinned_loss_curves(directory, packed):
    for ours, record in zip(open_run(packed).records(), Store.open(directory).records(), strict=True):
        assert replace(ours, losses=[], finished=0) == replace(record, losses=[], finished=0)
        assert ours.finished == pytest.approx(record.finished, abs=0.000501)
        if record.is_tabled:  # twelve points need no thinning
            assert ours.losses == pytest.approx(record.losses, rel=5e-3)
        else:
            assert ours.losses == []
    for name in ("classes", "domains"):
        assert open_run(packed).meta(name) == Store.open(directory).meta(name)
    assert open_run(packed).groups() == Store.open(directory).groups()
    assert open_run(packed).analyses()[0].payload == Store.open(directory).analyses()[0].payload


def test_asked_for_exactly_loss_curves_stay_as_they_are(directory, tmp_path):
    pack([(directory, open_run(directory))], tmp_path, exact=True)
    for ours, record in zip(open_run(tmp_path).records(), Store.open(directory).records(), strict=True):
        assert ours.losses == record.losses


def test_what_a_killed_process_left_half_packed_goes(directory, tmp_path):
    for name in (f".{TRIALS}.1a2b3c4d.part", f".{EVALUATIONS}.1a2b3c4d.part", "film.part"):
        (tmp_path / name).write_bytes(b"half")
    pack([(directory, open_run(directory))], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([TRIALS, EVALUATIONS, "film.part"])


def test_the_same_run_gives_the_same_bytes_and_so_does_a_packed_one(directory, packed, tmp_path):
    pack([(directory, open_run(directory))], tmp_path / "again")
    pack([(packed, open_run(packed))], tmp_path / "packed")
    for name in (TRIALS, EVALUATIONS):
        for place in ("again", "packed"):
            assert (tmp_path / place / name).read_bytes() == (packed / name).read_bytes()


def test_numbers_that_are_none_and_criteria_that_were_not_measured_survive(directory, tmp_path):
    store = Store.create(tmp_path / "lost", "rotated-mnist")
    first, *_ = Store.open(directory).records()
    odd = {"accuracy": [math.nan, math.inf, -math.inf, 0.1 + 0.2, -0.0], "log_loss": [5e-324]}
    few = [Evaluation(1, odd, {"accuracy": [math.nan]}), Evaluation(2, {"accuracy": [1.0]}, {"log_loss": [2.0]})]
    store.add([replace(first, history=few, status=DIVERGED, losses=[1.0, math.inf, math.nan])])
    store.add([replace(first, key="none", history=[], losses=[])])
    pack([(tmp_path / "lost", store)], tmp_path / "packed")
    back, nothing = open_run(tmp_path / "packed").records()
    assert str(back.history) == str(few)
    assert str(back.losses) == "[1.0, inf, nan]"
    assert nothing.history == nothing.losses == []
    (one, two) = open_run(tmp_path / "packed").records("log_loss")[0].history
    assert (one.source, one.held_out, two.held_out) == ({"log_loss": [5e-324]}, {}, {"log_loss": [2.0]})


def test_descriptions_of_any_kind_come_back(directory, tmp_path):
    store = Store.create(tmp_path / "odd", "rotated-mnist")
    first, *_ = Store.open(directory).records()
    changes = [{"held_out": ["0", "a, b"]}, {"held_out": ["[x]"]}, {"held_out": ["é"], "soup": {"members": ["k"]}}]
    for i, change in enumerate(changes):
        store.add([replace(first, key=str(i), description={**first.description, **change}, notes=["ü"])])
    pack([(tmp_path / "odd", store)], tmp_path / "packed")
    found = open_run(tmp_path / "packed").records()
    assert [r.description for r in found] == [{**first.description, **change} for change in changes]
    assert found[2].members == ("k",)
    assert found[2].notes == ["ü"]


def test_runs_are_merged_each_trial_once_and_failed_ones_left_out(directory, packed, tmp_path):
    records = Store.open(directory).records()
    for name, own in (("one", records[:50]), ("two", records[40:])):
        store = Store.create(tmp_path / name, "rotated-mnist")
        store.set_meta("commands", Store.open(directory).meta("commands"))
        if name == "two":
            own = [*own[:-1], replace(own[-1], status=FAILED, error="Traceback")]
        store.add([replace(r, finished=i + 1) for i, r in enumerate(own)])
        store.close()
    runs = [(tmp_path / name, open_run(tmp_path / name)) for name in ("one", "two")]
    said = pack(runs, tmp_path / "both")
    assert said[:2] == ["Left out: 1 failed trials.", "10 trials are in more than one run; the first is kept."]
    assert [r.key for r in open_run(tmp_path / "both").records()] == [r.key for r in records[:-1]]
    pack([(directory, open_run(directory)), (tmp_path / "two", runs[1][1])], tmp_path / "all")
    assert table(tmp_path / "all", "json", "last", "accuracy") == table(packed, "json", "last", "accuracy")


def test_a_thinned_curve_has_the_means_of_equal_stretches():
    assert thin([1, 2, 3, 4, 5, 6, 7], 3) == [2.0, 4.5, 6.5]
    assert thin([1, 2], 3) == [1, 2]


def test_some_criteria_can_be_left_out_and_accuracy_never(directory, packed, tmp_path):
    notes = pack([(directory, open_run(directory))], tmp_path, criteria=["log_loss"])
    assert "Kept are these criteria: accuracy, log_loss." in notes
    for record in open_run(tmp_path).records():
        for e in record.history:
            for part in (e.source, e.held_out, e.held_out_fifth, e.held_out_rest):
                assert set(part) == {"accuracy", "log_loss"}
    assert table(tmp_path, "text", "source-val", "log_loss") == table(directory, "text", "source-val", "log_loss")
    assert (tmp_path / EVALUATIONS).stat().st_size < (packed / EVALUATIONS).stat().st_size
    with pytest.raises(UsageError, match="los"):
        pack([(directory, open_run(directory))], tmp_path, criteria=["los"])


def test_an_accuracy_of_fifty_and_a_key_that_climbs_are_refused(directory, tmp_path):
    first, *_ = Store.open(directory).records()
    fifty = [Evaluation(1, {"accuracy": [0.5]}, {"accuracy": [50.0]})]
    store = Store.create(tmp_path / "fifty", "rotated-mnist")
    store.add([replace(first, history=fifty)])
    pack([(tmp_path / "fifty", store)], tmp_path / "packed")
    with pytest.raises(UsageError, match="has accuracy 50, but it lies between 0 and 1"):
        open_run(tmp_path / "packed").records()
    store = Store.create(tmp_path / "climbs", "rotated-mnist")
    store.add([replace(first, key="../../climbed")])
    with pytest.raises(UsageError, match=r"A trial has the key '\.\./\.\./climbed', which is not a key"):
        store.records()

"""A packed run says what the run says."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from seqdg.base.errors import UsageError
from seqdg.report.contents import read_contents
from seqdg.report.page import build_page
from seqdg.report.results import Results
from seqdg.report.table import FORMATS
from seqdg.results.archive.columns import decode, decode_numbers, encode, encode_numbers, encode_shares, thin
from seqdg.results.archive.reading import FILE, open_run
from seqdg.results.archive.writing import pack
from seqdg.results.record import DIVERGED, FAILED, Evaluation
from seqdg.results.select import RULES
from seqdg.results.status import read_status
from seqdg.results.store import Store

OTHERS = ("balanced_accuracy", "log_loss", "calibration_error")


def table(path, form, rule, criterion):
    return f"{Results.open(path).table(rule, criterion, 'agg', form)}\n"


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "domain-val"])
def test_tables_of_accuracy_are_the_same_to_the_last_byte_in_every_format(directory, file, rule):
    for form in FORMATS:
        assert table(file, form, rule, "accuracy") == table(directory, form, rule, "accuracy")
        assert table(file.parent, form, rule, "accuracy") == table(directory, form, rule, "accuracy")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "domain-val"])
@pytest.mark.parametrize("criterion", OTHERS)
def test_tables_of_other_criteria_are_the_same_as_printed_and_to_seven_digits_for_programs(
    directory, file, rule, criterion
):
    for form in ("text", "markdown", "latex"):
        assert table(file, form, rule, criterion) == table(directory, form, rule, criterion)
    ours, theirs = (json.loads(table(path, "json", rule, criterion)) for path in (file, directory))
    for one, other in zip(ours, theirs, strict=True):
        assert one["mean"] == pytest.approx(other["mean"], rel=1e-6)


def test_the_report_has_the_same_numbers(directory, file):
    ours, theirs = (build_page(read_contents(open_run(path))) for path in (file, directory))
    assert (ours.title, ours.lead, ours.answers, ours.warnings) == (
        theirs.title,
        theirs.lead,
        theirs.answers,
        theirs.warnings,
    )
    for one, other in zip(ours.sections, theirs.sections, strict=True):
        if one.name != "training":  # its loss curve is thinned
            assert replace(one, code=()) == replace(other, code=())


def test_commands_travel_without_the_paths_of_a_machine(directory, file):
    (before,), (after,) = (json.loads(open_run(path).meta("commands")) for path in (directory, file))
    assert before["command"].endswith(f"--out {directory}")
    assert after["command"] == before["command"].replace(str(directory), "run")
    assert {**after, "command": ""} == {**before, "command": ""}


def test_the_status_is_the_same(directory, file):
    assert replace(read_status(file), active=False) == replace(read_status(directory), active=False)


def test_with_every_digit_records_are_the_same_but_for_their_loss_curves(directory, tmp_path):
    pack([(directory, open_run(directory))], tmp_path / FILE, exact=True)
    for packed, record in zip(open_run(tmp_path).records(), Store.open(directory).records(), strict=True):
        assert replace(packed, losses=[], finished=0) == replace(record, losses=[], finished=0)
        assert packed.finished == pytest.approx(record.finished, abs=0.51)
        assert packed.losses == pytest.approx(record.losses, rel=5e-3)  # twelve points need no thinning


def test_a_record_keeps_where_it_came_from(directory, file):
    for packed, record in zip(open_run(file).records(), Store.open(directory).records(), strict=True):
        for name in ("key", "description", "status", "seconds", "peak_memory", "stacked", "device", "versions"):
            assert getattr(packed, name) == getattr(record, name)
        assert (packed.commit, packed.weights, packed.notes) == (record.commit, record.weights, record.notes)
        assert [e.step for e in packed.history] == [e.step for e in record.history]
        assert [e.source["accuracy"] for e in packed.history] == [e.source["accuracy"] for e in record.history]
    assert open_run(file).groups() == Store.open(directory).groups()
    assert open_run(file).analyses()[0].payload == Store.open(directory).analyses()[0].payload


def test_the_same_run_gives_the_same_bytes_and_so_does_a_packed_one(directory, file, tmp_path):
    pack([(directory, open_run(directory))], tmp_path / "again.xz")
    pack([(file, open_run(file))], tmp_path / "packed.xz")
    assert (tmp_path / "again.xz").read_bytes() == file.read_bytes()
    assert (tmp_path / "packed.xz").read_bytes() == file.read_bytes()


def test_as_many_digits_are_kept_as_every_choice_needs(directory, tmp_path):
    store = Store.create(tmp_path / "close", "rotated-mnist")
    first, *_ = Store.open(directory).records()
    near = [
        Evaluation(e.step, {**e.source, "log_loss": [0.5 - 1e-8 * i] * 5}, e.held_out)
        for i, e in enumerate(first.history)
    ]
    store.add([replace(first, history=near)])
    said = pack([(tmp_path / "close", store)], tmp_path / FILE)
    assert any("have 9 digits" in sentence for sentence in said)
    assert table(tmp_path / FILE, "json", "source-val", "accuracy") == table(
        tmp_path / "close", "json", "source-val", "accuracy"
    )


def test_numbers_that_are_none_survive(directory, tmp_path):
    store = Store.create(tmp_path / "lost", "rotated-mnist")
    first, *_ = Store.open(directory).records()
    odd = {c: [math.nan, math.inf, -math.inf, 0.5, 0.5] for c in first.history[0].source}
    history = [Evaluation(e.step, odd, {c: [math.nan] for c in odd}) for e in first.history]
    store.add([replace(first, history=history, status=DIVERGED, losses=[1.0, math.inf, math.nan])])
    pack([(tmp_path / "lost", store)], tmp_path / FILE, exact=True)
    (back,) = open_run(tmp_path / FILE).records()
    assert str(back.history) == str(history)
    assert str(back.losses) == "[1.0, inf, nan]"


def test_runs_are_merged_each_trial_once_and_failed_ones_left_out(directory, file, tmp_path):
    records = Store.open(directory).records()
    for name, own in (("one", records[:50]), ("two", records[40:])):
        store = Store.create(tmp_path / name, "rotated-mnist")
        store.set_meta("commands", Store.open(directory).meta("commands"))
        if name == "two":
            own = [*own[:-1], replace(own[-1], status=FAILED, error="Traceback")]
        store.add([replace(r, finished=i + 1) for i, r in enumerate(own)])
        store.close()
    runs = [(tmp_path / name, open_run(tmp_path / name)) for name in ("one", "two")]
    said = pack(runs, tmp_path / "both.xz")
    assert said[:2] == ["Left out: 1 failed trials.", "10 trials are in more than one run; the first is kept."]
    assert [r.key for r in open_run(tmp_path / "both.xz").records()] == [r.key for r in records[:-1]]
    pack([(directory, open_run(directory)), (tmp_path / "two", runs[1][1])], tmp_path / "all.xz")
    assert table(tmp_path / "all.xz", "json", "last", "accuracy") == table(file, "json", "last", "accuracy")


def test_columns_come_back_as_they_were():
    for values in ([], [1], ["a", "a", "b"], [{"x": [1]}] * 9, list(range(50))):
        assert decode(encode(values)) == values
    numbers = [0.1, 1 / 3, math.inf, -math.inf, 0.1, 1e-300]
    assert decode_numbers(encode_shares(numbers)) == numbers
    assert decode_numbers(encode_numbers(numbers, None)) == numbers
    assert decode_numbers(encode_numbers([1 / 3, 2e-9 / 3], 3)) == [0.333, 6.67e-10]


def test_a_thinned_curve_has_the_means_of_equal_stretches():
    assert thin([1, 2, 3, 4, 5, 6, 7], 3) == [2.0, 4.5, 6.5]
    assert thin([1, 2], 3) == [1, 2]


def test_some_criteria_can_be_left_out_and_accuracy_never(directory, file, tmp_path):
    small = tmp_path / "small.json.xz"
    notes = pack([(directory, open_run(directory))], small, criteria=["log_loss"])
    assert "Kept are these criteria: accuracy, log_loss." in notes
    for record in open_run(small).records():
        assert all(set(e.held_out) <= {"accuracy", "log_loss"} and "accuracy" in e.source for e in record.history)
    assert table(small, "text", "source-val", "log_loss") == table(directory, "text", "source-val", "log_loss")
    assert small.stat().st_size < file.stat().st_size
    with pytest.raises(UsageError, match="los"):
        pack([(directory, open_run(directory))], small, criteria=["los"])

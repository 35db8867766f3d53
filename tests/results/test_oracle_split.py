"""The rule oracle-split: a fifth of the held-out rows chooses the settings at the last step, the rest is reported."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from seqdg.base import UsageError
from seqdg.report import Results
from seqdg.results import (
    DIVERGED,
    DONE,
    VERSION,
    Evaluation,
    Record,
    Store,
    make_key,
    mean_and_error,
    pack,
    select_outcomes,
)
from seqdg.results.record import pack_history, unpack_history


def make_record(lr: float, parts: list[tuple[float, float]], seed: int = 0, **changes: object) -> Record:
    """A trial with one domain held out; at each evaluation the accuracy on a fifth of its rows and on the rest."""
    history = [
        Evaluation(
            step=10 * (i + 1),
            source={"accuracy": [0.9 - 0.1 * i, 0.8]},
            held_out={"accuracy": [0.2 * fifth + 0.8 * rest]},
            held_out_fifth={"accuracy": [fifth]},
            held_out_rest={"accuracy": [rest]},
        )
        for i, (fifth, rest) in enumerate(parts)
    ]
    about = {
        "version": VERSION, "data": "d", "net": {"name": "mlp", "weights": None}, "algorithm": "agg", "settings": {},
        "protocol": {"lr": lr, "steps": 20}, "held_out": ["a"], "seed": seed,
    }  # fmt: skip
    return replace(Record(make_key(about), about, DONE, history, losses=[1.0]), **changes)


def test_the_settings_that_are_best_on_the_fifth_at_the_last_step_are_reported_on_the_rest() -> None:
    tried = [
        make_record(0.1, [(0.99, 0.9), (0.6, 0.5)]),  # best halfway, which does not count
        make_record(0.2, [(0.1, 0.1), (0.7, 0.4)]),
        make_record(0.3, [(0.1, 0.1), (0.65, 0.8)]),  # best on the rest, which does not choose
    ]
    (outcome,) = select_outcomes(tried, "oracle-split")
    assert (outcome.record.key, outcome.step, outcome.value) == (tried[1].key, 20, 0.4)


def test_a_diverged_candidate_is_not_chosen() -> None:
    tried = [make_record(0.1, [(0.9, 0.9)], status=DIVERGED), make_record(0.2, [(0.5, 0.3)])]
    assert select_outcomes(tried, "oracle-split")[0].value == 0.3
    assert select_outcomes(tried[:1], "oracle-split")[0].value is None


def test_records_without_the_two_parts_are_refused_in_a_sentence() -> None:
    old = make_record(0.1, [(0.9, 0.9)])
    old.history[0] = Evaluation(10, old.history[0].source, old.history[0].held_out)
    with pytest.raises(UsageError, match=r"1 of 2 trials, such as agg with a held out, have no two parts of their"):
        select_outcomes([old, make_record(0.2, [(0.9, 0.9)])], "oracle-split")
    assert select_outcomes([old], "oracle")[0].value == pytest.approx(0.9)


def test_a_history_is_stored_with_its_parts_and_an_old_one_as_before() -> None:
    old = [Evaluation(10, {"accuracy": [0.1, 0.2], "log_loss": [1.0, 2.0]}, {"accuracy": [0.3], "log_loss": [3.0]})]
    assert pack_history(old)[0] == '[[10, [["accuracy", 2], ["log_loss", 2]], [["accuracy", 1], ["log_loss", 1]]]]'
    new = [
        old[0],
        replace(old[0], step=20, held_out_fifth={"accuracy": [0.4], "log_loss": [4.0]},
                held_out_rest={"accuracy": [0.5], "log_loss": [math.inf]}),
    ]  # fmt: skip
    assert unpack_history(*pack_history(old)) == old
    assert unpack_history(*pack_history(new)) == new
    (_, last) = unpack_history(*pack_history(new), "accuracy")
    assert (last.held_out_fifth, last.held_out_rest) == ({"accuracy": [0.4]}, {"accuracy": [0.5]})


def test_a_packed_run_and_a_frame_have_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    store = Store.create(tmp_path / "run", "toy")
    store.add([make_record(lr, [(lr, 0.5), (1 - lr, lr)], seed) for lr in (0.2, 0.4) for seed in (0, 1)])
    pack([(tmp_path / "run", store)], tmp_path / "packed")
    store.close()
    run, packed = Results.open(tmp_path / "run"), Results.open(tmp_path / "packed")
    assert str(run.table("oracle-split")) == str(packed.table("oracle-split"))
    assert "Accuracy in % on four fifths of the held-out domain" in str(run.table("oracle-split"))
    assert "an upper bound" in str(run.table("oracle"))
    assert run.frame("oracle-split")["accuracy"].tolist() == [0.2, 0.2]
    assert [r.history for r in packed.records()] == [r.history for r in run.records()]


def test_both_meanings_of_the_spread_are_named(tmp_path: Path) -> None:
    values = [0.5, 0.6, 0.9]
    mean = sum(values) / 3
    squares = sum((v - mean) ** 2 for v in values)
    assert mean_and_error(values) == pytest.approx((mean, math.sqrt(squares / 2) / math.sqrt(3)))
    assert mean_and_error(values, ddof=0) == pytest.approx((mean, math.sqrt(squares / 3) / math.sqrt(3)))
    store = Store.create(tmp_path, "toy")
    store.add([make_record(0.1, [(v, v)], seed) for seed, v in enumerate(values)])
    store.close()
    results = Results.open(tmp_path)
    assert "66.7 ± 12.0" in str(results.table())
    plain = str(results.table(spread="stderr-ddof0"))
    assert "66.7 ± 9.8" in plain
    assert "by n and not n - 1 (ddof 0)" in plain
    with pytest.raises(UsageError, match="meaning of ±"):
        results.table(spread="sd")

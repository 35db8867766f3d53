"""A training whose loss is no longer finite ends at its next evaluation, where it takes no other training with it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from digits import BENCHMARK, TASK, train
from seqdg.base import Folder
from seqdg.bench import Group, Trial
from seqdg.results import DIVERGED, DONE, Record
from seqdg.training import Saving

PROTOCOL = replace(BENCHMARK.protocol, steps=20, evaluations=5, optimizer="sgd", batch=4, precision="float64")
CALM, WILD = 0.05, 1e200


def make_trial(lr: float, seed: int = 0, name: str = "agg", **fields: int) -> Trial:
    return TASK.make_trial(name, {}, replace(PROTOCOL, lr=lr, **fields), ("75",), seed)


def list_steps(record: Record) -> list[int]:
    return [evaluation.step for evaluation in record.history]


def read_numbers(record: Record) -> tuple[object, ...]:
    """Return what is told of a training, as text: what is not a number equals nothing else."""
    return record.key, record.status, record.weights, repr(record.history), repr(record.losses)


@pytest.mark.parametrize("name", ["agg", "agg+swad"])
@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize("members", [1, 2])
def test_a_group_that_has_diverged_ends_at_the_next_evaluation(name: str, trials: int, members: int) -> None:
    taken: list[int] = []
    group = Group(tuple(make_trial(WILD, seed, name, members=members, evaluations=10) for seed in range(trials)))
    for record in train(group, taken.append):
        assert record.status == DIVERGED
        assert not math.isfinite(record.losses[-1])
        assert len(record.losses) == list_steps(record)[-1] == taken[-1] < 20


def test_a_group_goes_on_while_one_of_its_trials_is_sound_and_each_says_what_it_says_alone() -> None:
    calm, wild = make_trial(CALM), make_trial(WILD, 1)
    taken: list[int] = []
    together = train(Group((calm, wild)), taken.append)
    assert taken[-1] == 20
    assert [r.status for r in together] == [DONE, DIVERGED]
    assert list_steps(together[0]) == [4, 8, 12, 16, 20]
    (alone,) = train(Group((wild,)))
    assert list_steps(together[1]) == list_steps(alone) == [4]
    assert len(together[1].losses) == len(alone.losses) == 4
    assert [math.isfinite(v) for v in together[1].losses] == [math.isfinite(v) for v in alone.losses]


@pytest.mark.parametrize("at", [1, 4])
def test_it_ends_at_the_same_evaluation_after_an_interruption(tmp_path: Path, at: int) -> None:
    group, saving = Group((make_trial(WILD),)), Saving(Folder(tmp_path), 3600.0)
    whole = train(group)

    def interrupt(step: int) -> None:
        if step >= at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(group, interrupt, saving)
    assert [read_numbers(r) for r in train(group, saving=saving)] == [read_numbers(r) for r in whole]


def test_one_that_was_interrupted_after_its_last_evaluation_takes_no_more_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, saving = Group((make_trial(WILD),)), Saving(Folder(tmp_path), 3600.0)
    whole = train(group)

    def interrupt(*about: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("seqdg.training.trainer._Run._keep_step", lambda *about: None)
        patched.setattr("seqdg.training.trainer._Run._is_final", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(group, saving=saving)
    taken: list[int] = []
    assert [read_numbers(r) for r in train(group, taken.append, saving)] == [read_numbers(r) for r in whole]
    assert taken == []


def test_the_predictions_of_its_last_evaluation_are_kept(tmp_path: Path) -> None:
    trial = make_trial(WILD)
    train(Group((trial,)), saving=Saving(Folder(tmp_path), predictions=True))
    assert (tmp_path / "predictions" / f"{trial.key}.last.safetensors").exists()

"""What a user may ask of the local machine, and what that comes to."""

from __future__ import annotations

import pytest
import torch

from seqdg.base import UsageError, choose_device, count_cores, prepare_process
from seqdg.bench import ExecutorChoice, InProcess, Workers, choose_executor, is_short


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with two."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_a_cpu_has_a_worker_for_each_core_unless_told_otherwise() -> None:
    executor, device = choose_executor(ExecutorChoice(), "cpu")
    assert device == "cpu"
    assert executor == (Workers(count_cores(), ("cpu",)) if count_cores() > 1 else InProcess())
    assert choose_executor(ExecutorChoice(workers=0), "cpu")[0] == InProcess()
    assert choose_executor(ExecutorChoice(workers=3), "cpu")[0] == Workers(3, ("cpu",))


@pytest.mark.usefixtures("gpus")
def test_every_gpu_has_a_worker_or_as_many_as_share_it() -> None:
    assert choose_executor(ExecutorChoice(), "auto") == (Workers(2, ("cuda:0", "cuda:1")), "cuda")
    assert choose_executor(ExecutorChoice(), "cuda:1") == (InProcess(), "cuda:1")
    assert choose_executor(ExecutorChoice(gpus_per_worker=0.25), "cuda")[0] == Workers(8, ("cuda:0", "cuda:1"))
    assert choose_executor(ExecutorChoice(gpus_per_worker=0.3, workers=2), "cuda:0")[0] == Workers(2, ("cuda:0",))
    assert choose_executor(ExecutorChoice(workers=5), "cuda")[0].slots == 5


@pytest.mark.usefixtures("gpus")
def test_more_gpu_than_there_is_is_refused() -> None:
    with pytest.raises(UsageError, match=r"5 workers with 0\.5 of a GPU each need more than the 2 GPU here"):
        choose_executor(ExecutorChoice(gpus_per_worker=0.5, workers=5), "cuda")
    with pytest.raises(UsageError, match=r"'cuda:2': the last of the 2 CUDA devices is cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"executor": "slurm"}, "There is no executor 'slurm'. Choose from: local, ray."),
        ({"workers": -1}, "-1 workers were asked for. Give 0 for this process alone, or more."),
        ({"gpus_per_worker": 2.0}, "A worker was to have 2 GPUs, but a trial trains on one."),
        ({"gpus_per_worker": 0.0}, "A worker was to have 0 GPUs"),
        ({"address": "auto"}, "--address is that of a Ray cluster. Add --executor ray, or leave it out."),
    ],
)
def test_wishes_that_make_no_sense_are_one_sentence(words: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        ExecutorChoice(**words)  # type: ignore[arg-type]
    assert sentence in str(error.value)


def test_part_of_a_gpu_on_a_cpu_is_refused() -> None:
    with pytest.raises(UsageError, match="Part of a GPU was asked for, and the device is the CPU"):
        choose_executor(ExecutorChoice(gpus_per_worker=0.5), "cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:"])
def test_a_device_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="There is no device"):
        choose_device(name)


def test_what_is_short_or_single_needs_no_workers() -> None:
    assert is_short([100.0])
    assert is_short([1.0, 2.0])
    assert not is_short([6.0, 6.0])
    assert not is_short([1.0, None])


def test_a_process_that_trains_has_one_thread() -> None:
    prepare_process()
    assert torch.get_num_threads() == 1

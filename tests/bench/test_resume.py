"""A trial that was interrupted ends with the same weights, bit for bit, as one that was not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from digits import build_stack, make_plan, make_session, train
from seqdg.base import Folder, save_sealed
from seqdg.bench import Group, InProcess, Request, execute, remove_checkpoints
from seqdg.results import Evaluation, Record, Store
from seqdg.training import OnEvaluation, Saving, State, run_stack, trainer
from seqdg.training.trainer import Snapshot

REQUEST = Request(algorithms=["fo-s-mldg"], held_out=["0", "75"], trials=1, steps=40)
MADE_BY = {"device": "cpu"}


def the_group(request: Request = REQUEST) -> Group:
    (group,) = make_plan(request).groups
    return group


def told(record: Record) -> tuple[object, ...]:
    """What training gave, without what the clock says."""
    return record.key, record.status, record.weights, record.history, record.losses


def interrupt(at: int, step: int) -> None:
    if step >= at:
        raise KeyboardInterrupt


def noted(steps: list[int], step: int) -> None:
    steps.append(step)


def started(*words: object, **more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from seqdg.cli import main; main()", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload,no-any-return]


def test_a_snapshot_comes_back_to_the_last_bit_in_the_same_order_and_layout() -> None:
    image = torch.randn(2, 4, 3, 5, 5).contiguous(memory_format=torch.contiguous_format)
    last = image.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)  # channels last
    params = {"z": last, "a": torch.tensor([float("nan"), -0.0]), "both": image[:, :1]}
    slots = {"velocity": {"z": torch.randn(2, 3).double()}, "count": {"z": torch.tensor([7, 2**40])}}
    losses = [torch.randn(3, 2), torch.randn(1, 2)]
    evaluations = [[Evaluation(3, {"accuracy": [0.1, float("nan")]}, {"accuracy": [1 / 3]})], []]
    snapshot = Snapshot(State(4, 1, params, slots, losses), evaluations, 12.5)
    data = trainer.encode_snapshot(snapshot, ["k1", "k2"], MADE_BY)
    back = trainer.decode_snapshot(data, torch.device("cpu"))
    assert (back.state.step, back.state.stage, back.seconds) == (4, 1, 12.5)
    assert list(back.state.params) == ["z", "a", "both"]
    for name, value in params.items():
        found = back.state.params[name]
        assert found.numpy().tobytes() == value.numpy().tobytes()
        assert found.stride() == value.stride()
    assert {slot: list(values) for slot, values in back.state.slots.items()} == {"velocity": ["z"], "count": ["z"]}
    assert back.state.slots["count"]["z"].tolist() == [7, 2**40]
    assert back.state.slots["velocity"]["z"].dtype == torch.float64
    assert torch.equal(torch.cat(back.state.losses), torch.cat(losses))
    assert repr(back.evaluations) == repr(evaluations)
    assert trainer.read_header(data)["trials"] == ["k1", "k2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "optimizer"),
    [
        pytest.param(step, optimizer, marks=() if i == j else pytest.mark.soak)
        for i, step in enumerate((1, 20, 37))
        for j, optimizer in enumerate(("sgd", "momentum", "adam"))
    ],
)
def test_a_trial_interrupted_at_any_step_ends_with_the_same_record(tmp_path: Path, optimizer: str, step: int) -> None:
    group = the_group(replace(REQUEST, settings=[f"fo-s-mldg.optimizer={optimizer}"]))
    whole = train(group)
    saving = Saving(Folder(tmp_path), 3600.0)
    with pytest.raises(KeyboardInterrupt):
        train(group, partial(interrupt, step), saving)
    left = trainer.read_header(Folder(tmp_path).read(trainer.name_checkpoint(group.key)) or b"")
    assert left["step"] >= step
    steps: list[int] = []
    resumed = train(group, partial(noted, steps), saving)
    assert not steps or steps[0] > left["step"]
    assert [told(r) for r in resumed] == [told(r) for r in whole]
    assert resumed[0].weights


def test_a_checkpoint_of_other_trials_is_named_and_not_used(tmp_path: Path) -> None:
    group, saving = the_group(replace(REQUEST, seed=7)), Saving(Folder(tmp_path), 3600.0)
    other, whole = the_group(), train(group)
    with pytest.raises(KeyboardInterrupt):
        train(other, partial(interrupt, 20), saving)
    names = [trainer.name_checkpoint(each.key) for each in (other, group)]
    (tmp_path / names[0]).rename(tmp_path / names[1])
    with pytest.warns(UserWarning, match="start anew: the checkpoint is of other trials"):
        again = train(group, saving=saving)
    assert [told(r) for r in again] == [told(r) for r in whole]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"step": 19}, {"step": 20.0}, {"stage": 2}, {"stage": 10**9}, {"seconds": "none"}, {"slots": []},
        {"slots": ["other"]}, {"evaluations": [[]]}, {"weights": (3, 3)}, {"weights": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_sealed_checkpoint_of_no_moment_of_the_training_is_named_and_not_used(
    change: dict[str, object], tmp_path: Path
) -> None:
    group, saving = the_group(), Saving(Folder(tmp_path), 3600.0)
    with pytest.raises(KeyboardInterrupt):
        train(group, partial(interrupt, 20), saving)
    name = trainer.name_checkpoint(group.key)
    data = Folder(tmp_path).read(name) or b""
    header, tensors = trainer.decode_checkpoint(data, torch.device("cpu"))
    if "weights" in change:
        first, shape = min(key for key in tensors if key.startswith("params/")), change.pop("weights")
        value = tensors.pop(first)
        tensors |= {} if shape is None else {first: torch.zeros(shape, dtype=value.dtype)}
    Folder(tmp_path).write(name, trainer.encode_checkpoint({**header, **change}, tensors))
    with pytest.warns(UserWarning, match=rf"The trials of {name} start anew"):
        again = train(group, saving=saving)
    assert [told(r) for r in again] == [told(r) for r in train(group)]


@pytest.mark.parametrize(
    "change",
    [
        {"slots": 3}, {"evaluations": [[{"step": 1, "x": 2}]]}, {"tensors": None},
        {"tensors": {"params/none": [1]}}, {"trials": None}, {"made_by": []}, {"tensors": {"losses": [-1, -5]}},
    ],
)  # fmt: skip
def test_a_checkpoint_that_says_what_none_does_is_no_checkpoint(change: dict[str, object], tmp_path: Path) -> None:
    snapshot = Snapshot(State(4, 1, {}, {}, [torch.zeros(3, 2)]), [[]], 12.5)
    data = trainer.encode_snapshot(snapshot, ["k"], MADE_BY)
    header = {**trainer.read_header(data), **change}
    forged = save_sealed({"losses": torch.zeros(3, 2)}, {"seqdg": json.dumps(header)})
    with pytest.raises(ValueError, match="not a checkpoint"):
        trainer.decode_snapshot(forged, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fish", "fishr", "selfreg", "fishr+ema"])
def test_what_an_algorithm_remembers_survives_an_interruption(tmp_path: Path, algorithm: str) -> None:
    group, saving = the_group(replace(REQUEST, algorithms=[algorithm])), Saving(Folder(tmp_path), 3600.0)
    whole = train(group)
    with pytest.raises(KeyboardInterrupt):
        train(group, partial(interrupt, 20), saving)
    assert [told(r) for r in train(group, saving=saving)] == [told(r) for r in whole]


@pytest.mark.slow
def test_a_trial_interrupted_after_its_last_evaluation_ends_with_the_same_record(tmp_path: Path) -> None:
    group, saving = the_group(), Saving(Folder(tmp_path), 3600.0)

    def run(on_evaluation: OnEvaluation | None = None) -> list[Record]:
        return run_stack(
            lambda: build_stack(group.trials),
            group.key,
            torch.device("cpu"),
            saving=saving,
            on_evaluation=on_evaluation,
        )

    def stop(step: int, weights: object, reached: object, losses: object) -> None:
        if step == REQUEST.steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stop)
    assert [told(r) for r in run()] == [told(r) for r in train(group)]


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["agg", "fo-s-mldg", "s-mldg"])
def test_on_a_gpu_an_interrupted_trial_ends_with_the_same_record(tmp_path: Path, algorithm: str) -> None:
    (group,) = make_plan(replace(REQUEST, algorithms=[algorithm]), device="cuda").groups
    whole = train(group, device="cuda")
    saving = Saving(Folder(tmp_path), 3600.0)
    with pytest.raises(KeyboardInterrupt):
        train(group, partial(interrupt, 20), saving, "cuda")
    resumed = train(group, saving=saving, device="cuda")
    for ours, theirs in zip(resumed, whole, strict=True):
        assert ours.losses == theirs.losses
        assert ours.weights == theirs.weights
        assert [repr(e) for e in ours.history] == [repr(e) for e in theirs.history]


@pytest.mark.slow
def test_the_time_of_a_resumed_trial_is_that_of_all_its_parts(tmp_path: Path) -> None:
    group, saving = the_group(), Saving(Folder(tmp_path), 3600.0)
    with pytest.raises(KeyboardInterrupt):
        train(group, partial(interrupt, 20), saving)
    before = trainer.read_header(Folder(tmp_path).read(trainer.name_checkpoint(group.key)) or b"")["seconds"]
    assert before > 0
    assert train(group, saving=saving)[0].seconds * len(group.trials) > before


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "other", "foreign"])
def test_a_checkpoint_that_cannot_be_used_is_not(tmp_path: Path, damage: str) -> None:
    group, saving = the_group(), Saving(Folder(tmp_path), 3600.0)
    with pytest.raises(KeyboardInterrupt):
        train(group, partial(interrupt, 20), saving)
    name = trainer.name_checkpoint(group.key)
    data = Folder(tmp_path).read(name) or b""
    made_by = trainer.read_header(data)["made_by"]
    other = trainer.encode_snapshot(trainer.decode_snapshot(data, torch.device("cpu")), [], {**made_by, "torch": "0.1"})
    Folder(tmp_path).write(name, {"cut": data[:-10], "other": other, "foreign": b"text"}[damage])
    steps: list[int] = []
    said = rf"The trials of {name} start anew: the checkpoint is damaged, or of another version"
    with contextlib.nullcontext() if damage == "other" else pytest.warns(UserWarning, match=said):
        records = train(group, partial(noted, steps), saving)
    assert steps[0] <= 4, "it starts from the beginning"
    assert [told(r) for r in records] == [told(r) for r in train(group)]


@pytest.mark.slow
def test_checkpoints_go_when_their_group_is_stored_and_stay_while_it_is_not(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    here, plan = make_session(Saving(files, 1e-9)), make_plan(REQUEST)
    store = Store.create(tmp_path, "rotated-mnist")
    seen: list[bool] = []
    name = trainer.name_checkpoint(plan.groups[0].key)
    execute(plan, here, InProcess(), store, on_progress=lambda progress: seen.append((tmp_path / name).exists()))
    assert True in seen
    assert files.list_names(trainer.FOLDER) == []
    data = trainer.encode_snapshot(Snapshot(State(0, 0, {}, {}), []), [plan.trials[0].key], MADE_BY)
    files.write("checkpoints/stored", data)
    files.write("checkpoints/not", trainer.encode_snapshot(Snapshot(State(0, 0, {}, {}), []), ["unheard of"], MADE_BY))
    files.write("checkpoints/none", b"text")
    for folder in ("checkpoints", "weights"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / ".half.part").write_bytes(b"")
    with pytest.warns(
        UserWarning, match=r"checkpoints/none is removed, and its trials start anew: the checkpoint is dam"
    ):
        remove_checkpoints(files, store.finished())
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["not"]
    assert not list((tmp_path / "weights").iterdir())


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    group = the_group()
    records = train(group, saving=Saving(Folder(tmp_path), 1e-9))
    assert "no checkpoint could be written" in capsys.readouterr().err
    assert [told(r) for r in records] == [told(r) for r in train(group)]


KILLED = """
import os, signal
from pathlib import Path
from digits import make_plan, make_session
from seqdg.base import Folder
from seqdg.bench.benchmark import Request
from seqdg.bench.execution import execute
from seqdg.bench.execution import InProcess
from seqdg.results.store import Store
from seqdg.training import trainer
from seqdg.training.trainer import Saving

plan = make_plan(Request(algorithms=["fo-s-mldg"], held_out=["0", "75"], trials=1, steps=200))
files, name = Folder(Path(sys.argv[1])), trainer.name_checkpoint(plan.groups[0].key)

def kill(progress):
    left, now = files.read(name), max(group.step for group in progress.list_running())
    if left is not None and 10 < trainer.read_header(left)["step"] < now:
        os.kill(os.getpid(), signal.SIGKILL)

store = Store.create(files.root, "rotated-mnist")
execute(plan, make_session(Saving(files, 1e-9)), InProcess(), store, on_progress=kill)
"""


@pytest.mark.slow
def test_killed_between_checkpoints_a_trial_ends_with_the_same_weights(tmp_path: Path) -> None:
    """It kills itself, some steps after a checkpoint: whoever kills it from outside may come too late."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{KILLED}"
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    request = replace(REQUEST, steps=200)
    (group,) = make_plan(request).groups
    path = tmp_path / trainer.name_checkpoint(group.key)
    left = trainer.read_header(path.read_bytes())["step"]
    assert 10 < left < 200, "it was killed in the middle"
    here = make_session(Saving(Folder(tmp_path), 60.0))
    steps: list[int] = []
    store = Store.create(tmp_path, "rotated-mnist")
    plan = make_plan(request, store.finished())
    execute(plan, here, InProcess(), store, on_progress=lambda p: steps.extend(r.step for r in p.list_running()))
    assert min(s for s in steps if s) >= left, "it went on from its checkpoint"
    whole = train(group)
    assert sorted(map(told, store.records())) == sorted(map(told, whole))


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "interrupts"), [(0, 1), (2, 1), (2, 2)])  # `timeout -s INT` sends two
def test_an_interrupted_run_stores_what_is_done_and_prints_how_to_go_on(
    tmp_path: Path, workers: int, interrupts: int
) -> None:
    words = ["bench", "--algorithms", "agg,fo-s-mldg", "--held-out", "0,75", "--trials", "1"]
    words += ["--steps", "1000000"]  # more than any machine takes in the seconds until it is interrupted
    words += ["--workers", str(workers), "--out", str(tmp_path)]
    run = started(*words, start_new_session=True)
    until = time.monotonic() + 120
    while _count_running(tmp_path) < max(1, workers) and time.monotonic() < until:
        time.sleep(0.05)
    for _ in range(interrupts):
        os.killpg(run.pid, signal.SIGINT)  # as the terminal does: to all processes at once
        time.sleep(0.02)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert f"To go on: seqdg {' '.join(words)}" in err
    assert "Traceback" not in err
    assert not out
    kept = len(list((tmp_path / "checkpoints").glob("*.safetensors")))
    assert kept == max(1, workers), "what was under way is kept"
    assert Store.open(tmp_path).planned()


def _count_running(directory: Path) -> int:
    """Count the groups that are some steps on their way."""
    try:
        return sum(group.step > 0 for group in Store.open(directory).running())
    except ValueError:
        return 0

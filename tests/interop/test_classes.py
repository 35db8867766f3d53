"""Classes of DomainBed train unmodified on our splits and minibatches, and stop and go on to the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from command import Done, seqdg
from digits import TASK, build_stack, make_plan
from seqdg.base import Folder, UsageError
from seqdg.bench import Group, Request, RowsInMemory, Session, Task, Trial, find_learner, load_benchmark
from seqdg.bench.search import choose_settings
from seqdg.core import build
from seqdg.data import Dataset
from seqdg.interop import class_training
from seqdg.interop.checkout import import_module
from seqdg.interop.class_training import Training, draw_rows
from seqdg.interop.classes import DomainBedClass
from seqdg.nets import NetSpec
from seqdg.results import DIVERGED, DONE, Record, Store
from seqdg.training import Protocol, Saving, hash_weights, lend_randomness, split_rows

CPU = torch.device("cpu")
SMALL = ("mlp_width=8", "evaluations=3")


def make_trial(name: str, *settings: str, steps: int = 12, held_out: str = "0") -> Trial:
    texts = [f"domainbed:{name.rpartition(':')[2]}.{text}" for text in (*SMALL, *settings)]
    request = Request(algorithms=[f"domainbed:{name}"], held_out=[held_out], trials=1, steps=steps, settings=texts)
    (trial,) = make_plan(request).trials
    return trial


def train(trial: Trial, stop: int | None = None, folder: Path | None = None, task: Task = TASK) -> Record:
    """Train a trial, from its checkpoint where there is one; after `stop` steps it is interrupted."""

    def on_step(step: int) -> None:
        if stop is not None and step >= stop:
            raise KeyboardInterrupt

    saving = Saving() if folder is None else Saving(Folder(folder), 1e6)
    (record,) = find_learner(trial.algorithm).train(Group((trial,)), Session(task, saving=saving), on_step)
    return record


def told(record: Record) -> tuple[object, ...]:
    return record.key, record.status, record.weights, record.history, record.losses


def assert_resumes(trial: Trial, folder: Path, stops: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a training which is interrupted after these steps ends with the same bits."""
    monkeypatch.setattr(class_training, "MOMENT", -1.0)  # it ticks after every step
    whole = train(trial)
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            train(trial, stop, folder)
    seen: list[int] = []
    saving = Saving(Folder(folder), 1e6)
    (again,) = find_learner(trial.algorithm).train(Group((trial,)), Session(TASK, saving=saving), seen.append)
    assert seen[0] == stops[-1] + 1, "it went on where it stopped"
    assert told(again) == told(whole)


def bench(folder: Path, names: str, *words: object, steps: int = 12) -> Done:
    return seqdg(
        "bench", "rotated-mnist", "--algorithms", names, "--held-out", "0,75", "--trials", 1, "--steps", steps,
        "--device", "cpu", "--out", "run", *words, cwd=folder,
    )  # fmt: skip


def succeed(done: Done) -> Done:
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ERM", ()),
        ("VREx", ("vrex_penalty_anneal_iters=4", "mlp_dropout=0.3")),
        ("GroupDRO", ("groupdro_eta=0.5",)),
        ("Fish", ()),
        ("Mixup", ()),
        ("Averages", ()),
    ],
)
def test_an_interrupted_training_goes_on_to_the_same_bits(
    name: str, settings: tuple[str, ...], stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_resumes(make_trial(name, *settings), tmp_path, (3, 7), monkeypatch)


def test_an_interrupt_during_the_last_evaluation_is_heeded(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial("ERM")
    whole = train(trial)
    evaluate = Training._evaluate

    def interrupt_last(one: Training) -> None:
        evaluate(one)
        if one._ends():
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_evaluate", interrupt_last)
        with pytest.raises(KeyboardInterrupt):
            train(trial, None, tmp_path)
    monkeypatch.setattr(Training, "_train", None)  # nothing is trained again
    assert told(train(trial, None, tmp_path)) == told(whole)


def test_a_training_that_diverges_ends_at_its_next_evaluation(stand_in: Path, tmp_path: Path) -> None:
    trial = make_trial("ERM", "lr=1e30")
    whole = train(trial)
    assert whole.status == DIVERGED
    assert len(whole.losses) == whole.history[-1].step < 12
    with pytest.raises(KeyboardInterrupt):
        train(trial, 1, tmp_path)
    assert repr(told(train(trial, None, tmp_path))) == repr(told(whole))


def test_a_checkpoint_in_which_a_bit_flipped_is_named_and_not_used(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = make_trial("ERM")
    monkeypatch.setattr(class_training, "MOMENT", -1.0)
    with pytest.raises(KeyboardInterrupt):
        train(trial, 7, tmp_path)
    (path,) = (tmp_path / "checkpoints").iterdir()
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    again = train(trial, None, tmp_path)
    assert "starts anew: the checkpoint is damaged, or of another version of seqdg." in capsys.readouterr().err
    assert told(again) == told(train(trial))


def test_every_part_of_the_state_counts(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the averages that no buffer holds, the end is another: the test above can fail."""
    trial = make_trial("Averages")
    monkeypatch.setattr(class_training, "MOMENT", -1.0)
    whole = train(trial)
    with pytest.raises(KeyboardInterrupt):
        train(trial, 7, tmp_path)
    restore = class_training.restore_state

    def forget(algorithm: torch.nn.Module, *saved: object) -> list[str]:
        missing = restore(algorithm, *saved)  # type: ignore[arg-type]
        for average in algorithm.ema_per_domain:  # type: ignore[union-attr]
            average.ema_data = {}  # type: ignore[union-attr]
        return missing

    monkeypatch.setattr(class_training, "restore_state", forget)
    assert train(trial, None, tmp_path).weights != whole.weights


def test_it_trains_as_its_own_train_script_would_on_our_minibatches(stand_in: Path) -> None:
    trial = make_trial("VREx", "vrex_penalty_anneal_iters=5", "lr=0.01", "weight_decay=0.1", "batch=16")
    record = train(trial)
    split = split_rows(TASK.dataset(), trial.protocol, trial.held_out, trial.seed)
    data = TASK.dataset()
    with lend_randomness(trial.seed):
        kind = import_module("algorithms").get_algorithm_class("VREx")
        hparams = import_module("hparams_registry").default_hparams("VREx", "RotatedMNIST")
        hparams.update(mlp_width=8, mlp_depth=3, mlp_dropout=0.0, batch_size=16, lr=0.01, weight_decay=0.1)
        algorithm = kind((196,), 10, 5, {**hparams, "vrex_penalty_anneal_iters": 5})
        losses = []
        for step in range(12):
            rows, _ = draw_rows(trial, split, step, step + 1)
            losses.append(algorithm.update([(data.x[r], data.y[r]) for r in rows[0]], None)["loss"])
    assert record.losses == losses
    assert record.weights == hash_weights(algorithm.state_dict())


def test_it_sees_the_rows_that_our_algorithms_see_in_the_order_of_the_sources(stand_in: Path) -> None:
    trial = make_trial("ERM")
    (ours,) = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=12)).trials
    stack = build_stack([ours])
    domain, rows, key = (d[:, 0] for d in stack.upcoming.take(5, 9))
    theirs, keys = draw_rows(trial, stack.jobs[0].split, 5, 9)
    assert torch.equal(key, keys)
    for step in range(4):
        for place, source in enumerate(domain[step].tolist()):
            assert torch.equal(rows[step, place], theirs[step, source])
    assert all((TASK.dataset().domain[theirs[:, i]] == i + 1).all() for i in range(5)), "domain 0 is held out"


def test_it_stands_in_one_paired_table_and_is_rerun(stand_in: Path, tmp_path: Path) -> None:
    done = succeed(bench(tmp_path, "domainbed:Mixup,domainbed:ERM,agg", "--workers", 0))
    assert "mixing" not in done.stdout, "what a class prints does not enter the table"
    cells = json.loads(succeed(seqdg("table", "run", "--baseline", "agg", "--format", "json", cwd=tmp_path)).stdout)
    average = {c["algorithm"]: c for c in cells if c["held_out"] == "average"}
    assert average["domainbed:ERM"]["against"]["pairs"] == 2
    records = [r for r in Store.open(tmp_path / "run").records() if r.algorithm == "domainbed:ERM"]
    assert [r.status for r in records] == [DONE] * 2
    about = records[0].description
    assert about["net"]["name"] == "domainbed"
    assert about["settings"] | {"mlp_width": "256", "nonlinear_classifier": "false"} == about["settings"]
    assert not {"lr", "weight_decay", "batch_size"} & about["settings"].keys()
    assert (about["protocol"]["lr"], about["protocol"]["batch"]) == (0.001, 32)
    assert about["protocol"]["optimizer"] == "auto"
    assert any("Adam of torch" in note for note in records[0].notes)
    assert records[0].versions["domainbed"]
    last = records[0].history[-1]
    assert last.held_out_fifth["accuracy"] != last.held_out_rest["accuracy"], "what oracle-split reads"
    again = succeed(seqdg("rerun", "run", "--sample", 3, "--device", "cpu", cwd=tmp_path))
    assert "3 of 3 agree" in again.stdout
    assert "within" not in again.stdout, "every number must be the same"


@pytest.mark.slow
def test_worker_processes_find_the_checkout(nowhere: None, stand_in: Path, tmp_path: Path) -> None:
    succeed(bench(tmp_path, "domainbed:ERM", "--workers", 1, "--domainbed", stand_in, steps=4))
    assert {r.status for r in Store.open(tmp_path / "run").records()} == {DONE}


def test_the_folder_of_the_checkout_travels_with_the_session(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(TASK)
    monkeypatch.delenv("SEQDG_DOMAINBED")
    assert session.checkouts == {"SEQDG_DOMAINBED": str(stand_in)}
    assert Session(TASK).checkouts == {}


def test_a_class_in_a_file_of_the_users_runs_with_settings_of_its_own(stand_in: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from domainbed.algorithms import ERM\n\n\nclass Mine(ERM):\n    def objective(self, minibatches):\n"
        "        return self.hparams['push'] * super().objective(minibatches)\n"
    )
    done = bench(tmp_path, "domainbed:./mine.py:Mine", "--workers", 0)
    assert done.returncode == 2
    assert "asks for the setting 'push'" in done.stderr
    succeed(bench(tmp_path, "domainbed:./mine.py:Mine", "--workers", 0, "--set", "domainbed:Mine.push=2"))
    record = Store.open(tmp_path / "run").records()[0]
    assert record.algorithm == "domainbed:Mine"
    assert record.description["settings"]["push"] == "2"


def test_a_class_of_the_users_that_has_changed_is_refused_beside_trials_of_the_old(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from domainbed.algorithms import ERM\n\nPUSH = 2\n\n\nclass Mine(ERM):\n"
        "    def objective(self, minibatches):\n        return PUSH * super().objective(minibatches)\n"
    )

    def run(number: int, text: str) -> Done:
        """Run it as a new process would, which has imported nothing."""
        monkeypatch.setattr("seqdg.interop.checkout._files", {})
        file = tmp_path / str(number) / "mine.py"
        file.parent.mkdir()
        file.write_text(text)
        return bench(tmp_path, f"domainbed:{file}:Mine", "--workers", 0)

    succeed(run(0, text))
    assert "0 to run" in succeed(run(1, text)).stderr
    done = run(2, text.replace("PUSH = 2", "PUSH = 3"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "seqdg: The code of domainbed:Mine has changed since 2 trials of it were stored in run: trials of old and new "
        "code do not belong in one table. Give the new class another name, to compare the two, or give --out another "
        "directory. Any change of its file, or of one beside it that it imports, counts, even a comment."
    )


def test_a_search_draws_what_its_sweep_draws_and_leaves_the_minibatches(stand_in: Path) -> None:
    request = Request(algorithms=["domainbed:GroupDRO"], held_out=["0"], trials=1, steps=4, search=3)
    trials = make_plan(request).trials
    registry, misc = import_module("hparams_registry"), import_module("lib.misc")
    for number, trial in enumerate(trials[1:], start=1):
        want = registry.random_hparams("GroupDRO", "RotatedMNIST", misc.seed_hash(number, 0))
        assert dict(trial.settings)["groupdro_eta"] == repr(float(want["groupdro_eta"]))
        assert trial.protocol.lr == want["lr"]
        assert trial.protocol.batch == 32
    fixed = make_plan(replace(request, settings=["domainbed:GroupDRO.groupdro_eta=0.3"])).trials
    assert {dict(trial.settings)["groupdro_eta"] for trial in fixed} == {"0.3"}


def test_the_settings_that_a_table_writes_give_the_chosen_trial_again(stand_in: Path, tmp_path: Path) -> None:
    words = "--workers", 0, "--search", 2
    succeed(bench(tmp_path, "domainbed:VREx", *words, steps=2))
    succeed(seqdg("table", "run", "--settings-out", "chosen", cwd=tmp_path))
    for domain, by_algorithm in choose_settings(Store.open(tmp_path / "run").records(), "source-val").items():
        benchmark = load_benchmark("rotated-mnist").with_settings(tmp_path / "chosen" / f"{domain}.toml")
        plan = benchmark.plan(TASK, Request(algorithms=["domainbed:VREx"], held_out=[domain], trials=1))
        assert [trial.key for trial in plan.trials] == [record.key for record in by_algorithm.values()]


def test_random_numbers_of_the_process_are_as_before(stand_in: Path) -> None:
    trial = make_trial("Mixup", steps=2)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[union-attr]
    train(trial)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[union-attr]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_small_images_and_float64_train_too(stand_in: Path) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (60, 3, 28, 28), generator=g, dtype=torch.uint8)
    domain = torch.arange(60) % 3
    data = Dataset("noise", ("a", "b", "c"), ("no", "yes"), x, torch.arange(60) % 2, domain, "0")
    protocol = Protocol(steps=3, batch=4, evaluations=1, precision="float64")
    task = Task("noise", RowsInMemory(data), NetSpec("convnet"), "none", protocol)
    learner = find_learner("domainbed:ERM")
    settings = {"nonlinear_classifier": "false", "freeze_bn": "false", "class_balanced": "false"}
    trial = task.make_trial("domainbed:ERM", settings, protocol, ("a",), 0, net=NetSpec("domainbed"))
    learner.check(trial, task, None)  # type: ignore[arg-type]
    record = train(trial, task=task)
    assert record.status == DONE
    assert torch.get_default_dtype() == torch.float32
    wide = replace(trial, size=64)
    with pytest.raises(UsageError, match="28, 32 or 224 pixels"):
        learner.check(wide, task, None)  # type: ignore[arg-type]


def test_a_class_that_holds_what_cannot_be_written_down_trains_without_checkpoints(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = make_trial("ERM")
    learner = DomainBedClass(trial.algorithm)
    build = learner.build

    def build_with_iterator(*about: object) -> torch.nn.Module:
        algorithm = build(*about)  # type: ignore[arg-type]
        algorithm.batches = iter(())  # type: ignore[assignment]
        return algorithm

    learner.build = build_with_iterator  # type: ignore[method-assign]
    (record,) = learner.train(Group((trial,)), Session(TASK, saving=Saving(Folder(tmp_path), 1e-9)))
    assert record.status == DONE
    assert (
        "no checkpoint of domainbed:ERM could be written (batches is of type tuple_iterator)" in capsys.readouterr().err
    )


def test_its_classes_are_listed(stand_in: Path) -> None:
    shown = succeed(seqdg("list", "algorithms", "--domainbed", stand_in, "--json"))
    entries = {e["name"]: e for e in json.loads(shown.stdout)}
    assert entries["domainbed:GroupDRO"]["settings"]["groupdro_eta"] == "0.01"
    assert entries["domainbed:GroupDRO"]["title"].startswith("Weights of domains")
    assert "agg" in entries


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("CORALL", [], "There is no class of DomainBed 'CORALL'. "),
        ("RDM", [], "domainbed:RDM asks for CUDA in its code"),
        ("TRM", [], "domainbed:TRM asks for CUDA in its code"),
        ("Fishr", [], "domainbed:Fishr cannot be built .*Install backpack .*BackPACK 1.3"),
        ("ERM+ema", [], "domainbed:ERM takes no wrapper, and 'domainbed:ERM\\+ema' has 'ema'"),
        ("ERM", ["ERM.gama=1"], "domainbed:ERM has no setting 'gama'"),
        ("ERM", ["ERM.batch_size=8"], "set domainbed:ERM.batch in place of batch_size"),
        ("ERM", ["ERM.momentum=0.5"], "steps its own optimizer, so its momentum cannot be set"),
        ("ERM", ["ERM.mlp_width=wide"], "mlp_width is 'wide', but it must be a finite number"),
        ("ERM", ["ERM.freeze_bn=2"], "freeze_bn is '2', but it must be true or false"),
        ("ERM", ["ERM.precision=bf16"], "trains in float32, tf32, float64, and the precision is bf16"),
        ("ERM", ["ERM.domains_per_step=2"], "gets a minibatch of every source in every step"),
        ("./nothing.py:Mine", [], "There is no file './nothing.py'"),
        ("./mine.py", [], "Which class of ./mine.py\\?"),
    ],
)
def test_bad_input_is_a_sentence(name: str, settings: list[str], sentence: str, stand_in: Path) -> None:
    texts = [f"domainbed:{text}" for text in settings]
    with pytest.raises(UsageError, match=sentence):
        make_plan(Request(algorithms=[f"domainbed:{name}"], held_out=["0"], trials=1, steps=2, settings=texts))


def test_where_only_our_algorithms_run_a_class_is_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="domainbed:ERM is a class of DomainBed and no algorithm of seqdg's"):
        build("domainbed:./mine.py:ERM")


def test_two_classes_of_one_name_are_refused(stand_in: Path, tmp_path: Path) -> None:
    (tmp_path / "erm.py").write_text(
        "from domainbed.algorithms import ERM as Theirs\n\n\nclass ERM(Theirs):\n    pass\n"
    )
    with pytest.raises(UsageError, match="has a class ERM, and so has DomainBed itself"):
        make_plan(Request(algorithms=[f"domainbed:{tmp_path}/erm.py:ERM"], held_out=["0"], trials=1, steps=2))


def test_a_missing_checkout_is_a_sentence(nowhere: None, tmp_path: Path) -> None:
    lost = bench(tmp_path, "domainbed:ERM")
    assert lost.returncode == 2
    assert "Where is DomainBed?" in lost.stderr
    wrong = bench(tmp_path, "domainbed:ERM", "--domainbed", tmp_path)
    assert wrong.returncode == 2
    assert "is no checkout of DomainBed" in wrong.stderr


def test_a_package_that_it_lacks_is_named(nowhere: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "domainbed").mkdir()
    (tmp_path / "domainbed" / "__init__.py").touch()
    (tmp_path / "domainbed" / "algorithms.py").write_text("import torchvision_of_nobody\n")
    monkeypatch.setenv("SEQDG_DOMAINBED", str(tmp_path))
    with pytest.raises(
        UsageError, match="DomainBed needs the package 'torchvision_of_nobody', and it is not installed"
    ):
        import_module("algorithms")


SEVEN = ("ERM", "CORAL", "VREx", "GroupDRO", "MMD", "MLDG", "Fish")


@pytest.mark.parametrize("name", SEVEN)
@pytest.mark.filterwarnings("ignore")
def test_real_classes_stop_and_go_on_to_the_same_bits(
    name: str, real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("vrex_penalty_anneal_iters=4",) if name == "VREx" else ()
    assert_resumes(make_trial(name, *settings), tmp_path, (3, 7), monkeypatch)


@pytest.mark.filterwarnings("ignore")
def test_real_classes_stand_beside_ours(real: Path, tmp_path: Path) -> None:
    names = ",".join([*(f"domainbed:{name}" for name in SEVEN), "agg", "fo-s-mldg"])
    succeed(bench(tmp_path, names, "--workers", 0, steps=3))
    records = Store.open(tmp_path / "run").records()
    assert len(records) == 18
    assert {r.status for r in records} == {DONE}


@pytest.mark.parametrize("name", ["RDM", "TRM"])
@pytest.mark.filterwarnings("ignore")
def test_real_classes_that_ask_for_cuda_say_so(name: str, real: Path) -> None:
    with pytest.raises(UsageError, match="asks for CUDA"):
        make_plan(Request(algorithms=[f"domainbed:{name}"], held_out=["0"], trials=1, steps=2))

"""Our algorithms as classes of DomainBed compute what our trainer computes, and its scripts run them unmodified."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import seqdg
from seqdg.base import Episode, UsageError
from seqdg.interop.checkout import import_module
from seqdg.interop.domainbed import (
    add_algorithms,
    main,
    make_class,
    read_options,
    redirect_command,
    run_script,
    scale_stages,
)
from seqdg.nets import Net
from seqdg.training import OPTIMIZERS, Rates

HPARAMS = {
    "nonlinear_classifier": False, "freeze_bn": False, "lr": 0.01, "weight_decay": 0.1, "batch_size": 4,
    "mlp_width": 8, "mlp_depth": 3, "mlp_dropout": 0.0, "optimizer": "adam-l2", "steps": 6,
}  # fmt: skip


def build_class(name: str, networks: Any = None, **hparams: Any) -> Any:
    algorithms = import_module("algorithms")
    kind = make_class(name, algorithms.Algorithm, networks or import_module("networks"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind((5,), 3, 3, {**HPARAMS, **hparams})


def draw_minibatches(step: int, domains: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    g = torch.Generator().manual_seed(step)
    return [(torch.randn(4, 5, generator=g) + i, torch.randint(3, (4,), generator=g)) for i in range(domains)]


def take_steps(algorithm: Any, first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(step)
            losses.append(algorithm.update(draw_minibatches(step), None)["loss"])
    return losses


def test_a_step_is_that_of_our_algorithm_along_the_path_that_torch_draws(stand_in: Path) -> None:
    algorithm = build_class("fo-s-mldg", alpha=0.2)
    ours, net, params = seqdg.build("fo-s-mldg", alpha=0.2), algorithm.net, algorithm.net.params()
    optimizer = OPTIMIZERS["adam-l2"]
    slots = optimizer.init(params)
    for step in range(3):
        minibatches = draw_minibatches(step)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(step)
            order, key = torch.randperm(3), torch.randint(2**62, ())
        x, y = (torch.stack([m[i] for m in minibatches])[order] for i in (0, 1))
        direction, loss = ours.gradient(net, params, Episode(x, y, order, torch.tensor(step / 6), key))
        params, slots = optimizer.update(params, direction, slots, Rates(0.01, 0.9, 0.1))
        assert take_steps(algorithm, step, step + 1) == [float(loss)]
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(algorithm.predict(x), net(params, x))


def test_agg_is_domainbeds_erm_on_the_same_minibatches(stand_in: Path) -> None:
    """Both are torch's Adam on the mean loss, from the same first weights."""
    agg = build_class("agg")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        erm = import_module("algorithms").ERM((5,), 3, 3, HPARAMS)
    losses = [erm.update(draw_minibatches(step), None)["loss"] for step in range(6)]
    assert take_steps(agg, 0, 6) == pytest.approx(losses, rel=1e-5)
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(agg.predict(x), erm.predict(x), atol=1e-5)


@pytest.mark.parametrize("name", ["fo-s-mldg+ema", "group-dro", "metareg", "undo-bias", "agg+mixup+sma"])
def test_its_state_dict_holds_all_that_training_carries(name: str, stand_in: Path) -> None:
    whole, stopped = build_class(name), build_class(name)
    losses = take_steps(whole, 0, 6)
    take_steps(stopped, 0, 4)
    fresh = build_class(name)
    fresh.load_state_dict(stopped.state_dict())
    assert take_steps(fresh, 4, 6) == losses[4:]
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(fresh.predict(x), whole.predict(x))


class Normalized(nn.Module):
    n_outputs = 8

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(x)
        return out


class Networks:
    @staticmethod
    def Featurizer(shape: tuple[int, ...], hparams: dict[str, Any]) -> nn.Module:
        return Normalized()

    @staticmethod
    def Classifier(inputs: int, outputs: int, is_nonlinear: bool) -> nn.Module:
        return nn.Linear(inputs, outputs)


def test_batchnorm_is_recalibrated_on_the_last_minibatches_unless_it_is_frozen(stand_in: Path) -> None:
    algorithm = build_class("agg", Networks())
    assert algorithm.net.policy == "recalibrate"
    take_steps(algorithm, 0, 2)
    x = torch.cat([draw_minibatches(step)[i][0] for step in range(2) for i in range(3)])
    params = algorithm.params
    linear = x @ params["0.body.0.weight"].T + params["0.body.0.bias"]
    z = (linear - linear.mean(0)) / (linear.var(0, unbiased=True) + 1e-5).sqrt()
    hidden = (z * params["0.body.1.weight"] + params["0.body.1.bias"]).relu()
    want = hidden @ params["1.weight"].T + params["1.bias"]
    assert torch.allclose(algorithm.predict(x), want, atol=0.1), "up to how a variance is pooled"
    assert torch.allclose(algorithm.predict(x)[:1], algorithm.predict(x[:1]), atol=1e-5), "a row is predicted alone"
    assert build_class("agg", Networks(), freeze_bn=True).net.policy == "frozen"


def test_stages_that_come_on_top_share_the_steps_that_there_are() -> None:
    assert scale_stages(seqdg.build("agg"), 100) == [100]
    bounds = scale_stages(seqdg.build("metareg"), 100)
    assert bounds[-1] == 100
    assert 0 < bounds[0] < 100


def test_settings_and_their_draws_are_in_its_registry(stand_in: Path) -> None:
    registry = import_module("hparams_registry")
    theirs = registry.default_hparams("ERM", "PACS")
    add_algorithms(["fo-s-mldg+ema"], steps=77)
    assert registry.default_hparams("ERM", "PACS") == theirs
    ours = registry.default_hparams("fo-s-mldg+ema", "PACS")
    assert (ours["alpha"], ours["decay"], ours["steps"], ours["optimizer"]) == (0.1, 0.99, 77, "adam-l2")
    assert theirs.items() <= ours.items()
    drawn = [registry.random_hparams("fo-s-mldg+ema", "PACS", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({d["alpha"] for d in drawn} - {0.1}) == 2
    json.dumps(drawn)
    assert "fo-s-mldg+ema" in import_module("algorithms").ALGORITHMS


def run(folder: Path, *words: object, module: str = "seqdg.interop.domainbed", **more: str) -> str:
    """Run a module in a new process, in a folder, and return what it prints."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(seqdg.__file__).parents[1]), *sys.path]), **more}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *map(str, words)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "DomainBed needs the package" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SWEEP = (
    "sweep", "launch", "--algorithms", "fo-s-mldg+ema", "--datasets", "Debug28", "--data_dir", ".",
    "--output_dir", "sweep", "--command_launcher", "local", "--single_test_envs", "--skip_confirmation",
    "--n_trials", 1, "--steps", 2, "--hparams", '{"batch_size": 4}',
)  # fmt: skip


def read_lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.rglob("results.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def script(stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run one of the stand-in's scripts in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))  # the script changes them

    def run_here(*words: object) -> None:
        before = sys.stdout
        for name in [name for name in sys.modules if name.partition(".")[0] == "domainbed"]:
            del sys.modules[name]  # as a new process would begin
        with torch.random.fork_rng(devices=[]):
            run_script([str(word) for word in words])
        if sys.stdout is not before:
            sys.stdout.file.close()  # type: ignore[attr-defined]
            sys.stdout = before

    return run_here


def test_train_runs_our_algorithm_unmodified(script: Callable[..., None], stand_in: Path, tmp_path: Path) -> None:
    words = ["--dataset", "Debug28", "--steps", 3, "--checkpoint_freq", 1, "--hparams", '{"batch_size": 4}']
    script("train", f"--domainbed={stand_in}", "--algorithm=s-mldg", *words, "--output_dir", "out")
    lines = read_lines(tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[0]["args"]["algorithm"] == "s-mldg"
    assert all(0 <= line["env0_in_acc"] <= 1 for line in lines)
    saved = torch.load(tmp_path / "out" / "model.pkl", weights_only=True)
    assert saved["model_dict"]["_extra_state"]["update_count"] == 3


def test_a_sweep_runs_our_algorithm_and_its_results_are_collected(
    script: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its launcher starts processes, which here are calls."""
    commands: list[str] = []
    monkeypatch.setattr(import_module("command_launchers").subprocess, "call", lambda cmd, shell: commands.append(cmd))
    script(*SWEEP, "--n_hparams", 2)
    assert len(commands) == 6
    for command in commands:
        start, _, words = command.partition(" -m seqdg.interop.domainbed ")
        assert start == sys.executable
        script(*shlex.split(words))
    lines = read_lines(tmp_path)
    assert {tuple(line["args"]["test_envs"]) for line in lines} == {(0,), (1,), (2,)}
    assert {line["args"]["algorithm"] for line in lines} == {"fo-s-mldg+ema"}
    assert all(line["hparams"]["steps"] == 2 for line in lines)
    assert len({line["hparams"]["alpha"] for line in lines}) == 2, "the default, and one drawn"
    assert len(list(tmp_path.rglob("done"))) == 6
    sys.argv = ["collect_results", "--input_dir", "sweep"]
    runpy.run_module("domainbed.scripts.collect_results", run_name="__main__")
    assert "fo-s-mldg+ema" in capsys.readouterr().out


def test_a_command_of_a_sweep_is_started_through_our_module(stand_in: Path) -> None:
    command = redirect_command("python -m domainbed.scripts.train --algorithm agg+ema --hparams '{\"a\": 1}'")
    assert command.startswith(sys.executable)
    assert f"-m seqdg.interop.domainbed train --domainbed {stand_in} --algorithm agg+ema --hparams '{{" in command


def test_options_are_read_as_its_scripts_read_them() -> None:
    asked, rest = read_options(["--a", "1", "--domainbed", "x", "--b"])
    assert (asked.domainbed, rest) == ("x", ["--a", "1", "--b"])
    asked, rest = read_options(["--domainbed=x", "y"])
    assert (asked.domainbed, rest) == ("x", ["y"])
    asked, rest = read_options(["launch", "--algorithms", "a", "b", "--steps=3"])
    assert (asked.domainbed, asked.algorithms, asked.steps) == (None, ["a", "b"], 3)
    assert rest == ["launch", "--algorithms", "a", "b", "--steps=3"], "all of it is for the script"
    assert read_options(["--algorithm=a", "--dataset", "PACS"])[0].algorithms == ["a"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "No script was named"),
        (["trains"], "'trains' is none of its scripts"),
        (["train", "--algorithm", "fo-s-mdlg"], "There is no algorithm 'fo-s-mdlg'. Did you mean 'fo-s-mldg'"),
        (["train", "--algorithm", "agg+swad", "--steps", "2"], "agg\\+swad reads the loss on validation rows"),
        (["train", "--domainbed"], "--domainbed: expected one argument"),
        (["train", "--algorithm", "agg", "--steps", "few"], "--steps: invalid int value: 'few'"),
    ],
)
def test_bad_input_is_a_sentence(words: list[str], sentence: str, stand_in: Path) -> None:
    with pytest.raises(UsageError, match=sentence):
        run_script(words)


def test_a_missing_checkout_is_a_sentence_and_exit_code_2(nowhere: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "--algorithm", "agg"])
    assert stop.value.code == 2
    assert "Where is DomainBed?" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_is_no_mistake(word: str, nowhere: None, capsys: pytest.CaptureFixture[str]) -> None:
    main([word])
    said = capsys.readouterr()
    assert said.out.startswith("Write python -m seqdg.interop.domainbed train --domainbed DIR")
    assert not said.err


@pytest.mark.slow
def test_real_scripts_run_fo_s_mldg_and_print_its_table(real: Path, tmp_path: Path) -> None:
    words = [word if word != "fo-s-mldg+ema" else "fo-s-mldg" for word in SWEEP]
    run(tmp_path, *words, "--n_hparams", 1, "--domainbed", real)
    lines = read_lines(tmp_path)
    assert {tuple(line["args"]["test_envs"]) for line in lines} == {(0,), (1,), (2,)}
    path = os.pathsep.join([str(real), *sys.path])
    shown = run(tmp_path, "--input_dir", "sweep", module="domainbed.scripts.collect_results", PYTHONPATH=path)
    assert "fo-s-mldg" in shown
    assert "training-domain validation" in shown


def test_the_policy_of_a_net_without_batchnorm_is_none(stand_in: Path) -> None:
    assert isinstance(build_class("agg").net, Net)
    assert build_class("agg").net.policy == "none"

"""Sweeps of DomainBed and its forks become runs whose tables are DomainBed's own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.interop import describe_import, import_sweep
from seqdg.report import Results
from seqdg.results import read_status

# By trial seed, settings seed and test environments: at steps 0 and 100, the (in, out) accuracy of three environments.
Curve = Sequence[Sequence[tuple[float, float]]]
MADE: dict[tuple[int, int, tuple[int, ...]], Curve] = {
    (0, 0, (0,)): [[(0.50, 0.52), (0.9, 0.80), (0.9, 0.70)], [(0.60, 0.40), (0.9, 0.70), (0.9, 0.70)]],
    (0, 1, (0,)): [[(0.30, 0.90), (0.9, 0.60), (0.9, 0.80)], [(0.70, 0.55), (0.9, 0.75), (0.9, 0.73)]],
    (1, 0, (0,)): [[(0.10, 0.10), (0.9, 0.10), (0.9, 0.10)], [(0.62, 0.61), (0.9, 0.90), (0.9, 0.90)]],
    (1, 1, (0,)): [[(0.20, 0.20), (0.9, 0.20), (0.9, 0.20)], [(0.66, 0.60), (0.9, 0.80), (0.9, 0.80)]],
    (0, 0, (0, 1)): [[(0.9, 0.9), (0.30, 0.1), (0.9, 0.9)], [(0.9, 0.9), (0.40, 0.1), (0.9, 0.9)]],
    (0, 0, (0, 2)): [[(0.9, 0.9), (0.9, 0.9), (0.30, 0.1)], [(0.9, 0.9), (0.9, 0.9), (0.10, 0.1)]],
    (0, 1, (0, 1)): [[(0.9, 0.9), (0.29, 0.9), (0.9, 0.9)], [(0.9, 0.9), (0.20, 0.9), (0.9, 0.9)]],
    (0, 1, (0, 2)): [[(0.9, 0.9), (0.9, 0.9), (0.29, 0.9)], [(0.9, 0.9), (0.9, 0.9), (0.20, 0.9)]],
    (1, 0, (0, 1)): [[(0.9, 0.9), (0.10, 0.9), (0.9, 0.9)], [(0.9, 0.9), (0.20, 0.9), (0.9, 0.9)]],
    (1, 0, (0, 2)): [[(0.9, 0.9), (0.9, 0.9), (0.10, 0.9)], [(0.9, 0.9), (0.9, 0.9), (0.20, 0.9)]],
    (1, 1, (0, 1)): [[(0.9, 0.9), (0.10, 0.9), (0.9, 0.9)], [(0.9, 0.9), (0.30, 0.9), (0.9, 0.9)]],
    (1, 1, (0, 2)): [[(0.9, 0.9), (0.9, 0.9), (0.10, 0.9)], [(0.9, 0.9), (0.9, 0.9), (0.30, 0.9)]],
}
# By hand.
# source-val: seed 0 takes settings 0 at step 0 (0.75 of 0.75, 0.70, 0.70, 0.74): 0.50; seed 1 settings 0 at 100: 0.62.
# leave-one-out: seed 0 settings 0 at step 0 (0.30 of 0.30, 0.25, 0.29, 0.20): 0.50; seed 1 settings 1 at 100: 0.66.
# oracle-split, step 100: seed 0 settings 1 (0.55 of 0.40, 0.55): 0.70; seed 1 settings 0 (0.61 of 0.61, 0.60): 0.62.
# oracle: the largest of all, 0.70 and 0.66.
TABLE = {
    "source-val": (0.50, 0.62),
    "leave-one-out": (0.50, 0.66),
    "oracle-split": (0.70, 0.62),
    "oracle": (0.70, 0.66),
}

Write = Callable[..., Path]


def make_line(step: int, accuracy: Sequence[tuple[float, float]], args: Mapping[str, Any], lr: float) -> dict[str, Any]:
    line: dict[str, Any] = {"step": step, "epoch": step / 10, "loss": 2.0 / (step + 1), "step_time": 0.5, "mem_gb": 1.5}
    for i, (inside, outside) in enumerate(accuracy):
        line |= {f"env{i}_in_acc": inside, f"env{i}_out_acc": outside}
    return {**line, "args": dict(args), "hparams": {"lr": lr, "batch_size": 32, "weight_decay": 0.0, "resnet18": True}}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the made sweep below a folder of this name."""

    def make(name: str = "sweep", done: bool = True, **args: Any) -> Path:
        for (trial, drawn, envs), curve in MADE.items():
            folder = tmp_path / name / f"{trial}-{drawn}-{'-'.join(map(str, envs))}"
            folder.mkdir(parents=True)
            about = {
                "algorithm": "ERM", "dataset": "Debug28", "test_envs": list(envs), "trial_seed": trial,
                "hparams_seed": drawn, "seed": 7, "steps": 101, "holdout_fraction": 0.2, **args,
            }  # fmt: skip
            lines = [make_line(100 * i, accuracy, about, 1e-5 * (1 + drawn)) for i, accuracy in enumerate(curve)]
            (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            if done:
                (folder / "done").write_text("done")
        return tmp_path / name

    return make


def read_cells(directory: Path, rule: str, **options: Any) -> dict[str, tuple[float, float | None]]:
    return {c.held_out: (c.mean, c.stderr) for c in Results.open(directory).table(rule, **options).sheet.cells}


@pytest.mark.parametrize("rule", TABLE)
def test_a_small_sweep_has_the_table_that_was_worked_out_by_hand(write: Write, tmp_path: Path, rule: str) -> None:
    import_sweep(write(), tmp_path / "run")
    a, b = TABLE[rule]
    for spread, divisor in (("stderr", 1), ("stderr-ddof0", 2)):
        mean, error = read_cells(tmp_path / "run", rule, spread=spread)["0"]
        assert mean == pytest.approx(100 * (a + b) / 2)
        assert error == pytest.approx(100 * math.sqrt(2 * ((a - b) / 2) ** 2 / divisor) / math.sqrt(2))


def test_domainbeds_own_sweep_has_domainbeds_own_tables(shared_data: Path, tmp_path: Path) -> None:
    sweep = shared_data / "domainbed_sweep"
    if not sweep.is_dir():
        pytest.skip(f"DomainBed's sweep is not in {sweep}.")
    (found,) = import_sweep(sweep, tmp_path)
    assert len(found.records) == 40
    expected = {
        "source-val": (98.0, 64.2, 74.1, 77.1, 78.3),
        "leave-one-out": (96.9, 64.4, 70.5, 76.7, 77.1),
        "oracle-split": (96.9, 65.9, 71.6, 76.9, 77.8),
        "oracle": (98.9, 66.4, 74.9, 78.2, 79.6),
    }
    for rule, numbers in expected.items():
        cells = read_cells(tmp_path, rule)
        assert tuple(round(cells[name][0], 1) for name in ("C", "L", "S", "V", "average")) == numbers
    cells = read_cells(tmp_path, "source-val", spread="stderr-ddof0")
    assert [round(cells[name][1] or 0, 1) for name in "CLSV"] == [0.2, 0.8, 0.4, 0.2]


@pytest.mark.slow
def test_the_command_says_what_it_read_and_what_is_absent_and_can_be_repeated(write: Write, tmp_path: Path) -> None:
    sweep = write(dataset="RotatedMNIST", test_envs=[0])
    for folder in sorted(sweep.iterdir()):
        if folder.name.count("-") > 2:
            (folder / "results.jsonl").unlink()
    domains = "--domains", "zero,one,two"
    done = seqdg("import-domainbed", sweep, "--out", tmp_path / "run", *domains)
    assert done.returncode == 0, done.stderr
    assert "4 trials of RotatedMNIST (ERM; zero held out; seeds 0, 1)" in done.stdout
    assert "Accuracy alone is recorded" in done.stdout
    assert "pairs over trial_seed are not pairs" in " ".join(done.stdout.split())
    assert "No training has two test environments" in done.stdout
    assert seqdg("import-domainbed", sweep, "--out", tmp_path / "run", *domains).stdout == done.stdout
    state = read_status(tmp_path / "run")
    assert (state.planned, state.done, state.left) == (4, 4, 0)
    table = str(Results.open(tmp_path / "run").table())
    assert "Imported from DomainBed: ERM, on 80 % of the held-out rows." in table
    assert "pairs over seeds are not pairs" in table
    assert Results.open(tmp_path / "run").report().exists()


@pytest.mark.parametrize("names", [("mine/a", "mine_a"), ("Mine", "mine")])
def test_data_sets_whose_folders_would_be_the_same_are_refused_before_anything_is_written(
    write: Write, tmp_path: Path, names: tuple[str, str]
) -> None:
    """Some file systems take capitals for small letters."""
    for i, name in enumerate(names):
        write(f"sweep/{i}", dataset=name)
    with pytest.raises(UsageError, match=f"The data sets '{names[0]}' and '{names[1]}' .* nothing was imported"):
        import_sweep(tmp_path / "sweep", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_records_say_what_the_lines_say(write: Write, tmp_path: Path) -> None:
    (found,) = import_sweep(write(), tmp_path / "run")
    first = found.records[0]
    assert first.description["settings"] == {"resnet18": "True"}
    protocol = first.description["protocol"]
    assert (protocol["lr"], protocol["batch"], protocol["steps"], protocol["validation"]) == (1e-5, 32, 101, 0.2)
    assert (first.seconds, first.peak_memory) == (0.5 * 101, round(1.5 * 2**30))
    assert first.losses == [2.0, 2.0 / 101]
    with pytest.raises(
        UsageError, match=r"This run has no log_loss: it was made without it\. Choose one of: accuracy\."
    ):
        Results.open(tmp_path / "run").table(criterion="log_loss")
    assert "another program trained them" in seqdg("rerun", tmp_path / "run").stderr
    assert "mixes trainings" not in str(Results.open(tmp_path / "run").table())


def test_a_sweep_that_was_cut_short_is_refused_or_left_out(write: Write, tmp_path: Path) -> None:
    sweep = write()
    half = sweep / "0-1-0" / "results.jsonl"
    half.write_text(half.read_text()[:-40])
    with pytest.raises(UsageError, match=r"The last line of .* is half a line"):
        import_sweep(sweep, tmp_path / "run")
    (sweep / "0-1-0" / "done").unlink()
    with pytest.raises(UsageError, match=r"1 of 12 trainings below .* were cut short, such as 0-1-0 at step 0"):
        import_sweep(sweep, tmp_path / "run")
    (found,) = import_sweep(sweep, tmp_path / "run", allow_partial=True)
    assert len(found.records) == 11
    assert "Left out: 1 training that was cut short." in describe_import(found)


@pytest.mark.parametrize("text", [None, "", '{"args": {"algo'])
def test_a_training_without_an_evaluation_is_cut_short_too(text: str | None, write: Write, tmp_path: Path) -> None:
    sweep = write()
    begun = sweep / "0123456789abcdef0123456789abcdef"  # its sweep.py makes such a folder for every training
    begun.mkdir()
    if text is not None:
        (begun / "results.jsonl").write_text(text)
    with pytest.raises(UsageError, match=r"1 of 13 trainings below .* were cut short, such as 0123.* at step 0"):
        import_sweep(sweep, tmp_path / "run")
    (found,) = import_sweep(sweep, tmp_path / "run", allow_partial=True)
    assert len(found.records) == 12
    assert "Left out: 1 training that was cut short." in describe_import(found)


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no folder"):
        import_sweep(tmp_path / "nowhere", tmp_path / "run")
    with pytest.raises(UsageError, match=r"There is no results\.jsonl with an evaluation below"):
        import_sweep(tmp_path, tmp_path / "run")
    (tmp_path / "results.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(UsageError, match="has no 'args'"):
        import_sweep(tmp_path, tmp_path / "run")
    (tmp_path / "results.jsonl").write_text('{"args": 3, "hparams": {}, "step": 0}\n')
    with pytest.raises(UsageError, match="has no 'algorithm'"):
        import_sweep(tmp_path, tmp_path / "run")
    (tmp_path / "results.jsonl").write_text("{\n" * 2)
    with pytest.raises(UsageError, match=r"Line 1 of .* is not JSON"):
        import_sweep(tmp_path, tmp_path / "run")


def test_two_sweeps_with_one_seed_are_refused_in_one_folder_and_in_one_run(write: Write, tmp_path: Path) -> None:
    write("both/a")
    second = write("both/b")
    (found,) = import_sweep(tmp_path / "both", tmp_path / "copies")
    assert (len(found.records), found.sentences[0]) == (12, "12 trainings lay there twice and were taken once.")
    file = second / "1-1-0" / "results.jsonl"
    file.write_text(file.read_text().replace("0.66", "0.67"))
    with pytest.raises(UsageError, match="Two trainings are of ERM with 0 held out, trial seed 1 and settings seed 1"):
        import_sweep(tmp_path / "both", tmp_path / "run")
    import_sweep(tmp_path / "both" / "a", tmp_path / "run")
    with pytest.raises(UsageError, match=r"holds ERM with 0 held out, .* with other numbers, from another sweep"):
        import_sweep(second, tmp_path / "run")


def test_several_data_sets_are_a_run_each(write: Write, tmp_path: Path) -> None:
    write("all/one")
    write("all/two", dataset="Debug224")
    found = import_sweep(tmp_path / "all", tmp_path / "runs")
    assert [(f.dataset, f.directory.name, len(f.records)) for f in found] == [
        ("Debug28", "Debug28", 12),
        ("Debug224", "Debug224", 12),
    ]


def test_names_of_environments_must_be_as_many_as_there_are(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has 3 environments .* 2 different names were given"):
        import_sweep(write(), tmp_path / "run", ["a", "b"])


def write_fork(folder: Path, ended: bool = True, swad: bool = False, envs: Sequence[int] = (0, 1, 2)) -> Path:
    """One command of a fork: each of three environments held out in turn, steps 0, 50 and 100, in one file."""
    folder.mkdir(parents=True)
    lines = []
    for env in envs:
        for step in (0, 50, 100):
            good = 0.5 + step / 1000 + env / 100
            args = {
                "algorithm": "MIRO", "dataset": "PACS3", "test_envs": [[0], [1], [2]], "real_test_envs": [env],
                "trial_seed": 2, "seed": 0, "steps": None, "holdout_fraction": 0.2,
            }  # fmt: skip
            line = {
                "step": step, "loss": 1.0, "step_time": 0.1, "args": args, "test_in": good, "test_out": good - 0.1,
                "train_out": 0.9 - step / 1000, "tr_outloss": 0.3, f"env{env}_in": good, f"env{env}_out": good - 0.1,
                "hparams": {"lr": 5e-5, "batch_size": 32, "weight_decay": 0.0, "swad": swad, "swad_kwargs": {"n": 3}},
            }  # fmt: skip
            line |= {f"env{i}_out": 0.9 - step / 1000 for i in range(3) if i != env}
            lines.append(json.dumps(line))
    (folder / "results.jsonl").write_text("\n".join(lines if ended else lines[:-1]) + "\n")
    if ended:
        averages = "".join(f"SWAD = 8{i}.500%\nSWAD (inD) = 9{i}.500%\n" for i in envs) if swad else ""
        (folder / "log.txt").write_text(f"{averages}04/01 12:00:00 | === Summary ===\n")
    return folder


def test_a_fork_writes_all_held_out_environments_into_one_file(tmp_path: Path) -> None:
    write_fork(tmp_path / "train_output" / "PACS3" / "a")
    (found,) = import_sweep(tmp_path / "train_output", tmp_path / "run", ["x", "y", "z"])
    assert [(r.held_out, r.seed, len(r.history)) for r in found.records] == [
        (("x",), 2, 3), (("y",), 2, 3), (("z",), 2, 3)
    ]  # fmt: skip
    assert {name: round(mean, 6) for name, (mean, _) in read_cells(tmp_path / "run", "source-val").items()} == {
        "x": 50, "y": 51, "z": 52, "average": 51, "worst": 50
    }  # fmt: skip
    assert read_cells(tmp_path / "run", "oracle-split")["x"][0] == pytest.approx(60)
    assert "a fork of DomainBed" in str(Results.open(tmp_path / "run").table())


def test_a_fork_that_was_cut_short_is_told_by_its_last_step(tmp_path: Path) -> None:
    write_fork(tmp_path / "sweep" / "a", ended=False)
    with pytest.raises(UsageError, match=r"1 of 3 trainings below .* were cut short, such as a at step 50"):
        import_sweep(tmp_path / "sweep", tmp_path / "run")
    (found,) = import_sweep(tmp_path / "sweep", tmp_path / "run", allow_partial=True)
    assert [r.held_out[0] for r in found.records] == ["env0", "env1"]
    assert any("give them with --domains" in text for text in found.sentences)


def test_the_averages_of_swad_come_from_its_log(tmp_path: Path) -> None:
    write_fork(tmp_path / "sweep" / "a", swad=True)
    (found,) = import_sweep(tmp_path / "sweep", tmp_path / "run")
    table = {(c.algorithm, c.held_out): c.mean for c in Results.open(tmp_path / "run").table().sheet.cells}
    assert table["MIRO+SWAD", "env1"] == pytest.approx(81.5)
    assert table["MIRO", "env1"] == pytest.approx(51)
    assert any("log.txt" in text for text in found.sentences)
    (tmp_path / "sweep" / "a" / "log.txt").write_text("=== Summary ===")
    (plain,) = import_sweep(tmp_path / "sweep", tmp_path / "other")
    assert any("SWAD's averages are absent" in text for text in plain.sentences)


def test_averages_of_swad_belong_to_trainings_in_the_order_in_which_a_command_trained_them(tmp_path: Path) -> None:
    write_fork(tmp_path / "sweep" / "a", swad=True, envs=(2, 0, 1))
    (found,) = import_sweep(tmp_path / "sweep", tmp_path / "run")
    means = {r.held_out[0]: r.history[0].held_out["accuracy"] for r in found.records if r.algorithm == "MIRO+SWAD"}
    assert means == {f"env{i}": [pytest.approx(0.805 + 0.01 * i)] for i in range(3)}


def test_two_runs_stand_side_by_side(write: Write, tmp_path: Path) -> None:
    import_sweep(write("one"), tmp_path / "theirs")
    import_sweep(write("two", algorithm="CORAL"), tmp_path / "more")
    import_sweep(write("three", steps=5001), tmp_path / "longer")
    results = Results.open(tmp_path / "theirs", tmp_path / "more", tmp_path / "longer")
    assert results.table().sheet.columns == ["ERM (theirs)", "CORAL", "ERM (longer)"]
    (first, _) = results.compare("ERM (theirs)")
    assert (first.algorithm, first.difference, first.pairs) == ("CORAL", 0.0, 2)
    done = seqdg("table", tmp_path / "theirs", tmp_path / "more", "--baseline", "ERM")
    assert done.returncode == 0, done.stderr
    assert "CORAL" in done.stdout
    import_sweep(write("four"), tmp_path / "named", ["a", "b", "c"])
    with pytest.raises(UsageError, match=r"holds out 0 and .* holds out a: no domain is in both"):
        Results.open(tmp_path / "theirs", tmp_path / "named")


def test_no_name_of_a_data_set_leaves_the_run_directory(write: Write, tmp_path: Path) -> None:
    write(dataset="../../climbed")
    write("sweep/more")
    (tmp_path / "in").mkdir()
    (_, climbed) = sorted(
        import_sweep(tmp_path / "sweep", tmp_path / "in" / "out"), key=lambda i: i.dataset, reverse=True
    )
    assert climbed.dataset == "../../climbed"
    assert climbed.directory.parent == tmp_path / "in" / "out"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "sweep"]


@pytest.mark.parametrize("value", [50, -1, math.nan, math.inf, None, "0.5", [0.5], True, 10**400])
def test_an_accuracy_is_a_number_from_0_to_1(value: object, write: Write, tmp_path: Path) -> None:
    for name in ("env1_in_acc", "test_in"):
        file = next(write(name).rglob("results.jsonl"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines[1][name] = value
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(
            UsageError, match=rf"{name} in line 2 of .*results.jsonl is .*, but it must be a number from 0"
        ):
            import_sweep(tmp_path / name, tmp_path / "run")
    assert not (tmp_path / "run").exists()


WRONG: dict[str, list[Any]] = {
    "test_envs": [None, 3, "0", [], ["0"], [-1], [0, 0], [1.5], [10**9]],
    "trial_seed": [None, "0", -1, 1.5, 10**30, [0]],
    "dataset": [None, "", 7, ["PACS"], "a\nb"],
    "algorithm": [None, {}],
    "steps": ["x", -5, math.nan, [1]],
    "holdout_fraction": ["x", 20, -0.5, [1]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_arguments_that_no_training_has_are_named(name: str, value: object, write: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"{name} in line 1 of .*results.jsonl is .*, but it must be an? "):
        import_sweep(write(**{name: value}), tmp_path / "run")


def test_half_a_character_is_no_text(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Line 1 of .*results.jsonl is not JSON: the file is damaged"):
        import_sweep(write(task="\ud800"), tmp_path / "run")


def test_an_accuracy_of_swad_above_all_is_refused(tmp_path: Path) -> None:
    folder = write_fork(tmp_path / "fork", swad=True)
    (folder / "log.txt").write_text((folder / "log.txt").read_text().replace("80.500", "805.00"))
    with pytest.raises(UsageError, match="gives SWAD an accuracy above 100 %"):
        import_sweep(tmp_path / "fork", tmp_path / "run")

"""The weights of the chosen step and the predictions of every held-out row are kept, through interruptions too."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from command import seqdg
from digits import TASK, build_stack, make_plan, train
from seqdg.base import Folder, UsageError
from seqdg.bench import ArrayLearner, Group, Request, Session, run
from seqdg.cli import complete_words
from seqdg.report import Results
from seqdg.report.page import render_page
from seqdg.results import Record, count_confusions, select_step, write_predictions
from seqdg.training import Saving, measure_predictions

# So large a rate that the last step is not the best one of every trial.
REQUEST = Request(
    algorithms=["agg", "agg+ema"], held_out=["0", "30"], trials=2, steps=12, settings=["agg.lr=0.6"], seed=3
)


def keep_all(folder: Path, checkpoint: float = 0.0) -> Saving:
    return Saving(Folder(folder), checkpoint, weights=True, chosen=True, predictions=True)


def read_step(path: Path) -> int:
    with safe_open(path, framework="pt") as file:
        return int(file.metadata()["step"])


def assert_same_file(one: Path, other: Path) -> None:
    """The same step and tensors; safetensors writes what it says about them in any order."""
    first, second = load_file(one), load_file(other)
    assert read_step(one) == read_step(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def find_chosen(record: Record) -> int:
    best = select_step(record.history, "accuracy")
    assert best is not None
    return best[1]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Group, list[Record]]:
    folder = tmp_path_factory.mktemp("kept")
    (group,) = make_plan(REQUEST).groups
    return folder, group, train(group, saving=keep_all(folder))


def test_the_chosen_weights_are_those_of_the_step_that_source_validation_chose(
    kept: tuple[Path, Group, list[Record]],
) -> None:
    folder, group, records = kept
    trials = {trial.key: trial for trial in group.trials}
    for record in records:
        chosen = record.history[find_chosen(record)]
        assert read_step(folder / "weights" / f"{record.key}.chosen.safetensors") == chosen.step
        stack = build_stack([trials[record.key]])
        weights = load_file(folder / "weights" / f"{record.key}.chosen.safetensors")
        predicted = stack.predict_domains({name: value[None] for name, value in weights.items()})
        again = measure_predictions(predicted, len(stack.jobs[0].split.validation), chosen.step)[0]
        assert again.held_out["accuracy"] == pytest.approx(chosen.held_out["accuracy"], abs=0.003)
        assert again.source["log_loss"] == pytest.approx(chosen.source["log_loss"], rel=1e-4)
    assert len({find_chosen(r) for r in records}) > 1
    assert any(find_chosen(r) < len(r.history) - 1 for r in records)


def test_the_last_weights_are_kept_as_before(kept: tuple[Path, Group, list[Record]], tmp_path: Path) -> None:
    folder, group, records = kept
    train(group, saving=Saving(Folder(tmp_path), weights=True))
    for record in records:
        before, now = (load_file(f / "weights" / f"{record.key}.safetensors") for f in (tmp_path, folder))
        assert all(torch.equal(before[name], now[name]) for name in before)
    assert not list(tmp_path.glob("weights/*.chosen.safetensors"))
    assert not (tmp_path / "predictions").exists()


def test_predictions_are_of_the_rows_and_have_the_accuracy_that_is_recorded(
    kept: tuple[Path, Group, list[Record]],
) -> None:
    folder, _, records = kept
    dataset = TASK.dataset()
    for record in records:
        for step, evaluation in (("chosen", record.history[find_chosen(record)]), ("last", record.history[-1])):
            path = folder / "predictions" / f"{record.key}.{step}.safetensors"
            tensors = load_file(path)
            assert read_step(path) == evaluation.step
            assert torch.equal(tensors["row"], dataset.rows(record.held_out[0]).sort().values)
            assert torch.equal(tensors["label"], dataset.y[tensors["row"]])
            assert tensors["probability"].sum(1).tolist() == pytest.approx([1.0] * len(tensors["row"]), abs=1e-5)
            hits = (tensors["probability"].argmax(1) == tensors["label"]).double().mean()
            assert float(hits) == pytest.approx(evaluation.held_out["accuracy"][0])


def test_what_is_interrupted_ends_with_the_same_files(kept: tuple[Path, Group, list[Record]], tmp_path: Path) -> None:
    folder, group, _ = kept
    for stop in (3, 7, 12):

        def interrupt(step: int, stop: int = stop) -> None:
            if step >= stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(group, interrupt, keep_all(tmp_path, 3600.0))
    train(group, saving=keep_all(tmp_path, 3600.0))
    names = sorted(p.relative_to(folder) for p in folder.rglob("*.safetensors"))
    assert len(names) == 4 * len(group.trials)
    for name in names:
        assert_same_file(folder / name, tmp_path / name)


def test_a_checkpoint_of_a_run_that_kept_less_is_not_continued(
    kept: tuple[Path, Group, list[Record]], tmp_path: Path
) -> None:
    folder, group, records = kept

    def interrupt(step: int) -> None:
        if step >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(group, interrupt, Saving(Folder(tmp_path), 3600.0))
    train(group, saving=keep_all(tmp_path, 3600.0))
    for record in records:
        name = f"weights/{record.key}.chosen.safetensors"
        assert_same_file(folder / name, tmp_path / name)


def test_one_file_has_every_row_of_every_trial(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("bench", "--algorithms", "agg", "--held-out", "0,15", "--trials", 1, "--steps", 4, "--device", "cpu",
             "--workers", 0, "--out", out)  # fmt: skip
    assert seqdg(*words, "--save-predictions", "--save-weights", "chosen").returncode == 0
    done = seqdg("predictions", out, "--out", tmp_path / "all.csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    assert list(rows[0]) == ["trial", "algorithm", "seed", "domain", "row", "step", "label", "predicted",
                             *(f"p_{name}" for name in TASK.dataset().classes)]  # fmt: skip
    for record in run("rotated-mnist", ["agg"], held_out=["0", "15"], trials=1, steps=4, device="cpu", out=out,
                      progress=False).records():  # fmt: skip
        own = [row for row in rows if row["trial"] == record.key]
        assert {row["domain"] for row in own} == set(record.held_out)
        assert len(own) == len(TASK.dataset().rows(record.held_out[0]))
        hits = sum(row["label"] == row["predicted"] for row in own) / len(own)
        assert hits == pytest.approx(record.history[find_chosen(record)].held_out["accuracy"][0])
        assert (out / "weights" / f"{record.key}.chosen.safetensors").is_file()
        assert (out / "weights" / f"{record.key}.safetensors").is_file()
    pandas = pytest.importorskip("pandas")
    write_predictions(out, tmp_path / "all.parquet", "last")
    frame = pandas.read_parquet(tmp_path / "all.parquet")
    assert len(frame) == len(rows)
    assert set(frame["step"]) == {4}


def test_predictions_of_pictures_name_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))
    for domain, label, i in product("abc", ("cat", "dog"), range(4)):
        folder = tmp_path / "set" / domain / label
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "mine.toml").write_text(
        '[data]\npath = "set"\n[net]\nname = "convnet"\n[protocol]\nsteps = 2\ntrials = 1\nbatch = 2\n'
    )
    run(str(tmp_path / "mine.toml"), ["agg"], held_out=["b"], data=tmp_path, out=tmp_path / "run", device="cpu",
        save_predictions=True, progress=False)  # fmt: skip
    write_predictions(tmp_path / "run", tmp_path / "all.csv")
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == [f"b/{label}/{i}.png" for label in ("cat", "dog") for i in range(4)]
    assert all(row["file"].split("/")[1] == row["label"] for row in rows)
    results = Results.open(tmp_path / "run")
    ((counts, trials),) = count_confusions(results.records(), tmp_path / "run", 2).values()
    for i, label in enumerate(("cat", "dog")):
        predicted = [row["predicted"] for row in rows if row["label"] == label]
        assert counts[i].tolist() == [predicted.count("cat"), predicted.count("dog")]
    assert trials == 1
    (section,) = [s for s in results.page().sections if s.name == "confusion"]
    share = 100 * counts[0, 0] / 4
    assert section.tables[0].rows[0] == ("cat", [f"{share:.1f}", f"{100 - share:.1f}"])
    assert "Which classes are confused?" in render_page(results.page())


def test_what_was_not_kept_is_said(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = {"held_out": ["0"], "trials": 1, "steps": 2, "device": "cpu", "out": out, "progress": False}
    run("rotated-mnist", ["agg"], **options)  # type: ignore[arg-type]
    for mistake, words in (
        ("No predictions were kept", (out, tmp_path / "a.csv")),
        ("let it end in .csv or .parquet", (out, tmp_path / "a.txt")),
        ("There is no folder", (out, tmp_path / "none" / "a.csv")),
    ):
        with pytest.raises(UsageError, match=mistake):
            write_predictions(*words)
    with pytest.raises(UsageError, match="There is no weights to save 'best'"):
        run("rotated-mnist", ["agg"], save_weights="best", **options)  # type: ignore[arg-type]
    again = seqdg("bench", "--algorithms", "agg", "--held-out", "0", "--trials", 1, "--steps", 2, "--device", "cpu",
                  "--workers", 0, "--out", out, "--save-predictions", "--save-weights")  # fmt: skip
    assert "Of 1 trial that was done before, no weights were kept." in again.stderr
    assert "no predictions were kept" in again.stderr


def test_the_option_may_stand_alone_or_have_a_value() -> None:
    assert complete_words(["bench", "--save-weights"]) == ["bench", "--save-weights", "last"]
    assert complete_words(["bench", "--save-weights", "--trials", "1"]) == [
        "bench", "--save-weights", "last", "--trials", "1"
    ]  # fmt: skip
    assert complete_words(["bench", "--save-weights", "chosen"]) == ["bench", "--save-weights", "chosen"]
    assert complete_words(["bench", "--save-weights=chosen"]) == ["bench", "--save-weights=chosen"]


class Guess(ArrayLearner):
    """Says of every row how often its sources have each class."""

    def fit(self, x: Any, y: Any, domain: Any, classes: int, seed: int) -> Any:
        shares = np.bincount(y, minlength=classes) / len(y)
        return lambda rows: np.tile(shares, (len(rows), 1))


def test_a_learner_of_arrays_keeps_predictions(tmp_path: Path) -> None:
    (trial,) = make_plan(replace(REQUEST, algorithms=["agg"], held_out=["0"], trials=1)).trials
    record = Guess().train(Group((trial,)), Session(TASK, saving=keep_all(tmp_path)))[0]
    tensors = load_file(tmp_path / "predictions" / f"{record.key}.chosen.safetensors")
    assert len(tensors["row"]) == len(TASK.dataset().rows("0"))
    assert not (tmp_path / "weights").exists()

"""Curves and tables in TensorBoard, MLflow and Weights & Biases, read back with the libraries of each."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqdg
from command import seqdg as command
from seqdg.report import tracking
from seqdg.report.tracking import TOOLS, Exporter
from seqdg.results import Store, list_ends, thin

TRAINED = {"held_out": ["0"], "steps": 12, "device": "cpu", "workers": 0, "progress": False}


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch) -> None:
    for name in tuple(os.environ):
        if name.startswith(("MLFLOW_", "WANDB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def train(out: Path, log: list[str], trials: int = 2, **more) -> list:
    results = seqdg.run("rotated-mnist", ["agg", "fo-s-mldg"], trials=trials, out=out, log=log, **TRAINED, **more)
    records = results.records()
    results.close()
    return records


def read_tensorboard(directory: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Every scalar of every run, by the path of the run."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = {}
    for folder in sorted({path.parent for path in (directory / "tensorboard").rglob("events.*")}):
        events = event_accumulator.EventAccumulator(str(folder)).Reload()
        scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        found[folder.relative_to(directory / "tensorboard").as_posix()] = scalars
    return found


def read_mlflow(directory: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    mlflow = pytest.importorskip("mlflow.tracking")
    client = mlflow.MlflowClient(tracking_uri=(directory / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("rotated-mnist").experiment_id
    return {
        run.info.run_name: {
            name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        for run in client.search_runs([experiment])
    }


def read_wandb(directory: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Every value of every run, from the files that `wandb sync` sends: blocks of 32 KiB with parts of records, each
    behind its checksum, length and kind (the format of LevelDB's log), after a header of 7 bytes."""
    internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found = {}
    for path in sorted((directory / "wandb").glob("offline-run-*/*.wandb")):
        data, place, text, name, series = path.read_bytes(), 7, b"", "", {}
        while place + 7 <= len(data):
            if 32768 - place % 32768 < 7:
                place += 32768 - place % 32768
            length, kind = struct.unpack_from("<HB", data, place + 4)
            text += data[place + 7 : place + 7 + length]
            place += 7 + length
            if kind in (1, 4):  # a whole record, or the last part of one
                record, text = internal.Record.FromString(text), b""
                name = record.run.display_name or name
                values = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
                for key, value in values.items():
                    if not key.startswith("_") and isinstance(value, float):
                        series.setdefault(key, []).append((values["_step"], value))
        assert name not in found
        found[name] = series
    return found


READERS = {"tensorboard": read_tensorboard, "mlflow": read_mlflow, "wandb": read_wandb}


@pytest.fixture(scope="module", params=["tensorboard", "mlflow", pytest.param("wandb", marks=pytest.mark.slow)])
def tracked(request, tmp_path_factory) -> Iterator[tuple[str, Path, list]]:
    """A run of two trials that is asked for three: it was logged, then logged on."""
    tool = request.param
    pytest.importorskip(tool)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("WANDB_MODE", raising=False)
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        out = tmp_path_factory.mktemp(tool) / "run"
        train(out, [tool])
        records = train(out, [tool], trials=3)
        yield tool, out, records


@pytest.mark.slow
def test_every_trial_has_its_curves_once(tracked):
    tool, out, records = tracked
    found = READERS[tool](out)
    assert len(records) == 6
    assert len(found) == 7  # and the table
    for record in records:
        name = f"{record.algorithm}/0/seed-{record.seed}-{record.key[:8]}"
        series = found[name]
        for part in ("held_out", "source"):
            for criterion in ("accuracy", "log_loss"):
                values = [getattr(e, part)[criterion] for e in record.history]
                expected = [sum(v) / len(v) for v in values]
                steps, got = zip(*series[f"{part}/{criterion}"], strict=True)
                assert list(steps) == [e.step for e in record.history]
                assert list(got) == pytest.approx(expected, rel=1e-6)
        steps, got = zip(*series["loss"], strict=True)
        assert list(steps) == list(range(1, 13))
        assert list(got) == pytest.approx(record.losses, rel=1e-6)


def test_the_same_run_again_writes_no_trial_twice(tracked):
    tool, out, _ = tracked
    before = READERS[tool](out)
    train(out, [tool], trials=3)
    after = READERS[tool](out)
    assert {k: v for k, v in after.items() if k != "table"} == {k: v for k, v in before.items() if k != "table"}
    assert len(after) == len(before)


def test_the_table_is_that_of_the_run(tracked):
    tool, out, _ = tracked
    if tool == "wandb":
        (table,) = out.glob("wandb/offline-run-*-run-table/files/media/table/*.json")
        shown = json.loads(table.read_text())
        assert shown["columns"] == ["algorithm", "held_out", "mean", "stderr", "trials", "diverged"]
        assert ["fo-s-mldg", "average"] in [row[:2] for row in shown["data"]]
    results = seqdg.Results.open(out)
    cells = json.loads(str(results.table(format="json")))
    results.close()
    (means,) = [series for name, series in READERS[tool](out).items() if name == "table"]
    averages = {f"average/{c['algorithm']}": c["mean"] for c in cells if c["held_out"] == "average"}
    assert set(averages) == {"average/agg", "average/fo-s-mldg"}
    for name, mean in averages.items():
        assert means[name] == [(0, pytest.approx(mean, rel=1e-6))]


def test_tensorboard_has_the_table_as_text_and_settings_as_hyperparameters(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (record,) = train(tmp_path, ["tensorboard"], trials=1)[:1]
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / "table")).Reload()
    text = events.Tensors("table")[0].tensor_proto.string_val[0].decode()
    assert text.startswith("| held out | agg | fo-s-mldg |")
    folder = tmp_path / "tensorboard" / tracking.name_trial(record)
    events = accumulator.EventAccumulator(str(folder)).Reload()
    assert b"momentum" in events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content


def test_mlflow_has_settings_and_the_table_as_files(tmp_path):
    mlflow = pytest.importorskip("mlflow.tracking")
    records = train(tmp_path, ["mlflow"], trials=1)
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("rotated-mnist").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    run = runs[tracking.name_trial(records[0])]
    assert run.data.params["lr"] == str(records[0].description["protocol"]["lr"])
    names = ("algorithm", "held_out", "seed", "status")
    assert [run.data.params[name] for name in names] == ["agg", "0", "0", "done"]
    assert run.info.status == "FINISHED"
    names = {artifact.path for artifact in client.list_artifacts(runs["table"].info.run_id)}
    assert names == {"table.md", "table.csv"}
    text = client.download_artifacts(runs["table"].info.run_id, "table.csv", str(tmp_path))
    assert Path(text).read_text().startswith("algorithm,held_out,mean,stderr,trials,diverged,select\nagg,0,")


BREAKS = {  # a function that a tool calls in the middle of a trial
    "tensorboard": "tensorboard.summary.writer.event_file_writer.EventFileWriter.close",
    "mlflow": "mlflow.tracking.MlflowClient.set_terminated",
    "wandb": "wandb.Run.log",
}


@pytest.mark.parametrize("tool", ["tensorboard", "mlflow", pytest.param("wandb", marks=pytest.mark.slow)])
def test_what_a_crash_kept_from_a_tool_is_written_when_the_run_goes_on(tool, tmp_path, monkeypatch, capsys):
    pytest.importorskip(tool)
    kind = TOOLS[tool]
    whole, calls = kind.write, []

    def fail(self, export):
        calls.append(export.key)
        with monkeypatch.context() as patch:
            if len(calls) == 2:
                patch.setattr(BREAKS[tool], None)  # in the middle of the second trial
            whole(self, export)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", fail)
        seqdg.run("rotated-mnist", ["agg"], trials=3, out=tmp_path, log=[tool], **{**TRAINED, "progress": True}).close()
    assert f"nothing more is logged to {kind.title} (TypeError" in capsys.readouterr().err
    assert len(Store.open(tmp_path).finished()) == 3
    seqdg.run("rotated-mnist", ["agg"], trials=3, out=tmp_path, log=[tool], **TRAINED).close()
    found = READERS[tool](tmp_path)
    assert len(found) == 4
    assert all(len(series["held_out/accuracy"]) == 6 for name, series in found.items() if name != "table")


def test_mlflow_takes_the_averages_of_chains(tmp_path):
    tracking = pytest.importorskip("mlflow.tracking")
    seqdg.run("rotated-mnist", ["agg+ema"], trials=1, out=tmp_path, log=["mlflow"], **TRAINED).close()
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("rotated-mnist").experiment_id
    (table,) = client.search_runs([experiment], "attributes.run_name = 'table'")
    assert "average/agg_ema" in table.data.metrics


def test_several_tools_and_bad_names_on_the_command_line(tmp_path):
    words = ["--algorithms", "agg", "--held-out", "0", "--trials", 1, "--steps", 6, "--device", "cpu", "--workers", 0]
    done = command("bench", *words, "--out", tmp_path / "run", "--log", "tensorboard,mlflow")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "tensorboard" / "agg").is_dir()
    assert (tmp_path / "run" / "mlflow").is_dir()
    done = command("bench", *words, "--out", tmp_path / "new", "--log", "tensorbord")
    assert done.returncode == 2
    assert "tensorboard" in done.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_where_a_tool_is_missing_a_sentence_names_the_extra(tool, tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n == tool or n.startswith(f"{tool}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, tool, None)
    with pytest.raises(seqdg.UsageError, match=rf"--log {tool} needs .*: pip install 'seqdg\[{tool}\]'"):
        Exporter([tool], tmp_path, "b", print)


def test_a_tool_that_cannot_be_written_to_is_told_before_training(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://host")
    done = command("bench", "--algorithms", "agg", "--out", tmp_path / "run", "--log", "mlflow")
    assert done.returncode == 2
    assert "MLflow cannot be written to (" in done.stderr
    assert "Leave out --log mlflow, or fix it." in done.stderr


def test_points_of_a_thinned_curve_stand_where_their_stretches_end():
    assert list_ends(7, 3) == [3, 5, 7]
    assert thin(range(1, 8), 7) == list(range(1, 8))
    assert list_ends(12, 12) == list(range(1, 13))

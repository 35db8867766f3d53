"""Fit, predict, export and show, as a user meets them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import seqdg as package
from command import Done, seqdg
from seqdg.data import read_rows

QUICK = ["--steps", "20", "--hidden", "8", "--seeds", "1", "--workers", "0"]


@pytest.fixture(scope="module")
def table(hospitals, tmp_path_factory) -> Path:
    x, y, domains = hospitals
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    x.assign(id=[f"p{i}" for i in range(len(x))], diagnosis=y, hospital=domains).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted_model(table, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("models") / "model"
    words = ["fit", table, "--label", "diagnosis", "--domain", "hospital", "--ignore", "id", *QUICK, "--out", out]
    done = seqdg(*words, "--algorithm", "fo-s-mldg+ema")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Expected accuracy on the next domain: ")
    assert f"Next: seqdg show {out}, or seqdg report {out} for a page" in done.stderr
    return out


@pytest.mark.slow
def test_estimator_loaded_model_and_command_line_agree(fitted_model, table, hospitals, tmp_path):
    x, _, _ = hospitals
    done = seqdg("predict", fitted_model, table, "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    measured, constant, expected = done.stdout.splitlines()
    assert measured.startswith("Accuracy on 240 labelled rows: ")
    assert constant.startswith("Always predicting '")
    loaded = package.DomainClassifier.load(fitted_model)
    assert expected == loaded.model_.facts["estimate"]["sentence"]
    written = pd.read_csv(tmp_path / "p.csv")
    assert list(written.columns) == ["label", "p_healthy", "p_ill"]
    own = loaded.predict_proba(x)
    np.testing.assert_allclose(written[["p_healthy", "p_ill"]], own, atol=1e-5)
    assert written["label"].tolist() == loaded.predict(x).tolist()
    seqdg("predict", fitted_model, table, "--out", tmp_path / "p.parquet")
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "p.parquet")[["p_healthy", "p_ill"]], own, atol=1e-12)


@pytest.mark.slow
def test_the_exported_file_agrees_too(fitted_model, table, hospitals, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    x, _, _ = hospitals
    done = seqdg("export", fitted_model, "--onnx", tmp_path / "m.onnx")
    assert done.returncode == 0, done.stderr
    assert "reads numbers (row, 4): age, pressure, taken, visits and categories (row, 1): smoker" in done.stdout
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    feed = {
        "numbers": x[["age", "pressure", "taken", "visits"]].to_numpy(np.float64),
        "categories": x[["smoker"]].fillna("").to_numpy(object),
    }
    seqdg("predict", fitted_model, table, "--out", tmp_path / "p.csv")
    want = pd.read_csv(tmp_path / "p.csv")[["p_healthy", "p_ill"]]
    np.testing.assert_allclose(session.run(["probabilities"], feed)[0], want, atol=1e-5)


def test_show_prints_the_card(fitted_model):
    card = seqdg("show", fitted_model).stdout
    assert card == (fitted_model / "card.md").read_text()
    for part in ("From `patients.csv`", "Expected accuracy on the next domain", "was given, not chosen", "| worst |"):
        assert part in card
    assert "not trained on (a new domain is usually harder: the next section):" in card
    text = json.loads(seqdg("show", fitted_model, "--json").stdout)
    assert text["facts"]["label"] == "diagnosis"
    assert text["facts"]["estimate"]["held_out"]["average"]["accuracy"] == text["facts"]["estimate"]["expected"]


def test_show_builds_no_model_and_still_notices_weights_that_changed(fitted_model, tmp_path):
    run = f"import sys; sys.argv[1:] = ['show', {str(fitted_model)!r}]; from seqdg.cli import main\n"
    code = f"{run}try: main()\nfinally: print('torch' in sys.modules, 'sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False False"
    changed = shutil.copytree(fitted_model, tmp_path / "changed")
    weights = next(changed.rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    for words in (("show", changed), ("show", changed, "--json")):
        done = seqdg(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{weights} was changed after the model was saved" in done.stderr
    weights.unlink()
    assert f"{weights.parent} has no model.safetensors" in seqdg("show", changed).stderr


def test_the_card_begins_with_what_to_expect(fitted_model):
    title, empty, headline, *_ = seqdg("show", fitted_model).stdout.splitlines()
    assert title.startswith("# A model trained by")
    assert empty == ""
    assert headline.startswith("**Expected accuracy on the next domain: ")


def test_a_terminal_shows_the_card_without_its_marks(fitted_model, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take anything for a terminal
    card = re.sub(r"\x1b\[[0-9;]*m", "", seqdg("show", fitted_model).stdout)
    assert "Expected accuracy on the next domain" in " ".join(card.split())
    assert "**" not in card
    assert "| --- |" not in card


@pytest.mark.slow
def test_choosing_prints_the_comparison_and_keeps_the_winner(table, tmp_path):
    words = ["fit", table, "--label", "diagnosis", "--domain", "hospital", "--ignore", "id", "--choose", *QUICK]
    one = ["--candidates", "fo-s-mldg", "--set", "fo-s-mldg.alpha=0.2", "--single"]
    done = seqdg(*words, *one, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    for part in (
        "chosen by both-near",
        "(oracle)",
        "among 2 candidates of 2 algorithms",
        "next domain",
    ):
        assert part in done.stdout
    assert "UserWarning" not in done.stderr
    assert "was chosen among 2 candidates" in (tmp_path / "m" / "card.md").read_text()


@pytest.mark.slow
def test_a_column_that_looks_like_an_identifier_is_noted(table, tmp_path):
    words = ["fit", table, "--label", "diagnosis", "--domain", "hospital", "--algorithm", "agg", *QUICK]
    done = seqdg(*words, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "note: Column 'id' has 240 different categories in 240 rows: is it an identifier?" in done.stderr
    assert "identifier" not in seqdg("show", tmp_path / "m").stdout.partition("## Notes")[0]
    assert "identifier" in seqdg("show", tmp_path / "m").stdout


def test_a_table_of_one_domain_is_fitted_without_an_estimate(table, tmp_path):
    pd.read_csv(table).assign(hospital="north").to_csv(tmp_path / "one.csv", index=False)
    words = ["fit", tmp_path / "one.csv", "--label", "diagnosis", "--domain", "hospital", "--ignore", "id", *QUICK]
    done = seqdg(*words, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    assert "no estimate for the next domain: There is only the domain 'north'" in done.stderr
    refused = seqdg(*words, "--algorithm", "mldg", "--out", tmp_path / "n")
    assert refused.returncode == 2
    assert "MLDG needs at least 2 source domains" in refused.stderr


def fit_of(frame: pd.DataFrame, folder: Path, *more: object) -> Done:
    frame.to_csv(folder / "t.csv", index=False)
    return seqdg("fit", folder / "t.csv", "--label", "y", "--domain", "d", *QUICK, "--out", folder / "m", *more)


SMALL = pd.DataFrame({"a": np.arange(12.0), "y": ["u", "v"] * 6, "d": ["n", "n", "s", "s", "w", "w"] * 2})


@pytest.mark.parametrize(
    ("change", "more", "sentence"),
    [
        (
            lambda t: t.assign(y=["u", None] * 6),
            (),
            "6 rows without a label (lines 3, 5, 7, 9, 11, 13). Label them or leave them out with --drop-unlabeled.",
        ),
        (lambda t: t.assign(d=["n", None] * 6), (), "There is no domain for 6 rows"),
        (lambda t: t.assign(y="u"), (), "There is only one class, u"),
        (lambda t: t.iloc[:0], (), "has 0 rows"),
        (lambda t: t[["y", "d"]], (), "has no column beside those of label and domain"),
        (lambda t: t.drop(columns="d"), (), "t.csv has no column 'd'"),
        (lambda t: t, ("--label", "Y"), "t.csv has no column 'Y'. Did you mean 'y'? Choose from: a, y, d."),
        (lambda t: t, ("--ignore", "b"), "t.csv has no column 'b'"),
        (lambda t: t, ("--algorithm", "mlgd"), "There is no algorithm 'mlgd'"),
        (lambda t: t, ("--algorithm", "svr"), "There is no algorithm 'svr'. Did you mean 'svc'?"),
        (lambda t: t, ("--set", "dann.lam=1"), "This run has no algorithm 'dann'"),
        (lambda t: t, ("--hidden", "wide"), "--hidden is 'wide'"),
        (lambda t: t, ("--choose", "--select", "oracle"), "oracle chooses by the held-out domain"),
        (lambda t: t, ("--choose", "--candidates", "mlgd"), "There is no algorithm 'mlgd'"),
    ],
)
def test_bad_tables_and_options_are_one_sentence_and_exit_code_2(tmp_path, change, more, sentence):
    done = fit_of(change(SMALL), tmp_path, *more)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len([line for line in done.stderr.splitlines() if "no estimate" not in line]) == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("label", "gap"), [("y", None), ("y", "?"), ("number", None), ("code", None)])
def test_rows_without_a_label_can_be_left_out(tmp_path, kind, label, gap):
    """The others are as they are in a table that has no such rows."""
    whole = pd.concat([SMALL] * 2, ignore_index=True)
    whole = whole.assign(number=whole["a"] + 0.5 * (whole.index > 11), code=["007", "008"] * 12, w=1.0 + whole["a"])
    lacking = whole.astype({label: object}).copy()
    lacking.loc[[1, 6, 12], label] = gap
    found = []
    for table, more in ((lacking, ["--drop-unlabeled"]), (whole.drop(index=[1, 6, 12]).reset_index(drop=True), [])):
        path = tmp_path / f"t.{kind}"
        if kind == "csv":
            table.to_csv(path, index=False)
        else:
            table.astype({label: "float64" if label == "number" else "string"}).to_parquet(path)
        words = ["check", path, "--label", label, "--domain", "d", "--weight", "w", "--na", "?", *more]
        done = seqdg(*words)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines())
        rows = read_rows(path, label, "d", weight="w", na=("?",), drop_unlabeled=bool(more))
        found[-1] += [str([rows.y.tolist(), rows.domains.tolist(), rows.weight.tolist(), rows.x.columns[0].tolist()])]
    assert found[0].pop(1) == "3 rows without a label left out."
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("change", "more", "sentence"),
    [
        ({"d": None}, (), "There is no domain for 1 row (line 11)"),
        ({"a": "high"}, (), "Column 'a' holds mostly numbers, but line 11 holds 'high'"),
        ({"w": -1.0}, ("--weight", "w"), "is empty or below 0 in 1 row (line 11)"),
        ({"y": "inf"}, ("--task", "number"), "has no number in 1 row (line 11)"),
        ({"a": "inf"}, (), "Input X contains infinity: column 'a' in 1 row (from 0: 9)"),
    ],
)
def test_messages_number_the_rows_of_the_file_though_some_were_left_out(tmp_path, change, more, sentence):
    table = pd.concat([SMALL] * 2, ignore_index=True).assign(w=1.0).astype(object)
    if "--task" in more:
        table["y"] = (np.arange(24.0) + 0.5).astype(object)
    table.loc[[1, 6, 12], "y"] = None
    for name, value in change.items():
        table.loc[9, name] = value
    done = fit_of(table, tmp_path, "--drop-unlabeled", *more)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_table_without_any_label_is_refused_though_such_rows_are_left_out(tmp_path):
    done = fit_of(SMALL.assign(y=None), tmp_path, "--drop-unlabeled")
    assert done.returncode == 2
    assert "Column 'y' has no label in any row" in done.stderr


def test_what_is_not_there_or_not_a_table_is_a_sentence(fitted_model, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "features").mkdir()
    np.savez(tmp_path / "features" / "north.npz", x=np.zeros((2, 2)), y=np.zeros(2))
    for words, sentence in [
        (("fit", tmp_path / "none.csv", "--label", "y", "--out", tmp_path / "m"), "There is no "),
        (("fit", tmp_path / "notes.txt", "--label", "y", "--out", tmp_path / "m"), "neither a folder nor a .zip"),
        (("fit", tmp_path / "features", "--out", tmp_path / "m"), "holds feature files"),
        (("predict", fitted_model, tmp_path / "none.csv", "--out", tmp_path / "p.csv"), "to predict"),
        (("predict", fitted_model, tmp_path, "--out", tmp_path / "p.csv"), "The model reads tables"),
        (("predict", tmp_path / "nowhere", tmp_path, "--out", tmp_path / "p.csv"), "There is no model directory"),
        (("show", tmp_path), "has no model.json"),
        (("export", tmp_path, "--onnx", tmp_path / "m.onnx"), "has no model.json"),
    ]:
        done = seqdg(*words)
        assert done.returncode == 2, words
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_predicting_tables_that_differ_from_the_training_data(fitted_model, hospitals, tmp_path):
    x, _, _ = hospitals

    def predicted(frame: pd.DataFrame) -> Done:
        frame.to_csv(tmp_path / "new.csv", index=False)
        return seqdg("predict", fitted_model, tmp_path / "new.csv", "--out", tmp_path / "p.csv")

    odd = x[x.columns[::-1]].assign(other=1)
    odd.loc[:3, "smoker"] = "sometimes"
    done = predicted(odd)
    assert done.returncode == 0, done.stderr
    assert "note: Column 'smoker' has categories that were not in the training data: sometimes." in done.stderr
    assert len(pd.read_csv(tmp_path / "p.csv")) == len(x)
    (tmp_path / "p.csv").unlink()
    for frame, sentence in [
        (x.drop(columns="visits"), "new.csv has no column 'visits': the model was trained with it and needs it."),
        (x.assign(visits="often"), "Column 'visits' held numbers when the model was fitted, but now line 2"),
        (x.iloc[:0], "has 0 rows: there is nothing to predict"),
        (x.assign(age=np.inf), "Input X contains infinity"),
        (x[["age"]].rename(columns={"age": "Age"}), "Did you mean 'Age' for 'age'? new.csv has: Age."),
    ]:
        done = predicted(frame)
        assert done.returncode == 2, frame
        assert sentence in done.stderr
        assert not (tmp_path / "p.csv").exists()


@pytest.mark.slow
def test_folders_of_images_from_fit_to_predictions(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    for domain in ("day", "night"):
        for label, shade in (("dark", 40), ("light", 200)):
            folder = tmp_path / "pictures" / domain / label
            folder.mkdir(parents=True)
            for i in range(4):
                pixels = (shade + draw.integers(-20, 20, (12, 12, 3))).astype(np.uint8)
                image.fromarray(pixels).save(folder / f"{i}.png")
    words = ["--net", "mlp", *QUICK, "--steps", "60", "--criterion", "log_loss"]
    done = seqdg("fit", tmp_path / "pictures", *words, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    done = seqdg("predict", tmp_path / "m", tmp_path / "pictures", "--out", tmp_path / "p.csv")
    assert done.returncode == 0, done.stderr
    written = pd.read_csv(tmp_path / "p.csv")
    assert (written["label"] == written["file"].str.split("/").str[1]).all()
    assert done.stdout.splitlines()[0] == "Accuracy on 16 labelled rows: 100.0 %"
    dark = tmp_path / "pictures" / "day" / "dark"
    for place, name, said in (
        ("mixed/light", "0.png", "Accuracy on 1 labelled rows: 0.0 %"),  # its folder says otherwise
        ("mixed/dusk", "1.png", "Accuracy on 1 labelled rows: 0.0 %"),  # no class of the model
        ("other/2024", "0.png", ""),  # as if folders said something else
    ):
        (tmp_path / place).mkdir(parents=True)
        shutil.copy(dark / name, tmp_path / place)
        done = seqdg("predict", tmp_path / "m", (tmp_path / place).parent, "--out", tmp_path / "p.csv", "--force")
        assert done.stdout.partition("\n")[0] == said
        assert ("1 row has a label that the model does not know (dusk)" in done.stderr) == ("dusk" in place)
        assert "2024" not in done.stderr
    shutil.make_archive(str(tmp_path / "light"), "zip", dark)
    shutil.copytree(dark, tmp_path / "dusk")
    for place, said in (
        (dark, "Accuracy on 4 labelled rows: 100.0 %"),
        (tmp_path / "light.zip", "Accuracy on 4 labelled rows: 0.0 %"),
        (tmp_path / "dusk", ""),  # no class, and as good a name as any
    ):
        done = seqdg("predict", tmp_path / "m", place, "--out", tmp_path / "p.csv", "--force")
        assert done.stdout.partition("\n")[0] == said
        taken = f"note: The pictures right in {place}: their label is taken to be '{place.stem}'"
        assert (taken in done.stderr) == bool(said)
    done = seqdg("predict", tmp_path / "m", ".", "--out", tmp_path / "p.csv", "--force", cwd=dark)
    assert done.stdout.splitlines()[0] == "Accuracy on 4 labelled rows: 100.0 %"
    shutil.copytree(tmp_path / "pictures" / "day" / "light", dark / "light")  # the nearest folder counts
    done = seqdg("predict", tmp_path / "m", dark, "--out", tmp_path / "p.csv", "--force")
    assert done.stdout.splitlines()[0] == "Accuracy on 8 labelled rows: 100.0 %"
    (tmp_path / "pictures" / "day" / "dark" / "0.png").write_bytes(b"no picture")
    broken = seqdg("predict", tmp_path / "m", tmp_path / "pictures", "--out", tmp_path / "q.csv")
    assert broken.returncode == 2
    assert "'day/dark/0.png' cannot be decoded as an image" in broken.stderr


@pytest.mark.slow
def test_pictures_give_the_same_in_the_estimator_once_loaded_by_the_command_and_in_onnxruntime(tmp_path):
    image = pytest.importorskip("PIL.Image")
    onnxruntime = pytest.importorskip("onnxruntime")
    draw = np.random.default_rng(0)
    for i in range(12):
        (tmp_path / "new" / f"{i % 3}").mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 100, (32, 32, 3)) + 70 * (i % 2)
        image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "new" / f"{i % 3}" / f"{i}.png")
    files = sorted((tmp_path / "new").rglob("*.png"))
    x = np.stack([np.asarray(image.open(file)).transpose(2, 0, 1) for file in files])
    y, domains = [int(file.stem) % 2 for file in files], [file.parent.name for file in files]
    model = package.DomainClassifier(net="resnet18", steps=3, batch=4).fit(x, y, domains=domains)
    own = model.predict_proba(x)
    assert np.ptp(own) > 0.01
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(package.DomainClassifier.load(tmp_path / "m").predict_proba(x), own)
    assert seqdg("predict", tmp_path / "m", tmp_path / "new", "--out", tmp_path / "p.csv").returncode == 0
    written = pd.read_csv(tmp_path / "p.csv").set_index("file")
    by_file = written.loc[[str(file.relative_to(tmp_path / "new")) for file in files], ["p_0", "p_1"]]
    np.testing.assert_allclose(by_file, own, atol=1e-5)
    assert seqdg("export", tmp_path / "m", "--onnx", tmp_path / "m.onnx").returncode == 0
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["probabilities"], {"images": x})[0], own, atol=1e-5)


def test_predicting_shows_a_bar_on_a_terminal_and_nowhere_else(fitted_model, table, tmp_path, monkeypatch):
    words = ["predict", fitted_model, table, "--out", tmp_path / "p.csv", "--force"]
    assert "left:" not in seqdg(*words).stderr
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take anything for a terminal
    monkeypatch.setattr("seqdg.data.table_files.BLOCK", 2**11)  # several parts, of which the last shows nothing
    said = seqdg(*words).stderr
    assert "left" in said
    assert "predicting" in said


@pytest.mark.slow
def test_a_million_rows_are_predicted_in_bounded_memory(fitted_model, hospitals, tmp_path):
    """The command's peak memory on a million rows is hardly above that on ten thousand."""
    x, _, _ = hospitals
    block = pd.concat([x] * 42, ignore_index=True).iloc[:10_000]
    block.to_csv(tmp_path / "small.csv", index=False)
    text = block.to_csv(index=False, header=False)
    with (tmp_path / "large.csv").open("w") as file:
        file.write(",".join(block.columns) + "\n")
        for _ in range(100):
            file.write(text)
    code = (
        "import sys\nfrom seqdg.cli import main\nsys.argv = ['seqdg', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "import torch\nfrom seqdg.training.device import measure_peak_memory\n"
        "print(measure_peak_memory(torch.device('cpu')))"
    )
    peak = {}
    for name in ("small", "large"):
        words = ["predict", fitted_model, tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}-p.csv"]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=True, timeout=600
        )
        peak[name] = int(done.stdout.split()[-1])
    assert "1000000 predictions" in done.stderr
    grown = (peak["large"] - peak["small"]) / 2**20
    assert grown < 250, f"{grown:.0f} MiB more for {(tmp_path / 'large.csv').stat().st_size / 2**20:.0f} MiB of CSV"


@pytest.mark.slow
def test_labels_written_as_fractions_are_counted_as_the_whole_numbers_that_they_are(tmp_path):
    rows = [f"{'ns'[i % 2]},{i},{float(i >= 20)}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["d,x,y", *rows]) + "\n")
    words = ["fit", tmp_path / "t.csv", "--label", "y", "--domain", "d", "--algorithm", "agg", *QUICK]
    done = seqdg(*words, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    done = seqdg("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    right = (pd.read_csv(tmp_path / "p.csv")["label"] == [i // 20 for i in range(40)]).mean()
    assert right > 0
    assert done.stdout.startswith(f"Accuracy on 40 labelled rows: {100 * right:.1f}")


MINE = '''
from dataclasses import dataclass
from seqdg import Algorithm, register, setting


@register("louder")
@dataclass(frozen=True)
class Louder(Algorithm):
    """AGG with a factor, for this test (nobody, 2024).   factor: of the loss."""

    factor: float = setting(1.0, above=0.0)

    def loss(self, net, params, episode):
        return self.factor * net.losses(params, episode).mean()
'''


def test_settings_of_an_algorithm_from_a_file_are_given_by_its_name(table, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    words = ["fit", table, "--label", "diagnosis", "--domain", "hospital", "--ignore", "id", *QUICK, "--no-estimate"]
    name = f"{tmp_path / 'mine.py'}:louder"
    done = seqdg(*words, "--algorithm", name, "--set", "louder.factor=2.5", "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "model" / "model.json").read_text())["facts"]
    assert facts["parameters"]["settings"] == {"factor": 2.5}

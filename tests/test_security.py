"""What SECURITY.md promises, sentence by sentence: what opening what somebody else made may do, and never does."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import socket
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
import safetensors.numpy
import torch
from pyarrow import parquet

import seqdg
from command import Done
from command import seqdg as run
from digits import make_plan, train
from packages import need
from seqdg import cli
from seqdg.base import Folder, UsageError, trust_only
from seqdg.bench import Request
from seqdg.bench.learners.estimators import read_skops, write_skops
from seqdg.data import FrozenBackbone
from seqdg.estimator import model as models
from seqdg.nets import weights
from seqdg.results import Store
from seqdg.training import Saving, name_checkpoint

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "SECURITY.md"
SOURCES = sorted((ROOT / "src" / "seqdg").rglob("*.py"))
TRAP = """
from pathlib import Path
Path("sprung").touch()

from dataclasses import dataclass
import numpy as np
import seqdg


@seqdg.register("trap")
@dataclass(frozen=True)
class Trap(seqdg.Algorithm):
    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()


def encode(texts):
    return np.ones((len(texts), 2))


def prepare(frame, folder):
    return frame
"""
BENCHMARK = """
[data]
format = "{format}"
path = "rows.csv"
label_column = "label"
domain_column = "domain"
{data}
[net]
name = "mlp"
hidden = [4]
[protocol]
steps = 2
trials = 1
batch = 2
evaluations = 1
algorithms = {algorithms}
{more}
"""
STUDY = """
[[parts]]
name = "digits/one"
benchmark = "rotated-mnist"
algorithms = ["{name}"]
held_out = ["0"]
trials = 1
steps = 2
evaluations = 1
"""
TEXT = 'text = ["words"]\n'


class Sprung:
    """Runs code where somebody unpickles it."""

    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with somebody else's files, where the user is: a file of code, and data for benchmarks."""
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))
    here = tmp_path / "theirs"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / "mine.py").write_text(TRAP)
    rows = "".join(f"{d},{i % 2},word{i},{i}\n" for d in "abc" for i in range(12))
    (here / "rows.csv").write_text(f"domain,label,words,x\n{rows}")
    yield here
    from seqdg.core import registry

    for known in (registry._factories, registry._origins):
        known.pop("trap", None)


def write_benchmark(data: str = "", algorithms: str = '["agg"]', table: str = "", format: str = "table") -> None:
    data = data or 'ignore = ["words"]'
    Path("theirs.toml").write_text(BENCHMARK.format(format=format, data=data, algorithms=algorithms, more=table))


def bench(*more: object, **how: str) -> Done:
    write_benchmark(**how)
    return run("bench", "theirs.toml", "--data", ".", "--workers", 0, "--device", "cpu", "--out", "run", *more)


def list_files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_refused(done: Done) -> None:
    assert done.returncode == 2, done.stderr
    assert not Path("sprung").exists(), "the code ran"
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("seqdg: A file names ./mine.py to import")
    assert "add --trust ./mine.py" in sentence


# ------------------------------------------------------------------ nothing is executed because a file says so


@pytest.mark.parametrize(
    "how",
    [
        {"data": f'{TEXT}encode = "./mine.py:encode"'},
        {"data": 'prepare = "./mine.py:prepare"', "format": "list"},
        {"algorithms": '["./mine.py:trap"]'},
        {"algorithms": '["agg+./mine.py:trap"]'},
        {"table": '[algorithms."./mine.py:trap"]\nlr = 0.1'},
        {"table": '[algorithms."agg+./mine.py:trap"]\nlr = 0.1'},
    ],
)
def test_code_that_a_benchmark_file_names_is_not_run(how):
    assert_refused(bench(**how))


def test_a_module_that_a_benchmark_file_names_is_not_run():
    Path("mine.py").rename("theirs_to_import.py")
    done = bench(data=f'{TEXT}encode = "theirs_to_import:encode"')
    assert done.returncode == 2
    assert "add --trust theirs_to_import (in Python: trust=['theirs_to_import'])." in done.stderr
    assert not Path("sprung").exists()
    assert run("report", "theirs_to_import").returncode == 2, "a word that is no name of code trusts nothing"


def test_checking_the_data_of_a_benchmark_runs_none_of_its_code():
    write_benchmark(data='prepare = "./mine.py:prepare"', format="list")
    done = run("check", "theirs.toml", "--data", ".")
    assert done.returncode == 2
    assert "add --trust ./mine.py" in done.stdout + done.stderr
    assert not Path("sprung").exists()


def test_a_benchmark_may_name_the_functions_that_seqdg_has_for_published_lists():
    done = bench(data='prepare = "seqdg.data.image_list:divide_camelyon17"', format="list")
    assert done.returncode == 2
    assert "center" in done.stderr, "it ran, and misses its column"
    for other in ("seqdg.data.image_list:read_list", "seqdg.estimator.compare:remove_kept"):
        assert "add --trust seqdg." in bench(data=f'prepare = "{other}"', format="list").stderr


def test_code_that_a_study_names_is_not_run():
    Path("study.toml").write_text(STUDY.format(name="./mine.py:trap"))
    assert_refused(run("study", "study.toml", "--device", "cpu", "--workers", 0))


def test_code_that_a_file_of_settings_names_is_not_run():
    Path("settings.toml").write_text('[algorithms."agg+./mine.py:trap"]\nlr = 0.1\n')
    assert_refused(bench("--settings-from", "settings.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["./mine.py:trap", "domainbed:./mine.py:trap", "agg+./mine.py:trap"])
def test_code_that_a_record_names_is_not_run(name, monkeypatch):
    monkeypatch.setenv("SEQDG_DOMAINBED", str(ROOT / "tests" / "stand_in"))
    assert bench("--save-weights").returncode == 0
    store = Store.open(Path("run"))
    forged = [replace(r, description={**r.description, "algorithm": name}) for r in store.records()]
    store.close()
    shutil.rmtree("run")
    store = Store.create(Path("run"), "theirs")
    store.add(forged)
    store.close()
    words = ["run", "--benchmark", "theirs.toml", "--data", ".", "--device", "cpu"]
    assert_refused(run("rerun", *words))
    assert run("soup", *words).returncode == 2
    assert not Path("sprung").exists()
    for words in (["table", "run"], ["table", "run", "--settings-out", "settings.toml"], ["report", "run"]):
        run(*words)
        assert not Path("sprung").exists(), words


def test_a_model_runs_no_code_that_it_names(hospitals_model):
    path = hospitals_model
    text = json.loads((path / "model.json").read_text())
    for name in ("./mine.py:trap", "agg+./mine.py:trap", "domainbed:./mine.py:Trap"):
        for plain in (True, False):
            changed = {**text, "algorithm": name, "plain": plain}
            changed["facts"]["parameters"]["algorithm"] = name
            (path / "model.json").write_text(json.dumps({**changed, "sha256": models.hash_description(changed)}))
            for words in (
                ["predict", path, "rows.csv", "--out", "predicted.csv"],
                ["show", path],
                ["export", path, "--out", "model.onnx"],
            ):
                run(*words)
            with_text = io.StringIO()
            try:
                seqdg.DomainClassifier.load(path)
            except UsageError as error:
                with_text.write(str(error))
            assert not Path("sprung").exists(), name


def name_net(path: Path, name: str) -> None:
    text = {**json.loads((path / "model.json").read_text()), "net": {"name": name}}
    (path / "model.json").write_text(json.dumps({**text, "sha256": models.hash_description(text)}))


@pytest.mark.parametrize("name", ["./mine.py:build", "mine:build"])
def test_the_function_of_a_net_that_a_model_names_is_not_run(hospitals_model, name, monkeypatch):
    name_net(hospitals_model, name)
    sentence = f"add --trust {name.partition(':')[0]} "
    predict = ["predict", "model", "rows.csv", "--out", "p.csv"]
    for words in (predict, ["export", "model", "--out", "m.onnx"]):
        assert sentence in run(*words).stderr
    assert run("show", "model").returncode == 0  # builds nothing
    with pytest.raises(UsageError, match=sentence):
        seqdg.DomainClassifier.load("model")
    assert not Path("sprung").exists()


def test_a_model_of_a_net_of_the_users_own_predicts_where_the_file_is_trusted():
    Path("net.py").write_text(
        "from torch import nn\n\n\ndef build(shape, classes):\n    return nn.Linear(shape[0], classes)\n"
    )
    words = ["fit", "rows.csv", "--label", "label", "--domain", "domain", "--algorithm", "agg", "--steps", 2]
    done = run(*words, "--net", "./net.py:build", "--members", 1, "--device", "cpu", "--no-estimate", "--out", "model")
    assert done.returncode == 0, done.stderr
    assert run("predict", "model", "rows.csv", "--out", "p.csv", "--trust", "./net.py").returncode == 0
    rows = pandas.read_csv("rows.csv")[["words", "x"]]
    trusted = seqdg.DomainClassifier.load("model", trust=["./net.py"]).predict(rows)
    assert pandas.read_csv("p.csv").iloc[:, 0].tolist() == trusted.tolist()


def test_a_folder_of_a_backbone_that_brings_code_of_its_own_is_refused_and_nobody_is_asked(monkeypatch):
    """Without our saying no, transformers asks on standard input, and a script's answer may be read as a yes."""
    pytest.importorskip("transformers")
    code = "from pathlib import Path\nPath('sprung').touch()\nfrom transformers import PretrainedConfig\n\n\n"
    Path("theirs").mkdir()
    Path("theirs/code.py").write_text(f"{code}class Its(PretrainedConfig):\n    model_type = 'its'\n")
    about = {"model_type": "its", "auto_map": {"AutoConfig": "code.Its"}}
    Path("theirs/config.json").write_text(json.dumps(about))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\ny\n"))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(UsageError, match=r"theirs.config\.json .*it needs code of its own, which is never run"):
        FrozenBackbone("hf:./theirs")
    assert not Path("sprung").exists()


def test_a_backbone_that_no_memory_holds_is_refused_before_it_is_built():
    pytest.importorskip("transformers")
    Path("theirs").mkdir()
    about = {"model_type": "vit", "hidden_size": 10**6, "num_attention_heads": 1, "intermediate_size": 10**6}
    Path("theirs/config.json").write_text(json.dumps(about))
    Path("theirs/model.safetensors").touch()
    with pytest.raises(UsageError, match=r"needs at least [\d.,]+ GiB of memory"):
        _ = FrozenBackbone("hf:./theirs").module


@pytest.fixture
def hospitals_model():
    return fit_model("agg", "--hidden", 2, "--members", 1)


def fit_model(algorithm: str, *more: object) -> Path:
    words = ["fit", "rows.csv", "--label", "label", "--domain", "domain", "--algorithm", algorithm, "--steps", 2]
    done = run(*words, *more, "--device", "cpu", "--no-estimate", "--out", "model")
    assert done.returncode == 0, done.stderr
    return Path("model")


def replace_weights(model: Path, content: bytes) -> None:
    """Replace what a model has learned, with hashes that are right."""
    (model / "model.safetensors").write_bytes(content)
    text = {**json.loads((model / "model.json").read_text()), "weights_sha256": hashlib.sha256(content).hexdigest()}
    (model / "model.json").write_text(json.dumps({**text, "sha256": models.hash_description(text)}))


# ------------------------------------------------------------------------- what the user names is trusted


def test_settings_of_what_the_option_names_are_read():
    done = bench(
        "--trust", "./mine.py", algorithms='["./mine.py:trap"]', table='[algorithms."./mine.py:trap"]\nlr = 0.5'
    )
    assert done.returncode == 0, done.stderr
    assert {r.description["protocol"]["lr"] for r in Store.open(Path("run")).records()} == {0.5}


@pytest.mark.parametrize("trusted", ["./mine.py", "mine.py", "other.py,./mine.py"])
def test_what_the_option_names_is_run(trusted):
    done = bench("--trust", trusted, data=f'{TEXT}encode = "./mine.py:encode"')
    assert done.returncode == 0, done.stderr
    assert Path("sprung").exists()


@pytest.mark.parametrize("name", ["./mine.py:trap", "agg,./mine.py:trap", "./mine.py:trap+ema"])
def test_what_the_user_names_in_another_option_is_run(name):
    done = bench("--algorithms", name)
    assert done.returncode == 0, done.stderr
    assert Path("sprung").exists()
    again = run("rerun", "run", "--algorithms", name, "--benchmark", "theirs.toml", "--data", ".", "--device", "cpu")
    assert again.returncode == 0, again.stderr


def test_the_commands_with_the_option_are_those_that_the_page_names():
    listed = re.search(r"`--trust \./mine\.py` \((.*?); several", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    commands = {name: command for group in cli.GROUPS.values() for name, command in group.items()}
    assert set(re.findall("`([a-z-]+)`", listed[1])) == {n for n, c in commands.items() if c in cli.RUN_CODE}
    for name in commands:
        assert ("--trust" in run(name, "--help").stdout) == (commands[name] in cli.RUN_CODE), name


def test_a_study_may_name_code_that_the_user_trusts():
    Path("study.toml").write_text(STUDY.format(name="./mine.py:trap"))
    done = run("study", "study.toml", "--device", "cpu", "--workers", 0, "--trust", "./mine.py")
    assert done.returncode == 0, done.stderr


def test_from_python_the_same_holds():
    write_benchmark(data=f'{TEXT}encode = "./mine.py:encode"')
    how = {"data": ".", "device": "cpu", "out": "run", "progress": False}
    with pytest.raises(UsageError, match=r"\(in Python: trust=\['\./mine\.py'\]\)"):
        seqdg.run("theirs.toml", **how)
    assert not Path("sprung").exists()
    seqdg.run("theirs.toml", **how, trust=["./mine.py"])
    assert Path("sprung").exists()


def test_a_program_that_asks_for_code_gets_it_and_a_block_in_a_block_allows_no_more():
    seqdg.build("./mine.py:trap")
    with trust_only(["agg"]), trust_only(["./mine.py:trap"]), pytest.raises(UsageError, match="add --trust"):
        seqdg.build("./mine.py:trap")


# --------------------------------------------------------------------------------------- no file is a pickle


def test_the_code_reads_no_pickle():
    """pandas, joblib, yaml and numpy can too, so calls of those are looked for as well."""
    wrong = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name, given = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            bad = re.fullmatch(
                r"(pickle|joblib|marshal|shelve|dill|yaml)\.(load|loads|open|Unpickler)|.*\.(read_pickle|read_hdf)|eval|"
                r"exec|os\.system|os\.popen|compile",
                name,
            )
            bad = bad or (name == "torch.load" and given.get("weights_only") != "True")
            bad = bad or (name == "np.load" and given.get("allow_pickle", "False") != "False")
            bad = bad or given.get("shell") == "True" or given.get("trust_remote_code", "False") != "False"
            wrong += [f"{path.name}:{node.lineno} {name}"] if bad else []
    assert not wrong


def test_weights_that_are_a_pickle_of_code_are_refused():
    torch.save({"weight": Sprung()}, "weights.pth")
    with pytest.raises(UsageError, match=r"weights\.pth"):
        weights.read_weights(Path("weights.pth"))
    assert not Path("sprung").exists()


@pytest.mark.parametrize("name", ["features.npz", "features.npy"])
def test_arrays_that_are_pickles_are_refused(name):
    objects = np.array([Sprung()], dtype=object)
    np.savez(name, x=objects, y=objects, domains=objects) if name.endswith("z") else np.save(name, objects)
    done = run("fit", name, "--steps", 1, "--out", "model")
    assert done.returncode == 2
    assert not Path("sprung").exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx", "pkl"])
def test_a_table_that_is_a_pickle_is_refused(suffix):
    Path(f"table.{suffix}").write_bytes(pickle.dumps(Sprung()))
    done = run("fit", f"table.{suffix}", "--label", "y", "--domain", "d", "--out", "model")
    assert done.returncode == 2
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("f.safetensors", ["fit", "f.safetensors", "--out", "model"]),
        ("run/trials.parquet", ["table", "run"]),
        ("run/results.sqlite", ["table", "run"]),
        ("shard/results.sqlite", ["merge", "shard", "--out", "run"]),
        ("sweep/one/results.jsonl", ["import-domainbed", "sweep", "--out", "run"]),
        ("d/c/1.png", ["features", "d", "--net", "resnet18", "--weights", "d/c/1.png", "--out", "f.safetensors"]),
        ("bench.toml", ["bench", "bench.toml", "--out", "run"]),
        ("study.toml", ["study", "study.toml"]),
        ("model/model.json", ["show", "model"]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*damaged")
def test_any_other_file_that_is_a_pickle_is_refused(name, words):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(pickle.dumps(Sprung()))
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("seqdg: ")
    assert not Path("sprung").exists()


def test_a_model_whose_weights_are_a_pickle_is_refused(hospitals_model):
    replace_weights(hospitals_model, pickle.dumps(Sprung()))
    assert run("predict", "model", "rows.csv", "--out", "p.csv").returncode == 2
    assert not Path("sprung").exists()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["sklearn", "lightgbm", "xgboost", "catboost"])
def test_a_model_of_another_library_that_is_a_pickle_is_refused(package):
    pytest.importorskip(package)
    fit_model("logistic" if package == "sklearn" else package)
    tensors = safetensors.numpy.load_file("model/model.safetensors")
    (name,) = (name for name in tensors if name.rpartition(".")[2] in ("trees", "skops"))
    tensors[name] = np.frombuffer(bytearray(pickle.dumps(Sprung())), np.uint8)
    replace_weights(Path("model"), safetensors.numpy.save(tensors))
    done = run("predict", "model", "rows.csv", "--out", "p.csv")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("seqdg: ")
    assert not Path("sprung").exists()


def test_a_checkpoint_that_is_a_pickle_is_not_read(tmp_path):
    plan = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=2))
    checkpoint = tmp_path / "run" / name_checkpoint(plan.groups[0].key)
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(pickle.dumps(Sprung()))
    with pytest.warns(UserWarning, match="checkpoint"):
        (record,) = train(plan.groups[0], saving=Saving(Folder(tmp_path / "run"), 3600.0))
    assert record.history
    assert not Path("sprung").exists()


@pytest.mark.parametrize("kind", ["os.mkdir", "builtins.eval", "subprocess.Popen", "sklearn.utils.os.mkdir"])
def test_a_model_of_scikit_learn_that_holds_another_type_is_refused(kind):
    from sklearn.linear_model import Ridge

    content = write_skops(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]))
    module, _, name = kind.rpartition(".")
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            if entry == "schema.json":
                schema = json.loads(data)
                schema |= {"__module__": module, "__class__": name}
                data = json.dumps(schema).encode()
            new.writestr(entry, data)
    with pytest.raises(UsageError, match="which is not scikit-learn's own: it is not loaded"):
        read_skops(changed.getvalue())


# -------------------------------------------------------------- nothing is written but where the user says


def test_reading_a_run_or_a_model_writes_nothing_outside_of_what_was_asked_for(hospitals_model, tmp_path):
    assert bench().returncode == 0
    shutil.move("run", tmp_path / "published")
    shutil.move("model", tmp_path / "model")
    before = list_files(tmp_path)
    published, model = tmp_path / "published", tmp_path / "model"
    for words in (["table", published], ["status", published], ["show", model], ["rerun", published, "--list"]):
        assert run(*words).returncode == 0, words
    assert run("predict", model, "rows.csv", "--out", "predicted.csv").returncode == 0
    assert run("report", published).returncode == 0
    assert run("pack", published, "--out", "packed").returncode == 0
    new = {name for name, data in list_files(tmp_path).items() if before.get(name) != data}
    new -= {name for name in new if name.startswith("published/results.sqlite-")}  # SQLite's own, beside its file
    written = ("predicted.csv", "packed/trials.parquet", "packed/evaluations.parquet")
    assert new == {"published/report.html", *(f"theirs/{name}" for name in written)}


def test_a_study_writes_to_the_folder_that_its_file_names_only_where_it_publishes(folder, tmp_path):
    name, parts = "digits/one", STUDY.format(name="agg")
    Path("study.toml").write_text(f'published = "{tmp_path}/elsewhere"\n{parts}')
    words = ["study", "study.toml", "--out", "all", "--device", "cpu", "--workers", 0]
    for more in (["--dry-run"], [], ["--answers"]):
        assert run(*words, *more).returncode == 0, more
        assert not (tmp_path / "elsewhere").exists(), more
    assert run(*words, "--publish").returncode == 0
    assert set(list_files(tmp_path / "elsewhere")) == {f"{name}/trials.parquet", f"{name}/evaluations.parquet"}


@pytest.mark.slow
def test_names_of_domains_and_trials_lead_to_no_place_outside_of_the_run(folder, tmp_path):
    pytest.importorskip("tensorboard")
    text = (folder / "rows.csv").read_text()
    (folder / "rows.csv").write_text(
        text.replace("\na,", "\n../../escaped,").replace("\nb,", f"\n{tmp_path}/absolute,")
    )
    before = {str(p) for p in tmp_path.rglob("*")}
    assert bench("--log", "tensorboard", "--save-weights", "--save-predictions").returncode == 0
    run("predictions", "run", "--out", "predictions.csv")
    run("report", "run", "--figures", "figures")
    inside = ("run", "figures", "predictions.csv", "theirs.toml")
    new = {p for p in tmp_path.rglob("*") if str(p) not in before}
    assert all(p.relative_to(folder).parts[0] in inside for p in new), new


# ----------------------------------------------------------------------------- nothing leaves the machine


@pytest.fixture
def no_network(monkeypatch):
    """Names what asks for the network."""
    asked: list[str] = []

    def refuse(name: str) -> Callable[..., None]:
        def raise_error(*_: object, **__: object) -> None:
            asked.append(name)
            raise AssertionError("it asked for the network")

        return raise_error

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse(name))
    for name in ("getaddrinfo", "gethostbyname", "create_connection"):
        monkeypatch.setattr(socket, name, refuse(name))
    yield asked
    assert not asked


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("timm", "timm:resnet18.none_such"), ("timm", "dinov2-small"), ("transformers", "hf:nobody/none-such"),
        ("open_clip", "clip-vit-b16"),
    ],
)  # fmt: skip
def test_where_the_hub_is_forbidden_a_backbone_that_is_not_here_asks_for_no_network(
    package, name, monkeypatch, no_network
):
    need(package)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    weights._find_obstacle.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"HF_HUB_OFFLINE forbids|timm has no weights"):
            FrozenBackbone(name)
    finally:
        weights._find_obstacle.cache_clear()


def test_reading_needs_no_network_and_asks_for_none(hospitals_model, no_network):
    assert bench().returncode == 0
    for words in (
        ["table", "run"], ["table", "run", "--format", "json"], ["status", "run"], ["report", "run"],
        ["show", "model"], ["predict", "model", "rows.csv", "--out", "predicted.csv"],
        ["pack", "run", "--out", "packed"],
        ["bench", "theirs.toml", "--data", ".", "--workers", 0, "--device", "cpu", "--out", "again"],
    ):  # fmt: skip
        done = run(*words)
        assert done.returncode == 0, done.stderr
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)\s*=\s*[\"']?(https?:)?//", page)


# --------------------------------------------------------------------------------- what was changed is refused


def test_a_changed_model_is_refused(hospitals_model):
    content = bytearray((hospitals_model / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (hospitals_model / "model.safetensors").write_bytes(bytes(content))
    done = run("predict", hospitals_model, "rows.csv", "--out", "predicted.csv")
    assert done.returncode == 2
    assert "was changed after the model was saved" in done.stderr


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("trials", "algorithm", "mldg"), ("trials", "seed", 7), ("trials", "status", "diverged"),
        ("trials", "seconds", 0.5), ("trials", "commit", "another"), ("evaluations", "accuracy", 0.123),
    ],
)  # fmt: skip
def test_a_changed_packed_run_is_refused(name, column, value):
    assert bench().returncode == 0
    assert run("pack", "run", "--out", "packed").returncode == 0
    file = f"packed/{name}.parquet"
    whole = parquet.read_table(file)
    kind = whole.schema.field(column)
    changed = whole.set_column(whole.column_names.index(column), kind, pyarrow.array([value] * len(whole), kind.type))
    parquet.write_table(changed, file)
    for words in (["table", "packed"], ["status", "packed"], ["report", "packed"], ["rerun", "packed", "--list"]):
        done = run(*words)
        assert done.returncode == 2, words
        assert "damaged" in done.stderr or "its digest is another" in done.stderr


def test_weights_are_safetensors(hospitals_model):
    assert safetensors.numpy.load_file(hospitals_model / "model.safetensors")
    assert bench("--save-weights").returncode == 0
    files = list(Path("run").rglob("*.safetensors"))
    assert files
    assert all(safetensors.numpy.load_file(file) for file in files)
    assert not [p for p in Path("run").rglob("*") if p.suffix in (".pt", ".pth", ".pkl", ".ckpt", ".joblib")]


def test_the_page_names_the_tests():
    assert "tests/test_security.py" in PAGE.read_text(encoding="utf-8")

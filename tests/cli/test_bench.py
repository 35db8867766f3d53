"""The command line as a user meets it: what it prints where, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = ["--trials", "2", "--steps", "6", "--held-out", "0,75"]


def test_a_run_prints_its_table_and_a_second_one_only_reads(seqdg, tmp_path):
    words = ["bench", "--algorithms", "agg,fo-s-mldg", *QUICK, "--out", tmp_path / "run"]
    first = seqdg(*words)
    assert first.returncode == 0, first.stderr
    assert "8 to run" in first.stderr
    lines = first.stdout.splitlines()
    assert lines[0].split() == ["held", "out", "agg", "fo-s-mldg"]
    assert [line.split()[0] for line in lines[2:6]] == ["0", "75", "average", "worst"]
    assert all("±" in line and "*" in line for line in lines[2:6])
    assert "over 2 trials" in lines[-1]
    again = seqdg(*words)
    assert "0 to run" in again.stderr
    assert again.stdout == first.stdout
    wider = seqdg(*words[:3], "--trials", "3", *QUICK[2:], "--out", tmp_path / "run")
    assert "12 trials, 8 of them done; 4 to run" in wider.stderr
    rows = json.loads(seqdg("table", tmp_path / "run", "--format", "json", "--select", "last").stdout)
    assert {"algorithm", "held_out", "mean", "stderr", "trials", "select"} == set(rows[0])
    assert {r["held_out"] for r in rows} == {"0", "75", "average", "worst"}
    assert {r["trials"] for r in rows} == {3}
    assert {r["select"] for r in rows} == {"last"}


def test_erm_is_recorded_as_agg_and_the_end_says_what_to_do_next(seqdg, tmp_path):
    words = ["bench", "--trials", "1", "--held-out", "0", "--out", tmp_path / "run", "--steps", "6"]
    first = seqdg(*words, "--algorithms", "erm,agg+ema", "--set", "erm.lr=0.1")
    assert first.stdout.split()[:4] == ["held", "out", "agg", "agg+ema"]
    assert first.stderr.splitlines()[-1].startswith(f"Next: `seqdg report {tmp_path / 'run'}` writes ")
    again = seqdg(*words, "--algorithms", "agg,erm+ema", "--set", "agg.lr=0.1")
    assert "0 to run" in again.stderr
    assert again.stdout == first.stdout
    assert "Did you mean 'agg'?" in seqdg("table", tmp_path / "run", "--baseline", "erm").stderr


def test_runs_of_other_lengths_share_a_directory_only_where_that_is_asked_for(seqdg, tmp_path):
    words = ["bench", "--algorithms", "agg", "--trials", "1", "--held-out", "0", "--dry-run"]
    assert "Results in runs/rotated-mnist." in seqdg(*words, cwd=tmp_path).stdout
    assert (
        "Results in runs/rotated-mnist." in seqdg(*words, "--steps", "300", cwd=tmp_path).stdout
    )  # as its file has it
    assert "Results in runs/rotated-mnist-6-steps." in seqdg(*words, "--steps", "6", cwd=tmp_path).stdout
    assert "Results in mine." in seqdg(*words, "--steps", "6", "--out", "mine", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_diverged_trial_is_shown_as_such_and_the_others_go_on(seqdg, tmp_path):
    words = ["bench", "--algorithms", "agg,fo-s-mldg", "--set", "agg.lr=1e30", *QUICK, "--out", tmp_path]
    done = seqdg(*words)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:4]]
    assert all(row[1] == "diverged" for row in rows)
    assert all(float(row[2]) > 0 for row in rows)


@pytest.mark.slow
def test_selection_within_the_sources_trains_what_it_needs(seqdg, tmp_path):
    missing = seqdg("bench", "--algorithms", "agg", *QUICK, "--out", tmp_path)
    assert missing.returncode == 0
    refused = seqdg("table", tmp_path, "--select", "leave-one-out")
    assert refused.returncode == 2
    assert "needs trials with two domains held out" in refused.stderr
    done = seqdg("bench", "--algorithms", "agg", *QUICK, "--out", tmp_path, "--select", "leave-one-out")
    assert done.returncode == 0, done.stderr
    assert "selected by leave-one-out" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bench", "--algorithms", "mlgd"], "There is no algorithm 'mlgd'. Did you mean 'mldg'?"),
        (["bench", "rotated-mnst"], "There is no benchmark 'rotated-mnst'. Did you mean 'rotated-mnist'?"),
        (["bench", "--held-out", "thirty"], "rotated-mnist has no domain 'thirty'."),
        (["bench", "--set", "mldg.gamma=1"], "mldg has no setting 'gamma'."),
        (["bench", "--set", "s-mldg.alpha=1,2"], "alpha has 2 values, but a path of 5 domains takes 4"),
        (["bench", "--set", "s-mldg.beta=1,2,3,4,5,6"], "beta has 6 values, but a path of 5 domains takes"),
        (["bench", "--set", "s-mldg.alpha=nan"], "alpha is nan, but it must be finite."),
        (["bench", "--trials", "0"], "0 trials were asked for, but at least 1 is needed."),
        (["bench", "--steps", "0"], "steps is 0, but at least 1 is needed."),
        (["bench", "--device", "tpu"], "There is no device 'tpu'."),
        (["bench", "--select", "best"], "There is no selection rule 'best'."),
        (["list", "colours"], "There is no list 'colours'."),
        (["table", "nowhere"], "There are no results in nowhere."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(seqdg, tmp_path, words, sentence):
    done = seqdg(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_an_out_that_is_a_file_or_not_writable_is_refused(seqdg, tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    done = seqdg("bench", *QUICK, "--out", file)
    assert done.returncode == 2
    assert f"{file} is a file" in done.stderr
    assert file.read_text() == "precious"
    below = seqdg("bench", *QUICK, "--out", file / "run")
    assert below.returncode == 2
    assert "cannot be made" in below.stderr
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.geteuid() == 0:  # root may write anywhere, except where the kernel says no
        locked = Path("/proc")
    refused = seqdg("bench", *QUICK, "--out", locked / "run")
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1


def test_a_run_directory_of_another_benchmark_is_refused(seqdg, tmp_path):
    text = (Path(__file__).parents[2] / "src/seqdg/benchmarks/rotated-mnist.toml").read_text()
    (tmp_path / "mine.toml").write_text(text)
    assert seqdg("bench", "--algorithms", "agg", *QUICK, "--out", tmp_path / "run").returncode == 0
    done = seqdg("bench", tmp_path / "mine.toml", "--algorithms", "agg", *QUICK, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "holds a run of 'rotated-mnist', not of 'mine'" in done.stderr


def test_lists_name_every_algorithm_and_benchmark(seqdg):
    entries = json.loads(seqdg("list", "algorithms", "--json").stdout)
    assert not [entry["name"] for entry in entries if not entry["title"].endswith(".")], "a title is cut"
    names = {entry["name"] for entry in entries}
    assert {"agg", "mldg", "fo-mldg", "s-mldg", "fo-s-mldg", "ffo-s-mldg"} <= names
    assert "rotated-mnist" in seqdg("list", "benchmarks").stdout


def test_the_list_of_data_sets_says_what_each_has_and_where_to_get_it(seqdg):
    found = {entry["name"]: entry for entry in json.loads(seqdg("list", "datasets", "--json").stdout)}
    assert found.keys() == {entry["name"] for entry in json.loads(seqdg("list", "benchmarks", "--json").stdout)}
    assert all(entry["get"] for entry in found.values())
    numbers = [name for name, entry in found.items() if not entry["class_count"]]
    assert numbers == ["beijing-air-pm25", "parkinsons"]
    assert [name for name, entry in found.items() if not entry["domains"]] == ["fmow", "iwildcam"]  # named by the data
    assert len(found["wisdm"]["domains"]) == 36
    assert (found["domainnet"]["class_count"], found["pacs"]["class_count"]) == (345, 7)
    assert found["office-caltech10"]["counts"] == {"amazon": 958, "Caltech10": 1123, "dslr": 157, "webcam": 295}
    assert found["vlcs"]["counts"] == {"VOC2007": 3376, "LabelMe": 2656, "Caltech101": 1415, "SUN09": 3282}
    assert (found["pacs"]["format"], found["rotated-mnist"]["format"]) == ("images", "bundled")
    assert sum(found["rotated-mnist"]["counts"].values()) == 5000
    text = seqdg("list", "datasets").stdout
    assert "vlcs: features\n  4 domains: VOC2007 (3376), LabelMe (2656), Caltech101 (1415), SUN09 (3282)\n" in text
    assert "  5 domains: 0, 1, 2, 3, 4\n" in text
    assert "rotated-mnist: bundled\n" in text


TOY = '''
from dataclasses import dataclass
from torch.func import grad_and_value
from seqdg import Chainable, register, setting


@register("toy")
@dataclass(frozen=True)
class Toy(Chainable):
    """A toy (Nobody 2026): past + weight * loss.  weight: of the new domain."""

    weight: float = setting(0.5, least=0.0)

    def loss(self, net, params, episode):
        return net.losses(params, episode).mean()

    def extend(self, net, past, episode, i):
        return lambda w: past(w) + self.weight * net.loss(w, episode.minibatch(i))
'''


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "module"])
def test_an_outsider_s_algorithm_and_its_sequential_form_run_from_one_file(tmp_path, how):
    (tmp_path / "my_toy.py").write_text(TOY)
    place = {"file": "my_toy.py", "module": "my_toy"}[how]
    words = [
        "bench",
        "--algorithms",
        f"{place}:toy,{place}:s-toy,agg",
        *QUICK,
        "--set",
        "s-toy.weight=2",
        "--out",
        "run",
    ]
    command = [sys.executable, "-c", "from seqdg.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["held", "out", "toy", "s-toy", "agg"]


@pytest.mark.slow
def test_an_installed_entry_point_adds_its_algorithms(tmp_path):
    (tmp_path / "my_toy.py").write_text(TOY)
    info = tmp_path / "my_toy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[seqdg.algorithms]\ntoy = my_toy\n")
    code = "import seqdg; print(seqdg.list_algorithms())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert "'s-toy'" in done.stdout
    assert "'toy'" in done.stdout


def test_a_run_that_is_interrupted_before_it_begins_has_stored_nothing(seqdg, tmp_path, monkeypatch):
    def interrupt(*words, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("seqdg.bench.running.choose_executor", interrupt)
    done = seqdg("bench", "--out", tmp_path / "run")
    assert done.returncode == 130
    assert "interrupted; 0 trials stored" in done.stderr

"""`seqdg bench`, then `seqdg report`, as a user runs them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import typer.main

from command import seqdg
from seqdg.cli import app
from seqdg.report import Results
from seqdg.report.analyses import propose_analysis
from seqdg.report.run_contents import RunContents
from seqdg.results import Store


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    words = ("--algorithms", "agg,ffo-s-mldg", "--held-out", "0,75", "--trials", "2", "--steps", "20")
    assert seqdg("bench", "rotated-mnist", *words, "--out", str(folder)).returncode == 0
    return folder


@pytest.mark.slow
def test_the_report_is_written_beside_the_results_and_its_path_is_printed(directory):
    done = seqdg("report", str(directory))
    assert done.returncode == 0
    assert done.stdout == f"{directory / 'report.html'}\n"
    html = (directory / "report.html").read_text(encoding="utf-8")
    assert "seqdg bench rotated-mnist --algorithms agg,ffo-s-mldg --held-out 0,75 --trials 2 --steps 20" in html
    store = Store.open(directory)
    assert store.records()[0].description["data"] in html
    store.close()


@pytest.mark.slow
def test_the_command_that_the_report_prints_makes_an_analysis_that_the_next_report_shows(directory, tmp_path):
    copy = tmp_path / "my runs"
    shutil.copytree(directory, copy)
    said = dict(Results.open(copy).page().answers)["What did it learn?"]
    words = shlex.split(said.split("`")[1])
    assert words == ["seqdg", "analyze", "invariance", "rotated-mnist", "--out", str(copy)]
    short = ("--algorithms", "agg", "--steps", "5", "--trials", "1", "--device", "cpu")
    done = seqdg(*words[1:], *short)
    assert done.returncode == 0, done.stderr
    sections = Results.open(copy).page().sections
    assert "invariance" in [section.name for section in sections]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("seqdg bench", ["vlcs"]),
        ("seqdg bench vlcs --data 'my data' --trials 2", ["vlcs", "--data", "my data"]),
        ("seqdg bench --data=here --settings-from best.toml my/vlcs.toml", ["my/vlcs.toml", "--data", "here"]),
    ],
)
def test_the_analysis_that_a_report_proposes_is_of_the_same_benchmark_and_data(command, words):
    about = {"command": command, "algorithms": [], "held_out": [], "seeds": []}
    run = RunContents("vlcs", [], commands=[about], directory=Path("runs/a b"))
    proposed = propose_analysis(run)
    assert shlex.split(proposed) == ["seqdg", "analyze", "invariance", *words, "--out", "runs/a b"]
    analyze = typer.main.get_command(app).commands["analyze"]
    analyze.make_parser(analyze.context_class(analyze)).parse_args(shlex.split(proposed)[2:])


@pytest.mark.parametrize("command", ["seqdg bench 'vlcs", "seqdg import-domainbed sweep --out run", ""])
def test_no_analysis_is_proposed_where_it_could_not_run(command):
    about = {"command": command, "algorithms": [], "held_out": [], "seeds": []}
    assert propose_analysis(RunContents("vlcs", [], commands=[about], directory=Path("run"))) == ""


def test_no_analysis_is_proposed_for_a_packed_run_which_could_not_keep_it(directory, tmp_path):
    pytest.importorskip("pyarrow", reason="Packed runs need pyarrow.")
    assert seqdg("pack", directory, "--out", tmp_path / "packed").returncode == 0
    answers = dict(Results.open(tmp_path / "packed").page().answers)
    assert answers["What did it learn?"] == "No analysis has been run."


@pytest.mark.slow
def test_figures_are_written_as_files_where_asked_for(directory, tmp_path):
    pytest.importorskip("altair", reason="Figures need altair.")
    done = seqdg("report", str(directory), "--figures", str(tmp_path / "figures"))
    assert done.returncode == 0
    printed = done.stdout.splitlines()[1:]
    names = {p.name for p in (tmp_path / "figures").iterdir()}
    assert names == {
        f"{n}.{kind}" for n in ("domains", "differences", "curves", "cost") for kind in ("svg", "pdf", "png")
    }
    assert len(printed) == len(names)


def test_a_directory_without_results_is_one_sentence_and_exit_code_2(tmp_path):
    done = seqdg("report", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"seqdg: There are no results in {tmp_path}.")


@pytest.mark.parametrize("word", ["table", "report"])
def test_a_criterion_that_the_run_has_not_is_one_sentence_and_exit_code_2(directory, word):
    done = seqdg(word, str(directory), "--criterion", "auroc")
    assert done.returncode == 2
    said = done.stderr
    assert said.startswith(
        "seqdg: This run has no auroc: it is recorded for two classes alone. Choose one of: accuracy,"
    )
    assert said.count("\n") == 1
    assert "auroc" not in said.partition("Choose one of")[2]


@pytest.mark.slow
def test_a_page_or_a_figure_that_cannot_be_written_is_one_sentence_and_exit_code_2(directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    (copy / "report.html").unlink(missing_ok=True)
    (copy / "report.html").mkdir()
    done = seqdg("report", str(copy))
    assert done.returncode == 2
    assert done.stderr.startswith(f"seqdg: {copy / 'report.html'} cannot be written: Is a directory.")
    (tmp_path / "file").touch()
    done = seqdg("report", str(directory), "--figures", str(tmp_path / "file"))
    assert done.returncode == 2
    assert done.stderr == f"seqdg: {tmp_path / 'file'} is a file. Give --figures a directory.\n"


def test_a_run_that_was_stopped_says_what_it_lacks(directory, tmp_path):
    whole = Store.open(directory)
    half = Store.create(tmp_path / "half", "rotated-mnist")
    half.set_meta("commands", whole.meta("commands"))
    half.add([r for r in whole.records() if r.algorithm == "agg"][:3])
    half.close()
    whole.close()
    assert seqdg("report", str(tmp_path / "half")).returncode == 0
    html = (tmp_path / "half" / "report.html").read_text(encoding="utf-8")
    assert "agg: 1 of 4 trials are missing: 75 (seed 1)." in html
    assert "ffo-s-mldg: no result yet (4 trials)." in html

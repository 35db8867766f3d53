"""`seqdg bench`, then `seqdg report`, as a user runs them."""

from __future__ import annotations

import shutil
import sys

import pytest

from seqdg.cli import main
from seqdg.store import Store


@pytest.fixture(scope="module")
def call():
    def called(*words: str) -> int:
        before, sys.argv = sys.argv, ["seqdg", *words]
        try:
            with pytest.raises(SystemExit) as stop:
                main()
        finally:
            sys.argv = before
        return int(stop.value.code or 0)

    return called


@pytest.fixture(scope="module")
def directory(call, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    words = ("--algorithms", "agg,ffo-s-mldg", "--held-out", "0,75", "--trials", "2", "--steps", "20")
    assert call("bench", "rotated-mnist", *words, "--out", str(folder)) == 0
    return folder


def test_the_report_is_written_beside_the_results_and_its_path_is_printed(call, directory, capsys):
    assert call("report", str(directory)) == 0
    assert capsys.readouterr().out == f"{directory / 'report.html'}\n"
    html = (directory / "report.html").read_text(encoding="utf-8")
    assert "seqdg bench rotated-mnist --algorithms agg,ffo-s-mldg --held-out 0,75 --trials 2 --steps 20" in html
    store = Store.open(directory)
    assert store.records()[0].description["data"] in html
    store.close()


def test_figures_are_written_as_files_where_asked_for(call, directory, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="PDF figures need matplotlib.")
    assert call("report", str(directory), "--figures", str(tmp_path / "figures")) == 0
    printed = capsys.readouterr().out.splitlines()[1:]
    names = {p.name for p in (tmp_path / "figures").iterdir()}
    assert names == {f"{n}.{kind}" for n in ("domains", "differences", "curves", "cost") for kind in ("svg", "pdf")}
    assert len(printed) == len(names)


def test_a_directory_without_results_is_one_sentence_and_exit_code_2(call, tmp_path, capsys):
    assert call("report", str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith(f"seqdg: There are no results in {tmp_path}.")


@pytest.mark.parametrize("word", ["table", "report"])
def test_a_criterion_that_the_run_has_not_is_one_sentence_and_exit_code_2(call, directory, capsys, word):
    assert call(word, str(directory), "--criterion", "auroc") == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "seqdg: This run has no auroc: it is recorded for two classes alone. Choose one of: accuracy,"
    )
    assert said.count("\n") == 1


def test_a_page_or_a_figure_that_cannot_be_written_is_one_sentence_and_exit_code_2(call, directory, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    (copy / "report.html").unlink(missing_ok=True)
    (copy / "report.html").mkdir()
    assert call("report", str(copy)) == 2
    assert capsys.readouterr().err.startswith(f"seqdg: {copy / 'report.html'} cannot be written: Is a directory.")
    (tmp_path / "file").touch()
    assert call("report", str(directory), "--figures", str(tmp_path / "file")) == 2
    assert capsys.readouterr().err == f"seqdg: {tmp_path / 'file'} is a file. Give --figures a directory.\n"


def test_a_run_that_was_stopped_says_what_it_lacks(call, directory, tmp_path):
    whole = Store.open(directory)
    half = Store.create(tmp_path / "half", "rotated-mnist")
    half.set_meta("commands", whole.meta("commands"))
    half.add([r for r in whole.records() if r.algorithm == "agg"][:3])
    half.close()
    whole.close()
    assert call("report", str(tmp_path / "half")) == 0
    html = (tmp_path / "half" / "report.html").read_text(encoding="utf-8")
    assert "agg: 1 of 4 trials are missing: 75 (seed 1)." in html
    assert "ffo-s-mldg: no result yet (4 trials)." in html

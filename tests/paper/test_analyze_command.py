"""`seqdg analyze`, as a user runs it."""

from __future__ import annotations

import pytest

from command import seqdg
from seqdg.results import Store


@pytest.mark.slow
def test_numbers_are_printed_and_kept_and_the_report_shows_them(tmp_path):
    folder, figures = str(tmp_path / "run"), str(tmp_path / "figures")
    words = ("--algorithms", "agg,fo-s-mldg", "--steps", "4", "--trials", "1", "--out", folder)
    code, out, err = seqdg("analyze", "alignment", *words, "--figures", figures)
    assert code == 0
    assert out.startswith("Alignment of gradients\nHeld out: 75. One seed, 4 steps.")
    assert f"`seqdg report {folder}` shows the picture." in err
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {"alignment.svg", "alignment.pdf", "alignment.png"}
    store = Store.open(tmp_path / "run")
    (kept,) = store.analyses("alignment")
    store.close()
    assert kept.payload["numbers"]["curves"]["agg"]["at"] == [0, 1, 2, 3, 4]
    assert kept.payload["command"].startswith("seqdg analyze alignment")
    assert seqdg("report", folder).returncode == 0
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert 'id="alignment"' in html
    assert "No trial has finished yet" in html


def test_an_analysis_that_an_algorithm_cannot_have_is_a_sentence(tmp_path):
    code, out, _ = seqdg("analyze", "similarity", "--algorithms", "agg", "--steps", "2", "--out", str(tmp_path))
    assert code == 0
    assert "agg has no domain-specific weights, so there is no similarity to look at." in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tsnee",), "There is no analysis 'tsnee'. Did you mean 'tsne'?"),
        (("ranks", "--domain", "75"), "The domain of interest is '75', but it must be one that is learned from"),
        (("cost", "--held-out", "90"), "rotated-mnist has no domain '90'."),
        (("cost", "--algorithms", "aggg"), "There is no algorithm 'aggg'."),
        (("cost", "--first-steps", "5"), "cost has one phase. Give its length with --steps, without --first-steps."),
        (("invariance", "--first-steps", "0"), "first_steps is 0, but at least 1 is needed."),
        (("cost", "--trials", "0"), "0 trials were asked for, but at least 1 is needed."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, words, message):
    code, out, err = seqdg("analyze", *words, "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert err.startswith(f"seqdg: {message}")

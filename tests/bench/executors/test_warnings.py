"""A warning is one note, whichever process it comes from."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from digits import TASK, make_plan, make_session
from seqdg.bench import Request, Workers
from seqdg.cli.terminal import print_warnings_as_notes
from seqdg.results import DONE

MAIN = "from seqdg.cli import main; main()"
AWAY = 'AWAY = multiprocessing.current_process().name != "MainProcess" or "default_worker" in sys.argv[0]  # Ray\'s'
ODD = f'''
import multiprocessing
import sys
import warnings
from dataclasses import dataclass

from seqdg import Algorithm, register

{AWAY}
PLACE = "away" if AWAY else "here"
warnings.warn(f"It is imported\\n  {{PLACE}}.", stacklevel=1)


class Oddity(UserWarning):
    pass


@register("odd")
@dataclass(frozen=True)
class Odd(Algorithm):
    """Warns."""

    def loss(self, net, params, episode):
        warnings.warn(f"It is computed {{PLACE}}.", Oddity, stacklevel=1)
        return net.losses(params, episode).mean()


@register("odd-too")
@dataclass(frozen=True)
class OddToo(Odd):
    """Warns, too."""
'''
HAS_RAY = importlib.util.find_spec("ray") is not None
RAY = pytest.param(
    ["--executor", "ray", "--workers", "2"],
    "away",
    marks=[pytest.mark.ray, pytest.mark.skipif(not HAS_RAY, reason="`pip install 'seqdg[ray]'` installs Ray.")],
)


EVERYWHERE = pytest.mark.parametrize(
    ("where", "place"), [(["--workers", "0"], "here"), (["--workers", "2"], "away"), RAY], ids=["0", "2", "ray"]
)


@pytest.mark.slow
@EVERYWHERE
def test_what_own_code_warns_of_is_one_note_in_every_executor(tmp_path: Path, where: list[str], place: str) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    words = ["bench", "--algorithms", "./odd.py:odd,./odd.py:odd-too", "--held-out", "0,75", "--trials", "1"]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words, "--steps", "3", *where, "--out", "run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"note: It is imported {place}.\n") == 1, done.stderr
    assert done.stderr.count(f"note: It is computed {place}.\n") == 1, done.stderr
    assert "Oddity" not in done.stderr
    assert "UserWarning" not in done.stderr


@pytest.mark.slow
@EVERYWHERE
def test_a_choice_notes_what_its_trainings_warn_of_in_every_executor(
    tmp_path: Path, where: list[str], place: str
) -> None:
    """An algorithm of the user's own warns in every step, and scikit-learn in every fit, each time of another number;
    that the choice is doubtful is a warning too, and is said in the printed answer."""
    (tmp_path / "odd.py").write_text(ODD)
    draw = np.random.default_rng(0)
    columns = draw.normal(size=(240, 2))
    same = columns[:, :1] + 1e-9 * draw.normal(size=(240, 1))
    rows = np.c_[columns, same, draw.normal(size=(240, 1)), np.arange(240) // 60]
    np.savetxt(tmp_path / "rents.csv", rows, delimiter=",", header="a,b,c,rent,town", comments="")
    words = [
        "fit",
        "rents.csv",
        "--label",
        "rent",
        "--domain",
        "town",
        "--choose",
        "--single",
        "--select",
        "source-val",
    ]
    candidates = [
        "--candidates",
        "./odd.py:odd,ridge,extra-trees",
        "--set",
        "ridge.decay=0",
        "--set",
        "extra-trees.trees=20",
    ]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words, *candidates, "--steps", "3", "--seeds", "1", *where, "--out", "model"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"note: It is computed {place}.\n") == 1, done.stderr
    assert done.stderr.lower().count("ill-conditioned") == 1, done.stderr
    assert (done.stdout + done.stderr).count("which is simpler, may be chance") == 1, done.stdout + done.stderr


def test_warnings_of_one_line_that_differ_in_numbers_alone_are_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    texts = (
        "The gap is 1.5e-3, of 20 rows.",
        "The gap is -2, of 1,000 rows.",
        "Column 'x1' is empty.",
        "Column 'x2' is empty.",
        "Column '1.5' is empty.",
        "Column '-2' is empty.",
    )
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "warnoptions", [])
        warnings.simplefilter("always")
        with print_warnings_as_notes():
            for text in texts:
                warnings.warn(text, stacklevel=1)
            warnings.warn("The gap is 7, of 9 rows.", stacklevel=1)  # another line: another note
            warnings.warn(texts[0], stacklevel=1)  # the same words once more
    said = [texts[0], *texts[2:], "The gap is 7, of 9 rows."]
    assert capsys.readouterr().err == "".join(f"note: {text}\n" for text in said)


@pytest.mark.slow
def test_a_failed_trial_is_said_once(tmp_path: Path, mistaken: str) -> None:
    words = ["bench", "--algorithms", mistaken, "--held-out", "0", "--trials", "1", "--steps", "2", "--workers", "0"]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words, "--out", "run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("1 trial failed (ArithmeticError: two and two is five)") == 1, done.stderr


NET = f"""
import multiprocessing
import sys
import warnings

from torch import nn

{AWAY}
if AWAY:
    warnings.warn("The net is odd.", stacklevel=1)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(196, 10))
"""


@pytest.mark.slow
def test_what_a_worker_imports_as_it_starts_warns_in_the_way_of_the_first_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_odd_net.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    session = replace(make_session(), task=replace(TASK, module=importlib.import_module("own_odd_net").Net()))
    groups = make_plan(Request(algorithms=["agg"], held_out=["0"], trials=1, steps=2)).missing
    with pytest.warns(Warning, match=r"The net is odd\.") as caught:
        ((_, records),) = Workers(1)(groups, session, lambda group, step: None)
    assert [(w.category.__name__, Path(w.filename).name) for w in caught] == [("UserWarning", "own_odd_net.py")]
    assert [record.status for record in records] == [DONE], records[0].error
    assert "odd" not in capfd.readouterr().err

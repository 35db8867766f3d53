"""The notebooks: their pages are what they say, and every cell runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seqdg
from pages import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def list_code(path: Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["hospitals", "own-algorithm", "paper-tables"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_page_is_that_of_the_notebook(path: Path, script: Any) -> None:
    files = script("make_notebooks").make_page(path)
    assert all((FOLDER / name).read_text(encoding="utf-8") == text for name, text in files.items())
    assert {p.name for p in FOLDER.glob(f"{path.stem}*.svg")} == {name for name in files if name.endswith(".svg")}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_to_its_end_and_is_small(path: Path) -> None:
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)
    assert {kind for output in outputs for kind in output.get("data", {})} <= {"image/svg+xml", "text/plain"}
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 100_000


def test_the_algorithm_of_the_notebook_becomes_agg_where_its_tilt_is_small(capsys) -> None:
    """Its class and its own check of the limit, without the trainings."""
    define, _, check, *_ = list_code(FOLDER / "own-algorithm.ipynb")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(define.replace('@register("tilted")\n', ""), "own-algorithm", "exec", dont_inherit=True), names)
    exec(compile(check, "own-algorithm", "exec", dont_inherit=True), names)
    assert [line.rsplit(" ", 1)[1] for line in capsys.readouterr().out.splitlines()][-1] == "0.000010"


@pytest.mark.soak
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(path: Path, tmp_path: Path, published_runs: Path) -> None:
    pytest.importorskip("altair", reason="The figures of the notebooks are Altair's.")
    code = "\n".join(list_code(path)).replace('"../results/', f'"{published_runs}/')
    places = {**os.environ, "PYTHONPATH": str(Path(seqdg.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=places, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()

"""Everything in docs/results is what its records say: tables as the commands that they name print them, pages and
figures as `scripts/publish.py` makes them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from command import seqdg
from seqdg.results import open_run, runs

ROOT = Path(__file__).parents[2]
RUNS = sorted(path.parent.relative_to(ROOT) for path in (ROOT / "docs" / "results").glob("*/tables"))
LARGE = ("office-caltech10", "pacs-features-search")  # searches, with many times the records of the others
OPENING, CLOSING = "<!-- ", " -->\n\n"


@pytest.fixture(scope="module")
def publish(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("publish")


def printed(command: str) -> str:
    """What the command prints, run in this process."""
    program, *words = shlex.split(command)
    assert program == "seqdg", command
    done = seqdg(*words)
    assert not done.returncode, f"{command} ended with exit code {done.returncode}: {done.stderr}"
    return done.stdout


def stale_tables(directory: Path, pattern: str = "*.md") -> list[str]:
    """Tables that differ in any byte from what their command prints."""
    files = sorted((directory / "tables").glob(pattern))
    assert files, f"There are no tables in {directory}: run `python scripts/publish.py {directory}`."
    found = []
    for file in files:
        command, closing, text = file.read_text(encoding="utf-8").removeprefix(OPENING).partition(CLOSING)
        assert closing, f"{file} does not begin with its command."
        if printed(command) != text:
            found.append(file.name)
    return found


def stale_files(directory: Path, publish: ModuleType) -> list[str]:
    """Files that differ from what the script makes of the records, and those that it does not make."""
    made = publish.files(directory)
    there = {
        p.relative_to(directory).as_posix() for kind in ("tables", "figures") for p in (directory / kind).iterdir()
    }
    wrong = [n for n, text in made.items() if not (directory / n).is_file() or (directory / n).read_text() != text]
    return sorted({*wrong, *(there - made.keys())})


@pytest.mark.slow
@pytest.mark.usefixtures("published_runs")
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_first_table_of_a_published_run_is_what_its_command_prints(run, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert not stale_tables(run, "accuracy-source-val.md"), f"Run: python scripts/publish.py {run}"


@pytest.mark.slow
@pytest.mark.usefixtures("published_runs")
@pytest.mark.parametrize(
    "run", [pytest.param(run, id=run.name, marks=pytest.mark.soak if run.name in LARGE else ()) for run in RUNS]
)
def test_all_that_is_published_of_a_run_is_what_its_records_say(run, monkeypatch, publish):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(runs, "open_run", cache(open_run))  # each table is a command, and all read the same file
    assert not stale_tables(run), f"Run: python scripts/publish.py {run}"
    assert not stale_files(run, publish), f"Run: python scripts/publish.py {run}"


@pytest.fixture(scope="module")
def small(publish, tmp_path_factory):
    """A run of a moment, published as ours are, in a tree of its own."""
    root = tmp_path_factory.mktemp("published")
    place = Path("docs/results/mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        words = "--algorithms agg,fo-s-mldg --held-out 0,75 --trials 2 --steps 6 --search 2 --device cpu --workers 0"
        printed(f"seqdg bench {words} --select leave-one-out --out {root}/runs/mine")
        printed(f"seqdg pack runs/mine --out {place}")
        publish.publish(place)
        yield place


@pytest.mark.slow
def test_what_the_script_publishes_is_what_the_records_say(small, publish):
    assert not stale_tables(small)
    assert not stale_files(small, publish)
    names = {p.name for p in (small / "tables").iterdir()}
    assert {f"accuracy-{rule}.md" for rule in ("source-val", "last", "leave-one-out", "oracle")} <= names
    assert {"log-loss.md", "cost.md"} <= names
    assert {p.name for p in (small / "figures").iterdir()} >= {"domains.svg", "differences.svg", "cost.svg"}


@pytest.mark.slow
def test_the_page_says_where_the_numbers_come_from_and_no_path_of_the_machine(small):
    page = (small / "README.md").read_text(encoding="utf-8")
    for said in ("Data fingerprint", "Versions", "Device", "--search 2", "--out mine", f"seqdg rerun {small}"):
        assert said in page
    assert str(Path.cwd()) not in page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tables/accuracy-last.md", "tables/cost.md", "README.md", "figures/domains.svg"])
def test_a_number_that_was_changed_is_found(small, publish, name):
    file = small / name
    before = file.read_text(encoding="utf-8")
    digit = next(i for i in range(len(before) // 2, len(before)) if before[i] in "12345678")
    file.write_text(before[:digit] + str(int(before[digit]) + 1) + before[digit + 1 :], encoding="utf-8")
    try:
        assert name in stale_files(small, publish)
        if name.startswith("tables/"):
            assert stale_tables(small) == [Path(name).name]
    finally:
        file.write_text(before, encoding="utf-8")


@pytest.mark.slow
def test_publishing_again_removes_what_is_no_longer_made(small, publish):
    (small / "tables" / "old.md").write_text("<!-- seqdg list algorithms -->\n\nold\n")
    assert stale_files(small, publish) == ["tables/old.md"]
    publish.publish(small)
    assert not stale_files(small, publish)


def test_the_factorial_on_the_results_page_is_that_of_its_records(script, published_runs):
    factorial = script("../benchmarks/accuracy/factorial")
    runs = (factorial.Results.open(published_runs / name) for name in ("digits-factorial", "digits-factorial-cosine"))
    assert factorial.format_tables(factorial.collect_cells(*runs)) in (published_runs / "README.md").read_text()

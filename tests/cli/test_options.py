"""The options of a command are made of its signature, and explained by docstrings."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from command import seqdg
from seqdg.cli import GROUPS, app
from seqdg.cli.options import SHORT, TableOptions, read_parameters, takes, use_known_names

COMMANDS: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_explained(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert parameter.help, f"{name} does not explain {parameter.name}"


def test_a_docstring_is_read_down_to_its_parameters() -> None:
    def command(file: Path, /, out: Path, quick: bool = False) -> None:
        """Do it.

        Parameters
        ----------
        file : FILE
            What to read,
            and from where.
        quick
            At once.
        """

    assert read_parameters(command) == (
        "Do it.\n",
        {"file": ("FILE", "What to read, and from where."), "quick": ("", "At once.")},
    )


def test_a_command_gets_its_arguments_by_position_and_its_options_in_their_groups() -> None:
    got: list[Any] = []

    def command(file: Path, /, table: TableOptions, seed: int = 0) -> None:
        """Note what came."""
        got.extend([file, table, seed])

    takes(command)(file=Path("t.csv"), seed=3, **vars(TableOptions(label="ill")))
    assert got == [Path("t.csv"), TableOptions(label="ill"), 3]


@pytest.mark.parametrize("option", ["--held-out", "--id", "--na"])
def test_a_list_that_is_given_twice_is_refused(option: str) -> None:
    done = seqdg("fit", "t.csv", option, "a", option, "b")
    assert done.returncode == 2
    assert done.stderr == f"seqdg: {option} is given 2 times. Give it once, with commas: {option} A,B.\n"


def test_the_help_lists_commands_in_groups_each_with_a_whole_sentence() -> None:
    for flag in ("-h", "--help"):
        lines = seqdg(flag).stdout.splitlines()
        assert [line for line in lines if line.endswith(":") and not line.startswith("Options")] == [
            f"{group}:" for group in GROUPS
        ]
    listed = {name for group in GROUPS.values() for name in group}
    assert {line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")} >= listed
    assert "..." not in "\n".join(lines[1:])
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_in_short_paragraphs(name: str) -> None:
    described = seqdg(name, "-h").stdout.partition("\nOptions:")[0].partition("\nArguments:")[0]
    paragraphs = [lines.splitlines() for lines in described.split("\n\n")[1:]]
    assert max(map(len, paragraphs)) <= 6


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_help_keep_their_lines(name: str) -> None:
    shown = seqdg(name, "-h").stdout
    text, _ = read_parameters(GROUPS[next(group for group in GROUPS if name in GROUPS[group])][name])
    for line in text.splitlines():
        if line.strip().startswith(("seqdg ", "zcat ")):
            assert line.startswith("    "), f"{name}: an example is indented, so that its lines stay"
            assert f"  {line}\n" in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("bench", "--trials", "many"), "--trials is 'many', but it must be a whole number."),
        (("bench", "-t", "1.5"), "--trials is '1.5', but it must be a whole number."),
        (("fit", "t.csv", "-o", "m", "--lr", "low"), "--lr is 'low', but it must be a number."),
        (("bench", "--step", "3"), "`seqdg bench` has no option --step. Did you mean --steps?"),
        (("fit", "t.csv"), "`seqdg fit` needs --out: directory to save the model in."),
        (("fit",), "`seqdg fit` needs DATA: "),
        (("bench", "pacs", "vlcs"), "Got unexpected extra argument"),
        (("train", "t.csv"), "There is no command 'train'. `seqdg fit` trains a model on your own data;"),
        (("bnch",), "There is no command 'bnch'. Did you mean 'bench'?"),
        (("--vers",), "`seqdg` has no option --vers. Did you mean --version?"),
        (("fit", "t.csv", "-o", "m", "--metric", "f1"), "There is no t.csv."),
    ],
)
def test_words_that_are_no_command_are_one_sentence_that_leads_on(words: tuple[str, ...], sentence: str) -> None:
    done = seqdg(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"seqdg: {sentence}")
    assert done.stderr.count("\n") == 1


def test_an_option_is_known_by_the_names_of_other_tools() -> None:
    known = {"--trials", "--algorithms", "--label", "--seed"}
    words = ["--seeds", "3", "--candidates=agg,erm", "--target", "--seed", "7", "--set", "a.b=--seeds=2"]
    assert use_known_names(words, known) == [
        "--trials", "3", "--algorithms=agg,erm", "--label", "--seed", "7", "--set", "a.b=--seeds=2"
    ]  # fmt: skip
    assert use_known_names(["--algorithms"], {"--algorithm"}) == ["--algorithm"]
    assert use_known_names(["--algorithms"], {"--algorithm", "--algorithms"}) == ["--algorithms"]


def test_a_short_option_means_the_same_in_every_command() -> None:
    for name, command in COMMANDS.items():
        shorts = {o: p.opts[-1] for p in command.params for o in p.opts if len(o) == 2}
        for short, option in shorts.items():
            assert short == SHORT[option.removeprefix("--")], f"{name} has another {short}"


@pytest.mark.parametrize(
    ("name", "first"),
    [("fit", ["--label", "--domain", "--algorithms"]), ("bench", ["--algorithms", "--data", "--trials"])],
)
def test_a_help_begins_with_the_frequent_options(name: str, first: list[str]) -> None:
    options = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", seqdg(name, "-h").stdout.partition("Options:")[2], re.MULTILINE)
    assert options[:3] == first


def test_a_sentence_of_several_lines_keeps_them(tmp_path: Path) -> None:
    for site in "ab":
        (tmp_path / "pictures" / site / "cat").mkdir(parents=True)
    (tmp_path / "pictures" / "a" / "cat" / "1.png").write_text("no picture")
    done = seqdg("fit", tmp_path / "pictures", "--out", tmp_path / "model")
    assert done.returncode == 2
    first, *problems = done.stderr.splitlines()
    assert first.endswith("2 things are wrong with the data.")
    assert [line[:2] for line in problems] == ["- ", "- "]
    assert "\\n" not in done.stderr


@pytest.mark.parametrize("words", [["list"], ["list", "algorithms"], ["data", "pacs"], ["-h"], ["show", "agg"]])
def test_what_only_reads_does_not_wait_for_torch(words):
    run = "try: main()\nfinally: print('torch' in sys.modules)"
    code = f"import sys; sys.argv[1:] = {words!r}; from seqdg.cli import main\n{run}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fo-s-mldg", "seqdg bench --algorithms agg,fo-s-mldg --set fo-s-mldg.alpha=VALUE"),
        ("agg", "Next: seqdg bench --algorithms agg\n"),
        ("ema", "seqdg bench --algorithms agg,agg+ema --set agg+ema.decay=VALUE"),
        ("wisdm", "below --data DIR: wisdm.csv"),
        ("rotated-mnist", "Next: seqdg bench rotated-mnist\n"),
    ],
)
def test_show_says_what_list_knows_of_a_name(name: str, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = seqdg("show", name)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert json.loads(seqdg("show", name, "--json").stdout)["name"].removeprefix("+") == name


def test_names_that_are_no_commands_lead_to_what_was_meant():
    assert "`seqdg fit --algorithms xgboost` trains it" in seqdg("xgboost").stderr
    assert "`seqdg fit --task number` predicts a number." in seqdg("regression").stderr

"""Ugly tables in files: a model and its predictions, or one sentence and exit code 2; never a traceback."""

from __future__ import annotations

import csv
import gzip
import io
import random
import warnings
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from command import Done, seqdg

QUICK = ["--steps", "1", "--hidden", "", "--no-estimate", "--algorithm", "agg", "--device", "cpu"]
WORDS = [
    "icu",
    "er",
    "ß",
    "a,b",
    'say "so"',
    "line\nbreak",
    " ",
    "x" * 300,
    "Łódź",
    "日本",
    "true",
    "0",
    "-",
    "none",
    "NaN",
]
NAMES = [
    "age",
    "dose",
    "Größe",
    " dose ",
    "label",
    "p_a",
    "x0",
    "",
    "a;b",
    'q"q',
    "age",
    "long " * 9,
    "日付",
    "1",
    "nan",
]
GAPS = ["", "NA", "?", "n/a", "-", "NULL", "nan", "#N/A"]
CODES = ["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1", "utf-8"]


def draw_cells(draw: random.Random, rows: int) -> list[str]:
    """Draw a column of one kind, more or less."""
    numbers = [f"{draw.gauss(50, 9):.2f}" for _ in range(rows)]
    kind = draw.randrange(16)
    cells = {
        0: numbers,
        1: numbers,
        2: [draw.choice([n, n, n, draw.choice(GAPS)]) for n in numbers],
        3: [draw.choice([n, n, n, n, n, "old"]) for n in numbers],
        4: [draw.choice(WORDS[:4]) for _ in numbers],
        5: [draw.choice(WORDS) for _ in numbers],
        6: ["7"] * rows,
        7: [draw.choice(GAPS) for _ in numbers],
        8: [
            draw.choice(["1e308", "-1e308", "1e-320", "5e-324", "0", "-0.0", "123456789012345678901"]) for _ in numbers
        ],
        9: [draw.choice(["inf", "1", "-Infinity", "2"]) for _ in numbers],
        10: [f"20{draw.randrange(10, 30)}-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}" for _ in numbers],
        11: [f"{draw.randrange(1, 29)}/{draw.randrange(1, 13)}/2020" for _ in numbers],
        12: [str(draw.choice(["True", "false", "TRUE", ""])) for _ in numbers],
        13: [f"p{i}" for i in range(rows)],
        14: [draw.choice(["1,234", "12 %", "€ 5", "007", "1_000", "0x1F", "1.5", "²"]) for _ in numbers],
        15: [str(i) for i in range(rows)],
    }[kind]
    if draw.random() < 0.1:
        cells = [draw.choice([cell, *GAPS]) for cell in cells]
    return cells


def draw_table(draw: random.Random) -> tuple[list[str], list[list[str]]]:
    """Draw names and rows: features, and for the most part a label and a domain."""
    rows = draw.choice([0, 1, 3, 12, 12, 24, 24, 40])
    count = draw.randrange(1, 6)
    names = draw.sample(NAMES, count) if draw.random() < 0.3 else [f"f{i}" for i in range(count)]
    columns = [draw_cells(draw, rows) for _ in names]
    classes = draw.choice(
        [["a", "b"], ["a", "b"], ["0", "1"], ["ja", "ß", "日"], ["one"], ["0.0", "1.0"], ["a", "b", "?"]]
    )
    labels = [draw.choice(classes) for _ in range(rows)]
    sites = draw.choice([["n", "s"], ["n", "s", "w"], ["1", "2"], ["Köln", "x,y"], ["only"]])
    domains = [draw.choice(sites) for _ in range(rows)]
    if draw.random() < 0.07:
        labels = [f"{draw.gauss(0, 1):.3f}" for _ in range(rows)]
    if draw.random() < 0.07:
        domains = [f"row {i}" for i in range(rows)]
    for cells in (labels, domains):
        if rows and draw.random() < 0.07:
            cells[draw.randrange(rows)] = draw.choice(GAPS)
    names += ["y", "d"] if draw.random() < 0.95 else ["Y ", "D"]
    columns += [labels, domains]
    return names, [list(row) for row in zip(*columns, strict=True)]


def write_table(draw: random.Random, folder: Path, name: str, names: list[str], rows: list[list[str]]) -> Path:
    """Write it in some format, more or less as it should be."""
    kind = draw.choice([".csv", ".csv", ".csv", ".tsv", ".csv.gz", ".parquet", ".data"])
    path = folder / f"{name}{kind}"
    if kind == ".parquet" and len(set(names)) == len(names):
        frame = pd.DataFrame(rows, columns=names)
        (frame.convert_dtypes() if draw.random() < 0.5 else frame.apply(_to_numbers)).to_parquet(path)
        return path
    if kind == ".parquet":
        path = folder / f"{name}.csv"
    text = io.StringIO()
    mark = "\t" if kind == ".tsv" else draw.choice([",", ",", ",", ";", "\t", "|"])
    ends = draw.choice(["\n", "\n", "\r\n", "\r"])
    quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    writer = csv.writer(text, delimiter=mark, lineterminator=ends, quoting=quoting)
    writer.writerows([names, *rows] if draw.random() < 0.97 else rows)
    content = text.getvalue().encode(draw.choice(CODES), errors="replace")
    fate = draw.random()
    if fate < 0.04:
        content = b""
    elif fate < 0.08:
        content = content[: draw.randrange(len(content) + 1)]
    elif fate < 0.12:
        content += mark.join(["1"] * draw.randrange(1, 9)).encode() + b"\n"
    elif fate < 0.16:
        content = content.replace(b"1", draw.choice([b'"', b"\0", b"\xff", b"\n\n"]), 1)
    elif fate < 0.18:
        content = draw.randbytes(60)
    packed = gzip.compress(content) if kind == ".csv.gz" else content
    path.write_bytes(packed[:-9] if kind == ".csv.gz" and draw.random() < 0.1 else packed)
    return path


def _to_numbers(column: pd.Series) -> pd.Series:
    try:
        return pd.to_numeric(column)
    except (ValueError, TypeError):
        return column


def draw_options(draw: random.Random, names: list[str]) -> list[str]:
    options: list[str] = []
    some = draw.choice(names)
    if draw.random() < 0.15:
        options += ["--na", draw.choice(["old", "-999,?", "7", ","])]
    if draw.random() < 0.15:
        options += ["--types", f"{some}={draw.choice(['number', 'words', 'date', 'date:dmy', 'ignore', 'float'])}"]
    if draw.random() < 0.1:
        options += [draw.choice(["--id", "--ignore"]), some]
    if draw.random() < 0.05:
        options += ["--encoding", draw.choice(["utf-8", "cp1252", "utf-16", "klingon"])]
    return options


def change(draw: random.Random, names: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Change a table as time does between training and prediction."""
    names, rows = list(names), [list(row) for row in rows]
    fate, place = draw.randrange(8), draw.randrange(len(names))
    if fate == 0:
        names[place] = draw.choice([names[place].upper(), "other", f"{names[place]} "])
    elif fate == 1:
        names, rows = names[1:], [row[1:] for row in rows]
    elif fate == 2:
        names, rows = names[::-1], [row[::-1] for row in rows]
    elif fate == 3:
        cells = draw_cells(draw, len(rows))
        for row, cell in zip(rows, cells, strict=True):
            row[place] = cell
    elif fate == 4:
        for row in rows:
            row[place] = ""
    return names, rows


def expect_a_result_or_a_sentence(done: Done) -> str:
    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        return "done"
    assert done.returncode == 2, done
    last = [line for line in done.stderr.splitlines() if line.startswith("seqdg: ")]
    assert len(last) == 1, done.stderr
    assert last[0].rstrip()[-1] in ".?)", last[0]
    assert not done.stdout, done.stdout
    return "said"


def try_table(seed: int, folder: Path) -> Counter[str]:
    """Fit to one ugly table and predict another."""
    draw = random.Random(seed)
    outcomes: Counter[str] = Counter()
    names, rows = draw_table(draw)
    train = write_table(draw, folder, "train", names, rows)
    words = ["fit", train, "--label", "y", "--domain", "d", *QUICK, *draw_options(draw, names)]
    done = seqdg(*words, "--out", folder / "model", "--force")
    outcomes[f"fit {expect_a_result_or_a_sentence(done)}"] += 1
    if done.returncode:
        return outcomes
    new = write_table(draw, folder, "new", *change(draw, names, rows))
    ids = ["--id", draw.choice(names)] if draw.random() < 0.2 else []
    done = seqdg("predict", folder / "model", new, "--out", folder / "out.csv", "--force", "--device", "cpu", *ids)
    outcomes[f"predict {expect_a_result_or_a_sentence(done)}"] += 1
    if not done.returncode:
        with (folder / "out.csv").open(newline="", encoding="utf-8") as file:
            header, *predicted = list(csv.reader(file))
        start = header.index("label") + 1 if "label" in header else len(header)
        for row in predicted:
            assert start == len(header) or abs(sum(map(float, row[start:])) - 1) < 1e-6
    return outcomes


def try_tables(seeds: range, folder: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcomes += try_table(seed, folder)
            except BaseException as error:
                raise AssertionError(f"The table of seed {seed} gave {type(error).__name__}: {error}") from error
        for path in folder.glob("*.*"):
            path.unlink()
    return outcomes


@pytest.mark.slow
def test_200_ugly_tables_give_a_model_or_a_sentence(tmp_path):
    outcomes = try_tables(range(200), tmp_path)
    assert outcomes["fit done"] > 40, outcomes
    assert outcomes["fit said"] > 40, outcomes
    assert outcomes["predict done"] > 20, outcomes
    assert outcomes["predict said"] > 3, outcomes


@pytest.mark.soak
def test_2000_more_ugly_tables_give_a_model_or_a_sentence(tmp_path):
    try_tables(range(1000, 3000), tmp_path)

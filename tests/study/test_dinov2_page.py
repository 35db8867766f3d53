"""The page of the study on DINOv2 features says what its published records say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from seqdg.report import write_figures
from seqdg.study import answer_study, load_study

pytestmark = pytest.mark.slow  # it reads some thousand trials

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results" / "dinov2.md").read_text(encoding="utf-8")
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


@pytest.fixture(scope="module")
def shares(published_runs):
    assert published_runs.is_dir()
    spec = importlib.util.spec_from_file_location("make_shares", ROOT / "scripts" / "make_shares.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def show(difference, interval, digits):
    low, high = interval
    return f"{difference:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def test_answers_on_the_page_are_those_of_the_records(shares):
    answers = answer_study(load_study(ROOT / "benchmarks" / "study-dinov2.toml"), None).answers
    rows = re.findall(r"^\| (H\d) \|.*\| (\S+) \| (\S+) to (\S+) \|$", PAGE, re.MULTILINE)
    expected = [(a.hypothesis.name, *(f"{x:+.2f}" for x in (a.main.sets[0].mean, *a.interval))) for a in answers]
    assert rows == expected
    assert {a.verdict for a in answers} == {"undecided"}
    assert {round(a.level, 4) for a in answers} == {0.01}
    (adam,) = (p for p in answers[1].beside if str(p.comparison.better) == "fo-s-mldg+ema (adam)")
    (averaged,) = (p for p in answers[0].beside if str(p.comparison.better) == "agg+ema (adam)")
    for pooling in (adam, averaged):
        assert show(pooling.sets[0].mean, pooling.sets[0].find_interval(), 2) in PAGE


def test_shares_and_their_picture_are_those_of_the_records(shares, tmp_path):
    (backbone, by_domain), *others = shares.measure_shares().values()
    assert show(backbone.mean, backbone.find_interval(), 1) in PAGE
    assert f"cartoon by {by_domain['cartoon']:.1f}" in PAGE
    assert f"before, by {by_domain['photo']:.1f}" in PAGE
    for whole, _ in others:
        assert show(whole.mean, whole.find_interval(), 2) in PAGE
    (file,) = write_figures([shares.make_figure()], tmp_path, ["svg"])
    assert file.read_bytes() == (ROOT / "docs" / "pictures" / "shares.svg").read_bytes()


@pytest.mark.parametrize(("part", "count"), [("momentum", 14), ("classic", 5)])
def test_accuracies_on_the_page_are_those_of_the_records(shares, part, count):
    rows = dict(
        re.findall(r"^\| `(\S+)` \| (.*) \|$", PAGE.split("## Accuracies")[1].split(START[part])[1], re.MULTILINE)[
            :count
        ]
    )
    accuracies = shares.read_accuracies(f"pacs-dinov2/{part}")
    assert set(rows) == {name for name in accuracies if not name.endswith(("+sma", "+swad"))}
    for name, text in rows.items():
        by_seed: dict[int, list[float]] = {}
        for (_, seed), value in accuracies[name].items():
            by_seed.setdefault(seed, []).append(value)
        columns = [[v for (d, _), v in accuracies[name].items() if d == domain] for domain in DOMAINS]
        columns.append([fmean(values) for values in by_seed.values()])
        assert text.split(" | ") == [f"{fmean(v):.1f} ± {stdev(v) / len(v) ** 0.5:.1f}" for v in columns], name


START = {"momentum": "Momentum", "classic": "scikit-learn's models"}

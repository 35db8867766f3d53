"""The two studies that explain: their files say what they are meant to compare, their pages what the records say."""

from __future__ import annotations

import itertools
import math
import re
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from command import seqdg
from seqdg.bench import load_benchmark
from seqdg.report import write_figures
from seqdg.results import open_run
from seqdg.study import answer_study, load_study
from seqdg.study.hypotheses import Answer
from seqdg.study.part_runner import make_benchmark

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
WALKING = load_study(BENCHMARKS / "study-walking.toml")
PATH = load_study(BENCHMARKS / "study-path.toml")
PER_STEP = {  # how many domains a step sees
    "pacs-features": 3, "office-caltech10": 3, "digits": 5, "amazon-reviews": 3, "wisdm": 6, "beijing-air": 11,
}  # fmt: skip


@pytest.mark.parametrize("name", WALKING.sets)
def test_kinds_of_parts_differ_in_what_their_comparison_asks_for(name):
    n, parts = PER_STEP[name], {part.kind: part for part in WALKING.parts if part.set == name}
    few, protocol = parts["few"], load_benchmark(parts["few"].benchmark).protocol
    assert (protocol.domains_per_step or n) == n
    for kind in ("many", "small", "single", "plain-small"):
        assert parts[kind].steps == n * few.steps
    for kind in ("many", "single", "far", "plain"):
        assert parts[kind].batch == few.batch
    for kind in ("small", "plain-small"):
        assert parts[kind].batch == round(few.batch / n)
    assert parts["far"].lr == pytest.approx(n * few.lr)
    assert parts["single"].settings == ("agg.domains_per_step=1",)
    assert {parts[kind].lr for kind in ("few", "many", "small", "single")} == {0.001}
    assert "fish.alpha=0.001" in few.settings
    rate = parts["plain"].lr
    assert rate == parts["plain-small"].lr == protocol.lr
    assert parts["plain"].settings == ("ffo-s-mldg.lr=1.0", f"ffo-s-mldg.alpha={rate:g}")
    assert {part.held_out for part in parts.values()} == {few.held_out}


def test_the_family_has_every_combination_and_its_rates_go_by_the_number_of_sources():
    levels = (3, 6, 12), (0, 45, 90), ("0.0", "0.2", "0.4"), (20, 70, 240)
    expected = [
        (f"{d}-{r}-{q}-{k}/momentum", f"turned-digits:number={d},degrees={r},noise={q},rows={k}")
        for d, r, q, k in itertools.product(*levels)
    ]
    assert [(part.name, part.benchmark) for part in PATH.parts] == expected
    for part in PATH.parts:
        benchmark = make_benchmark(part, None)
        assert benchmark.protocol.lr == 0.15
        sources = benchmark.data["number"] - 1
        (setting,) = part.settings
        assert float(setting.removeprefix("fo-s-mldg.lr=")) == pytest.approx(0.15 / sources, rel=1e-3)


# The pages -----------------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """What the records say."""

    walking: tuple[Answer, ...]
    path: Answer
    script: ModuleType


@pytest.fixture(scope="module")
def known(published_runs, script):
    assert published_runs.is_dir()
    (path,) = answer_study(PATH, None).answers
    return Known(answer_study(WALKING, None).answers, path, script("make_explanations"))


def show(difference, interval=None):
    low, high = interval or difference.find_interval()
    return f"{difference.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def read_page(name):
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("walking", 2880), ("path", 5184)])
def test_all_trials_of_both_studies_are_published(published_runs, tmp_path, name, count):
    assert published_runs.is_dir()
    plan = seqdg("study", str(BENCHMARKS / f"study-{name}.toml"), "--out", str(tmp_path), "--dry-run").stdout
    (line,) = re.findall(r"^all +\S+ +\S+ +(\d+) +(\d+)", plan, re.MULTILINE)
    assert line == (str(count), str(count))


@pytest.mark.slow
def test_answers_on_the_page_of_walking_are_those_of_the_records(known):
    page = (ROOT / "docs/results/walking.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (W\d) \| .* \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    expected = []
    for answer in known.walking:
        sets = {s.name: s for s in answer.main.sets}
        alone = show(sets["digits"]), show(sets["beijing-air"])
        expected.append((answer.hypothesis.name, show(answer.main.pooled, answer.interval), *alone))
    assert rows == expected
    assert {answer.verdict for answer in known.walking} == {"undecided"}
    assert {f"{100 * (1 - answer.level):.1f} %" for answer in known.walking} == {"99.4 %"}


@pytest.mark.slow
def test_what_the_page_of_walking_says_of_single_sets_is_so(known):
    w1, w2, _, w4, _, w6, _, w8 = ({s.name: s for s in a.main.sets} for a in known.walking)
    for name in WALKING.sets:
        for path in (w4[name], w8[name]):
            assert path.find_interval()[0] < 0 < path.find_interval()[1], name
        stands_out = name in ("digits", "beijing-air")
        for more in (w2[name], w6[name]):
            assert (more.find_interval()[0] > 0) == stands_out, name
            assert more.mean > w1[name].mean or not stands_out
        assert (w1[name].find_interval()[0] > 0) == stands_out, name
    page = read_page("study.md")
    path = show(known.walking[3].main.pooled, known.walking[3].interval)
    assert path.replace(" (", " points (").replace(")", ", corrected)") in page


@pytest.mark.slow
def test_rates_that_the_search_of_domainbeds_part_tried_and_chose_are_those_on_the_pages(published_runs):
    highest = {}
    for name in ("digits", "beijing-air"):
        with closing(open_run(published_runs / "study" / name / "domainbed" / "search")) as run:
            for record in run.records("accuracy"):
                settings, protocol = record.description["settings"], record.description["protocol"]
                rate = settings["alpha"] if record.algorithm == "fish" else protocol["lr"]
                highest[name, record.algorithm] = max(highest.get((name, record.algorithm), 0.0), float(rate))
    assert highest["digits", "agg"] == highest["beijing-air", "agg"] == pytest.approx(0.0018, abs=5e-5)
    assert highest["digits", "fish"] == 0.01
    assert highest["beijing-air", "fish"] == pytest.approx(0.005, abs=5e-4)
    for page in ("results/walking.md", "results/study.md"):
        assert "its inner rate reach 0.01 on digits and 0.005 on Beijing, and AGG's no more than 0.0018" in read_page(
            page
        )


@pytest.mark.slow
def test_terms_of_the_sum_add_up_on_every_set(known):
    *terms, total = known.script.measure_terms().values()
    for i, whole in enumerate(total.sets):
        assert sum(term.sets[i].mean for term in terms) == pytest.approx(whole.mean)


@pytest.mark.slow
def test_slopes_are_those_of_one_factor_at_a_time_as_the_family_is_balanced(known):
    sets, (explained, slopes) = known.script.measure_sets(), known.script.measure_slopes()
    y = np.array([s.mean for s in sets.values()])
    assert list(y) == pytest.approx([s.mean for s in known.path.main.sets])
    rest = y - y.mean()
    for i, (name, column) in enumerate(known.script.COLUMNS.items()):
        x = np.array([column(place[i]) for place in sets])
        x = (x - x.min()) / (x.max() - x.min())
        slope = np.cov(x, y)[0, 1] / x.var(ddof=1)
        assert slopes[name].value == pytest.approx(slope)
        rest = rest - slope * (x - x.mean())
    assert explained == pytest.approx(1 - rest @ rest / ((y - y.mean()) @ (y - y.mean())))
    x = np.array([place[1] / 90 for place in sets])  # degrees have the largest p, and so the level without correction
    reach = stats.t.ppf(0.975, 76) * math.sqrt(rest @ rest / 76 / ((x - x.mean()) @ (x - x.mean())))
    assert slopes["degrees"].high - slopes["degrees"].value == pytest.approx(reach)


@pytest.mark.slow
def test_numbers_on_the_page_of_the_path_are_those_of_the_records(known):
    page, (explained, slopes) = read_page("results/when-the-path-pays.md"), known.script.measure_slopes()
    rows = re.findall(r"\| [^|]*\d to [\d.]+ \| (\S+) \| (\S+) to (\S+) \| (\S+), (\S+), (\S+) \|", page)
    assert rows == [
        tuple(f"{x:+.2f}" for x in (slope.value, slope.low, slope.high, *known.script.average_levels()[name].values()))
        for name, slope in slopes.items()
    ]
    assert [name for name, slope in slopes.items() if slope.low <= 0 <= slope.high] == ["degrees"]
    assert all((slope.p < 0.05) == (name != "degrees") for name, slope in slopes.items())
    assert known.path.verdict == "supported"
    whole = show(known.path.main.pooled, known.path.interval)
    assert whole.replace(" (", " points (") in page
    assert whole.replace(" (", " points (") in read_page("study.md")
    clear = [s.mean > 0 for s in known.script.measure_sets().values() if known.script.is_clear(s)]
    assert f"({len(clear)} of 81: {sum(clear)} for FO-S-MLDG, {clear.count(False)} for AGG)" in page
    assert f"explain {100 * explained:.0f} % of the variance" in page
    largest = dict.fromkeys(("agg+ema", "fo-s-mldg+ema"), 0)
    for (number, *_), outcomes in known.script.read_sets().items():
        for outcome in outcomes:
            rate = outcome.record.description["protocol"]["lr"] * (1 if outcome.algorithm == "agg+ema" else number - 1)
            largest[outcome.algorithm] += outcome.seed == 0 and rate > 0.2
    assert "AGG in {} of 162 cases, for FO-S-MLDG in {}".format(*largest.values()) in page


@pytest.mark.slow
def test_pictures_of_both_pages_are_those_of_the_records(known, tmp_path):
    for file in write_figures([known.script.draw_walking(), known.script.draw_map()], tmp_path, ["svg"]):
        assert file.read_bytes() == (ROOT / "docs" / "pictures" / file.name).read_bytes()

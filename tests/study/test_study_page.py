"""Numbers of the study on its page, in its appendix and on other pages are those of the published records.

Not among them: the analyses under "Why", which are printed by their commands and kept nowhere, and times.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import pytest
from scipy import stats

from seqdg.report.charts import render_figure
from seqdg.report.published import find_column, find_row, load_tables
from seqdg.results import AVERAGE, Outcome, Record, format_cell, select_outcomes, summarize
from seqdg.results.statistics import average_set, compare_with_each, correct_by_holm, pool_sets
from seqdg.study import answer_study, load_study, make_answers_figure
from seqdg.study.hypotheses import FIGURE, SOURCE, Answers, PartScores, answer_from, pair_scores, read_parts
from seqdg.study.part_runner import count_wanted

pytestmark = pytest.mark.slow  # it reads 20,000 trials, for some ten seconds

ROOT = Path(__file__).parents[2]
ANSWERS = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
TABLES = (ROOT / "docs" / "results" / "study.md").read_text(encoding="utf-8")
DIFFERENCE = re.compile(r"([+-]\d+\.\d+)(?:\*\*)?(?: points)?(?: \(|, )([+-]\d+\.\d+) to ([+-]\d+\.\d+)")
DOMAINS = {"art painting": "art_painting"}


class Known(NamedTuple):
    """What the records say."""

    parts: dict[tuple[str, str], PartScores]
    answers: Answers

    def get_records(self, part: str) -> list[Record]:
        """Return the trials of a part, without those under a schedule."""
        scores = self.parts[part.split("/")[0], part.split("/")[1]]
        return [r for name, records in scores.records.items() if not name.endswith("+cosine") for r in records]


@pytest.fixture(scope="module")
def known(published_runs: Path) -> Known:
    assert published_runs.is_dir()
    study = load_study(ROOT / "benchmarks" / "study.toml")
    parts = read_parts(study, None)
    return Known(parts, answer_from(study, parts))


@pytest.fixture(scope="module")
def by_rule(known: Known) -> dict[str, Answers]:
    """The answers by every rule, from the records that were read once."""
    answers = {"source-val": known.answers}
    for rule in ("last", "oracle-split", "oracle"):
        parts = {name: PartScores(scores.part, scores.records, rule) for name, scores in known.parts.items()}
        answers[rule] = replace(answer_from(known.answers.study, parts), select=rule)
    return answers


def read_section(heading: str, page: str = TABLES) -> str:
    """Return the text under a heading of the appendix or of another page, up to the next."""
    marks = re.search(rf"^(#+) {re.escape(heading)}$", page, re.MULTILINE)
    assert marks is not None, f"The page has no section '{heading}'."
    return re.split(r"^#+ ", page[marks.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def read_table(heading: str, place: int = 0, page: str = TABLES) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a table of a section, in plain text."""
    tables = re.findall(r"(?:^\|.*\n)+", read_section(heading, page), re.MULTILINE)
    cells = [
        [re.sub(r"[*`]", "", cell).strip() for cell in line.strip().strip("|").split("|")]
        for line in tables[place].splitlines()
    ]
    return cells[0], cells[2:]


def make_cells(known: Known, part: str, seed: int | None = None) -> dict[tuple[str, str], str]:
    """Return the cells that `seqdg table` prints of a part, or of one of its seeds, by algorithm and column."""
    return format_cells([r for r in known.get_records(part) if seed in (None, r.seed)])


def format_cells(records: Sequence[Record]) -> dict[tuple[str, str], str]:
    cells = summarize(select_outcomes(records, "source-val", "accuracy"))
    return {(c.algorithm, c.held_out): format_cell(c, 1).partition(" (")[0] for c in cells}


def format_difference(mean: float, low: float, high: float, digits: int) -> tuple[str, str, str]:
    return f"{mean:+.{digits}f}", f"{low:+.{digits}f}", f"{high:+.{digits}f}"


def test_the_page_asks_what_the_file_fixed(known):
    (_, rows), study = read_table("The evidence study", page=ANSWERS), known.answers.study
    assert [row[0] for row in rows] == [h.name for h in study.hypotheses]
    for row, h in zip(rows, study.hypotheses, strict=True):
        sides = [h.comparison.better.algorithm, h.comparison.worse.algorithm]
        assert row[2] in (" minus ".join(sides), f"{sides[0]}, random minus fixed")


def test_the_answers_on_the_page_are_those_of_the_records(known):
    head, rows = read_table("Answers", page=ANSWERS)
    levels = [f"{100 * (1 - answer.level):g} %" for answer in known.answers.answers]
    assert f"(H1: {levels[0]}, the others: {levels[1]})" in head[2]
    assert len(set(levels[1:])) == 1
    for row, answer in zip(rows, known.answers.answers, strict=True):
        low, high = answer.interval
        margin = answer.hypothesis.margin
        asked = f" (asked: above {-margin:g})" if margin else ""
        assert row[0].startswith(f"{answer.hypothesis.name} {answer.hypothesis.comparison.better.algorithm}")
        assert row[1:] == [f"{answer.main.pooled.mean:+.2f}", f"{low:+.2f} to {high:+.2f}{asked}", answer.verdict]


def test_the_answers_by_other_rules_are_those_of_the_records(by_rule):
    (_, *rules), rows = read_table("By other rules")
    names = {"source validation": "source-val"}
    assert [names.get(rule, rule) for rule in rules] == list(by_rule)
    for place, (name, *cells) in enumerate(rows):
        answers = [answers.answers[place] for answers in by_rule.values()]
        assert name.startswith(answers[0].hypothesis.name)
        pooled = [answer.main.pooled for answer in answers]
        triples = [format_difference(p.mean, *p.find_interval(), 2) for p in pooled]
        assert cells == ["{} ({} to {})".format(*triple) for triple in triples]
    assert [a.verdict for a in by_rule["source-val"].answers[1:]] == ["undecided"] * 4
    others = [a.verdict for rule, answers in by_rule.items() if rule != "source-val" for a in answers.answers]
    assert set(others) == {"undecided"}


def test_the_picture_of_the_answers_is_that_of_the_records(known):
    """What it says, that is: where it says it depends on the fonts of a machine."""
    picture = (ROOT / "docs" / "pictures" / f"{FIGURE}.svg").read_text(encoding="utf-8")
    drawn = render_figure(make_answers_figure(known.answers)).decode()
    said, now = (re.findall(r'aria-label="([^"]*)"|<text[^>]*>([^<]*)', svg) for svg in (picture, drawn))
    assert now == said
    assert len(said) > 100


def test_the_best_against_the_best_is_that_of_the_records(known):
    _, rows = read_table("The best against the best")
    rivals = {(r.set, r.kind): r.difference for r in known.answers.rivals if r.chosen_by == SOURCE}
    assert [row[0] for row in rows] == [name for name, kind in rivals if kind == "momentum"]
    for name, *cells in rows:
        for kind, cell in zip(("momentum", "adam"), cells, strict=True):
            mean, low, high = format_difference(rivals[name, kind].mean, *rivals[name, kind].find_interval(), 2)
            assert cell == f"{mean} ({low} to {high})", (name, kind)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("Accuracies", "momentum"), ("DomainBed's baselines", "domainbed"), ("scikit-learn's models", "classic")],
)
def test_accuracies_on_the_page_are_those_of_the_records(known, heading, kind):
    (_, *sets), rows = read_table(heading)
    assert len(sets) == 6
    tables = [make_cells(known, f"{of}/{kind}") for of in sets]
    for name, *cells in rows:
        if name != "the best net above":
            assert cells == [table.get((name, AVERAGE), "") for table in tables], name


def test_the_best_net_is_the_best_of_the_tables_above():
    nets = [row[1:] for heading in ("Accuracies", "DomainBed's baselines") for row in read_table(heading)[1]]
    best = [max(column, key=lambda cell: float(cell.split()[0])) for column in zip(*nets, strict=True)]
    rows = read_table("scikit-learn's models")[1]
    assert rows[-1] == ["the best net above", *best]

    def read_best(rows: list[list[str]]) -> list[float]:
        """Return the best number of the columns on which trees are ahead: digits, WISDM and Beijing."""
        return [max(float(row[place].split()[0]) for row in rows if row[place]) for place in (3, 5, 6)]

    trees, net, plain = read_best(rows[:-1]), read_best(rows[-1:]), read_best(read_table("Accuracies")[1][:1])
    leads = [
        [f"{a - b:.1f}" for a, b in zip(*sides, strict=True)] for sides in ((trees, net), (trees, plain), (net, plain))
    ]
    said = re.findall(r"by (\d\.\d), (\d\.\d) and (\d\.\d)", " ".join(read_section("scikit-learn's models").split()))
    assert list(map(list, said)) == leads


def choose_part(name: str) -> str:
    """Choose the part of Table 3 that has a row."""
    if "tf32" in name:
        return "pacs/table3-tf32"
    return "pacs/table3" if name in ("agg", "fo-s-mldg (paper: S-MLDG)") else "pacs/table3-others"


def test_table_3_is_that_of_the_records_and_of_the_paper(known):
    (_, *columns), rows = read_table("Table 3")
    domains = [DOMAINS.get(name, name) for name in columns[:4]]
    paper = load_tables()["pacs"]
    for name, *cells in rows:
        algorithm = re.split(r"[ ,]", name)[0]
        ours = make_cells(known, choose_part(name))
        assert cells[:5] == [ours[algorithm, column] for column in (*domains, AVERAGE)], name
        theirs = paper.values[AVERAGE, find_column(algorithm)]
        assert cells[5:] == [f"{theirs:.1f}", find_gap(known, choose_part(name), algorithm)], name
        trials = {record.seed for record in known.get_records(choose_part(name)) if record.algorithm == algorithm}
        assert NUMBERS[len(trials)] in name or len(trials) == 3, name


STILL_TO_RUN = ("pacs/table3-slow", "pacs/table3-exact")
NUMBERS = {1: "one trial", 2: "two trials", 3: "three trials"}


def find_gap(known: Known, part: str, algorithm: str) -> str:
    """Return how far our average is from the paper's, with Student's interval over our trials where there are some."""
    trials: dict[int, list[float]] = {}
    for outcome in select_trials(known, part):
        if outcome.algorithm == algorithm and outcome.value is not None:
            trials.setdefault(outcome.seed, []).append(100 * outcome.value)
    averages = [fmean(values) for values in trials.values() if len(values) == 4]
    gap = fmean(averages) - load_tables()["pacs"].values[AVERAGE, find_column(algorithm)]
    if len(averages) == 1:
        return f"{gap:+.1f}"
    reach = stats.t.ppf(0.975, len(averages) - 1) * stdev(averages) / math.sqrt(len(averages))
    return "{} ({} to {})".format(*format_difference(gap, gap - reach, gap + reach, 1))


def select_trials(known: Known, part: str) -> list[Outcome]:
    return select_outcomes(known.get_records(part), "source-val", "accuracy")


def join_table_3(known: Known) -> list[Outcome]:
    """Return the trials of Table 3 that there are."""
    return [o for part in ("table3", "table3-tf32", "table3-others") for o in select_trials(known, f"pacs/{part}")]


def list_pairs(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, int, tuple[float, float, float], float]]:
    """List all ordered pairs of algorithms: the pairs of trials, the mean with its interval, and p."""
    names = list(dict.fromkeys(o.algorithm for o in outcomes))
    for found in compare_with_each(outcomes, names).values():
        for x in found:
            if x.low is not None:
                yield x.algorithm, x.baseline, x.pairs, (x.difference, x.low, x.high), x.p


def test_what_the_paper_says_is_held_against_differences_of_the_records(known):
    _, rows = read_table("Table 3", 1)
    pairs = {(a, b): (count, difference) for a, b, count, difference, _ in list_pairs(join_table_3(known))}
    asked = [("fo-s-mldg", "fo-mldg"), ("ffo-s-mldg", "fo-s-mldg"), ("fo-s-mldg", "agg"), ("ffo-s-mldg", "agg")]
    paper = load_tables()["pacs"].values
    for row, (better, worse) in zip(rows, asked, strict=False):
        count, difference = pairs[better, worse]
        mean, low, high = format_difference(*difference, 1)
        assert f"{mean} ({low} to {high})" in row[1]
        assert row[2] == str(count)
        gap = paper[AVERAGE, find_column(better)] - paper[AVERAGE, find_column(worse)]
        assert f"({gap:+.1f})" in row[0]
    for better, worse in (("agg+ema", "agg"), ("fo-s-mldg+ema", "fo-s-mldg")):
        mean, low, high = format_difference(*pairs[better, worse][1], 1)
        assert f"{mean} ({low} to {high}) for {worse.upper()}" in " ".join(read_section("Table 3").split())


def test_what_is_said_of_leads_over_agg_after_correction_is_so(known):
    names = ("agg+ema", "fo-s-mldg", "fo-s-mldg+ema", "ffo-s-mldg")
    p = {(a, b): p for a, b, *_, p in list_pairs([o for o in join_table_3(known) if "fo-mldg" not in o.algorithm])}
    corrected = dict(zip(names, correct_by_holm([p[name, "agg"] for name in names]), strict=True))
    assert f"over four comparisons with AGG, FFO-S-MLDG's lead has p = {corrected['ffo-s-mldg']:.2f}" in " ".join(
        read_section("Table 3").split()
    )


def list_gains(known: Known, part: str) -> list[float]:
    """List by how much `+ema` raises each algorithm of a part."""
    pairs = {(a, b): difference[0] for a, b, _, difference, _ in list_pairs(select_trials(known, part))}
    return [difference for (a, b), difference in pairs.items() if a == f"{b}+ema"]


def test_the_table_of_efficientnet_lite0_is_that_of_the_records(known):
    (_, *columns), rows = read_table("EfficientNet-Lite0")
    ours, text = make_cells(known, "pacs-lite0/pixels"), read_section("EfficientNet-Lite0")
    falling = known.parts["pacs-lite0", "cosine"].records
    ours |= {
        (name, column): cell for name, records in falling.items() for (_, column), cell in format_cells(records).items()
    }
    assert {name for name, *_ in rows} == {name for name, _ in ours}
    for name, *cells in rows:
        assert cells == [ours[name, DOMAINS.get(column, column)] for column in columns], name
    gains = list_gains(known, "pacs-lite0/pixels")
    assert f"`ema` by {min(gains):.1f} to {max(gains):.1f} points" in text
    averages = {name: float(cells[4].split()[0]) for name, *cells in rows}
    assert max(averages, key=lambda name: averages[name]) == "coral+ema"
    found = compare_with_each(select_trials(known, "pacs-lite0/pixels"), ["agg+ema"])["agg+ema"]
    assert len(found) == 11  # comparisons, for which p is corrected
    corrected = [
        next(x.p_holm for x in found if x.algorithm == name) for name in ("agg", "coral+ema", "ffo-s-mldg+ema")
    ]
    said = re.findall(r"p = (0\.\d+)", text)
    assert [float(p) for p in said] == pytest.approx(corrected, abs=5e-3)


def test_the_table_of_the_resnet_50_is_that_of_the_records_and_of_domainbed(known):
    (_, *columns), rows = read_table("A ResNet-50, beside what DomainBed publishes")
    domains = [DOMAINS.get(name, name) for name in columns[:4]]
    ours, suite = make_cells(known, "pacs-resnet50/pixels"), load_tables("domainbed")["pacs-domainbed"]
    for name, *cells in rows:
        if name.startswith("DomainBed: "):
            theirs = [*(find_row(suite, domain) for domain in domains), AVERAGE]
            expected = [f"{suite.values[row, name.removeprefix('DomainBed: ')]:.1f}" for row in theirs]
        else:
            expected = [ours[name, column] for column in (*domains, AVERAGE)]
        assert cells == expected, name
    gains = list_gains(known, "pacs-resnet50/pixels")
    text = read_section("A ResNet-50, beside what DomainBed publishes")
    assert f"gives every method {min(gains):.1f} to {max(gains):.1f} points" in text
    best = max(float(row[5].split()[0]) for row in rows if "±" in row[5])
    assert f"the best by {suite.values[AVERAGE, 'ERM'] - best:.1f} points" in text
    assert f"SWAD, which averages weights too, has {suite.values[AVERAGE, 'SWAD']:.1f}" in text


@pytest.fixture(scope="module")
def differences(known: Known, by_rule: dict[str, Answers]) -> set[tuple[str, str, str]]:
    """Every difference with its interval that a page may name: of the answers with two digits, and of Table 3 and the
    pixels with one, for other seeds on these domains and for other domains too."""
    found = set()
    modern = answer_study(load_study(ROOT / "benchmarks" / "study-dinov2.toml"), None)
    for one_set in (answer.main.sets[0] for answer in modern.answers):
        found.add(format_difference(one_set.mean, *one_set.find_interval(), 2))
    for name in ("walking", "path"):
        for answer in answer_study(load_study(ROOT / "benchmarks" / f"study-{name}.toml"), None).answers:
            found.add(format_difference(answer.main.pooled.mean, *answer.interval, 2))
    for answer in known.answers.answers:
        found.add(format_difference(answer.main.pooled.mean, *answer.interval, 2))
        for pooling in (answer.main, *answer.beside):
            if pooling.pooled is not None and pooling.pooled.sets > 1:
                found.add(format_difference(pooling.pooled.mean, *pooling.pooled.find_interval(), 2))
            found |= {format_difference(s.mean, *s.find_interval(), 2) for s in pooling.sets}
    for rule in by_rule.values():
        for answer in rule.answers:
            found.add(format_difference(answer.main.pooled.mean, *answer.interval, 2))
            found.add(format_difference(answer.main.pooled.mean, *answer.main.pooled.find_interval(), 2))
    falling_rate = [
        average_set(of, pair_scores(*(part.scores[f"{name}+cosine"].held_out for name in ("fo-s-mldg", "agg"))))
        for (of, kind), part in known.parts.items() if kind == "momentum"
    ]  # fmt: skip
    pooled = pool_sets(falling_rate)
    found.add(format_difference(pooled.mean, *pooled.find_interval(), 2))
    for row in read_table("Table 3")[1]:  # held against the records in a test of its own
        found |= set(DIFFERENCE.findall(row[7]))
    for rival in known.answers.rivals:
        if rival.difference is not None:
            found.add(format_difference(rival.difference.mean, *rival.difference.find_interval(), 2))
    for (name, kind), part in known.parts.items():
        pixels = name.startswith("pacs") and name != "pacs-features"
        for better, worse in itertools.permutations(part.scores, 2):
            if pixels or (kind == "domainbed" and better == f"{worse}+ema"):
                sides = (part.scores[side].held_out for side in (better, worse))
                if (difference := average_set(name, pair_scores(*sides))) is not None:
                    found.add(format_difference(difference.mean, *difference.find_interval(), 1 if pixels else 2))
        if pixels:
            found |= {format_difference(*pair[3], 1) for pair in list_pairs(select_trials(known, f"{name}/{kind}"))}
    found |= {format_difference(*pair[3], 1) for pair in list_pairs(join_table_3(known))}
    averaged, falling = (known.parts["pacs-lite0", kind].scores for kind in ("pixels", "cosine"))
    for name in ("agg", "fo-s-mldg"):
        sides = averaged[f"{name}+ema"].held_out, falling[f"{name}+cosine"].held_out
        difference = average_set("pacs-lite0", pair_scores(*sides))
        found.add(format_difference(difference.mean, *difference.find_interval(), 1))
    return found


def read_part_of(page: str, start: str = "", end: str = "") -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text[text.index(start) : text.index(end) if end else None]


@pytest.mark.parametrize(
    ("page", "start", "end"),
    [
        ("docs/study.md", "", ""),
        ("docs/results/study.md", "", "## Why"),
        ("README.md", "## What we found", "## Read on"),
        ("docs/index.md", "## What we found", "## How it works"),
    ],
)
def test_differences_that_a_page_names_are_those_of_the_records(differences, page, start, end):
    named = DIFFERENCE.findall(read_part_of(page, start, end))
    assert named
    assert [triple for triple in named if triple not in differences] == []


@pytest.mark.parametrize("page", ["docs/paper.md", "docs/fidelity.md", "docs/results/README.md"])
def test_pages_that_repeat_table_3_say_what_it_says(page):
    """`AGG agrees (79.3 ± 1.1, paper: 79.1)`, `S-MLDG 80.4 ± 0.5 (81.5)`, `FFO-S-MLDG in tf32 80.5 ± 0.2 (81.4)`"""
    rows = [row for row in read_table("Table 3")[1] if "±" in row[5]]
    known = {"tf32" if "tf32" in row[0] else row[0].split()[0]: (row[5], row[6]) for row in rows}
    names = {"AGG": "agg", "S-MLDG": "fo-s-mldg", "FFO-S-MLDG": "tf32", "MLDG": "fo-mldg", "DANN": "dann"}
    names |= {"Undo-Bias": "undo-bias", "S-Undo-Bias": "s-undo-bias"}
    said = re.findall(
        r"([\w-]+)(?: has| at| \(first-order\)| agrees| is a point lower)? \(?(\d+\.\d ± \d\.\d)(?: \(|, )(?:paper: )?"
        r"(\d+\.\d)\)",
        (ROOT / page).read_text(encoding="utf-8"),
    )
    assert {"AGG", "S-MLDG"} <= {name for name, *_ in said}
    assert [known[names.get(name, name)] for name, *_ in said] == [(ours, theirs) for _, ours, theirs in said]


def test_the_short_table_3_is_that_of_the_appendix():
    head, (ours, paper) = read_table("Table 3", page=ANSWERS)
    rows = {re.split(r" \(|,", row[0])[0]: row[5:7] for row in read_table("Table 3")[1]}
    for name, *cells in zip(head[1:], ours[1:], paper[1:], strict=True):
        assert cells == [re.sub(r"[*]", "", cell) for cell in rows.get(name, [])], name


def test_the_answers_have_the_accuracies_of_the_images(known):
    ours, text = make_cells(known, "pacs-resnet50/pixels"), read_section("Other networks on PACS", ANSWERS)
    assert f"S-MLDG with averaging is first of nine at {ours['fo-s-mldg+ema', AVERAGE]}" in text
    lite = make_cells(known, "pacs-lite0/pixels")
    assert f"CORAL with averaging is first of fourteen at {lite['coral+ema', AVERAGE]}" in text
    gains = list_gains(known, "pacs-lite0/pixels")
    assert f"by {min(gains):.1f} to {max(gains):.1f} points" in text


def test_swings_on_the_page_are_those_of_the_records(known):
    swings = [s.swing for s in known.answers.steadiness if (s.kind, s.algorithm) == ("momentum", "agg")]
    ranges = [f"{min(v):.1f} to {max(v):.1f}" for v in ([s[name] for s in swings] for name in ("plain", "ema"))]
    text = " ".join(read_section("Secondary findings").split())
    assert f"AGG swings by {ranges[0]} points (a standard deviation), averaged by `ema` by {ranges[1]}" in text


def test_the_trainings_that_the_page_counts_are_those_of_the_file(known):
    counts: dict[str, int] = {}
    for part in known.answers.study.parts:
        read = known.parts.get((part.set, part.kind)) or known.parts["pacs", "table3"]  # the same four domains
        folds = len({r.held_out for records in read.records.values() for r in records})
        kind = part.set if part.set.startswith("pacs-") and part.set != "pacs-features" else part.kind
        counts[kind] = counts.get(kind, 0) + sum(trainings for trainings, _ in count_wanted(part, folds).values())
    counts["Table 3"] = sum(counts.pop(kind) for kind in list(counts) if kind.startswith("table3"))
    named = {
        "six sets, momentum": "momentum", "six sets, fixed path": "fixed", "six sets, Adam": "adam",
        "six sets, DomainBed's conventions": "domainbed", "classic learners": "classic", "Table 3": "Table 3",
        "PACS pixels, EfficientNet-Lite0": "pacs-lite0", "PACS pixels, ResNet-50": "pacs-resnet50",
    }  # fmt: skip
    assert {row[0]: int(row[1].replace(",", "")) for row in read_table("What it costs")[1]} == {
        name: counts[kind] for name, kind in named.items()
    }


def test_every_table_has_a_command_that_makes_it_from_nothing(known):
    """A section with accuracies or differences is named in the table of commands, whose parts exist, and each command
    that prints one reads what these parts write."""
    study, lines = known.answers.study, re.findall(r"^\| \[.*", read_section("How it is run"), re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    linked = {name for row in rows for name in re.findall(r"\[([^]]+)\]", row[0])}
    sections = {"Answers"}
    for heading in re.findall(r"^#+ (.*)$", TABLES, re.MULTILINE):
        if re.search(r"^\|.*\d\.\d", read_section(heading), re.MULTILINE):
            sections.add(heading.partition(",")[0].removeprefix("A "))
    assert {name[0].upper() + name[1:] for name in linked} == {
        name[0].upper() + name[1:] for name in sections - {"Why", "What it costs"}
    }
    for table, parts, command in rows:
        wanted = {part.name for part in study.select_parts(parts.strip("`'").split(","))}
        assert wanted, table
        printed = re.findall(r"runs/again/([\w-]+/[\w/-]+)", command)
        for place in printed:
            assert "/".join(place.split("/")[:2]) in wanted, (table, place)
            assert (study.published / place).is_dir() or place in STILL_TO_RUN, place
        if "and so on" not in command and printed:
            assert {"/".join(place.split("/")[:2]) for place in printed} == wanted, table

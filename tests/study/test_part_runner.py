"""A study: its file, its parts, how it goes on after an interruption, and from published records."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seqdg.base import UsageError
from seqdg.cli import main
from seqdg.results import DIVERGED, DONE, InnerTrials, Store, open_run, score_candidate
from seqdg.study import (
    OutOfTime,
    StudyWhere,
    answer_study,
    describe_plan,
    load_study,
    make_answers_figure,
    publish_parts,
    render_answers,
    run_study,
)
from seqdg.study.hypotheses import SOURCE, Scores, _count_names, choose_best
from seqdg.study.part_runner import make_benchmark

TEXT = """
title = "A small study"
published = "published"
sequential = ["fo-s-mldg"]

[defaults]
benchmark = "rotated-mnist"
trials = 2
steps = 18
evaluations = 9
search_evaluations = 3
precision = "float64"
batch = 8
draws = 2
held_out = ["0", "75"]

[[parts]]
name = "digits/momentum"
algorithms = ["agg", "fo-s-mldg"]
variants = ["plain", "cosine", "ema", "swad"]

[[parts]]
name = "digits/fixed"
algorithms = ["fo-s-mldg"]
variants = ["plain", "ema"]
path = "fixed"

[[parts]]
name = "more/momentum"
algorithms = ["agg", "fo-s-mldg"]
variants = ["plain", "ema"]
draws = 1
optimizer = "adam"
lr = 0.004

[[hypotheses]]
name = "H1"
says = "Averaging helps AGG"
better = "momentum: agg+ema"
worse = "momentum: agg"
beside = [["momentum: agg+cosine", "momentum: agg"]]

[[hypotheses]]
name = "H4"
says = "A random path is better"
better = "momentum: fo-s-mldg+ema"
worse = "fixed: fo-s-mldg+ema"
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study that was interrupted and went on to its end; its file and its runs."""
    folder = tmp_path_factory.mktemp("study")
    file = folder / "study.toml"
    file.write_text(TEXT)
    study = load_study(file)
    where = StudyWhere(folder / "runs", device="cpu", workers=0)
    with pytest.raises(OutOfTime):
        run_study(study, study.parts, StudyWhere(where.out, device="cpu", workers=0, minutes=1e-6))
    first = {record.key: record.finished for record in open_run(where.out / "digits/momentum/search").records()}
    assert first  # the group that it had begun
    assert run_study(study, study.parts, where) == []
    after = {record.key: record.finished for record in open_run(where.out / "digits/momentum/search").records()}
    assert {key: after[key] for key in first} == first
    return study, where.out


def read(out, part):
    return Store.open(out / part).records()


@pytest.mark.slow
def test_a_study_runs_its_parts_and_averages_share_trainings(whole):
    _, out = whole
    trials = read(out, "digits/momentum")
    assert {r.algorithm for r in trials} == {n + e for n in ("agg", "fo-s-mldg") for e in ("", "+ema", "+swad")}
    assert len(trials) == 2 * 3 * 2 * 2
    assert {r.seed for r in trials} == {0, 1}
    assert {r.description["protocol"]["schedule"] for r in read(out, "digits/momentum/cosine")} == {"cosine"}
    searched = read(out, "digits/momentum/search")
    assert {r.seed for r in searched} == {100}
    assert {len(r.history) for r in searched} == {3}
    assert {r.description["protocol"]["path"] for r in read(out, "digits/fixed")} == {"fixed"}
    other = read(out, "more/momentum")
    assert {(r.description["protocol"]["optimizer"], r.description["protocol"]["lr"]) for r in other} == {
        ("adam", 0.004)
    }


def test_each_fold_uses_the_settings_that_its_own_source_validation_chose(whole):
    _, out = whole
    for view in ("", "+ema"):
        for fold in ("0", "75"):
            tried = [
                r
                for r in read(out, "digits/momentum/search")
                if r.algorithm == f"fo-s-mldg{view}"
                and r.held_out == (fold,)
                and r.description["protocol"].get("schedule", "constant") == "constant"
            ]
            assert len(tried) == 2
            best = max(tried, key=lambda r: score_candidate(r, InnerTrials(()), "source-val", "accuracy"))
            used = [
                r for r in read(out, "digits/momentum") if r.algorithm == f"fo-s-mldg{view}" and r.held_out == (fold,)
            ]
            assert {r.description["protocol"]["lr"] for r in used} == {best.description["protocol"]["lr"]}
            assert {json.dumps(r.description["settings"]) for r in used} == {json.dumps(best.description["settings"])}


def test_a_study_goes_on_from_its_published_records_alone(whole, tmp_path):
    study, out = whole
    copy = tmp_path / "runs"
    shutil.copytree(out, copy)
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    study = load_study(file)
    answers = render_answers(answer_study(study, copy))
    lines = list(publish_parts(study, study.parts, copy))
    assert len(lines) == 6
    shutil.rmtree(copy)
    assert render_answers(answer_study(study, None)) == answers
    assert "unknown" not in describe_plan(study, study.parts, copy, None)
    before = {r.key: r.finished for r in open_run(tmp_path / "published/digits/momentum").records()}
    assert run_study(study, study.parts, StudyWhere(copy, device="cpu", workers=0)) == []
    assert {r.key: r.finished for r in read(copy, "digits/momentum")} == before
    assert open_run(tmp_path / "published/digits/momentum").groups() == Store.open(copy / "digits/momentum").groups()


def test_answers_name_each_comparison_its_interval_and_a_verdict(whole):
    study, out = whole
    answers = answer_study(study, out)
    assert [a.hypothesis.name for a in answers.answers] == ["H1", "H4"]
    assert [len(a.main.sets) for a in answers.answers] == [2, 1]
    stored = {(r.algorithm, r.held_out[0], r.seed): r for r in read(out, "digits/momentum")}

    def accuracy(algorithm, fold, seed):
        history = stored[algorithm, fold, seed].history
        best = max(history, key=lambda e: sum(e.source["accuracy"]))
        return 100 * best.held_out["accuracy"][0]

    expected = np.mean([accuracy("agg+ema", f, s) - accuracy("agg", f, s) for f in ("0", "75") for s in (0, 1)])
    assert answers.answers[0].main.sets[0].mean == pytest.approx(expected)
    assert answers.answers[1].verdict == "undecided"  # one set decides nothing
    data = json.loads(render_answers(answers, "json"))
    assert data["hypotheses"][0]["verdict"] in ("supported", "refuted", "undecided")
    assert data["hypotheses"][1]["interval"] == [None, None]
    assert "## H1. Averaging helps AGG" in render_answers(answers, "markdown")
    with pytest.raises(UsageError, match="text, markdown, json"):
        render_answers(answers, "html")


def test_a_study_of_one_set_is_answered_over_its_domains_and_seeds(whole, tmp_path):
    kept = TEXT[: TEXT.index('[[parts]]\nname = "more/momentum"')] + TEXT[TEXT.index("[[hypotheses]]") :]
    (tmp_path / "one.toml").write_text(kept)
    answers = answer_study(load_study(tmp_path / "one.toml"), whole[1])
    for answer in answers.answers:
        assert answer.interval == answer.main.sets[0].find_interval(answer.level)
        assert answer.p == pytest.approx(answer.main.sets[0].test(-answer.hypothesis.margin))
        low, high = answer.main.sets[0].find_interval(answer.p)  # a test and its interval agree
        assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-9)
    data = json.loads(render_answers(answers, "json"))["hypotheses"]
    assert [h["interval"] for h in data] == [list(a.interval) for a in answers.answers]
    assert "over the domains and seeds of this set" in render_answers(answers)


def test_answers_by_another_rule_are_of_its_steps_and_say_so(whole):
    study, out = whole
    stored = {(r.algorithm, r.held_out[0], r.seed): r.history for r in read(out, "digits/momentum")}

    def average(choose):
        places = [(fold, seed) for fold in ("0", "75") for seed in (0, 1)]
        ours, other = ([choose(stored[(name, *place)]) for place in places] for name in ("agg+ema", "agg"))
        return 100 * np.mean(np.subtract(ours, other))

    expected = {
        "last": average(lambda history: history[-1].held_out["accuracy"][0]),
        "oracle": average(lambda history: max(e.held_out["accuracy"][0] for e in history)),
    }
    assert len({round(value, 9) for value in expected.values()}) == 2
    for rule, value in expected.items():
        answers = answer_study(study, out, rule)
        assert answers.answers[0].main.sets[0].mean == pytest.approx(value)
        assert f"chosen by another rule, {rule}." in render_answers(answers)
        assert json.loads(render_answers(answers, "json"))["select"] == rule
        assert f"another rule than the study's: {rule}." in make_answers_figure(answers).caption
    assert "another rule" not in render_answers(answer_study(study, out))
    assert "another rule" not in make_answers_figure(answer_study(study, out)).caption
    with pytest.raises(UsageError, match="no selection rule 'leave-one-out'"):
        answer_study(study, out, "leave-one-out")


def test_answers_show_the_best_of_each_side_as_rows_of_a_table(whole):
    answers = answer_study(*whole)
    text = render_answers(answers)
    for rival in answers.rivals:
        low, high = rival.difference.find_interval()
        names = [
            ", ".join(f"{name} ({n})" for name, n in Counter(side.values()).most_common())
            for side in (rival.sequential, rival.other)
        ]
        cells = [rival.set, rival.kind, rival.chosen_by, *names]
        cells.append(f"{rival.difference.mean:+.2f} ({low:+.2f} to {high:+.2f})")
        assert cells in [re.split(r" {2,}", line) for line in text.splitlines()]


def test_the_figure_has_a_panel_for_each_answer_with_its_sets_and_all_of_them(whole):
    answers = answer_study(*whole)
    figure = make_answers_figure(answers)
    known = [answer for answer in answers.answers if answer.interval is not None]
    assert [panel.heading for panel in figure.panels] == [f"{a.hypothesis.name}: {a.verdict}" for a in known]
    for panel, answer in zip(figure.panels, known, strict=True):
        last = panel.rows[-1] if len(answer.main.sets) > 1 else None
        means = [s.mean for s in answer.main.sets]
        assert [row["value"] for row in panel.rows[: len(means)]] == pytest.approx(means, rel=1e-5)
        if last is not None:
            ends = [answer.main.pooled.mean, *answer.interval]
            assert [last["value"], last["low"], last["high"]] == pytest.approx(ends, rel=1e-5)
    labels = [panel.description.removeprefix(f"{panel.heading}: ").partition(". ")[0] for panel in figure.panels]
    assert labels == ["agg+ema − agg", "fo-s-mldg+ema, random − fixed path"]


def test_the_figure_says_what_a_hypothesis_with_a_margin_asks(whole):
    answers = answer_study(*whole)
    (first, *_) = answers.answers
    asked = replace(first, hypothesis=replace(first.hypothesis, margin=0.5))
    (panel, *_) = make_answers_figure(replace(answers, answers=(asked,))).panels
    assert panel.heading == f"H1: {asked.verdict} (asked: above −0.5)"


def test_the_best_of_each_side_is_chosen_for_every_held_out_domain_by_its_own_source_validation(whole):
    study, out = whole
    rivals = {(r.set, r.kind): r for r in answer_study(study, out).rivals if r.chosen_by == SOURCE}
    assert set(rivals) == {("digits", "momentum"), ("more", "momentum")}
    rival = rivals["digits", "momentum"]
    trials = [(r.algorithm, r) for r in read(out, "digits/momentum")]
    trials += [(f"{r.algorithm}+cosine", r) for r in read(out, "digits/momentum/cosine")]
    differences = []
    for fold in ("0", "75"):
        source, held_out = defaultdict(list), {}
        for name, r in trials:
            if r.held_out == (fold,):
                best = max(r.history, key=lambda e: np.mean(e.source["accuracy"]))
                source[name].append(np.mean(best.source["accuracy"]))
                held_out[name, r.seed] = 100 * best.held_out["accuracy"][0]
        ours, other = (
            max((n for n in source if n.startswith("fo-s-mldg") == sequential), key=lambda n: np.mean(source[n]))
            for sequential in (True, False)
        )
        assert (rival.sequential[fold], rival.other[fold]) == (ours, other)
        differences += [held_out[ours, seed] - held_out[other, seed] for seed in (0, 1)]
    assert rival.difference.mean == pytest.approx(np.mean(differences))


def test_what_is_best_in_other_folds_chooses_nothing_in_this_one():
    """The domain that is held out here is a source there, so that its rows would choose."""
    places = [("a", 0), ("b", 0)]
    side = {
        name: Scores(dict(zip(places, held_out, strict=True)), dict(zip(places, source, strict=True)), frozenset())
        for name, source, held_out in (("agg", (80.0, 70.0), (1.0, 4.0)), ("coral", (79.0, 99.0), (2.0, 3.0)))
    }
    assert choose_best(side, by_source=True) == {"a": "agg", "b": "coral"}
    assert choose_best(side, by_source=False) == {"a": "coral", "b": "agg"}


def test_an_algorithm_is_not_the_best_where_only_the_seeds_that_did_not_diverge_are_good():
    steady = Scores({("a", 0): 70.0, ("a", 1): 70.0}, {("a", 0): 80.0, ("a", 1): 80.0}, frozenset())
    lucky = Scores({("a", 0): 90.0, ("b", 0): 60.0}, {("a", 0): 99.0, ("b", 0): 60.0}, frozenset("a"))
    for by_source in (True, False):
        assert choose_best({"lucky": lucky, "steady": steady}, by_source) == {"a": "steady", "b": "lucky"}
    gone = Scores({("a", 0): 10.0}, {("a", 0): 10.0}, frozenset("a"))
    assert choose_best({"gone": gone, "lucky": lucky}, by_source=True)["a"] == "lucky", "all of them diverged"


def test_of_many_names_a_table_shows_the_two_that_are_chosen_most_often():
    folds = dict(enumerate(["agg", "coral", "agg", "mldg", "coral", "agg", "dann"]))
    assert _count_names(folds) == "agg (3), coral (2), others (2)"
    assert _count_names({"a": "agg"}) == "agg (1)"


def test_swings_are_deviations_over_the_last_ten_evaluations(whole, monkeypatch):
    study, out = whole
    monkeypatch.setattr("seqdg.study.hypotheses.LAST", 4)
    found = {(s.set, s.kind, s.algorithm): s for s in answer_study(study, out).steadiness}
    mine = found["digits", "momentum", "agg"]
    curves = [
        [100 * e.held_out["accuracy"][0] for e in r.history[-4:]]
        for r in read(out, "digits/momentum")
        if r.algorithm == "agg+swad"
    ]
    assert mine.swing["swad"] == pytest.approx(np.mean([np.std(curve, ddof=1) for curve in curves]))
    assert set(mine.swing) == {"plain", "ema", "swad"}
    assert set(mine.gain) == {"ema", "swad"}


def test_the_plan_counts_trainings_and_records(whole):
    study, out = whole
    lines = {
        line.split()[0]: line.split()[1:] for line in describe_plan(study, study.parts, out, None).splitlines() if line
    }
    # search: 2 draws, 2 folds, 2 algorithms, 2 schedules; trials: 2 algorithms, 2 folds, 2 seeds, at most 3 trainings
    assert lines["digits/momentum"] == ["40", "0.00", "56", "56", "none"]
    assert lines["more/momentum"] == ["8", "0.00", "16", "16", "none"]


def test_the_time_left_is_that_of_trainings_which_reached_their_end(whole, tmp_path):
    _, out = whole
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("trials = 2", "trials = 4"))
    study = load_study(file)

    def copy(part, change):
        (tmp_path / "runs" / part).mkdir(parents=True)
        store = Store.create(tmp_path / "runs" / part, "rotated-mnist")
        store.add(map(change, read(out, part)))
        store.close()

    def diverge(record):  # at once, but for AGG
        if record.algorithm.startswith("agg"):
            return replace(record, seconds=10.0, status=DONE)
        return replace(record, seconds=1.0, status=DIVERGED)

    def prolong(record):  # two records of a training, plain and averaged, take 10 s; the one of another takes 40 s
        return replace(record, seconds=40.0 if record.description["protocol"].get("schedule") == "cosine" else 10.0)

    copy("more/momentum", diverge)
    copy("digits/momentum/search", prolong)

    def read_time_left(workers):
        lines = describe_plan(study, study.parts, tmp_path / "runs", None, workers).splitlines()
        return {line.split()[0]: " ".join(line.split()[5:]) for line in lines if line}

    left = read_time_left(1)
    assert left["more/momentum"] == "about 80 s", "2 seeds of 2 algorithms with 2 folds, 10 s each"
    assert left["digits/momentum"] == "about 20 min", "4 seeds, of at most 3 trainings, 25 s each; the search is done"
    assert left["digits/fixed"] == "unknown"
    assert read_time_left(4)["more/momentum"] == "about 20 s"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"plain", "cosine", "ema", "swad"', '"plain", "lion"'), "lion"),
        (('name = "digits/fixed"', 'name = "fixed"'), "SET/KIND"),
        (('name = "digits/fixed"', 'name = "digits/momentum"'), "two parts named"),
        (("trials = 2", "trials = 200"), "which is one of its trials"),
        (('worse = "momentum: agg"', 'worse = "momentum: mldg"'), "which no part of it has"),
        (('better = "momentum: agg+ema"', 'better = "agg+ema"'), "KIND: ALGORITHM"),
        (("draws = 2", "drawz = 2"), "drawz"),
        (('"plain", "cosine", "ema", "swad"', '"plain", "cosine", "swad"'), r"chosen by \+ema"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_in_a_sentence(tmp_path, change, message):
    file = tmp_path / "study.toml"
    assert change[0] in TEXT
    file.write_text(TEXT.replace(*change, 1))
    with pytest.raises(UsageError, match=message):
        load_study(file)


def test_the_command_says_what_it_would_run_and_answers(whole, tmp_path, capsys, monkeypatch):
    study, out = whole

    def run(*words):
        monkeypatch.setattr("sys.argv", ["seqdg", "study", str(study.path), "--out", str(out), *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr()

    assert "digits/fixed" in run("--dry-run")[1].out
    assert run("--answers", "--format", "json")[1].out.startswith("{")
    published = study.path.parent / "published"
    assert list(publish_parts(study, study.parts, out))

    def count(*words):  # what --dry-run says is done, of how many
        last = next(
            line
            for line in run("--dry-run", "--out", str(tmp_path / "empty"), *words)[1].out.splitlines()
            if line.startswith("all")
        )
        return last.split()[3:5]

    done, wanted = count()
    assert done == wanted != "0"
    assert count("--from-nothing") == ["0", wanted]
    shutil.rmtree(published)
    code, said = run("--dry-run", "--select", "last")
    assert (code, "--select goes with --answers" in said.err) == (2, True)
    code, said = run("--from-nothing", "--publish")
    assert (code, "--from-nothing goes with running" in said.err) == (2, True)
    code, said = run("--parts", "office")
    assert code == 2
    assert " has no part " in said.err


def test_parts_are_named_by_set_by_pattern_or_whole(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    study = load_study(file)
    assert [p.name for p in study.select_parts(["digits"])] == ["digits/momentum", "digits/fixed"]
    assert [p.name for p in study.select_parts(["*/momentum"])] == ["digits/momentum", "more/momentum"]
    with pytest.raises(UsageError, match="digits/fixed"):
        study.select_parts(["office"])


def test_the_studys_own_file_can_be_read_and_its_benchmarks_made():
    study = load_study(Path(__file__).parents[2] / "benchmarks" / "study.toml")
    assert [h.name for h in study.hypotheses] == ["H1", "H2", "H3", "H4", "H5"]
    for part in study.parts:
        benchmark = make_benchmark(part, Path("data"))
        assert benchmark.protocol.evaluations == part.evaluations
        assert benchmark.protocol.path == part.path
    sets = {p.set for p in study.parts if p.kind == "momentum"}
    assert len(sets) == 6
    assert sets == {p.set for p in study.parts if p.kind == "fixed"}


@pytest.mark.slow
def test_a_group_that_was_cut_short_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """Training ends in a checkpoint when it is interrupted. The group goes on from there, to the same accuracies."""
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("steps = 18", "steps = 27"))
    study = load_study(file)
    part = next(part for part in study.parts if part.name == "more/momentum")
    whole = tmp_path / "whole"
    assert run_study(study, [part], StudyWhere(whole, device="cpu", workers=0)) == []

    steps: list[int] = []

    def count(group, step):
        steps.append(step)
        if cut and step:
            raise KeyboardInterrupt

    monkeypatch.setattr("seqdg.bench.execution.Progress.note_step", lambda self, group, step: count(group, step))
    runs, cut = tmp_path / "runs", True
    with pytest.raises(KeyboardInterrupt):
        run_study(study, [part], StudyWhere(runs, device="cpu", workers=0))
    where_it_stopped = steps[-1]
    assert list((runs / part.name / "checkpoints").iterdir())
    steps.clear()
    cut = False
    assert run_study(study, [part], StudyWhere(runs, device="cpu", workers=0)) == []
    assert next(step for step in steps if step) > where_it_stopped  # groups have the same order
    assert not list((runs / part.name / "checkpoints").iterdir())
    assert {r.key: r.history for r in read(runs, part.name)} == {r.key: r.history for r in read(whole, part.name)}


@pytest.mark.slow
def test_trainings_that_do_not_stack_run_seed_by_seed(tmp_path, monkeypatch):
    """A part that is cut short has whole seeds of all its algorithms, not all seeds of the first."""
    monkeypatch.setattr("seqdg.bench.planning.count_together", lambda *args: 1)
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    study = load_study(file)
    part = next(part for part in study.parts if part.name == "more/momentum")
    assert run_study(study, [part], StudyWhere(tmp_path / "runs", device="cpu", workers=0)) == []
    in_order = sorted(read(tmp_path / "runs", part.name), key=lambda r: r.finished)
    seeds = [r.seed for r in in_order]
    assert seeds == sorted(seeds)
    assert {r.algorithm for r in in_order[: len(seeds) // 2]} == {r.algorithm for r in in_order}


@pytest.mark.slow
def test_workers_stop_when_the_minutes_are_over_and_their_groups_go_on_later(tmp_path, monkeypatch):
    """Also in the middle of a group: it is there that a worker's time ends."""
    monkeypatch.setattr("seqdg.bench.execution.NOTED", 0.0)
    file = tmp_path / "study.toml"
    file.write_text(TEXT.replace("steps = 18", "steps = 900"))
    study = load_study(file)
    part = next(part for part in study.parts if part.name == "more/momentum")
    with pytest.raises(OutOfTime):
        run_study(study, [part], StudyWhere(tmp_path / "runs", device="cpu", workers=2, minutes=1e-6))
    assert read(tmp_path / "runs", part.name) == []

"""What a search chose on the first seed is used on the others, and comes out as files that other runs can use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench import Request, load_benchmark, run
from seqdg.bench.search import choose_settings
from seqdg.report import Results
from seqdg.results import Record, Store, name_candidate, select_outcomes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORDS = (
    "bench", "--algorithms", "agg,fo-s-mldg", "--held-out", "0,30", "--steps", 20, "--search", 3, "--reuse",
    "--trials", 3, "--device", "cpu", "--workers", 0, "--set", "agg.momentum=0.8",
)  # fmt: skip


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reuse") / "run"
    done = seqdg(*WORDS, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "among 3 candidates of each algorithm; the other seeds reuse them." in done.stdout
    return out


def read(directory: Path) -> list[Record]:
    store = Store.open(directory)
    try:
        return store.records()
    finally:
        store.close()


@pytest.mark.slow
def test_other_seeds_have_the_settings_that_the_first_seed_chose_for_their_held_out_domain(directory: Path) -> None:
    records = read(directory)
    for algorithm in ("agg", "fo-s-mldg"):
        for domain in ("0", "30"):
            own = [r for r in records if (r.algorithm, r.held_out) == (algorithm, (domain,))]
            first = [r for r in own if r.seed == 0]
            assert (len(first), len(own)) == (3, 5)
            best = max(first, key=lambda r: max(sum(e.source["accuracy"]) for e in r.history))
            assert {name_candidate(r) for r in own if r.seed > 0} == {name_candidate(best)}


def test_the_same_command_again_trains_nothing(directory: Path) -> None:
    assert "20 trials, 20 of them done; 0 to run" in seqdg(*WORDS, "--out", directory).stderr
    store = Store.open(directory)
    assert len(store.planned()) == 20
    store.close()


@pytest.mark.slow
def test_an_interrupted_search_goes_on_to_the_same_choice(directory: Path, tmp_path: Path) -> None:
    words = [w for w in WORDS if w != "--reuse"]
    words[words.index("--trials") + 1] = 1
    assert seqdg(*words, "--out", tmp_path).returncode == 0  # all of the first seed, and nothing of the others
    assert seqdg(*WORDS, "--out", tmp_path).returncode == 0
    assert {r.key for r in read(tmp_path)} == {r.key for r in read(directory)}


def test_leave_one_out_chooses_on_the_first_seed_and_has_its_pairs_on_the_others(tmp_path: Path) -> None:
    results = run("rotated-mnist", ["agg"], held_out=["0"], steps=4, trials=2, search=2, reuse=True, device="cpu",
                  select="leave-one-out", out=tmp_path, progress=False)  # fmt: skip
    records = results.records()
    assert [sum(r.seed == seed for r in records) for seed in (0, 1)] == [2 * (1 + 5), 1 + 5]
    chosen = {name_candidate(o.record) for o in select_outcomes(records, "leave-one-out")}
    assert len(chosen) == 1
    assert {name_candidate(r) for r in records if r.seed == 1} == chosen


def test_a_table_by_another_rule_says_that_the_others_have_not_its_settings(directory: Path) -> None:
    records = read(directory)
    agree = True
    for o in select_outcomes(records, "oracle"):
        chosen = {name_candidate(p.record) for p in select_outcomes(records, "oracle")
                  if (p.algorithm, p.held_out) == (o.algorithm, o.held_out)}  # fmt: skip
        agree = agree and len(chosen) == 1
    assert ("another rule" in str(Results.open(directory).table("oracle"))) is not agree


def test_the_file_of_a_held_out_domain_gives_the_chosen_trial_again(directory: Path, tmp_path: Path) -> None:
    done = seqdg("table", directory, "--settings-out", tmp_path / "chosen")
    assert done.returncode == 0, done.stderr
    assert (
        "0.toml is there already: add --force"
        in seqdg("table", directory, "--settings-out", tmp_path / "chosen").stderr
    )
    assert sorted(path.name for path in (tmp_path / "chosen").iterdir()) == ["0.toml", "30.toml"]
    chosen = choose_settings(read(directory), "source-val")
    for domain, by_algorithm in chosen.items():
        file = tmp_path / "chosen" / f"{domain}.toml"
        assert set(tomllib.loads(file.read_text())["algorithms"]) == {"agg", "fo-s-mldg"}
        benchmark = load_benchmark("rotated-mnist").with_settings(file)
        request = Request(algorithms=["agg", "fo-s-mldg"], held_out=[domain], trials=3)
        keys = {trial.key for trial in benchmark.plan(benchmark.make_task(), request).trials}
        assert {r.key for r in by_algorithm.values()} <= keys
        assert keys <= {r.key for r in read(directory)}  # steps and momentum are in the file too
    again = seqdg("bench", "--algorithms", "agg,fo-s-mldg", "--held-out", "30", "--trials", 3, "--device", "cpu",
                  "--settings-from", tmp_path / "chosen" / "30.toml", "--out", directory)  # fmt: skip
    assert "6 trials, 6 of them done; 0 to run" in again.stderr


def test_reuse_without_a_search_and_settings_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give --search 2 or more"):
        run("rotated-mnist", ["agg"], reuse=True, out=tmp_path / "run")
    with pytest.raises(UsageError, match="There is no file"):
        run("rotated-mnist", ["agg"], settings_from=tmp_path / "none.toml", out=tmp_path / "run")
    (tmp_path / "bad.toml").write_text("[algorithms")
    with pytest.raises(UsageError, match="is not valid TOML"):
        run("rotated-mnist", ["agg"], settings_from=tmp_path / "bad.toml", out=tmp_path / "run")

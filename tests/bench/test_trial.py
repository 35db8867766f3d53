from __future__ import annotations

from dataclasses import replace

import pytest

from seqdg.base import UsageError
from seqdg.bench import STACK, Request, RowsInMemory, load_benchmark, split_settings
from seqdg.bench.task import Trial, group_trials
from seqdg.core import build, describe_settings, restore_settings
from seqdg.data.rotated_mnist import load
from seqdg.nets import NetSpec
from seqdg.results import VERSION, make_key, open_run
from seqdg.training import Protocol


@pytest.fixture(scope="module")
def dataset():
    return load()


@pytest.fixture(scope="module")
def benchmark_file():
    return load_benchmark("rotated-mnist")


def list_trials(benchmark_file, dataset, **asked):
    task = replace(benchmark_file.make_task(), rows=RowsInMemory(dataset))
    return benchmark_file.plan(task, Request(**asked)).trials


def group(trials, capacity):
    task = load_benchmark("rotated-mnist").make_task()
    return group_trials(trials, capacity, lambda trial: STACK.share(trial, task))


def test_a_plan_is_every_algorithm_on_every_held_out_domain_with_every_seed(benchmark_file, dataset):
    trials = list_trials(benchmark_file, dataset)
    assert len(trials) == 8 * 6 * 5
    assert len({t.key for t in trials}) == len(trials)


def test_the_key_answers_to_everything_that_decides_a_trial(benchmark_file, dataset):
    (trial,) = list_trials(benchmark_file, dataset, algorithms=["fo-s-mldg"], held_out=["30"], trials=1)
    others = [
        replace(trial, data="another"),
        replace(trial, net=replace(trial.net, hidden=(64, 33))),
        replace(trial, batchnorm="frozen"),
        replace(trial, weights="abc"),
        replace(trial, algorithm="s-mldg"),
        replace(trial, settings=(("alpha", "0.31"), ("beta", "1.0"))),
        replace(trial, protocol=replace(trial.protocol, lr=0.06)),
        replace(trial, held_out=("45",)),
        replace(trial, seed=1),
        replace(trial, augment="pacs"),
        replace(trial, net=replace(trial.net, dropout=0.1)),
    ]
    assert len({t.key for t in [trial, *others]}) == len(others) + 1
    assert replace(trial).key == trial.key


def test_a_trial_without_dropout_has_the_description_of_before_there_was_dropout(benchmark_file, dataset):
    (trial,) = list_trials(benchmark_file, dataset, algorithms=["agg"], held_out=["30"], trials=1)
    assert "dropout" not in trial.description()["net"]
    for share in (0.0, 0.1):
        other = replace(trial, net=replace(trial.net, dropout=share))
        assert Trial.from_description(other.description(), "agg", trial.sources, None) == other


def test_a_net_in_a_benchmark_file_has_its_published_dropout_unless_the_file_says_otherwise(tmp_path):
    text = '[data]\nformat = "rotated-mnist"\n[protocol]\n[net]\nname = "%s"\n'
    for name, more, share in (("alexnet", "", 0.5), ("alexnet", "dropout = 0.0", 0.0), ("mlp", "dropout = 0.1", 0.1)):
        (tmp_path / "own.toml").write_text(text % name + more)
        assert load_benchmark(str(tmp_path / "own.toml")).net.dropout == share


def test_groups_hold_what_can_share_a_stack_and_are_packed_always_the_same_way(benchmark_file, dataset):
    trials = list_trials(benchmark_file, dataset, algorithms=["agg", "fo-s-mldg"])
    groups = group(trials, capacity=16)
    assert [len(g.trials) for g in groups] == [15, 15, 15, 15]
    assert {t.algorithm for t in groups[0].trials} == {"agg"}
    assert group(trials, 16) == groups
    pairs = list_trials(benchmark_file, dataset, algorithms=["agg"], select="leave-one-out", trials=1)
    assert {len({len(t.held_out) for t in g.trials}) for g in group(pairs, 100)} == {1}


def test_trials_that_differ_in_numbers_alone_share_a_stack(benchmark_file, dataset):
    first = list_trials(benchmark_file, dataset, algorithms=["fo-s-mldg"], held_out=["0"], trials=1)
    asked = {"algorithms": ["fo-s-mldg"], "held_out": ["0"], "trials": 1}
    second = list_trials(benchmark_file, dataset, **asked, settings=["fo-s-mldg.alpha=0.1", "fo-s-mldg.lr=0.01"])
    assert len(group([*first, *second], 10)) == 1
    third = list_trials(benchmark_file, dataset, **asked, settings=["fo-s-mldg.alpha=0.1,0.1,0.1,0.2"])
    assert len(group([*first, *third], 10)) == 2


def test_with_two_domains_held_out_settings_are_fitted_to_the_shorter_path(benchmark_file, dataset):
    settings = ["fo-s-mldg.alpha=0.1,0.2,0.3,0.4", "fo-s-mldg.beta=1.5,"]
    asked = {"algorithms": ["fo-s-mldg"], "trials": 1, "settings": settings, "select": "leave-one-out"}
    trials = list_trials(benchmark_file, dataset, **asked)
    single = next(t for t in trials if len(t.held_out) == 1).build_algorithm()
    pair = next(t for t in trials if len(t.held_out) == 2).build_algorithm()
    assert single.base.alpha == (0.1, 0.2, 0.3, 0.4)
    assert pair.base.alpha == (0.2, 0.3, 0.4)
    assert pair.base.beta == (1.5,)
    assert sum(len(t.held_out) == 2 for t in trials) == 15


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"trials": 0}, "0 trials were asked for"),
        ({"steps": 0}, "steps is 0"),
        ({"algorithms": ["fo-s-mdlg"]}, "Did you mean 'fo-s-mldg'"),
        ({"algorithms": []}, "No algorithm was named"),
        ({"held_out": ["90"]}, "rotated-mnist has no domain '90'"),
        ({"settings": ["agg.alpha=1"]}, "agg has no setting 'alpha'"),
        ({"settings": ["mldg.alhpa=1"]}, "Did you mean 'alpha'"),
        ({"settings": ["mldg.alpha=much"]}, "alpha is 'much', but it must be a number"),
        ({"settings": ["mldg.alpha=inf"]}, "alpha is inf, but it must be finite"),
        ({"settings": ["mldg.alpha=-1"]}, "alpha is -1.0, but it must be at least 0"),
        ({"settings": ["alpha=1"]}, "written algorithm.setting=value"),
        ({"settings": ["dog.alpha=1"]}, "This run has no algorithm 'dog'"),
        ({"settings": ["agg.lr=fast"]}, "lr is 'fast'"),
    ],
)
def test_a_bad_request_is_a_sentence_before_anything_runs(benchmark_file, dataset, asked, sentence):
    with pytest.raises(UsageError, match=sentence):
        list_trials(benchmark_file, dataset, **asked)


def test_settings_of_the_command_line_are_read_by_algorithm():
    found = split_settings(["mldg.alpha=0.1,0.2", "agg.lr=1"], ["mldg", "toy.py:agg"])
    assert found == {"mldg": {"alpha": "0.1,0.2"}, "agg": {"lr": "1"}}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = ", "not valid TOML"),
        ("[data]\n[net]\nname='mlp'\n[protocl]\n", "Did you mean 'protocol'"),
        ("[data]\n[net]\nname='mlp'\n", r"no \[protocol\] table"),
        ("[data]\n[net]\nnmae='mlp'\n[protocol]\n", "Did you mean 'name'"),
        ("[data]\n[net]\nname='mlp'\n[protocol]\nsteps=0\n", "steps is 0"),
    ],
)
def test_a_bad_benchmark_file_is_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load_benchmark(str(path))


def old_trial(**changes):
    values = {
        "data": "d" * 64,
        "net": NetSpec("mlp", hidden=(64, 32)),
        "batchnorm": "none",
        "weights": None,
        "algorithm": "fo-s-mldg",
        "settings": (("alpha", "0.3"), ("beta", "1.0")),
        "protocol": Protocol(),
        "held_out": ("a",),
        "seed": 0,
        "sources": 3,
    }
    return Trial(**{**values, **changes})


def test_no_key_of_this_version_moves():
    """Where this fails, a field was added to `Protocol` or `NetSpec` without `added_field`."""
    assert old_trial().key == "2760c42f5efd8ea2db732869"
    weights = {"weights": "e" * 64, "batchnorm": "frozen", "size": 224, "augment": "pacs"}
    assert old_trial(net=NetSpec("resnet18", pretrained=True), **weights).key == "5a63c7770e51515a26f32250"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("agg", ""),
        ("mldg", "alpha beta order recompute"),
        ("fo-mldg", "alpha beta"),
        ("s-mldg", "alpha beta order recompute"),
        ("fo-s-mldg", "alpha beta"),
        ("ffo-s-mldg", "alpha beta"),
        ("undo-bias", "branches lam squared"),
        ("s-undo-bias", "branches lam squared"),
        ("ensemble", ""),
        ("dann", "hidden lam"),
    ],
)
def test_a_setting_that_an_algorithm_gets_moves_no_key_while_it_is_as_before(name, names):
    """Where this fails, declare the new setting with `setting(..., added=VALUE_THAT_MEANS_AS_BEFORE)`."""
    assert sorted(describe_settings(restore_settings(build(name), {}))) == names.split()


@pytest.mark.slow
def test_what_0_1_described_is_described_alike_but_for_its_version(published_runs):
    for run in sorted(published_runs.glob("*/trials.parquet")):
        records = {r.algorithm: r for r in open_run(run).records("accuracy")}
        for name, record in records.items():
            about = {**record.description, "version": VERSION}
            assert Trial.from_description(about, name, 3, None).key == make_key(about), (run, name)


def test_a_trial_says_how_many_rows_it_predicts_at_once_where_it_is_transductive(benchmark_file, dataset):
    trials = {t.algorithm: t for t in list_trials(benchmark_file, dataset, algorithms=["agg", "mtl", "mtl+ema"])}
    assert "together" not in trials["agg"].description()
    assert trials["mtl"].description()["together"] == trials["mtl+ema"].description()["together"] == 64
    again = Trial.from_description(trials["mtl"].description(), "mtl", trials["mtl"].sources, None)
    assert again.key == trials["mtl"].key

"""A published trial, trained again from its record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench import Session, StackLearner, load_benchmark
from seqdg.bench.reruns import Repeat, find_group, pick_records, rebuild_trial, rerun
from seqdg.data import rotated_mnist
from seqdg.results import DIVERGED, FAILED, Evaluation, Store, make_key, open_run, pack

PAGE = Path(__file__).parents[3] / "docs" / "publishing.md"


@pytest.fixture(scope="module")
def records(packed):
    return open_run(packed).records()


@pytest.fixture(scope="module")
def context():
    return Session(load_benchmark("rotated-mnist").make_task(), "cpu")


def shifted(record, points, step=None):
    """With another accuracy on the held-out domain, at one step or all of them."""

    def moved(e):
        if step not in (None, e.step):
            return e
        return Evaluation(
            e.step, e.source, {**e.held_out, "accuracy": [v + points / 100 for v in e.held_out["accuracy"]]}
        )

    return replace(record, history=[moved(e) for e in record.history])


@pytest.fixture(scope="module")
def groups(packed):
    return open_run(packed).groups()


def published(records, tmp_path, groups):
    store = Store.create(tmp_path / "run", "rotated-mnist")
    store.begin({r.key: groups[r.key] for r in records})
    store.add(records)
    pack([(tmp_path / "run", store)], tmp_path / "packed")
    return tmp_path / "packed"


def test_every_record_gives_back_the_trial_that_made_it(records):
    dataset = rotated_mnist.load()
    assert [rebuild_trial(r, dataset).key for r in records] == [r.key for r in records]


def test_of_an_algorithm_of_one_s_own_it_asks_where_it_is(records):
    foreign = replace(records[0], description={**records[0].description, "algorithm": "mine"})
    with pytest.raises(UsageError, match=r"mine is not one of seqdg's algorithms.*--algorithms FILE.py:mine"):
        rebuild_trial(foreign, rotated_mnist.load())
    foreign = replace(records[0], description={**records[0].description, "algorithm": "agg+mine+ema"})
    with pytest.raises(UsageError, match=r"mine is not one of seqdg's wrappers.*--algorithms agg\+FILE.py:mine\+ema"):
        rebuild_trial(foreign, rotated_mnist.load())


@pytest.fixture(scope="module")
def rebuild():
    dataset = rotated_mnist.load()
    return lambda record: rebuild_trial(record, dataset)


def test_the_group_of_a_trial_is_found_in_its_order(records, groups, rebuild):
    for record in records:
        stack = find_group(record, records, groups, rebuild)
        assert stack is not None
        assert [t.key for t in stack.trials] == [r.key for r in records if groups[r.key] == groups[record.key]]
    assert find_group(records[0], records[1:], groups, rebuild) is None
    assert find_group(records[0], records, {}, rebuild) is None


def test_a_group_of_another_size_or_order_is_not_the_one_that_was_trained(records, groups, rebuild):
    members = [r for r in records if groups[r.key] == groups[records[0].key]]
    assert len(members) > 1
    assert find_group(records[0], members, groups, rebuild) is not None
    assert find_group(replace(records[0], stacked=len(members) + 1), records, groups, rebuild) is None
    assert find_group(records[0], members[::-1], groups, rebuild) is None
    moved = {**groups, members[-1].key: "another"}
    assert find_group(records[0], records, moved, rebuild) is None


def test_in_its_stack_a_trial_has_the_same_bits(packed):
    done = seqdg("rerun", packed, "--sample", 2, "--device", "cpu")
    assert done.returncode == 0
    shown = done.stdout
    assert shown.count("same  agrees") == 2
    assert "2 trained in the stack of the record, on the same kind of device" in shown
    assert "2 of 2 agree." in shown


def test_a_cpu_of_other_instructions_compares_to_rounding(packed, monkeypatch):
    """Its stack rounds otherwise: one gave 89.56 where 89.68 was recorded, with no bit of the weights the same."""
    usual = torch.backends.cpu.get_cpu_capability().lower()
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "ANOTHER")
    done = seqdg("rerun", packed, "--sample", 1, "--device", "cpu")
    assert done.returncode == 0
    assert "1 trained alone on cpu" in done.stdout
    assert ", another)" in done.stdout
    assert f"With ATEN_CPU_CAPABILITY={usual} many a CPU" in done.stdout


def test_the_published_trial_that_other_instructions_round_otherwise_is_as_the_page_says(published_runs):
    """Trained again in its stack it had 89.68 with AVX2, every bit the same, and 89.56 with AVX-512."""
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    (record,) = (r for r in open_run(published_runs / "digits-factorial").records() if r.key.startswith("25945d02bb13"))
    assert (record.algorithm, record.device) == ("coral", "cpu (x86_64, avx2)")
    (accuracy,) = record.history[-1].held_out["accuracy"]
    assert "trial `25945d02bb13` of the [digits' factorial](results/digits-factorial/README.md), `coral`" in page
    assert f"recorded with AVX2 at {100 * accuracy:.2f} % and has 89.56 % in the same stack with AVX-512" in page


def test_a_number_that_was_changed_is_found_whatever_the_step(records, groups, tmp_path):
    first = records[0]
    for step in (first.history[0].step, first.history[-1].step):
        changed = [shifted(r, 0.5, step) if r is first else r for r in records]
        (tmp_path / str(step)).mkdir()
        path = published(changed, tmp_path / str(step), groups)
        done = seqdg("rerun", path, first.key[:12], "--device", "cpu")
        assert done.returncode == 1
        shown = done.stdout
        assert "same  DIFFERS" in shown
        assert "0 of 1 agree." in shown
        assert "compare with --alone" in shown


def test_what_another_device_recorded_may_differ_by_a_point_and_no_more(records, groups, tmp_path):
    own = replace(records[0], device="NVIDIA H200", stacked=128)
    for points, code in ((0.9, 0), (-0.9, 0), (1.5, 1)):
        (tmp_path / str(points)).mkdir()
        path = published([shifted(own, points)], tmp_path / str(points), groups)
        done = seqdg("rerun", path, "--device", "cpu")
        assert done.returncode == code
        shown = done.stdout
        assert "1 trained alone on cpu" in shown
        assert "NVIDIA H200" in shown
        assert "within 1.0 points at the chosen and at the last step" in shown


def test_alone_on_the_same_device_the_number_is_near(records, context):
    (found,) = rerun(records, [records[0]], context, alone=True)
    assert not found.stacked
    assert found.allowed == 1.0
    assert found.agrees


def test_a_trial_that_was_trained_alone_is_compared_exactly_alone(records, context):
    (first,) = rerun(records, [records[0]], context, alone=True)
    single = first.again
    (found,) = rerun([single], [single], context, alone=True)
    assert (found.allowed, found.agrees, found.same_weights) == (0.0, True, True)


def test_two_of_a_group_are_trained_once(records, groups, context, monkeypatch):
    trained = []
    whole = StackLearner.train

    def train(self, group, *others):
        trained.append(group)
        return whole(self, group, *others)

    monkeypatch.setattr(StackLearner, "train", train)
    repeats = list(rerun(records, [r for r in records if groups[r.key] == groups[records[0].key]][:2], context, groups))
    assert [r.agrees for r in repeats] == [True, True]
    assert len(trained) == 1


def test_a_trial_that_diverged_must_diverge_again(records):
    lost = replace(records[0], status=DIVERGED)
    assert Repeat(lost, lost, True, True, 0.0).agrees
    assert not Repeat(lost, records[0], True, True, 0.0).agrees
    assert Repeat(lost, records[0], True, True, 0.0).step == records[0].history[-1].step  # what is shown of it
    assert not Repeat(records[0], lost, False, True, 1.0).agrees


def test_a_sample_is_of_trials_that_tables_show_and_repeatable(records):
    sample = pick_records(records, (), 5)
    assert len({r.key for r in sample}) == 5
    assert all(len(r.held_out) == 1 for r in sample)
    assert pick_records(records, (), 5) == sample
    assert pick_records(records, (), 5, seed=1) != sample
    assert len(pick_records(records, (), 10**6)) == sum(len(r.held_out) == 1 for r in records)


def age(record, commit="0123456789ab"):
    """The record as an older version would have made it."""
    about = {**record.description, "version": 1}
    return replace(record, description=about, key=make_key(about), commit=commit)


@pytest.mark.parametrize(
    ("commit", "said"),
    [
        ("0123456789ab", "commit 0123456789ab reproduces it"),
        ("0123456789ab+", "commit 0123456789ab with changes that were not committed reproduces it"),
        ("", "a version of seqdg whose commit was not recorded reproduces it"),
    ],
)
def test_of_an_older_record_it_says_what_reproduces_it(records, context, commit, said):
    old = age(records[0], commit)
    with pytest.raises(UsageError, match=rf"Trial {old.key} was made by another version of seqdg .* {said}"):
        list(rerun([old], [old], context))
    with pytest.raises(UsageError, match=said):
        pick_records([old], (), 3)


def test_of_older_records_it_names_every_commit(records):
    old = [age(r, commit) for r, commit in zip(records, ["aaa", "aaa", "bbb+", ""], strict=False)]
    with pytest.raises(UsageError) as caught:
        pick_records(old, (), 3)
    said = str(caught.value)
    assert said.startswith("4 trials were made by another version of seqdg (description 1; today's is 2)")
    assert "commit aaa reproduces 2 of them, commit bbb with changes that were not committed reproduces 1 of" in said
    assert "a version of seqdg whose commit was not recorded reproduces 1 of them. Run `seqdg rerun` there." in said
    with pytest.raises(UsageError, match=r"2 trials were made by .*: commit aaa reproduces 2 of them"):
        pick_records([*old, *records], [old[0].key, old[1].key, records[0].key], 3)
    assert pick_records([*old, *records], [records[0].key], 3) == [records[0]]


def test_where_a_run_holds_both_only_what_is_of_today_is_drawn(records):
    old = [age(r) for r in records]
    assert pick_records([*old, *records], (), 5) == pick_records(records, (), 5)


def test_bad_input_is_one_sentence(records, directory, context, tmp_path):
    foreign = replace(records[0], description={**records[0].description, "data": "0" * 64})
    with pytest.raises(UsageError, match="these are not the same rows"):
        list(rerun([foreign], [foreign], context))
    other = replace(records[0], key="0" * 24)
    with pytest.raises(UsageError, match="cannot be rebuilt from its description"):
        list(rerun([other], [other], context))
    with pytest.raises(UsageError, match="holds no finished trial to train again"):
        pick_records([replace(records[0], status=FAILED)], (), 3)
    for words, sentence in (
        (["zzz"], "No finished trial has a key that begins with 'zzz'."),
        ([""], "trials have keys that begin with ''. Give more of it."),
        (["--sample", 0], "0 trials were asked for, but at least 1 is needed."),
        (["--device", "tpu"], "There is no device 'tpu'."),
    ):
        done = seqdg("rerun", directory, *words)
        assert done.returncode == 2
        assert sentence in done.stderr
    done = seqdg("rerun", directory, "--list")
    assert done.returncode == 0
    assert done.stdout.count(" seed ") == len(records)

"""Soups and ensembles of real trials on the bundled digits: the weights are the mean, the numbers are the net's."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.resources import files

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import seqdg
from command import seqdg as command
from digits import TASK
from seqdg.base import UsageError
from seqdg.bench import Session, load_benchmark
from seqdg.bench.soup import is_finite, list_mixtures, mean_weights, mix_run
from seqdg.results import FILE, Evaluation, Store, make_key
from seqdg.training import split_rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search of three candidates for two seeds, with the weights of the last step."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    seqdg.run(
        "rotated-mnist", ["agg", "agg+sma"], held_out=["45"], trials=2, steps=12, search=3, save_weights=True, out=out,
        settings=["agg.evaluations=2"], progress=False,
    )  # fmt: skip
    return out


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def mix(run, kind, task=TASK, **choice):
    return mix_run(run, lambda name, saving, held_out: Session(task, "cpu", saving), kind, **choice)


def read_records(run):
    store = Store.open(run)
    records = store.records()
    store.close()
    return {r.key: r for r in records}


def read_weights(run, key):
    return load_file(run / "weights" / f"{key}.safetensors")


def run_by_hand(weights, x):
    z, layers = x, sorted({name.rpartition(".")[0] for name in weights})  # those of the body, then the head
    for i, layer in enumerate(sorted(layers, key=lambda name: name == "head")):
        z = (torch.relu(z) if i else z) @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
    return z


def list_candidates(run, algorithm, seed):
    return [r for r in read_records(run).values() if (r.algorithm, r.seed) == (algorithm, seed) and not r.members]


@pytest.mark.filterwarnings("always:.*damaged:UserWarning")
def test_a_damaged_store_is_set_aside_before_anything_is_mixed(run):
    data = bytearray((run / FILE).read_bytes())
    data[-4096:] = b"\xff" * 4096
    (run / FILE).write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"):
        added = mix(run, "ensemble", algorithms=["agg+sma"])
    assert (run / f"{FILE}.damaged-1").is_file()
    assert {r.key for r in added} <= read_records(run).keys()


def test_a_uniform_soup_is_the_mean_of_the_weights_and_its_accuracy_is_the_nets(run):
    added = mix(run, "uniform", algorithms=["agg"])
    assert [(r.algorithm, r.held_out, r.seed) for r in added] == [("agg(soup)", ("45",), 0), ("agg(soup)", ("45",), 1)]
    for record in added:
        candidates = list_candidates(run, "agg", record.seed)
        assert sorted(record.members) == sorted(c.key for c in candidates)
        assert record.key == make_key(record.description)
        soup = read_weights(run, record.key)
        for name, w in soup.items():
            mean = sum(read_weights(run, c.key)[name].double() for c in candidates) / 3
            torch.testing.assert_close(w.double(), mean, atol=1e-7, rtol=1e-6)
        dataset = TASK.dataset()
        rows = dataset.rows("45")
        right = (run_by_hand(soup, dataset.x[rows].float()).argmax(1) == dataset.y[rows]).double().mean()
        assert record.history[0].held_out["accuracy"] == [pytest.approx(float(right), abs=1e-12)]
        split = split_rows(dataset, TASK.protocol, ("45",), record.seed)
        for rows, value in zip(split.validation, record.history[0].source["accuracy"], strict=True):
            right = (run_by_hand(soup, dataset.x[rows].float()).argmax(1) == dataset.y[rows]).double().mean()
            assert value == pytest.approx(float(right), abs=1e-12)


def test_a_greedy_soup_keeps_what_does_not_lower_source_validation(run):
    dataset = TASK.dataset()

    def score(weights, seed):
        split = split_rows(dataset, TASK.protocol, ("45",), seed)
        each = [
            (run_by_hand(weights, dataset.x[r].float()).argmax(1) == dataset.y[r]).double().mean()
            for r in split.validation
        ]
        return float(sum(each)) / len(each)

    for record in mix(run, "greedy", algorithms=["agg"]):
        candidates = list_candidates(run, "agg", record.seed)
        each = {c.key: read_weights(run, c.key) for c in candidates}
        order = sorted(each, key=lambda key: -score(each[key], record.seed))
        kept = [order[0]]
        for key in order[1:]:
            with_it = {n: sum(each[k][n] for k in [*kept, key]) / (len(kept) + 1) for n in each[key]}
            without = {n: sum(each[k][n] for k in kept) / len(kept) for n in each[key]}
            if score(with_it, record.seed) >= score(without, record.seed):
                kept.append(key)
        with safe_open(run / "weights" / f"{record.key}.safetensors", "pt") as file:
            assert json.loads(file.metadata()["kept"]) == kept
        assert list(record.members) == order
        best = max(score(each[k], record.seed) for k in order)
        assert sum(record.history[0].source["accuracy"]) / 5 >= best - 1e-12


def test_an_ensemble_is_the_mean_of_the_probabilities_of_the_best_candidate_of_each_seed(run):
    (record,) = mix(run, "ensemble", algorithms=["agg+sma"])
    assert (record.algorithm, record.held_out, record.seed) == ("agg+sma(ensemble)", ("45",), 0)
    best = [
        max(list_candidates(run, "agg+sma", seed), key=lambda r: sum(r.history[-1].source["accuracy"]))
        for seed in (0, 1)
    ]
    assert record.members == tuple(r.key for r in best)
    dataset = TASK.dataset()
    rows = dataset.rows("45")
    p = sum(torch.softmax(run_by_hand(read_weights(run, r.key), dataset.x[rows].float()), 1) for r in best) / 2
    right = (p.argmax(1) == dataset.y[rows]).double().mean()
    assert record.history[0].held_out["accuracy"] == [pytest.approx(float(right), abs=1e-12)]
    loss = -p.double()[torch.arange(len(rows)), dataset.y[rows]].log().mean()
    assert record.history[0].held_out["log_loss"] == [pytest.approx(float(loss), rel=1e-5)]
    own = [sum(values) / 2 for values in zip(*(r.history[-1].source["accuracy"] for r in best), strict=True)]
    assert record.history[0].source["accuracy"] == pytest.approx(own)


def test_a_mean_of_weights_by_hand():
    members = [{"w": torch.tensor([1.0, 3.0]), "0.running_mean": torch.ones(2)}, {"w": torch.tensor([3.0, 9.0])}]
    assert {n: w.tolist() for n, w in mean_weights(members).items()} == {"w": [2.0, 6.0]}


@pytest.mark.slow
def test_batchnorm_of_a_soup_is_estimated_for_its_own_weights(tmp_path):
    text = (
        (files("seqdg") / "benchmarks" / "rotated-mnist.toml")
        .read_text()
        .replace("[64, 32]", "[16]\nbatchnorm = true\npolicy = 'recalibrate'")
    )
    (tmp_path / "normed.toml").write_text(text)
    run, name = tmp_path / "run", str(tmp_path / "normed.toml")
    seqdg.run(name, ["agg"], held_out=["0"], trials=1, steps=20, search=2, save_weights=True, out=run, progress=False)
    task = load_benchmark(name).make_task()
    (record,) = mix(run, "uniform", task)
    soup = read_weights(run, record.key)
    (statistic,) = [name for name in soup if name.endswith("running_var")]
    members = [read_weights(run, key) for key in record.members]
    assert not torch.allclose(soup[statistic], sum(m[statistic] for m in members) / 2, rtol=1e-4)
    dataset = task.dataset()
    rows = torch.cat(split_rows(dataset, task.protocol, ("0",), 0).train)
    variance = (dataset.x[rows].float() @ soup["linear1.weight"].T + soup["linear1.bias"]).var(0)
    assert (soup[statistic] - variance).norm() < 0.1 * variance.norm()  # the trainer takes some of these rows


@pytest.mark.slow
def test_a_second_call_adds_nothing_and_tables_show_the_soup_beside_the_others(run):
    assert command("soup", run).returncode == 0
    before = read_records(run)
    again = command("soup", run)
    assert "4 to mix, 4 of them done." in again.stderr
    assert read_records(run).keys() == before.keys()
    shown = command("table", run, "--baseline", "agg").stdout
    assert "agg(soup) and agg+sma(soup) are mixed of models of this run by `seqdg soup`, on source data alone." in shown
    assert "agg(soup): " in shown
    assert "over 2 pairs" in shown
    assert "among 3 candidates of each algorithm." in shown
    assert command("report", run).returncode == 0
    assert "(soup)" not in command("table", run, "--cost").stdout
    packed = run.parent / "packed"
    assert command("pack", run, "--out", packed).returncode == 0
    assert command("table", packed, "--baseline", "agg").stdout == shown


def test_ensembles_of_some_seeds_each_have_the_first_seed_of_theirs(run):
    records = [
        replace(r, description={**r.description, "seed": s}) for s in range(5) for r in list_candidates(run, "agg", 0)
    ]
    mixtures = list_mixtures(records, "ensemble", size=2)
    assert [(m.description["seed"], len(m.members)) for m in mixtures] == [(0, 2), (2, 2)]  # of one alone there is none


def test_what_is_mixed_is_not_trained_again(run):
    (first, *_) = mix(run, "uniform", algorithms=["agg"])
    told = command("rerun", run, first.key)
    assert told.returncode == 2
    assert f"Trial {first.key} is mixed of 3 others (agg(soup)): `seqdg soup` makes it again" in told.stderr


def test_bad_input_is_a_sentence(run):
    for choice, sentence in (
        ({"kind": "stew"}, "There is no kind of soup 'stew'"),
        ({"kind": "uniform", "algorithms": ["mldg"]}, "This run has no algorithm 'mldg'"),
        ({"kind": "greedy", "criterion": "taste"}, "There is no criterion 'taste'"),
        ({"kind": "ensemble", "size": 1}, "An ensemble of 1 is not one: give --members 2 or more"),
    ):
        with pytest.raises(UsageError, match=sentence):
            mix(run, **choice)
    told = command("soup", run / "nowhere")
    assert told.returncode == 2
    assert told.stderr.startswith("seqdg: There are no results in")


def test_weights_that_were_not_saved_are_missed_in_a_sentence(run):
    shutil.rmtree(run / "weights")
    with pytest.raises(UsageError, match=r"The weights of agg with 45 held out and seed 0 .* were not saved"):
        mix(run, "uniform")
    assert not any(r.members for r in read_records(run).values())


def test_what_was_mixed_before_an_error_stays(run):
    (run / "weights" / f"{list_candidates(run, 'agg+sma', 1)[0].key}.safetensors").unlink()
    with pytest.raises(UsageError, match=r"The weights of agg\+sma with 45 held out and seed 1 .* were not saved"):
        mix(run, "uniform")
    kept = {r.algorithm for r in read_records(run).values() if r.members}
    assert "agg(soup)" in kept


def test_candidates_that_start_differently_are_refused(run):
    store = Store.create(run, "rotated-mnist")
    odd = list_candidates(run, "agg", 0)[0]
    about = {**odd.description, "net": {**odd.description["net"], "hidden": [8]}}
    store.add([replace(odd, key=make_key(about), description=about)])
    store.close()
    with pytest.raises(UsageError, match="Candidates of agg with 45 held out and seed 0 start from different weights"):
        mix(run, "uniform")


def test_one_candidate_alone_is_nothing_to_mix(run):
    records = list_candidates(run, "agg", 0)
    with pytest.raises(UsageError, match="There is nothing to mix: no algorithm has two candidates of one seed"):
        list_mixtures(records[:1], "uniform")
    with pytest.raises(UsageError, match="There is nothing to mix: no algorithm that was named has two seeds"):
        list_mixtures(records, "ensemble", ["agg"])


def test_a_source_without_validation_rows_makes_no_soup_diverge_but_chooses_none(run):
    nan = float("nan")

    def losses(*values):
        return Evaluation(1, {"log_loss": list(values)}, {"log_loss": [0.5]})

    assert is_finite(losses(nan, 0.3), losses(nan, 0.4))
    assert not is_finite(losses(0.3, nan), losses(0.3, 0.4))
    records = list_candidates(run, "agg", 0)
    blind = [
        replace(r, history=[replace(e, source={name: [nan] * len(v) for name, v in e.source.items()})])
        for r in records
        for e in r.history[-1:]
    ]
    assert list_mixtures(blind, "uniform")
    with pytest.raises(UsageError, match=r"chosen on validation rows of the sources, and agg with 45 .* has none"):
        list_mixtures(blind, "greedy")


def add_copies(run, records, **changes):
    """Add the records once more, as if their descriptions were others, with their weights."""
    store = Store.create(run, "rotated-mnist")
    for record in records:
        about = {**record.description, **changes}
        copy = replace(record, description=about, key=make_key(about))
        shutil.copy(run / "weights" / f"{record.key}.safetensors", run / "weights" / f"{copy.key}.safetensors")
        store.add([copy])
    store.close()


def test_an_algorithm_from_a_file_that_nobody_named_is_left_out_and_said_so(run):
    add_copies(run, list_candidates(run, "agg", 0), algorithm="mine")
    said = []
    make_session = lambda name, saving, held_out: Session(TASK, "cpu", saving)  # noqa: E731
    added = mix_run(run, make_session, on_message=said.append)
    assert {r.algorithm for r in added} == {"agg(soup)", "agg+sma(soup)"}
    left = "note: mine is left out. mine is not one of seqdg's algorithms. Say where it is: --algorithms FILE.py:mine."
    assert left in said
    with pytest.raises(UsageError, match="mine is not one of seqdg's algorithms"):
        mix(run, "uniform", algorithms=["mine"])


def test_a_run_of_nothing_else_says_where_to_name_it(run, tmp_path):
    (tmp_path / "own" / "weights").mkdir(parents=True)
    records = list_candidates(run, "agg", 0)
    store = Store.create(tmp_path / "own", "rotated-mnist")
    for record in records:
        about = {**record.description, "algorithm": "mine"}
        store.add([replace(record, description=about, key=make_key(about))])
    store.close()
    with pytest.raises(UsageError, match=r"Say where it is: --algorithms FILE\.py:mine"):
        mix(tmp_path / "own", "uniform")


def test_candidates_that_left_out_other_rows_are_told_of(run):
    records = list_candidates(run, "agg", 0)
    assert not list_mixtures(records, "uniform")[0].cautions
    add_copies(run, records[:1], protocol={**records[0].description["protocol"], "validation": 0.3})
    said = []
    make_session = lambda name, saving, held_out: Session(TASK, "cpu", saving)  # noqa: E731
    added = mix_run(run, make_session, algorithms=["agg"], on_message=said.append)
    words = "Candidates of agg left different shares of the sources out for validation (0.2 (random), 0.3 (random))"
    assert sum(words in sentence for sentence in said) == 1
    by_seed = {r.seed: r for r in added}
    assert any(words in note for note in by_seed[0].notes)
    assert not any("different shares" in note for note in by_seed[1].notes)

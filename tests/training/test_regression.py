"""Regression: losses, metrics, targets on one scale, and every algorithm."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import seqdg
from seqdg import UsageError
from seqdg.algorithms._branches import PREFIX
from seqdg.algorithms.mixup import judge_both
from seqdg.bench import ArrayLearner, Group, RowsInMemory, Task, build_stack, find_learner, register_learner
from seqdg.bench.learners import contract as learners
from seqdg.core import describe_settings, list_layers
from seqdg.data import Dataset
from seqdg.nets import Net, NetSpec
from seqdg.training import Protocol, TargetScale, learn_target_scale, run_stack
from seqdg.training.metrics import compute_metrics
from seqdg.training.protocol import NUMBER_LOSSES, find_number_loss
from seqdg.training.trainer import Snapshot, decode_snapshot, encode_snapshot, evaluate_stack

CPU = torch.device("cpu")
PROTOCOL = Protocol(steps=6, batch=8, evaluations=2, lr=0.01, optimizer="adam", validation=0.25)


def make_dataset(rows: int = 120, scale: float = 1.0, shift: float = 0.0) -> Dataset:
    draw = np.random.Generator(np.random.Philox(0))
    x = draw.standard_normal((rows, 3))
    domain = np.arange(rows) % 4
    y = shift + scale * (x @ [2.0, -1.0, 0.5] + 3 * domain + 0.1 * draw.standard_normal(rows))
    return Dataset(
        "numbers", ("a", "b", "c", "d"), (), torch.from_numpy(x).float(), torch.from_numpy(y),
        torch.from_numpy(domain), f"numbers {rows} {scale} {shift}",
    )  # fmt: skip


def make_task(dataset: Dataset, protocol: Protocol = PROTOCOL, hidden: tuple[int, ...] = (6, 5)) -> Task:
    return Task("numbers", RowsInMemory(dataset), NetSpec("mlp", hidden=hidden), "none", protocol)


def make_trial(task: Task, name: str = "agg", held_out: str = "a", seed: int = 0, **settings):
    algorithm = seqdg.build(name, **settings)
    return task.make_trial(name, describe_settings(algorithm), task.protocol, (held_out,), seed)


def make_net(task: Task) -> Net:
    trial = make_trial(task)
    return Net(task.build_net(trial).module, "none", task.make_loss(trial, CPU))


@pytest.mark.parametrize("name", NUMBER_LOSSES)
def test_a_loss_is_the_mean_over_rows_of_what_its_name_says(name):
    draw = torch.Generator().manual_seed(0)
    f, y = (3 * torch.randn(40, dtype=torch.float64, generator=draw) for _ in range(2))
    total = 0.0
    for i in range(40):
        d = float(f[i]) - float(y[i])
        if name == "squared":
            total += d * d
        elif name == "absolute":
            total += math.sqrt(d * d)
        else:
            total += d * d / 2 if -1 < d < 1 else (d if d > 0 else -d) - 0.5
    assert float(find_number_loss(name)(f[:, None], y)) == pytest.approx(total / 40, rel=1e-14)


def test_huber_is_squared_near_zero_and_absolute_far_away():
    squared, absolute, huber = (find_number_loss(name) for name in NUMBER_LOSSES)
    small, large = torch.full((5, 1), 1e-3, dtype=torch.float64), torch.full((5, 1), 1e6, dtype=torch.float64)
    zero = torch.zeros(5, dtype=torch.float64)
    assert float(huber(small, zero)) == pytest.approx(float(squared(small, zero)) / 2)
    assert float(huber(large, zero)) == pytest.approx(float(absolute(large, zero)), rel=1e-6)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_metrics_are_those_of_scikit_learn_on_the_rows_that_the_mask_keeps(is_weighted):
    draw = torch.Generator().manual_seed(1)
    y = 1000 + 50 * torch.randn(3, 40, dtype=torch.float64, generator=draw)
    guess = y + 20 * torch.randn(3, 40, dtype=torch.float64, generator=draw)
    lengths = (40, 23, 2)
    mask = torch.arange(40) < torch.tensor(lengths)[:, None]
    weight = torch.randint(1, 9, (3, 40), generator=draw).double() if is_weighted else None
    found = compute_metrics(guess.unsqueeze(-1), y, mask, weight=weight)
    assert list(found) == ["rmse", "mae", "r2", "pearson"]
    close = 1e-5 if is_weighted else 1e-12  # weights are rounded to a millionth
    for t, n in enumerate(lengths):
        truth, said = y[t, :n].numpy(), guess[t, :n].numpy()
        w = None if weight is None else weight[t, :n].numpy()
        rmse = root_mean_squared_error(truth, said, sample_weight=w)
        assert found["rmse"][t].item() == pytest.approx(rmse, rel=close)
        mae = mean_absolute_error(truth, said, sample_weight=w)
        assert found["mae"][t].item() == pytest.approx(mae, rel=close)
        assert found["r2"][t].item() == pytest.approx(r2_score(truth, said, sample_weight=w), rel=close)
        between = np.cov(truth, said, aweights=w)
        correlation = between[0, 1] / np.sqrt(between[0, 0] * between[1, 1])
        assert found["pearson"][t].item() == pytest.approx(correlation, rel=100 * close)


def test_nothing_is_said_of_no_rows_or_of_a_truth_that_never_varies():
    y, mask = torch.full((2, 7), 0.1, dtype=torch.float64), torch.ones(2, 7, dtype=torch.bool)
    mask[1] = False
    found = compute_metrics(torch.zeros(2, 7, 1), y, mask)
    assert found["rmse"][0].item() == pytest.approx(0.1)
    for name in ("r2", "pearson"):
        assert found[name].isnan().all()
    assert all(found[name][1].isnan() for name in found)


def test_a_constant_prediction_has_no_correlation():
    y = torch.arange(6, dtype=torch.float64)[None]
    found = compute_metrics(torch.full((1, 6, 1), 2.5), y, torch.ones(1, 6, dtype=torch.bool))
    assert found["pearson"].item() == 0.0
    assert found["r2"].item() == pytest.approx(0.0)


def test_targets_are_standardized_by_the_sources_of_each_trial():
    dataset = make_dataset()
    task = make_task(dataset)
    trials = [make_trial(task, held_out=d) for d in ("a", "d")]
    stack = build_stack(Group(tuple(trials)), task, CPU)
    rows = torch.arange(120).reshape(1, 1, 120).expand(2, 1, 120)
    _, y = stack.inputs.load_step(rows, torch.zeros(2, dtype=torch.int64))
    for i, held_out in enumerate((0, 3)):
        known = dataset.domain != held_out
        truth = dataset.y[known].numpy()
        want = (dataset.y.numpy() - truth.mean()) / truth.std()
        np.testing.assert_allclose(y[i, 0].numpy(), want, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(y[0], y[1])


def test_a_target_that_never_varies_keeps_its_unit():
    assert learn_target_scale(torch.full((9,), 0.1, dtype=torch.float64)) == (pytest.approx(0.1), 1.0)
    scale = TargetScale(torch.tensor([5.0]), torch.tensor([2.0]))
    there = scale.standardize(torch.tensor([[9.0, 1.0]]))
    assert scale.restore(there).tolist() == [[9.0, 1.0]]


def test_other_units_of_the_target_change_errors_by_their_factor_and_nothing_else():
    found = []
    for scale, shift in ((1.0, 0.0), (1000.0, 70.0)):
        task = make_task(make_dataset(scale=scale, shift=shift), replace(PROTOCOL, precision="float64"))
        group = Group((make_trial(task),))
        found.append(run_stack(lambda task=task, group=group: build_stack(group, task, CPU), "", CPU)[0].history[-1])
    plain, large = found
    for name, factor in (("rmse", 1000.0), ("mae", 1000.0), ("r2", 1.0), ("pearson", 1.0)):
        assert large.held_out[name][0] == pytest.approx(factor * plain.held_out[name][0], rel=1e-6), name
        assert large.source[name] == pytest.approx([factor * v for v in plain.source[name]], rel=1e-6), name


def test_a_linear_net_under_agg_with_the_squared_loss_reaches_least_squares():
    dataset = make_dataset()
    protocol = replace(PROTOCOL, steps=400, batch=30, lr=0.05, weight_decay=0.0, precision="float64", optimizer="sgd")
    dataset = replace(dataset, validation=torch.zeros(120, dtype=torch.bool))
    task = make_task(dataset, replace(protocol, split="official"), hidden=())
    trial = make_trial(task, held_out="d")
    stack = build_stack(Group((trial,)), task, CPU)
    deployed = stack.deploy(stack.advance(stack.start(), 400))
    held_out = dataset.rows("d")
    said = stack.predict(deployed, held_out[None])[0][0, :, 0]
    known = dataset.domain != 3
    x = np.c_[dataset.x.numpy(), np.ones(120)].astype(np.float64)
    best = np.linalg.lstsq(x[known], dataset.y.numpy()[known], rcond=None)[0]
    np.testing.assert_allclose(said.numpy(), x[held_out] @ best, atol=1e-3)


def test_a_stack_of_trials_gives_what_each_gives_alone():
    task = make_task(make_dataset())
    trials = [make_trial(task, "fo-s-mldg", d, seed) for d in ("a", "c") for seed in (0, 1)]
    together = run_stack(lambda: build_stack(Group(tuple(trials)), task, CPU), "", CPU)
    by_key = {record.key: record for record in together}
    for trial in trials:
        alone = run_stack(lambda trial=trial: build_stack(Group((trial,)), task, CPU), "", CPU)[0]
        for one, other in zip(alone.history, by_key[trial.key].history, strict=True):
            for name, values in one.held_out.items():
                assert other.held_out[name] == pytest.approx(values, rel=1e-3, abs=1e-4), name


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped():
    task = make_task(make_dataset())
    group = Group(tuple(make_trial(task, "agg+ema", d) for d in ("a", "b")))
    whole = build_stack(group, task, CPU)
    want = evaluate_stack(whole, state := whole.advance(whole.start(), 6), whole.deploy(state))
    first = build_stack(group, task, CPU)
    data = encode_snapshot(Snapshot(first.advance(first.start(), 3), [[], []]), [t.key for t in group.trials], {})
    second = build_stack(group, task, CPU)
    state = second.advance(decode_snapshot(data, CPU).state, 6)
    assert evaluate_stack(second, state, second.deploy(state)) == want


def test_losses_make_other_trials_and_an_unknown_one_is_refused():
    dataset = make_dataset()
    keys = {make_trial(make_task(dataset, replace(PROTOCOL, loss=name))).key for name in ("auto", *NUMBER_LOSSES)}
    assert len(keys) == 4
    assert "loss" not in make_trial(make_task(dataset)).description()["protocol"]
    with pytest.raises(UsageError, match="auto, squared, absolute, huber"):
        Protocol(loss="hinge")


def test_a_loss_of_numbers_for_classes_and_weights_of_classes_for_numbers_are_refused():
    dataset = make_dataset()
    classes = replace(dataset, classes=("low", "high"), y=(dataset.y > 3).long())
    task = make_task(classes, replace(PROTOCOL, loss="huber"))
    with pytest.raises(UsageError, match="loss is 'huber', a loss of numbers, and numbers has classes"):
        task.make_number_loss(make_trial(task))
    weighted = replace(make_task(dataset), class_weight="balanced")
    with pytest.raises(UsageError, match="without classes to weigh"):
        weighted.make_number_loss(make_trial(weighted))


NEED_CLASSES = {"cad", "ccsa", "cdann", "d-mtae", "rsc", "sagnet", "sd", "selfreg", "t3a"}
CHAINS = [f"agg+{name}" for name in seqdg.list_wrappers()]


@pytest.mark.parametrize("name", [*seqdg.list_algorithms(), *CHAINS, "ccsa+ema"])
def test_every_algorithm_trains_on_numbers_or_says_that_it_needs_classes(name):
    protocol = replace(PROTOCOL, steps=10 if "swad" in name else 2, evaluations=10 if "swad" in name else 1)
    task = make_task(make_dataset(), protocol)
    trials = [make_trial(task, name, d) for d in ("a", "b")]
    learner = find_learner(name)
    if name.split("+")[0] in NEED_CLASSES:
        with pytest.raises(UsageError, match="needs classes, and this is regression: choose another"):
            learner.check(trials[0], task, make_net(task))
        return
    learner.check(trials[0], task, make_net(task))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        records = run_stack(lambda: build_stack(Group(tuple(trials)), task, CPU), "", CPU)
    for record in records:
        assert record.status == "done"
        assert all(math.isfinite(loss) for loss in record.losses)
        assert set(record.history[-1].held_out) == {"rmse", "mae", "r2", "pearson"}
        assert math.isfinite(record.history[-1].held_out["rmse"][0])


def test_those_that_need_classes_are_those_that_say_so():
    marked = {
        name
        for name in seqdg.list_algorithms()
        if any(layer.hard_labels or layer.needs_classes for layer in list_layers(seqdg.build(name)))
    }
    assert marked == NEED_CLASSES


def test_an_ensemble_predicts_the_mean_of_its_nets_and_fusion_a_weighted_mean():
    task = make_task(make_dataset())
    net, draw = make_net(task), torch.Generator().manual_seed(0)
    x = torch.randn(5, 3, generator=draw)
    ensemble = seqdg.build("ensemble")
    params = {n: p + torch.randn(p.shape, generator=draw) for n, p in ensemble.init(net, net.params(), 3, draw).items()}
    each = [net({n: params[f"{PREFIX}{n}"][i] for n in net.names}, x) for i in range(3)]
    torch.testing.assert_close(ensemble.predict(net, params, x), (each[0] + each[1] + each[2]) / 3)
    fusion = seqdg.build("fusion")
    params = {n: p + torch.randn(p.shape, generator=draw) for n, p in fusion.init(net, net.params(), 3, draw).items()}
    low = min(float(p.min()) for p in _list_heads(net, params, x))
    high = max(float(p.max()) for p in _list_heads(net, params, x))
    assert low <= float(fusion.predict(net, params, x).min()) <= float(fusion.predict(net, params, x).max()) <= high


def _list_heads(net, params, x):
    z = net.features(params, x)
    return [net.head({n: params[f"{PREFIX}{n}"][i] for n in net.head_names}, z) for i in range(3)]


def test_mixup_weighs_the_losses_of_both_numbers():
    task = make_task(make_dataset())
    net = make_net(task)
    f, y = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.5, 2.5, 0.3], [1.0, -1.0, 0.3]])
    want = 0.3 * (0.5**2 + 2.0**2) / 2 + 0.7 * (1.5**2 + 4.0**2) / 2
    assert float(judge_both(net.criterion, net.is_regression)(f, y)) == pytest.approx(want)


def test_a_learner_of_arrays_gets_numbers_and_returns_numbers(request):
    request.addfinalizer(lambda: learners._learners.pop("least-squares"))  # what is imported meanwhile stays
    seen = {}

    @register_learner("least-squares")
    class LeastSquares(ArrayLearner):
        predicts_numbers, tells_classes = True, False

        def fit(self, x, y, domain, classes, seed, **settings):
            seen["y"], seen["classes"] = y, classes
            w = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
            return lambda rows: np.c_[rows, np.ones(len(rows))] @ w

    dataset = make_dataset(shift=500.0)
    task = make_task(dataset)
    trial = task.make_trial("least-squares", {}, task.protocol, ("d",), 0)
    learner = find_learner("least-squares")
    learner.check(trial, task, make_net(task))
    predict, record = learner.train_one(trial, task)
    assert seen["classes"] == 0
    assert seen["y"].dtype == np.float64
    assert seen["y"].min() > 490
    assert predict(dataset.x.numpy()).shape == (120,)
    said = predict(dataset.x[dataset.rows("d")].numpy())
    assert record.history[0].held_out["r2"][0] == pytest.approx(r2_score(dataset.y[dataset.rows("d")], said))
    classes = make_task(replace(dataset, classes=("low", "high"), y=(dataset.y > 500).long()))
    with pytest.raises(UsageError, match="least-squares is a regressor, and numbers is a classification task"):
        learner.check(classes.make_trial("least-squares", {}, PROTOCOL, ("d",), 0), classes, make_net(task))
    dica = find_learner("dica")
    with pytest.raises(UsageError, match="dica is a classifier, and numbers is a regression task"):
        dica.check(task.make_trial("dica", {}, PROTOCOL, ("d",), 0), task, make_net(task))

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    recall_score,
    roc_auc_score,
    top_k_accuracy_score,
)

from command import seqdg
from seqdg.results import CRITERIA, Store, Unit
from seqdg.training.metrics import METRICS, Groups, compute_metrics, measure_rows


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_those_of_scikit_learn_on_the_rows_that_the_mask_keeps(classes, is_weighted):
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(3, 50, classes, generator=generator).round(decimals=1)  # ties on purpose
    y = torch.randint(0, classes, (3, 50), generator=generator)
    lengths = torch.tensor([50, 31, 12])
    mask = torch.arange(50) < lengths[:, None]
    weight = torch.randint(0, 1000, (3, 50), generator=generator) / 100 if is_weighted else None
    found = compute_metrics(logits, y, mask, weight=weight)
    for t, n in enumerate(lengths):
        p, truth = logits[t, :n].double().softmax(-1).numpy(), y[t, :n].numpy()
        guess = logits[t, :n].argmax(-1).numpy()
        known = {"sample_weight": None if weight is None else weight[t, :n].numpy()}
        assert found["accuracy"][t].item() == approximately(accuracy_score(truth, guess, **known))
        assert found["balanced_accuracy"][t].item() == approximately(balanced_accuracy_score(truth, guess, **known))
        assert found["log_loss"][t].item() == approximately(log_loss(truth, p, labels=range(classes), **known))
        occurring = np.unique(truth)  # as WILDS: a class that is only guessed costs others their precision alone
        f1 = f1_score(truth, guess, labels=occurring, average="macro", zero_division=0, **known)
        assert found["macro_f1"][t].item() == approximately(f1)
        recalls = recall_score(truth, guess, labels=occurring, average=None, **known)
        assert found["worst_class"][t].item() == approximately(min(recalls))
        if classes == 2:
            assert found["auroc"][t].item() == approximately(roc_auc_score(truth, p[:, 1], **known))
    assert ("auroc" in found) == (classes == 2)


def approximately(value):
    return pytest.approx(value, rel=1e-5)  # weights are rounded to a millionth


@pytest.mark.parametrize("classes", [2, 7])
def test_whole_weights_are_repeated_rows_in_every_metric(classes):
    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(1, 40, classes, generator=g), torch.randint(0, classes, (1, 40), generator=g)
    number, weight = torch.randint(0, 4, (1, 40), generator=g), torch.randint(0, 4, (1, 40), generator=g)
    copies = torch.repeat_interleave(torch.arange(40), weight[0])
    mask = torch.ones(1, 40, dtype=torch.bool)
    found = compute_metrics(logits, y, mask, Groups(number, 4), weight=weight.double())
    repeated = compute_metrics(
        logits[:, copies], y[:, copies], mask[:, :1].expand(1, len(copies)), Groups(number[:, copies], 4)
    )
    assert found.keys() == repeated.keys()
    for name, value in found.items():
        assert value.item() == approximately(repeated[name].item()), name


def test_weights_of_rows_do_not_depend_on_their_scale_and_equal_ones_change_no_bit():
    g = torch.Generator().manual_seed(0)
    logits, y = torch.randn(2, 40, 3, generator=g), torch.randint(0, 3, (2, 40), generator=g)
    mask, weight = torch.arange(40) < torch.tensor([[40], [23]]), torch.rand(2, 40, generator=g)
    plain = compute_metrics(logits, y, mask)
    equal = compute_metrics(logits, y, mask, weight=torch.full((2, 40), 0.3))
    one, scaled = (compute_metrics(logits, y, mask, weight=weight * by) for by in (1.0, 1024.0))
    for name, value in plain.items():
        assert value.tolist() == equal[name].tolist()
        assert one[name].tolist() == scaled[name].tolist()


def test_calibration_error_is_the_mean_gap_between_confidence_and_accuracy_over_bins():
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(1, 200, 3, generator=generator), torch.randint(0, 3, (1, 200), generator=generator)
    confidence, guess = logits[0].double().softmax(-1).max(-1)
    y = torch.where(confidence < 0.7, guess, y)  # modest where it is always right, and else too sure of itself
    found = compute_metrics(logits, y, torch.ones(1, 200, dtype=torch.bool))["calibration_error"].item()
    bins = np.minimum((confidence * 15).long().numpy(), 14)
    want = 0.0
    for b in range(15):
        inside = bins == b
        if inside.any():
            right = (guess == y[0]).numpy()[inside].mean()
            want += inside.mean() * abs(right - confidence.numpy()[inside].mean())
    assert found == pytest.approx(want)


@pytest.mark.parametrize("classes", [4, 5, 6, 9])
def test_top5_is_that_of_scikit_learn_and_defined_above_five_classes(classes):
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(2, 40, classes, generator=generator, dtype=torch.float64)
    y = torch.randint(0, classes, (2, 40), generator=generator)
    mask = torch.arange(40) < torch.tensor([40, 17])[:, None]
    found = compute_metrics(logits, y, mask)
    assert ("top5" in found) == (classes > 5)
    for t, n in enumerate([40, 17]) if classes > 5 else ():
        want = top_k_accuracy_score(y[t, :n].numpy(), logits[t, :n].numpy(), k=5, labels=range(classes))
        assert found["top5"][t].item() == pytest.approx(want)


def test_a_true_class_that_ties_for_the_fifth_place_is_among_the_five_and_one_that_is_no_number_is_not():
    logits = torch.tensor([[[9.0, 8, 7, 6, 1, 1, 1], [9.0, 8, 7, 6, 5, 1, 1], [float("nan")] * 7]])
    found = compute_metrics(logits, torch.tensor([[6, 6, 0]]), torch.ones(1, 3, dtype=torch.bool))
    assert found["top5"].item() == pytest.approx(1 / 3)


def _draw_groups(seed, trials=3, rows=60, classes=3, groups=7):
    """Draw predictions of rows in groups, of which the last never occurs."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(trials, rows, classes, generator=generator)
    y = torch.randint(0, classes, (trials, rows), generator=generator)
    index = torch.randint(0, groups - 1, (trials, rows), generator=generator)
    mask = torch.arange(rows) < torch.tensor([rows, 25, 4])[:trials, None]
    return logits, y, mask, Groups(index, groups)


@pytest.mark.parametrize("seed", range(4))
def test_worst_group_and_tenth_percentile_are_over_the_groups_that_have_rows(seed):
    logits, y, mask, groups = _draw_groups(seed)
    found = compute_metrics(logits, y, mask, groups)
    for t in range(3):
        accuracies = []
        for g in range(groups.total):
            right = [
                float(logits[t, i].argmax() == y[t, i])
                for i in range(60)
                if mask[t, i] and groups.number[t, i] == g
            ]  # fmt: skip
            if right:
                accuracies.append(sum(right) / len(right))
        assert found["worst_group"][t].item() == pytest.approx(min(accuracies))
        assert found["group_p10"][t].item() == pytest.approx(np.percentile(accuracies, 10))


def test_one_group_makes_its_metrics_the_accuracy_and_groups_change_no_other_metric():
    logits, y, mask, groups = _draw_groups(0)
    plain = compute_metrics(logits, y, mask)
    found = compute_metrics(logits, y, mask, Groups(torch.zeros_like(groups.number), 1))
    assert set(found) - set(plain) == {"worst_group", "group_p10"}
    assert found["worst_group"].tolist() == found["group_p10"].tolist() == pytest.approx(plain["accuracy"].tolist())
    assert {name: found[name].tolist() for name in plain} == {name: v.tolist() for name, v in plain.items()}


def test_the_labels_of_each_class_as_groups_make_the_worst_group_the_worst_class():
    logits, y, mask, _ = _draw_groups(1)
    found = compute_metrics(logits, y, mask, Groups(y, 3))
    assert found["worst_group"].tolist() == found["worst_class"].tolist()


def test_metrics_of_no_rows_are_not_numbers():
    logits, y, _, groups = _draw_groups(2)
    found = compute_metrics(logits, y, torch.zeros_like(y, dtype=torch.bool), groups)
    for name in ("macro_f1", "worst_class", "worst_group", "group_p10"):
        assert torch.isnan(found[name]).all()


def test_a_class_that_is_guessed_and_never_true_counts_in_no_mean_but_lowers_no_other_recall():
    logits = torch.tensor([[[2.0, 0, 0], [0, 0, 2.0], [0, 2.0, 0]]])
    found = compute_metrics(logits, torch.tensor([[0, 0, 1]]), torch.ones(1, 3, dtype=torch.bool))
    assert found["macro_f1"].item() == pytest.approx((2 / 3 + 1) / 2)
    assert found["worst_class"].item() == pytest.approx(1 / 2)


def test_one_kind_of_label_has_no_auroc_and_an_absent_class_does_not_count_as_missed():
    logits = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    found = compute_metrics(logits, torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3, dtype=torch.bool))
    assert torch.isnan(found["auroc"]).all()
    assert found["balanced_accuracy"].item() == pytest.approx(2 / 3)


def test_scores_that_are_no_numbers_have_no_auroc_and_leave_other_trials_alone():
    logits = torch.tensor([[[0.0, 1.0], [0.0, -1.0], [0.0, 3.0]]]).repeat(3, 1, 1)
    logits[1, 2] = float("nan")
    logits[2, 1] = float("nan")
    mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    found = compute_metrics(logits, torch.tensor([[1, 0, 1]] * 3), mask)["auroc"]
    assert found[:2].tolist() == [1.0, 1.0]  # the second has it in a row that does not count
    assert torch.isnan(found[2])


def test_a_criterion_is_added_by_one_entry_and_one_function(tmp_path, monkeypatch):
    monkeypatch.setitem(CRITERIA, "confidence", Unit("Mean confidence in %", higher_is_better=False))

    def confidence(p):
        return (p.log_p.max(-1).values.exp() * p.weight).sum(1) / p.weight.sum(1)

    monkeypatch.setitem(METRICS, "confidence", confidence)
    words = ["rotated-mnist", "--algorithms", "agg", "--held-out", "75", "--trials", 1, "--steps", 5, "--workers", 0]
    assert seqdg("bench", *words, "--device", "cpu", "--out", tmp_path).returncode == 0
    shown = json.loads(seqdg("table", tmp_path, "--criterion", "confidence", "--format", "json").stdout)
    (record,) = Store.open(tmp_path).records()
    values = {e.step: e.held_out["confidence"][0] for e in record.history}
    lowest = min(record.history, key=lambda e: sum(e.source["confidence"]))
    assert shown[0]["mean"] == pytest.approx(100 * values[lowest.step])
    assert 10 < shown[0]["mean"] < 100


def test_a_criterion_that_is_defined_from_four_classes_on_is_refused_where_there_are_three(tmp_path, monkeypatch):
    monkeypatch.setitem(CRITERIA, "top3", Unit("Top-3 accuracy in %", least_classes=4))
    monkeypatch.setitem(METRICS, "top3", METRICS["accuracy"])
    for classes in (2, 3, 4, 5):
        logits, y = torch.zeros(1, 2, classes), torch.zeros(1, 2, dtype=torch.int64)
        values = compute_metrics(logits, y, torch.ones(1, 2, dtype=torch.bool))
        assert ("top3" in values) == (classes >= 4)
    rows = [f"{i % 7},{i % 3},{'abc'[i % 3]},{'xy'[i % 2]}\n" for i in range(24)]
    (tmp_path / "table.csv").write_text("p,q,kind,site\n" + "".join(rows))
    words = ["--label", "kind", "--domain", "site", "--steps", 2, "--criterion", "top3", "--out", tmp_path / "model"]
    done = seqdg("fit", tmp_path / "table.csv", *words)
    assert done.returncode == 2
    assert "top3 is defined for 4 or more classes, and there are 3: choose another criterion." in done.stderr


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [(2, None, ""), (2, 2, "two classes"), (4, None, "4 or more classes"), (3, 5, "3 to 5 classes")],
)
def test_the_numbers_of_classes_of_a_criterion_are_said_in_words(least, most, words):
    assert Unit("Some", least_classes=least, most_classes=most).scope == words


def test_a_criterion_by_group_is_refused_where_there_are_none(tmp_path):
    (tmp_path / "table.csv").write_text(
        "p,kind,site\n" + "".join(f"{i % 7},{'ab'[i % 2]},{i % 3}\n" for i in range(24))
    )
    words = ["--label", "kind", "--domain", "site", "--steps", 2, "--criterion", "worst_group"]
    done = seqdg("fit", tmp_path / "table.csv", *words, "--out", tmp_path / "model")
    assert done.returncode == 2
    assert "worst_group is defined for data with groups (group_column in [data]), and here are none" in done.stderr


def test_every_criterion_has_a_metric_and_every_metric_a_criterion():
    assert list(METRICS) == list(CRITERIA)


def test_rows_by_themselves_have_the_values_of_a_trial_with_these_rows_alone():
    generator = torch.Generator().manual_seed(3)
    logits, y = torch.randn(50, 4, generator=generator), torch.randint(4, (50,), generator=generator)
    weight = torch.rand(50, generator=generator)
    measured = measure_rows(logits, y, weight)
    hit = (logits.argmax(1) == y).double()
    assert measured["accuracy"] == pytest.approx(float((hit * weight).sum() / weight.sum()), abs=1e-5)
    assert measured.keys() == compute_metrics(logits[None], y[None], torch.ones(1, 50, dtype=torch.bool)).keys()
    assert measure_rows(torch.tensor([[1.0], [3.0]]), torch.tensor([2.0, 2.0]))["rmse"] == 1

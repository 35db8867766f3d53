from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score

from command import seqdg
from seqdg.results.criteria import CRITERIA, Unit
from seqdg.results.store import Store
from seqdg.training.metrics import METRICS, compute_metrics


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_those_of_scikit_learn_on_the_rows_that_the_mask_keeps(classes):
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(3, 50, classes, generator=generator).round(decimals=1)  # ties on purpose
    y = torch.randint(0, classes, (3, 50), generator=generator)
    lengths = torch.tensor([50, 31, 12])
    mask = torch.arange(50) < lengths[:, None]
    found = compute_metrics(logits, y, mask)
    for t, n in enumerate(lengths):
        p, truth = logits[t, :n].double().softmax(-1).numpy(), y[t, :n].numpy()
        guess = logits[t, :n].argmax(-1).numpy()
        assert found["accuracy"][t].item() == pytest.approx(accuracy_score(truth, guess))
        assert found["balanced_accuracy"][t].item() == pytest.approx(balanced_accuracy_score(truth, guess))
        assert found["log_loss"][t].item() == pytest.approx(log_loss(truth, p, labels=range(classes)))
        if classes == 2:
            assert found["auroc"][t].item() == pytest.approx(roc_auc_score(truth, p[:, 1]))
    assert ("auroc" in found) == (classes == 2)


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


def test_every_criterion_has_a_metric_and_every_metric_a_criterion():
    assert list(METRICS) == list(CRITERIA)

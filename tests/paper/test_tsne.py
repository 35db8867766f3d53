from __future__ import annotations

import numpy as np
import pytest

from seqdg.paper.tsne import choose_perplexity, compute, lay_out, measure_separability


def test_clusters_far_apart_have_a_silhouette_near_1():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    assert measure_separability(rng.normal(0, 0.1, (90, 4)) + 50 * np.eye(4)[labels], labels) > 0.98


def test_classes_that_say_nothing_of_the_features_have_one_near_0():
    rng = np.random.default_rng(0)
    assert measure_separability(rng.normal(size=(300, 4)), rng.integers(0, 3, 300)) == pytest.approx(0.0, abs=0.03)


def test_one_class_alone_has_no_silhouette():
    assert measure_separability(np.zeros((10, 2)), np.zeros(10, dtype=int)) is None


def test_the_layout_keeps_clusters_apart_and_is_the_same_every_time():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 30)
    features = rng.normal(0, 0.1, (60, 4)) + 20 * np.eye(4)[labels]
    first = lay_out(features)
    assert measure_separability(first, labels) > 0.5
    np.testing.assert_array_equal(first, lay_out(features))


def test_a_few_rows_still_have_a_layout():
    assert lay_out(np.random.default_rng(0).normal(size=(8, 3))).shape == (8, 2)
    assert choose_perplexity(1000) == 30


def test_training_separates_classes_that_noise_hides_in_the_raw_data(dataset, study):
    made = study(dataset(noise=1.5), ["agg", "ensemble"], steps=80)
    found = compute(made)
    rows = len(made.build_stack("agg").jobs[0].split.test[0])
    assert list(found["panels"]) == ["raw data", "agg", "ensemble"]
    assert all(len(p["points"]) == rows == len(found["labels"]) for p in found["panels"].values())
    assert found["panels"]["agg"]["score"] > found["panels"]["raw data"]["score"] + 0.05
    assert found["classes"] == ["x", "y", "z"]

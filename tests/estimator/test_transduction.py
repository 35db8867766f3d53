"""A model whose algorithm is transductive takes the rows that it is given as those of one domain."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import seqdg
from seqdg.base import UsageError
from seqdg.estimator import export_onnx, predict_file
from seqdg.training import shuffle_order


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    domains = np.arange(240) // 60
    y = np.arange(240) % 3
    return draw.standard_normal((240, 4)) + domains[:, None] + y[:, None], y, domains


@pytest.fixture(scope="module")
def model(rows):
    x, y, domains = rows
    return seqdg.DomainClassifier("mtl", steps=20, hidden=(8,), members=1, calibrate=False, device="cpu").fit(
        x, y, domains=domains
    )


def test_rows_are_predicted_in_whole_batches_of_the_rows_given(model, rows):
    x = rows[0][:150]
    own, together = model.model_, model.model_.algorithm.together
    net, (params,) = own.net
    order = shuffle_order(150).tolist()
    want = np.zeros((150, 3))
    for first in range(0, 150, together):
        batch = order[first : first + together]
        filled = [*batch, *order[: together - len(batch)]]
        logits = own.algorithm.predict(net, params, own.input.read(x[filled])[0])
        want[batch] = logits[: len(batch)].detach().numpy()
    np.testing.assert_allclose(own.compute_logits(x)[0], want, atol=1e-10)


def test_fewer_rows_than_it_wants_are_repeated_and_none_are_none(model, rows):
    own, x = model.model_, rows[0][:5]
    net, (params,) = own.net
    order = shuffle_order(5)
    filled = order[torch.arange(own.algorithm.together) % 5].tolist()
    want = own.algorithm.predict(net, params, own.input.read(x[filled])[0])[:5].detach().numpy()
    np.testing.assert_allclose(own.compute_logits(x)[0][order.numpy()], want, atol=1e-10)
    assert own.predict_rows(own.input.read(x)[0][:0]).shape == (0, 3)


def test_a_saved_model_and_a_file_in_parts_give_the_same(model, rows, tmp_path, monkeypatch):
    model.save(tmp_path / "m")
    loaded = seqdg.DomainClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(rows[0]), model.predict_proba(rows[0]))
    assert "It is transductive: it predicts 64 rows of one domain at once" in (tmp_path / "m" / "card.md").read_text()
    frame = pd.DataFrame(rows[0], columns=[f"x{i}" for i in range(4)])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setattr("seqdg.data.table_files.BLOCK", 500)
    tally = predict_file(loaded.model_, tmp_path / "rows.csv", tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv")[["p_0", "p_1", "p_2"]].to_numpy()
    assert tally.rows == 240
    np.testing.assert_allclose(written, model.predict_proba(rows[0]), atol=1e-6)


def test_a_folder_of_images_gives_what_the_images_give_at_once(tmp_path):
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(1)
    pixels = draw.integers(0, 256, (70, 3, 8, 8), dtype=np.uint8)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    model = seqdg.DomainClassifier("arm", steps=3, net=net, batch=8).fit(
        pixels, np.arange(70) % 2, domains=np.arange(70) // 35
    )
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, one in enumerate(pixels):
        image.fromarray(one.transpose(1, 2, 0)).save(folder / f"{i:03}.png")
    predict_file(model.model_, folder, tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv")
    assert written["file"].tolist() == [f"{i:03}.png" for i in range(70)]
    np.testing.assert_allclose(written[["p_0", "p_1"]].to_numpy(), model.predict_proba(pixels), atol=1e-5)


def test_it_cannot_be_an_onnx_file(model, tmp_path):
    with pytest.raises(
        UsageError, match=r"mtl predicts 64 rows of one domain at once .it is transductive., and an ONNX"
    ):
        export_onnx(model.model_, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()

"""A few rows of every domain, a plan without a training, and everything once: what is tried before a long run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from command import seqdg
from seqdg.base import UsageError
from seqdg.bench import Request
from seqdg.data import Dataset, make_dataset
from seqdg.results import open_run

WORDS = ["bench", "--algorithms", "agg,agg+ema", "--held-out", "0", "--workers", 0]


@pytest.fixture
def dataset() -> Dataset:
    y = torch.tensor([0] * 90 + [1] * 9 + [2] + [0, 1, 2])
    domain = torch.tensor([0] * 100 + [1] * 3)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return make_dataset(x.numpy(), y.numpy(), domain.numpy())


def test_a_sample_has_every_class_of_every_domain_in_proportion(dataset: Dataset) -> None:
    sample = dataset.sample(20)
    first = sample.rows(sample.domains[0])
    assert torch.bincount(sample.y[first]).tolist() == [17, 2, 1]
    assert len(sample.rows(sample.domains[1])) == 3
    assert torch.equal(sample.y, dataset.y[sample.x[:, 0].long()])
    assert torch.equal(sample.domain, dataset.domain[sample.x[:, 0].long()])
    assert torch.equal(dataset.sample(20).x, sample.x)
    assert sample.fingerprint not in (dataset.fingerprint, dataset.sample(21).fingerprint)
    assert "20 rows" not in "".join(dataset.notes)
    assert "A sample of 23 of 103 rows" in sample.notes[-1]
    assert dataset.sample(100) is dataset


def test_a_sample_keeps_official_validation_rows_and_every_number_of_a_row(dataset: Dataset) -> None:
    valid = torch.arange(103) % 5 == 0
    sample = replace(dataset, validation=valid, weight=torch.arange(103.0)).sample(10)
    assert sample.validation is not None
    assert sample.weight is not None
    assert torch.equal(sample.validation, valid[sample.x[:, 0].long()])
    assert torch.equal(sample.weight, sample.x[:, 0].double().to(sample.weight.dtype))
    assert 0 < int(sample.validation.sum()) < len(sample.y)


def test_a_sample_too_small_for_every_class_is_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="cannot hold one of each of its 3 classes: take --rows 3 or more"):
        dataset.sample(2)


def test_rows_of_a_sample_and_all_rows_do_not_share_a_directory(tmp_path: Path) -> None:
    assert seqdg(*WORDS, "--trials", 1, "--steps", 2, "--rows", 50, "--out", tmp_path).returncode == 0
    code, _, err = seqdg(*WORDS, "--trials", 1, "--steps", 2, "--out", tmp_path)
    assert code == 2
    assert "holds trials on other rows of rotated-mnist" in err
    (first, second) = open_run(tmp_path).records()
    assert "A sample of 300 of 5000 rows" in " ".join(first.notes)
    assert first.description["data"] == second.description["data"]


def test_quick_runs_everything_once_in_a_directory_of_its_own(tmp_path: Path) -> None:
    code, out, err = seqdg("bench", "--algorithms", "agg,agg+ema", "--quick", "--workers", 0, cwd=tmp_path)
    assert code == 0, err
    assert "one trial each" in out
    records = open_run(tmp_path / "runs" / "rotated-mnist-quick").records()
    assert len(records) == 12
    assert {r.description["protocol"]["steps"] for r in records} == {2}
    assert Request(quick=True).write_command("rotated-mnist") == "seqdg bench rotated-mnist --quick"
    for words, said in ((("--steps", 5), "leave out --steps"), (("--reuse", "--search", 2), "--reuse")):
        code, _, err = seqdg(*WORDS, "--quick", *words)
        assert code == 2
        assert said in err


def test_a_dry_run_writes_nothing_and_counts_what_is_missing(tmp_path: Path) -> None:
    words = [*WORDS, "--trials", 2, "--steps", 3, "--rows", 50]
    code, out, _ = seqdg(*words, "--dry-run", cwd=tmp_path)
    assert code == 0
    assert not list(tmp_path.iterdir())
    assert "4 trials, 0 of them done" in out
    assert "Memory: about" in out
    assert "Disk: about" in out
    assert seqdg(*words[:-6], "--trials", 1, *words[-4:], cwd=tmp_path).returncode == 0
    out = seqdg(*words, "--dry-run", cwd=tmp_path)[1]
    assert "4 trials, 2 of them done; 2 to run" in out
    assert "agg+ema         2        1" in out


def test_rows_below_one_are_refused() -> None:
    with pytest.raises(UsageError, match="--rows is 0"):
        Request(rows=0)

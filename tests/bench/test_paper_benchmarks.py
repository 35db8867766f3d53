"""The paper's benchmarks run the paper's protocol."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest
import torch

from seqdg import build
from seqdg.bench import load_benchmark
from seqdg.nets import BACKBONES
from seqdg.report.published import find_column, load_tables

PAPER = ("ixmas", "vlcs", "pacs", "pacs-alexnet")


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_augments_nothing_and_neither_do_its_benchmarks(name):
    assert load_benchmark(name).augment == ""


def test_the_augmented_variant_differs_in_its_augmentation_alone():
    plain, augmented = load_benchmark("pacs"), load_benchmark("pacs-augmented")
    assert augmented.augment == "pacs"
    same = {"name": plain.name, "title": plain.title, "source": plain.source, "augment": plain.augment}
    assert replace(augmented, **same) == plain


@pytest.mark.parametrize("name", PAPER)
def test_every_column_of_the_papers_table_that_we_have_is_run_and_mldg_both_ways(name):
    algorithms = load_benchmark(name).algorithms
    columns = [c for c in load_tables()[name].columns if any(find_column(a) == c for a in algorithms)]
    ours = [c for c in load_tables()[name].columns if c not in load_tables()[name].unprinted]
    assert set(columns) == set(ours)
    assert {"mldg", "fo-mldg"} <= set(algorithms)


@pytest.mark.parametrize("name", PAPER)
def test_the_file_says_what_is_ours_and_not_the_papers(name):
    text = (files("seqdg") / "benchmarks" / f"{name}.toml").read_text()
    assert "# The paper's: " in text
    assert "# Ours" in text


@pytest.mark.parametrize("name", PAPER)
def test_momentum_and_weight_decay_are_those_of_appendix_c(name):
    protocol = load_benchmark(name).protocol
    assert (protocol.momentum, protocol.weight_decay) == (0.9, 0.00005)


@pytest.mark.parametrize("name", ["pacs", "pacs-alexnet"])
def test_pacs_takes_the_official_split_and_3000_steps_from_imagenet_weights(name):
    benchmark = load_benchmark(name)
    protocol = benchmark.protocol
    assert (protocol.split, protocol.test, protocol.steps, protocol.batch) == ("official", "whole", 3000, 32)
    assert benchmark.net.pretrained
    assert benchmark.net.name in BACKBONES


def test_alexnet_has_its_dropout_and_resnet_none():
    assert load_benchmark("pacs-alexnet").net.dropout == load_tables()["pacs-alexnet"].protocol["dropout"] == 0.5
    assert load_benchmark("pacs").net.dropout == 0.0


@pytest.mark.parametrize(("name", "sources"), [("ixmas", 4), ("vlcs", 3), ("pacs", 3), ("pacs-alexnet", 3)])
def test_crossgrad_moves_inputs_as_its_authors_code_does(name, sources):
    """There 1 and 0.1 act on the gradient of the mean loss of the minibatch, here on that of a row's own loss."""
    benchmark = load_benchmark(name)
    table = benchmark.tables["crossgrad"]
    crossgrad = build("crossgrad", **{name: value for name, value in table.items() if name != "lr"})
    rows = benchmark.protocol.batch
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(sources, rows, 50, dtype=torch.float64, generator=generator)
    of_the_mean = 0.1 * torch.randn(sources, rows, 50, dtype=torch.float64, generator=generator)
    theirs = x + 1.0 * of_the_mean.clamp(-0.1, 0.1)
    for epsilon in (crossgrad.epsilon_label, crossgrad.epsilon_domain):
        moved = crossgrad.move(x, of_the_mean, epsilon) - x
        torch.testing.assert_close(moved, theirs - x, rtol=2e-3, atol=0.0)  # the file rounds to three digits

"""The paper's benchmarks run the paper's protocol."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest
import torch

from seqdg import build
from seqdg.bench import Session, load_benchmark
from seqdg.nets import BACKBONES
from seqdg.paper import Study
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


@pytest.mark.parametrize("name", [*PAPER, "pacs-augmented"])
def test_crossgrad_moves_inputs_by_a_tenth_of_their_length(name):
    table = load_benchmark(name).tables["crossgrad"]
    crossgrad = build("crossgrad", **{name: value for name, value in table.items() if name != "lr"})
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 3, 5, 5, dtype=torch.float64, generator=generator)
    for epsilon in (crossgrad.epsilon_label, crossgrad.epsilon_domain):
        moved = crossgrad.move(x, 1e-6 * torch.randn(x.shape, dtype=x.dtype, generator=generator), epsilon) - x
        torch.testing.assert_close(moved.flatten(2).norm(dim=2), 0.1 * x.flatten(2).norm(dim=2))


BEFORE = {"length": "clipped", "epsilon_label": 0.0104, "epsilon_domain": 0.0104, "clip": 9.6}  # until they were chosen


@pytest.fixture
def selection(script):
    return script("../benchmarks/accuracy/crossgrad")


class Trained:
    """What is trained on a set, one domain held out."""

    def __init__(self, selection, name, data, held_out, steps):
        self.selection, self.held_out = selection, held_out
        self.benchmark = selection.load_set(selection.SETS[name]._replace(steps=steps), data)
        self.session = Session(self.benchmark.make_task(data))

    def train(self, name, settings):
        texts = [f"{name}.{key}={value}" for key, value in settings.items() if key != "lr"]
        study = Study(self.benchmark, self.session, [name], self.held_out, settings=texts)
        return self.selection.train(study, study.names[0])

    def measure_change(self, stack, state):
        """By how much the label loss of a row changes as it moves, over the mean loss."""
        algorithm, params, episode = self.selection.pick_rows(stack, state)
        moved, _ = algorithm.move_inputs(stack.net, params, episode)
        losses, after = (stack.net.row_losses(params, episode._replace(x=x)) for x in (episode.x, moved))
        return float((after - losses).abs().mean() / losses.mean())


def test_crossgrads_steps_change_the_label_loss_on_the_bundled_digits(selection, tmp_path):
    trained = Trained(selection, "digits", tmp_path, "75", 60)
    now = load_benchmark("pacs").tables["crossgrad"]
    assert trained.measure_change(*trained.train("crossgrad", now)) > 0.01


@pytest.mark.slow
def test_crossgrad_is_no_longer_agg_on_features_of_pacs(selection, shared_data):
    trained = Trained(selection, "lite0", shared_data, "cartoon", 80)
    of_agg = selection.predict(*trained.train("agg", {}))
    now, before = (
        trained.train("crossgrad", settings) for settings in (load_benchmark("pacs").tables["crossgrad"], BEFORE)
    )
    assert trained.measure_change(*now) > 0.01 > trained.measure_change(*before)
    differ = [float((selection.predict(*made) != of_agg).double().mean()) for made in (now, before)]
    assert differ[0] > 0.007 > differ[1], differ  # 1.7 and 0.1 %; rounding alone changes a prediction or two of 703

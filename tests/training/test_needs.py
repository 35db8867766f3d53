"""What methods need beside minibatches, with the examples of needs.py: rows of the target, views, groups, own
optimizers, own augmentations and balanced classes."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import seqdg
from command import seqdg as command
from seqdg.base import UsageError
from seqdg.bench import Request, load_benchmark
from seqdg.core import build, registry
from seqdg.data import Dataset, ImageTransform, find_augmentation
from seqdg.nets import Net, Normalization
from seqdg.training import Groups, Inputs, Job, Protocol, Stack, split_rows
from seqdg.training.splits import repeat_by_class

EXAMPLES = Path(__file__).with_name("needs.py")
PROTOCOL = Protocol(steps=4, batch=5, lr=0.1)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("needs") / "needs.py"
    path.write_text(EXAMPLES.read_text(encoding="utf-8"))
    seqdg.list_algorithms()  # all of the package
    known = dict(registry._factories)
    yield path
    registry._factories.clear()  # lists of names are those of the package again
    registry._factories.update(known)


@pytest.fixture
def dataset():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (120,), generator=generator)
    group = torch.arange(120) // 4 % 2
    names = ("a", "b", "c", "d")
    return Dataset("toy", names, ("x", "y", "z"), x, y, torch.arange(120) % 4, "f", group=group, groups=("0", "1"))


def make_stack(dataset, algorithms, protocol=PROTOCOL, seeds=None):
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for p in module.parameters():
            nn.init.normal_(p, std=0.3)
    net = Net(module, "none")
    inputs = Inputs(dataset.x, dataset.y, torch.device("cpu"), torch.float64, groups=Groups(dataset.group, 2))
    jobs = [
        Job(a, protocol, split_rows(dataset, protocol, (dataset.domains[i % 4],), i), i, net.params())
        for i, a in zip(seeds or range(len(algorithms)), algorithms, strict=True)
    ]
    return Stack(net, inputs, jobs)


def watch(stack):
    """Note every episode, of all trials, that the stack makes."""
    seen, make = [], stack._make_episode
    stack._make_episode = lambda *about: seen.append(make(*about)) or seen[-1]
    return seen


@pytest.mark.parametrize("name", ["near-target", "two-views", "rare-groups", "adam-head"])
def test_the_examples_keep_the_contract(file, name):
    done = command("check", f"{file}:{name}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["near-target", "two-views", "rare-groups", "adam-head"])
def test_a_stack_of_them_trains_every_trial_as_if_it_were_alone(file, dataset, name):
    algorithm = build(f"{file}:{name}")
    together = make_stack(dataset, [algorithm] * 3)
    whole = together.advance(together.start(), 4).params
    for i in range(3):
        alone = make_stack(dataset, [algorithm], seeds=[i])
        for key, value in alone.advance(alone.start(), 4).params.items():
            torch.testing.assert_close(whole[key][i], value[0], rtol=0, atol=1e-12)


def test_the_target_is_rows_of_the_held_out_domain_and_moves_no_draw_of_the_others(file, dataset):
    uses, plain = (make_stack(dataset, [build(name)] * 2) for name in (f"{file}:near-target", "agg"))
    episodes, others = watch(uses), watch(plain)
    for stack in (uses, plain):
        stack.advance(stack.start(), 4)
    for episode, other in zip(episodes, others, strict=True):
        assert torch.equal(episode.x, other.x)
        for trial in range(2):
            own = dataset.x[dataset.rows(dataset.domains[trial])]
            assert all(bool((own == row).all(-1).any()) for row in episode.target[trial])
    drawn = torch.cat([e.target[0] for e in episodes])
    assert len(drawn.unique(dim=0)) == 20  # 4 steps of 5 rows, none of them twice


def test_groups_are_those_of_the_rows(file, dataset):
    stack = make_stack(dataset, [build(f"{file}:rare-groups")])
    (episode, *_), _ = watch(stack), stack.advance(stack.start(), 4)
    for x, group in zip(episode.x.flatten(0, 2), episode.group.flatten(), strict=True):
        assert dataset.group[int((dataset.x == x).all(-1).nonzero())] == group


def test_weights_of_their_own_optimizer_take_its_steps(file, dataset):
    stack = make_stack(dataset, [build(f"{file}:adam-head")])
    episodes = watch(stack)
    state = stack.advance(stack.start(), 4)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    module.load_state_dict(dict(stack.jobs[0].params.items()))
    parts = {kind: [p for n, p in module.named_parameters() if n.endswith(kind)] for kind in ("bias", "weight")}
    decay = PROTOCOL.weight_decay
    optimizers = [
        torch.optim.AdamW(parts["bias"], 0.1 * PROTOCOL.lr, betas=(0.9, 0.999), weight_decay=decay),
        torch.optim.SGD(parts["weight"], PROTOCOL.lr, momentum=0.9, weight_decay=decay),
    ]
    for episode in episodes:
        loss = nn.functional.cross_entropy(module(episode.x[0].flatten(0, 1)), episode.y[0].flatten())
        module.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    for name, p in module.named_parameters():
        torch.testing.assert_close(state.params[name][0], p.detach(), rtol=0, atol=1e-9)
    assert set(state.slots["velocity"]) == {"0.weight", "2.weight"}
    assert set(state.slots["first"]) == {"0.bias", "2.bias"}


def test_an_algorithm_that_does_not_say_what_it_uses_is_told_to(dataset):
    class Silent(seqdg.Algorithm):
        def loss(self, net, params, episode):
            return net.losses(params, episode).mean() + episode.target.sum()

    with pytest.raises(UsageError, match=r"write uses = \('target',\) in its class"):
        make_stack(dataset, [Silent()]).advance(make_stack(dataset, [Silent()]).start(), 1)


def test_the_second_view_is_another_augmentation_of_the_same_pictures_by_a_function_of_ones_own(file):
    spec = importlib.util.spec_from_file_location("needs_again", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["needs_again"] = module
    (code,) = [file.read_text().partition("def change")[2]]
    exec("import torch\nfrom seqdg import noise\n\n\ndef change" + code, module.__dict__)
    x = torch.randint(1, 100, (8, 3, 6, 6), dtype=torch.uint8)
    transform = ImageTransform(6, Normalization(), find_augmentation(f"{file}:change"))
    inputs = Inputs(x, torch.zeros(8, dtype=torch.int64), torch.device("cpu"), transform=transform)
    data = {"rows": torch.arange(8).reshape(1, 2, 4), "key": torch.tensor([5])}
    first, _ = inputs.load_step(data["rows"], data["key"])
    second = inputs.load_extras(("view",), data)["view"]
    plain = x.reshape(1, 2, 4, 3, 6, 6) / 255
    factors = [(view / plain).amax((-3, -2, -1)) for view in (first, second)]
    for view, factor in zip((first, second), factors, strict=True):
        torch.testing.assert_close(view, (factor[..., None, None, None] * plain).clamp(0, 1))
    assert (factors[0] - factors[1]).abs().min() > 1e-4


def test_an_augmentation_of_ones_own_is_part_of_the_trial_by_its_code(file, tmp_path):
    benchmark = load_benchmark("rotated-mnist")
    plain, *_ = benchmark.plan(benchmark.make_task(), Request(algorithms=["agg"], held_out=["0"], trials=1)).trials
    other = tmp_path / "needs.py"
    other.write_text("def change(images, key):\n    return 0.9 * images\n")
    keys = []
    for path in (file, other):
        trial = replace(plain, augment=benchmark.with_net(None, [f"net.augment={path}:change"]).augment)
        assert re.fullmatch(r"needs.py:change \(\w{12}\)", trial.description()["augment"])
        keys.append(trial.key)
    assert keys[0] != keys[1]
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def change(images, key):\n    return images[1:]\n")
    transform = ImageTransform(6, Normalization(), find_augmentation(f"{wrong}:change"))
    with pytest.raises(UsageError, match="let it return as many images of the same size"):
        transform.train(torch.zeros(2, 3, 6, 6), torch.tensor(0))


@pytest.mark.parametrize(
    ("name", "said"),
    [("two-views", "compares two augmented views"), ("rare-groups", "reads the group of each row")],
)
def test_a_benchmark_without_what_a_method_needs_is_refused_in_a_sentence(file, tmp_path, name, said):
    done = command("bench", "--algorithms", f"{file}:{name}", "--quick", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert said in done.stderr


def test_the_table_names_what_trains_on_rows_of_the_held_out_domain_and_a_fit_refuses_it(file, tmp_path):
    words = ["--algorithms", f"agg,{file}:near-target", "--held-out", "0", "--trials", 1, "--steps", 4, "--rows", 60]
    done = command("bench", *words, "--workers", 0, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    said = "near-target trains on rows of the held-out domain, without labels; the others never see them."
    assert said in done.stdout
    descriptions = {r.algorithm: r.description for r in seqdg.Results.open(tmp_path / "run").records()}
    assert descriptions["near-target"]["unlabeled"] is True
    assert "unlabeled" not in descriptions["agg"]  # so that its key is what it was
    x, y = torch.randn(60, 4).numpy(), [str(i % 2) for i in range(60)]
    with pytest.raises(UsageError, match="a model for new data has none"):
        seqdg.DomainClassifier(f"{file}:near-target", steps=4).fit(x, y, domains=[str(i % 3) for i in range(60)])


def test_balanced_classes_are_drawn_alike_and_others_as_they_are():
    y = torch.tensor([0] * 12 + [1] * 4 + [2] * 3)
    rows = repeat_by_class(torch.arange(19), y)
    assert torch.bincount(y[rows]).tolist() == [12, 12, 12]
    assert set(rows.tolist()) == set(range(19))
    x = torch.arange(57, dtype=torch.float64)[:, None].repeat(1, 4)
    dataset = Dataset(
        "toy", ("a", "b", "c"), ("x", "y", "z"), x, y.repeat(3), torch.arange(3).repeat_interleave(19), "f",
        group=torch.zeros(57, dtype=torch.int64), groups=("0",),
    )  # fmt: skip
    counts = {}
    for balance in ("rows", "class"):
        stack = make_stack(dataset, [build("agg")], replace(PROTOCOL, steps=60, batch=6, balance=balance))
        episodes = watch(stack)
        stack.advance(stack.start(), 60)
        counts[balance] = torch.bincount(torch.cat([e.y.flatten() for e in episodes]), minlength=3).double()
    shares = {name: (count / count.sum()).tolist() for name, count in counts.items()}
    assert shares["class"] == pytest.approx([1 / 3] * 3, abs=0.02)
    assert shares["rows"][0] > 0.55

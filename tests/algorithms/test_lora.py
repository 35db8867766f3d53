"""LoRA, WiSE and L2-SP, against what they say in one line of mathematics each; layer-wise decay."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.testing import assert_close

import seqdg
from seqdg import Episode, Net, UsageError
from seqdg.algorithms.l2sp import L2SP
from seqdg.algorithms.lora import A, B
from seqdg.base import tree
from seqdg.nets import NetSpec
from seqdg.nets.weights import read_weights


def make_net() -> Net:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    return Net(layers.double(), "none")


def make_episode(sources: int = 3) -> Episode:
    g = torch.Generator().manual_seed(1)
    x = torch.randn((sources, 7, 4), generator=g, dtype=torch.float64)
    return Episode(
        x, torch.randint(3, (sources, 7), generator=g), torch.randperm(sources, generator=g), torch.tensor(0.4)
    )


def begin(algorithm, net, seed=0):
    params = algorithm.init(net, net.params(), 3, torch.Generator().manual_seed(seed))
    return params, algorithm.memory(net, params, 3)


def move(params, seed=5):
    g = torch.Generator().manual_seed(seed)
    return {name: w + 0.3 * torch.randn(w.shape, generator=g, dtype=w.dtype) for name, w in params.items()}


def test_at_first_lora_predicts_as_the_net_does():
    net, x = make_net(), make_episode().x[0]
    lora = seqdg.build("agg+lora", lora_rank=2)
    params, memory = begin(lora, net)
    assert set(params) == {f"{n}.weight{f}" for n in (0, 2) for f in (A, B)} | {"4.weight", "4.bias"}
    assert_close(net(lora.deploy(params, memory), x), net(net.params(), x), rtol=0, atol=0)


def test_merged_weights_predict_as_the_factors_do():
    net, episode = make_net(), make_episode()
    lora = seqdg.build("agg+lora", lora_rank=2, lora_alpha=3.0)
    params, memory = begin(lora, net)
    params = move(params)
    first, deployed = net.params(), lora.deploy(params, memory)
    assert set(deployed) == set(net.names)

    def run(x):  # x W_0' + s (x A') B' + b, layer by layer
        for n in (0, 2):
            thin = x @ params[f"{n}.weight{A}"].T @ params[f"{n}.weight{B}"].T
            x = torch.tanh(x @ first[f"{n}.weight"].T + 1.5 * thin + first[f"{n}.bias"])
        return x @ params["4.weight"].T + params["4.bias"]

    x = episode.x[0]
    assert_close(net(deployed, x), run(x), rtol=1e-12, atol=1e-12)
    want = torch.stack([nn.functional.cross_entropy(run(x), y) for x, y in zip(episode.x, episode.y, strict=True)])
    assert_close(lora.step(net, params, memory, episode)[1], want.mean(), rtol=1e-12, atol=1e-12)


def test_of_full_rank_a_step_of_the_factors_is_a_step_of_the_weights():
    """With A'A = 1, B = 0 and scale 1, a step along the gradient of B moves W by the step along its own."""
    net, episode = make_net(), make_episode()
    lora = seqdg.build("agg+lora", lora_rank=100, lora_alpha=100.0)
    params, memory = begin(lora, net)
    square = {name: w for name, w in params.items() if name.endswith(A)}
    assert all(w.shape[0] == min(net.params()[name.removesuffix(A)].shape) for name, w in square.items())
    name = "0.weight"  # (6, 4): its factor A is square
    params[name + A] = torch.linalg.qr(params[name + A])[0]
    direction, _, _ = lora.step(net, params, memory, episode)
    full = grad(lambda w: net.losses(w, episode).mean())(net.params())
    moved = lora.deploy({**params, name + B: params[name + B] - 0.1 * direction[name + B]}, memory)
    assert_close(moved[name], net.params()[name] - 0.1 * full[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sources", [2, 3])
def test_exact_s_mldg_of_the_factors_is_that_of_nested_autograd(sources):
    net, episode = make_net(), make_episode(sources)
    alpha, beta = 0.2, 1.3
    algorithm = seqdg.build("s-mldg+lora", alpha=alpha, beta=beta, lora_rank=2, lora_alpha=4.0)
    params, memory = begin(algorithm, net)
    params = {name: w.detach() for name, w in move(params).items()}
    direction, value, _ = algorithm.step(net, params, memory, episode)
    first = net.params()

    def loss(w, i):
        x = episode.x[i]
        for n in (0, 2):
            whole = first[f"{n}.weight"] + 2.0 * w[f"{n}.weight{B}"] @ w[f"{n}.weight{A}"]
            x = torch.tanh(x @ whole.T + first[f"{n}.bias"])
        return nn.functional.cross_entropy(x @ w["4.weight"].T + w["4.bias"], episode.y[i])

    def chain(w, i):  # Algorithm 1 of the paper, by torch.autograd alone
        if i == 0:
            return loss(w, 0)
        past = chain(w, i - 1)
        steps = torch.autograd.grad(past, list(w.values()), create_graph=True)
        ahead = {name: p - alpha * step for (name, p), step in zip(w.items(), steps, strict=True)}
        return past + beta * loss(ahead, i)

    leaves = {name: w.clone().requires_grad_() for name, w in params.items()}
    total = chain(leaves, sources - 1)
    gradients = torch.autograd.grad(total, list(leaves.values()))
    assert_close(value, total.detach(), rtol=1e-10, atol=1e-12)
    for name, want in zip(leaves, gradients, strict=True):
        assert_close(direction[name], want, rtol=1e-9, atol=1e-12)


def test_lora_adapts_where_it_is_told_to():
    net = make_net()
    params, _ = begin(seqdg.build("agg+lora", lora_where="^2"), net)
    assert {name for name in params if name.endswith(A)} == {f"2.weight{A}"}
    with pytest.raises(
        UsageError, match=r"No linear layer of the net has 'attn' in its name \(lora_where\). It has: 0, 2"
    ):
        seqdg.build("agg+lora", lora_where="attn").check(net, 3)
    flat = Net(nn.Linear(4, 3), "none")
    with pytest.raises(UsageError, match="this net trains none: drop \\+lora"):
        seqdg.build("agg+lora").check(flat, 3)


def test_seeds_of_a_stack_keep_their_own_first_weights(tmp_path):
    """Trials of a stack start from other weights, of which LoRA leaves most as they are."""
    words = {
        "held_out": ["0"],
        "steps": 4,
        "precision": "float64",
        "progress": False,
        "settings": {"net": {"hidden": (6,)}},
    }
    together = seqdg.run("rotated-mnist", ["agg+lora"], trials=2, out=tmp_path / "two", **words).records()
    alone = [
        seqdg.run("rotated-mnist", ["agg+lora"], trials=1, seed=seed, out=tmp_path / str(seed), **words).records()[0]
        for seed in (0, 1)
    ]
    for stacked, single in zip(together, alone, strict=True):
        assert stacked.key == single.key
        for a, b in zip(stacked.history, single.history, strict=True):
            assert_close(torch.tensor(a.source["log_loss"]), torch.tensor(b.source["log_loss"]), rtol=1e-6, atol=0)


@pytest.mark.parametrize("tuned", [0.0, 0.3, 1.0])
def test_wise_deploys_what_lies_between(tuned):
    net = make_net()
    wise = seqdg.build("agg+wise", tuned=tuned)
    first, memory = begin(wise, net)
    last = move(first)
    _, _, memory = wise.step(net, last, memory, make_episode())
    for name, w in wise.deploy(last, memory).items():
        assert_close(w, (1 - tuned) * first[name] + tuned * last[name], rtol=1e-12, atol=1e-12)


def test_the_pull_of_l2sp_is_the_slope_of_its_penalty():
    net, episode = make_net(), make_episode()
    algorithm = seqdg.build("agg+l2sp", pull=0.7, shrink=0.2)
    assert isinstance(algorithm, L2SP)
    first, memory = begin(algorithm, net)
    params = move(first)
    direction, value, _ = algorithm.step(net, params, memory, episode)
    plain, loss, _ = algorithm.base.step(net, params, {}, episode)
    pulled = tree.add(direction, plain, -1.0)

    def penalty(w):  # written out
        body = sum(((w[n] - first[n]) ** 2).sum() for n in w if not n.startswith("4."))
        return 0.35 * body + 0.1 * sum((w[n] ** 2).sum() for n in w if n.startswith("4."))

    assert_close(value - loss, penalty(params), rtol=1e-12, atol=1e-12)
    for name in ("0.weight", "2.bias", "4.weight"):
        unit = torch.zeros_like(params[name])
        unit.view(-1)[1] = 1e-6
        slope = (penalty({**params, name: params[name] + unit}) - penalty({**params, name: params[name] - unit})) / 2e-6
        assert_close(pulled[name].reshape(-1)[1], slope, rtol=1e-6, atol=1e-9)


def test_the_copies_of_a_head_that_every_source_has_are_shrunk_as_a_head():
    net, episode = make_net(), make_episode()
    pulls = []
    for shrink in (0.0, 0.2):
        algorithm = seqdg.build("undo-bias+l2sp", pull=0.7, shrink=shrink)
        params = algorithm.init(net, net.params(), 3, torch.Generator().manual_seed(0))
        pulls.append(algorithm.step(net, params, algorithm.memory(net, params, 3), episode)[0])
    changed = {name for name in pulls[0] if not torch.equal(pulls[0][name], pulls[1][name])}
    assert changed == {"branch.4.weight", "branch.4.bias"}


def test_rates_fall_by_layer_and_a_factor_of_one_changes_nothing(tmp_path):
    def train(decay, steps=1):
        settings = {"agg": {"layer_decay": decay, "optimizer": "sgd", "lr": 0.5}, "net": {"hidden": (6, 5)}}
        run = seqdg.run(
            "rotated-mnist", ["agg"], held_out=["0"], trials=1, steps=steps, settings=settings, save_weights=True,
            out=tmp_path / f"{decay}-{steps}", progress=False,
        )  # fmt: skip
        (record,) = run.records()
        return record, read_weights(tmp_path / f"{decay}-{steps}" / "weights" / f"{record.key}.safetensors")[0]

    (plain, whole), (other, less) = train(1.0), train(0.5)
    assert "layer_decay" not in plain.description["protocol"]
    assert other.description["protocol"]["layer_decay"] == 0.5
    net = seqdg.nets.build_net(
        NetSpec("mlp", hidden=(6, 5)), (196,), 10, seqdg.training.make_generator(0, "net")
    ).module
    for name, first in net.state_dict().items():
        factor = {"linear1": 0.25, "linear2": 0.5, "head": 1.0}[name.partition(".")[0]]
        assert_close(less[name] - first, factor * (whole[name] - first), rtol=1e-3, atol=1e-6)


def test_depths_are_counted_in_blocks_below_the_head():
    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1, 4))
            self.embed = nn.Linear(4, 4)
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(2)])
            self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)

        def forward(self, x):
            x = self.embed(x) + self.token
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    net = Net(Vision(), "none")
    depth = {n.partition(".")[0] if "blocks" not in n else n[:8]: net.find_depth(n) for n in net.names}
    assert depth == {"token": 3, "embed": 3, "blocks.0": 2, "blocks.1": 1, "norm": 0, "head": 0}
    assert net.find_depth("blocks.0.0.weight.lora_a") == 2
    assert net.find_depth("branch.blocks.1.0.bias") == 1
    assert net.find_depth("phi.new") == 0

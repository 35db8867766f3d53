"""Dropout: masks come from the key of a minibatch and the layer, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.testing import assert_close

from seqdg import Episode, Net, UsageError, build, list_algorithms
from seqdg.base import noise
from seqdg.data import Dataset
from seqdg.nets import NetSpec, RecomputingNet, alexnet, build_net, efficientnet_lite0, mlp
from seqdg.nets.dropout import PureDropout, purify_dropout
from seqdg.testing import stack_episodes
from seqdg.training import Inputs, Job, Protocol, Stack, split_rows

SOURCES, ROWS, WIDTH = 3, 6, 5


def make_net(dropout: float = 0.4, policy: str = "none", seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net(mlp(WIDTH, (8, 7), 4, batchnorm=policy != "none", dropout=dropout).double(), policy)


def make_episode(key: int = 11, order: tuple[int, ...] = (0, 1, 2)) -> Episode:
    """The same rows of each source, whatever the order."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn((SOURCES, ROWS, WIDTH), generator=g, dtype=torch.float64)
    y = torch.randint(0, 4, (SOURCES, ROWS), generator=g)
    domain = torch.tensor(order)
    return Episode(x[domain], y[domain], domain, torch.tensor(0.3, dtype=torch.float64), torch.tensor(key))


def read_mask(p: float, shape: tuple[int, ...], key: int, layer: nn.Module | None = None) -> torch.Tensor:
    """What a net of dropout alone makes of ones."""
    net = Net(layer or nn.Dropout(p), "none")
    return net({}, torch.ones(shape, dtype=torch.float64), torch.tensor(key))


def test_a_mask_keeps_each_value_with_probability_1_minus_p_and_scales_it_to_keep_the_mean():
    mask = read_mask(0.3, (400, 500), 5)
    assert set(mask.unique().tolist()) == {0.0, 1 / 0.7}
    assert abs((mask == 0).double().mean() - 0.3) < 4 * (0.3 * 0.7 / 200_000) ** 0.5
    assert abs(mask.mean() - 1.0) < 0.01


def test_rows_layers_steps_and_sources_have_independent_masks():
    two = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Dropout(0.5))
    pure = purify_dropout(two)
    pure[0].current.key = noise.select(torch.tensor(3), torch.tensor(0))
    ones = torch.ones(200, 100)
    masks = [pure[0](ones), pure[2](ones), pure[0](ones)]  # a layer that is called twice has two masks
    for key, source in ((4, 0), (3, 1), (3, 2)):
        pure[0].current.key, pure[0].current.calls = noise.select(torch.tensor(key), torch.tensor(source)), {}
        masks.append(pure[0](ones))
    masks.append(masks[0].roll(1, 0))
    related = torch.corrcoef(torch.stack([m.flatten() for m in masks])) - torch.eye(len(masks))
    assert related.abs().max() < 5 / 20_000**0.5


@pytest.mark.parametrize(
    ("layer", "shape", "shared"),
    [
        (nn.Dropout1d(0.5), (30, 20, 3), (2,)),
        (nn.Dropout2d(0.5), (30, 20, 3, 4), (2, 3)),
        (nn.Dropout3d(0.5), (30, 20, 3, 4, 2), (2, 3, 4)),
    ],
)
def test_layers_that_drop_channels_share_a_coin_in_each(layer, shape, shared):
    mask = read_mask(0.5, shape, 8, layer)
    assert (mask == mask.amax(shared, keepdim=True)).all()
    assert abs((mask == 0).double().mean() - 0.5) < 0.1


class DropPath(nn.Module):
    """As timm has it."""

    def __init__(self, drop_prob: float, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = x.new_empty((x.shape[0], *(1,) * (x.dim() - 1))).bernoulli_(1 - self.drop_prob)
        return x * keep / (1 - self.drop_prob if self.scale_by_keep else 1.0)


@pytest.mark.parametrize(("scales", "kept"), [(True, 1 / 0.6), (False, 1.0)])
def test_stochastic_depth_drops_whole_rows(scales, kept):
    mask = read_mask(0.4, (500, 3, 2), 8, DropPath(0.4, scales))
    assert (mask == mask[:, :1, :1]).all()
    assert set(mask.unique().tolist()) == {0.0, kept}
    assert abs((mask == 0).double().mean() - 0.4) < 0.1


@pytest.mark.parametrize("policy", ["none", "recalibrate"])
def test_one_pass_over_all_domains_gives_the_losses_of_the_single_ones(policy):
    net, episode = make_net(policy=policy), make_episode()
    params = net.params()
    single = torch.stack([net.loss(params, episode.minibatch(i)) for i in range(SOURCES)])
    assert_close(net.losses(params, episode), single)
    assert_close(vmap(lambda batch: net.loss(params, batch))(episode.minibatches), single)
    z = net.domain_features(params, episode)
    assert_close(net.losses_from_logits(net.head(params, z), episode.y), single)
    assert not torch.allclose(single, make_net(0.0, policy).losses(params, episode))


def test_a_loss_is_that_of_the_net_with_the_mask_written_out():
    net, (x, y, key) = make_net(), make_episode().minibatch(1)
    w = net.params()
    h = x
    for number, name in enumerate(("linear1", "linear2")):
        h = torch.relu(h @ w[f"{name}.weight"].T + w[f"{name}.bias"])
        keep = noise.coins(noise.select(key, number, level=1), tuple(h.shape), 0.6)
        h = torch.stack([v / 0.6 if k else 0 * v for v, k in zip(h.flatten(), keep.flatten(), strict=True)]).view_as(h)
    want = F.cross_entropy(h @ w["head.weight"].T + w["head.bias"], y)
    assert_close(net.loss(w, (x, y, key)), want)


def test_a_source_has_the_same_mask_wherever_it_is_on_the_path_and_another_in_the_next_step():
    net, params = make_net(), make_net().params()
    one, other = make_episode(order=(0, 1, 2)), make_episode(order=(2, 0, 1))
    assert_close(net.losses(params, one)[[2, 0, 1]], net.losses(params, other))
    assert_close(net.loss(params, one.minibatch(2)), net.loss(params, other.minibatch(0)))
    assert_close(net.loss(params, one.part(1, 3).minibatch(1)), net.loss(params, one.minibatch(2)))
    assert_close(net.losses(params, other.by_source()), net.losses(params, one))
    assert not torch.allclose(net.losses(params, one), net.losses(params, make_episode(key=12)))


@pytest.mark.parametrize("name", ["fo-s-mldg", "s-mldg", "undo-bias", "fo-mldg"])
def test_the_direction_is_the_gradient_of_the_loss(name):
    net, episode, algorithm = make_net(), make_episode(), build(name)
    params = algorithm.init(net, net.params(), SOURCES, torch.Generator().manual_seed(0))
    direction, value = algorithm.gradient(net, params, episode)
    assert_close(direction, grad(lambda w: algorithm.loss(net, w, episode))(params))
    assert_close(value, algorithm.loss(net, params, episode))


@pytest.mark.slow
@pytest.mark.parametrize("name", list_algorithms())
def test_every_algorithm_trains_with_dropout_and_in_a_stack_as_alone(name):
    algorithm = build(name)
    nets = [make_net(seed=s) for s in (0, 1)]
    starts = [algorithm.init(n, n.params(), SOURCES, torch.Generator().manual_seed(0)) for n in nets]
    episodes = [make_episode(), make_episode(key=2**40 + 3, order=(1, 2, 0))]
    stacked = stack_episodes(episodes)
    stack = {name: torch.stack([s[name] for s in starts]) for name in starts[0]}
    for _, stage in algorithm.stages():

        def step(net, weights, episode, stage=stage):
            return stage.step(net, weights, algorithm.memory(net, weights, SOURCES), episode)[:2]

        got = vmap(lambda w, e, step=step: step(nets[0], w, e))(stack, stacked)
        for i in range(2):
            alone = step(nets[0], starts[i], episodes[i])
            assert_close(({n: g[i] for n, g in got[0].items()}, got[1][i]), alone)
        plain = step(make_net(0.0), starts[0], episodes[0])
        assert not torch.allclose(plain[1], got[1][0])


@pytest.mark.parametrize("order", [1, 2, None])
def test_recomputed_activations_have_the_same_masks_also_in_a_stack(order):
    net, episode = make_net(), make_episode()
    more = {} if order is None else {"order": order}
    plain, again = (build("s-mldg", alpha=0.3, recompute=on, **more) for on in (False, True))
    assert_close(again.gradient(net, net.params(), episode), plain.gradient(net, net.params(), episode))
    assert_close(RecomputingNet(net).losses(net.params(), episode), net.losses(net.params(), episode))
    keys = torch.tensor([5, 6])
    got, want = (
        vmap(lambda k, a=a: a.gradient(net, net.params(), episode._replace(key=k)))(keys) for a in (again, plain)
    )
    assert_close(got, want)


def train(steps: tuple[int, ...], net: Net) -> dict[str, torch.Tensor]:
    """Train two trials, stopping on the way at these steps and going on from a copy of the state."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, WIDTH, generator=g, dtype=torch.float64), torch.randint(0, 4, (120,), generator=g)
    dataset = Dataset("toy", ("a", "b", "c", "d"), tuple("wxyz"), x, y, torch.arange(120) % 4, "f")
    protocol = Protocol(steps=6, batch=5, lr=0.1)
    jobs = [
        Job(build("fo-s-mldg"), protocol, split_rows(dataset, protocol, ("a",), seed=i), i, make_net(seed=i).params())
        for i in range(2)
    ]
    stack = Stack(net, Inputs(x, y, torch.device("cpu"), torch.float64), jobs)
    state = stack.start()
    for stop in steps:
        state = stack.advance(replace(state, params={n: p.clone() for n, p in state.params.items()}), stop)
        stack = Stack(net, Inputs(x, y, torch.device("cpu"), torch.float64), jobs)
    return stack.deploy(state)


def test_training_that_is_resumed_gives_the_same_bits():
    whole, resumed, other = train((6,), make_net()), train((2, 3, 6), make_net()), train((6,), make_net(0.0))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert any(not torch.allclose(whole[name], other[name]) for name in whole)


def test_serving_drops_nothing():
    net, plain, x = make_net(policy="recalibrate"), make_net(0.0, "recalibrate"), make_episode().x[0]
    params = net.params()
    assert torch.equal(net(params, x), plain(params, x))
    assert torch.equal(net.features(params, x), plain.features(params, x))
    served = params | net.statistics(params, x)
    assert torch.equal(net(served, x), plain(served, x))


def test_a_minibatch_without_a_key_is_refused_by_a_net_with_dropout_alone():
    x, y, _ = make_episode().minibatch(0)
    with pytest.raises(UsageError, match=r"has dropout.*episode\.minibatch\(i\)"):
        make_net().loss(make_net().params(), (x, y))
    assert make_net(0.0).loss(make_net().params(), (x, y)).isfinite()


class Functional(nn.Module):
    def __init__(self, p: float, depends: bool = False) -> None:
        super().__init__()
        self.fc, self.p, self.depends = nn.Linear(WIDTH, 4), p, depends

    def forward(self, x):
        if self.depends and bool(torch.tensor(x.shape[0]) > 100):  # cannot be traced
            x = 2 * x
        if self.training:
            x = F.dropout(x, self.p)
        return self.fc(x)


class Values(Functional):
    def forward(self, x):
        return self.fc(F.dropout(x, self.p, self.training) * (1 if len(list(x)) > 2 else 2))


def test_dropout_by_a_function_is_refused():
    with pytest.raises(UsageError, match=r"calls dropout\(\).*nn\.Dropout"):
        Net(Functional(0.5), "none")
    Net(Functional(0.0), "none")


def test_dropout_by_a_function_is_refused_at_the_first_step_where_tracing_does_not_show_it():
    episode = make_episode()
    net = Net(Values(0.5).double(), "none")
    net(net.params(), episode.x[0])  # serving is right
    with pytest.raises(UsageError, match=r"calls dropout\(\)"):
        net.losses(net.params(), episode)
    with pytest.raises(UsageError, match=r"calls dropout\(\)"):
        grad(net.loss)(net.params(), episode.minibatch(0))
    fine = Net(Values(0.0).double(), "none")
    assert fine.losses(fine.params(), episode).isfinite().all()


@pytest.mark.parametrize(
    "layer", [nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.1), nn.RReLU(), nn.LSTM(WIDTH, 4, 2, dropout=0.5)]
)
def test_layers_whose_draws_cannot_be_replaced_are_refused_by_name(layer):
    with pytest.raises(UsageError, match=rf"The layer 1 \({type(layer).__name__}\) draws random numbers"):
        Net(nn.Sequential(nn.Linear(WIDTH, WIDTH), layer, nn.Linear(WIDTH, 4)), "none")


class Late(nn.Module):
    """Dropout that is defined after the head and called before it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = nn.Linear(WIDTH, 4), nn.Dropout(0.5)

    def forward(self, x):
        return self.fc(self.drop(x))


def test_dropout_of_logits_is_refused_and_the_order_of_definition_does_not_matter():
    with pytest.raises(UsageError, match="dropout layer 1 comes after the last linear layer"):
        Net(nn.Sequential(nn.Linear(WIDTH, 4), nn.Dropout(0.5)), "none")
    assert Net(Late(), "none").has_dropout


def test_a_layer_that_draws_nothing_at_0_is_left_alone():
    net = Net(nn.Sequential(nn.AlphaDropout(0.0), nn.Dropout(0.0), nn.Linear(WIDTH, 4)), "none")
    assert not net.has_dropout


class Attention(nn.Module):
    """As timm has it: fused attention drops inside where it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.attn_drop, self.fused_attn, self.head = nn.Linear(4, 12), nn.Dropout(0.5), True, nn.Linear(4, 2)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.fused_attn:
            z = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            z = self.attn_drop((q @ k.transpose(-2, -1) / 2).softmax(-1)) @ v
        return self.head(z.mean(1))


def test_attention_drops_its_weights_and_serves_as_before():
    torch.manual_seed(0)
    module, x = Attention(), torch.randn(3, 6, 4)
    net = Net(module, "none")
    assert_close(net(net.params(), x), module.eval()(x))
    assert not torch.allclose(net(net.params(), x, torch.tensor(1)), module(x))
    assert module.fused_attn  # the user's own module does not change


def test_our_nets_have_the_published_dropout_and_the_names_that_they_had():
    shares = {alexnet: [0.5, 0.5], efficientnet_lite0: [0.2]}
    for make, share in shares.items():
        with torch.device("meta"):
            module = make(7)
        assert [m.p for m in module.modules() if isinstance(m, nn.Dropout)] == share
    assert list(alexnet(3).classifier.state_dict()) == [f"{i}.{n}" for i in (1, 4, 6) for n in ("weight", "bias")]


def test_a_net_by_name_has_the_dropout_that_is_asked_for():
    g = torch.Generator()
    for name in ("resnet18", "efficientnet-lite0"):
        for share in (0.0, 0.3):
            net = Net(build_net(NetSpec(name, dropout=share), (3, 32, 32), 5, g).module, "frozen")
            assert net.has_dropout == (share > 0)
            assert net.head_names
    with pytest.raises(UsageError, match=r"dropout is 1\.5"):
        NetSpec("mlp", dropout=1.5)


def test_a_frozen_net_is_folded_around_its_dropout():
    net = Net(build_net(NetSpec("resnet18", dropout=0.5), (3, 32, 32), 5, torch.Generator()).module, "frozen")
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in net._training.modules())
    params = net.params()
    key = torch.tensor(3)
    z = net.features(params, x, key)
    assert_close(net.head(params, z), net(params, x, key))
    pure = PureDropout(0.5, "value", True, net._training.dropout.current)
    assert pure.number == 1  # the net's own is 0
    keep = noise.coins(noise.select(key, 0, level=1), tuple(z.shape), 0.5)
    assert_close(z, net.features(params, x) * keep * 2)

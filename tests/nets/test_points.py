"""Points between layers: what a function does there is done, and without one nothing is."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from seqdg import Episode, Net, UsageError
from seqdg.base import noise
from seqdg.nets import BACKBONES, Point, mlp
from seqdg.nets.points import place_points
from seqdg.testing import stack_episodes

WIDTH, ROWS, SOURCES = 5, 4, 3


def make_net(**settings) -> Net:
    torch.manual_seed(0)
    return Net(mlp(WIDTH, (8, 7), 4, **settings).double(), "recalibrate" if settings.get("batchnorm") else "none")


def make_episode(key: int = 7) -> Episode:
    g = torch.Generator().manual_seed(1)
    x = torch.randn((SOURCES, ROWS, WIDTH), generator=g, dtype=torch.float64)
    y = torch.randint(0, 4, (SOURCES, ROWS), generator=g)
    return Episode(x, y, torch.tensor([2, 0, 1]), torch.tensor(0.5, dtype=torch.float64), torch.tensor(key))


def test_a_function_acts_between_the_layers_and_gradients_pass_through_it():
    net, episode = make_net(), make_episode()

    def literal(w):
        h = torch.relu(episode.x.flatten(0, 1) @ w["linear1.weight"].T + w["linear1.bias"])
        h = torch.sin(3 * h)
        h = torch.relu(h @ w["linear2.weight"].T + w["linear2.bias"]) ** 2
        return cross_entropy(h @ w["head.weight"].T + w["head.bias"], episode.y.flatten())

    bent = net.with_points({"after1": lambda h: torch.sin(3 * h), "after2": lambda h: h**2})
    got = grad(lambda w: bent.losses(w, episode).mean())(net.params())
    assert_close(got, grad(literal)(net.params()))
    assert_close(bent.head(net.params(), bent.domain_features(net.params(), episode)).flatten(0, 1).logsumexp(1),
                 bent(net.params(), episode.x.flatten(0, 1)).logsumexp(1))  # fmt: skip
    assert not torch.allclose(bent.losses(net.params(), episode), net.losses(net.params(), episode))


def test_a_function_that_looks_sees_the_rows_of_all_domains_and_changes_nothing():
    net, episode, seen = make_net(batchnorm=True), make_episode(), []

    def look(h):
        seen.append(h)
        return h

    watched = net.with_points({"after1": look})
    assert torch.equal(watched.losses(net.params(), episode), net.losses(net.params(), episode))
    assert [h.shape for h in seen] == [(SOURCES * ROWS, 8)]
    net.losses(net.params(), episode)  # the function is gone with the pass, and the net itself never had it
    assert len(seen) == 1
    watched.loss(net.params(), episode.minibatch(1))
    assert_close(seen[1], seen[0].unflatten(0, (SOURCES, ROWS))[1])


def test_a_function_may_draw_from_the_key_of_its_episode_in_a_stack_as_alone():
    net = make_net(dropout=0.3)
    episodes = [make_episode(7), make_episode(8)]

    def loss(w, episode):
        shake = lambda h: h * (1 + noise.normal(episode.key, h.shape, h.dtype))  # noqa: E731
        return net.with_points({"after1": shake}).losses(w, episode).sum()

    params = {name: torch.stack([w, 1.1 * w]) for name, w in net.params().items()}
    stacked = stack_episodes(episodes)
    got = vmap(grad(loss))(params, stacked)
    for i in range(2):
        assert_close({n: g[i] for n, g in got.items()}, grad(loss)({n: w[i] for n, w in params.items()}, episodes[i]))


def test_a_function_that_fails_leaves_nothing_behind():
    net, episode = make_net(), make_episode()
    want = net.losses(net.params(), episode)
    with pytest.raises(ZeroDivisionError):
        net.with_points({"after2": lambda h: h * (1 // 0)}).losses(net.params(), episode)
    assert torch.equal(net.losses(net.params(), episode), want)


def test_a_point_that_the_net_lacks_is_an_error_that_lists_those_it_has():
    with pytest.raises(UsageError, match=r"no point 'after3'.*It has: after1, after2\."):
        make_net().with_points({"after3": lambda h: h})
    with pytest.raises(UsageError, match=r"no point 'after1'.*put a seqdg\.nets\.Point there"):
        Net(nn.Linear(3, 2), "none").with_points({"after1": lambda h: h})
    own = Net(nn.Sequential(nn.Linear(3, 3), Point("middle"), nn.Linear(3, 2)), "none")
    assert own.points == ("middle",)


CHANNELS = {
    "resnet18": (64, 128, 256, 512),
    "alexnet": (64, 192, 256),
    "efficientnet-lite0": (16, 24, 40, 80, 112, 192, 320),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_our_nets_have_a_point_after_each_stage_and_their_layers_stay_fused(name):
    torch.manual_seed(0)
    module = BACKBONES[name].make((3, 64, 64), 5, 0.0)
    policy = "none" if name == "alexnet" else "frozen"
    net, x, seen = Net(module, policy), torch.randn(1, 3, 64, 64), {}
    assert net.points == tuple(f"after{i + 1}" for i in range(len(CHANNELS[name])))

    def look(point):
        return lambda h: seen.setdefault(point, h)

    out = net.with_points({point: look(point) for point in net.points})(net.params(), x)
    assert torch.equal(out, net(net.params(), x))
    assert [seen[p].shape[1] for p in net.points] == list(CHANNELS[name])
    if policy == "frozen":
        called = [node.target for node in net._training.graph.nodes if node.op == "call_module"]
        assert not any("bn" in str(target) for target in called)
    zero = net.with_points({"after1": torch.zeros_like})(net.params(), x)
    assert not torch.equal(zero, out)


class Stage(nn.Module):
    """A stage that is no Sequential, as timm's ConvNeXt has them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


class Staged(nn.Module):
    """As timm's models are built."""

    def __init__(self, place: str, sequential: bool) -> None:
        super().__init__()
        made = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) if sequential else Stage(WIDTH) for _ in range(3)]
        if place == "layer":
            self.layer1, self.layer2, self.layer3 = made
        else:
            setattr(self, place, nn.Sequential(*made))
        self.place, self.fc = place, nn.Linear(WIDTH, 4)

    def forward(self, x):
        if self.place == "layer":
            return self.fc(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(getattr(self, self.place)(x))


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize("place", ["layer", "stages", "blocks"])
def test_models_built_like_timms_get_points_after_their_stages_and_keep_the_names_of_their_weights(place, sequential):
    torch.manual_seed(0)
    module, x = Staged(place, sequential), torch.randn(3, WIDTH)
    net = Net(module, "none")
    assert net.points == ("after1", "after2", "after3")
    assert net.names == tuple(module.state_dict())
    assert torch.equal(net(net.params(), x), module(x))
    half = net.with_points({"after2": lambda h: h / 2})
    layers = [getattr(module, f"layer{i}") for i in (1, 2, 3)] if place == "layer" else list(getattr(module, place))
    assert_close(half(net.params(), x), module.fc(layers[2](layers[1](layers[0](x)) / 2)))
    assert type(layers[0]) in (nn.Sequential, Stage)  # the user's own module does not change
    assert not any(isinstance(m, Point) for m in module.modules())
    again = place_points(place_points(copy.deepcopy(module)))
    assert sum(isinstance(m, Point) for m in again.modules()) == 3


@pytest.mark.parametrize("batchnorm", [False, True])
def test_row_losses_are_the_criterion_of_each_row_and_their_means_the_losses(batchnorm):
    net, episode = make_net(batchnorm=batchnorm, dropout=0.2), make_episode()
    got = net.row_losses(net.params(), episode)
    assert_close(got.mean(1), net.losses(net.params(), episode))
    for i in range(SOURCES):
        x, y, key = episode.minibatch(i)
        assert_close(got[i], cross_entropy(net(net.params(), x, key), y, reduction="none"))
    stacked = vmap(lambda k: net.row_losses(net.params(), episode._replace(key=k)))(torch.tensor([7, 8]))
    assert_close(stacked[0], got)


def test_row_losses_of_a_criterion_of_ones_own():
    torch.manual_seed(0)
    net = Net(nn.Linear(WIDTH, 1).double(), "none", loss=lambda out, y: ((out.squeeze(-1) - y) ** 2).mean())
    episode = make_episode()._replace(y=torch.randn(SOURCES, ROWS, dtype=torch.float64))
    want = (net(net.params(), episode.x.flatten(0, 1)).reshape(SOURCES, ROWS) - episode.y) ** 2
    assert_close(net.row_losses(net.params(), episode), want)

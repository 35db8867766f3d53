from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqdg import Episode, Net, UsageError
from seqdg.core import build


class Residual(nn.Module):
    """Convolutions, BatchNorm and a head that is called by hand."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.skip = nn.Conv2d(2, 3, 1)
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x)) + self.skip(x)).mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.0), nn.Linear(6, 4))


MODULES = {"mlp": (mlp, (5,)), "residual": (Residual, (2, 6, 6)), "linear": (lambda: nn.Linear(5, 4), (5,))}


@pytest.fixture(params=MODULES)
def module_and_x(request):
    make, shape = MODULES[request.param]
    torch.manual_seed(3)
    module = make().double()
    x = torch.randn((7, *shape), dtype=torch.float64)
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2.0)
    return module, x


def training(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).train()


def test_frozen_is_the_module_in_eval_mode(module_and_x):
    module, x = module_and_x
    net = Net(module, "frozen")
    assert_close(net(net.params(), x), module.eval()(x))


def test_recalibrate_is_the_module_in_train_mode(module_and_x):
    module, x = module_and_x
    net = Net(module, "recalibrate")
    assert_close(net(net.params(), x), training(module)(x))


def test_gradients_are_those_of_the_module(module_and_x):
    module, x = module_and_x
    y = torch.arange(len(x)) % 4
    for policy, reference in (("frozen", copy.deepcopy(module).eval()), ("recalibrate", training(module))):
        net = Net(module, policy)
        nn.functional.cross_entropy(reference(x), y).backward()
        got = torch.func.grad(lambda w, net=net: net.loss(w, (x, y)))(net.params())
        assert_close(got, {name: p.grad for name, p in reference.named_parameters()})


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_the_head_of_the_features_is_the_net(module_and_x, policy):
    module, x = module_and_x
    net = Net(module, policy)
    w = {name: 1.1 * p for name, p in net.params().items()}
    assert_close(net.head(w, net.features(w, x)), net(w, x))
    served = w | net.statistics(w, x)
    assert_close(net.head(served, net.features(served, x)), net(served, x))
    assert net.has_features == (not isinstance(module, nn.Linear))
    assert set(net.head_names) < set(net.names) or isinstance(module, nn.Linear)
    assert sum(net.params()[name].numel() for name in net.head_names) in (6 * 4 + 4, 3 * 4 + 4, 5 * 4 + 4)


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_the_losses_of_an_episode_are_those_of_its_domains_each_on_its_own_statistics(module_and_x, policy):
    module, x = module_and_x
    net = Net(module, policy)
    xs = torch.stack([x, 2 * x + 1, x.flip(0) - 1])
    ys = torch.arange(21).reshape(3, 7) % 4
    episode = Episode(xs, ys, torch.arange(3), torch.zeros(()))
    reference = training(module) if policy == "recalibrate" else module.eval()
    want = torch.stack([nn.functional.cross_entropy(reference(xs[i]), ys[i]) for i in range(3)])
    assert_close(net.losses(net.params(), episode), want.detach())
    assert_close(torch.stack([net.loss(net.params(), episode.minibatch(i)) for i in range(3)]), want.detach())


def test_statistics_are_what_reaches_each_batchnorm_and_serve_in_their_place():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6)).double()
    net, x = Net(module, "recalibrate"), torch.randn(9, 5, dtype=torch.float64)
    found = net.statistics(net.params(), x)
    assert set(found) == {"1.running_mean", "1.running_var", "4.running_mean", "4.running_var"}
    reached = x @ module[0].weight.T + module[0].bias
    assert_close(found["1.running_mean"], reached.mean(0).detach())
    assert_close(found["1.running_var"], reached.var(0, unbiased=False).detach())
    assert_close(net(net.params() | found, x), net(net.params(), x)), "on the same inputs, they are the batch's own"
    module[1].running_mean.copy_(found["1.running_mean"])
    module[1].running_var.copy_(found["1.running_var"])
    module[4].running_mean.copy_(found["4.running_mean"])
    module[4].running_var.copy_(found["4.running_var"])
    other = torch.randn(4, 5, dtype=torch.float64)
    assert_close(net(net.params() | found, other), module.eval()(other))
    assert Net(module, "frozen").statistics(net.params(), x) == {}


def test_statistics_of_a_stack_are_those_of_each_net():
    torch.manual_seed(0)
    net, x = Net(mlp().double(), "recalibrate"), torch.randn(2, 9, 5, dtype=torch.float64)
    params = [net.params(), {name: 0.5 * p for name, p in net.params().items()}]
    stacked = torch.func.vmap(net.statistics)({n: torch.stack([p[n] for p in params]) for n in net.names}, x)
    for i in range(2):
        assert_close({name: s[i] for name, s in stacked.items()}, net.statistics(params[i], x[i]))


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_nothing_changes_on_the_way(module_and_x, policy):
    module, x = module_and_x
    before = {name: v.clone() for name, v in module.state_dict().items()}
    net = Net(module, policy)
    w = net.params()
    first = net(w, x)
    w["fc.bias" if "fc.bias" in w else list(w)[-1]] += 1
    torch.func.grad(lambda p: net.loss(p, (x, torch.zeros(len(x), dtype=torch.int64))))(w)
    net.statistics(w, x)
    assert torch.equal(net(net.params(), x), first)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_net_in_another_precision_keeps_its_constants_in_it(module_and_x):
    module, x = module_and_x
    for policy in ("frozen", "recalibrate"):
        net = Net(module, policy).to(dtype=torch.float32)
        assert {p.dtype for p in net.params().values()} == {torch.float32}
        out = net(net.params(), x.float())
        assert out.dtype == torch.float32
        assert_close(out, Net(module, policy)(Net(module, policy).params(), x).float(), rtol=1e-4, atol=1e-4)


def test_a_batchnorm_without_weights_is_pure_too():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6, affine=False), nn.Linear(6, 4)).double()
    module[1].running_mean.normal_()
    x = torch.randn(7, 5, dtype=torch.float64)
    assert_close(Net(module, "frozen")(Net(module).params(), x), module.eval()(x))
    assert_close(Net(module, "recalibrate")(Net(module).params(), x), module.train()(x))


def test_a_module_that_is_a_batchnorm_is_pure_too():
    x = torch.randn(7, 5, dtype=torch.float64)
    module = nn.BatchNorm1d(5).double()
    net = Net(module, "recalibrate")
    assert_close(net(net.params(), x), copy.deepcopy(module).train()(x))
    assert set(net.statistics(net.params(), x)) == {"running_mean", "running_var"}


NO_HEAD = {
    "a convolution": lambda: nn.Sequential(nn.Conv1d(5, 4, 1), nn.Flatten()),
    "a BatchNorm": lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)),
    "a softmax": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.LogSoftmax(1)),
    "no weights": lambda: nn.Sequential(nn.Flatten()),
}


@pytest.mark.parametrize("ending", NO_HEAD)
def test_a_net_that_does_not_end_in_a_linear_layer_has_no_head(ending):
    net = Net(NO_HEAD[ending]())
    assert net.head_names == ()
    assert not net.has_features
    for split in (net.features, net.head):
        with pytest.raises(UsageError, match="The net does not end in a linear layer, so it has no head"):
            split(net.params(), torch.zeros(2, 5))


def test_dropout_after_the_head_does_not_hide_it():
    net = Net(nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4), nn.Dropout(0.0), nn.Identity()))
    assert net.head_names == ("1.weight", "1.bias")


def test_policies_that_do_not_fit_are_one_sentence():
    with pytest.raises(UsageError, match=r"There is no BatchNorm policy 'frosen'. Did you mean 'frozen'\?"):
        Net(mlp(), "frosen")
    with pytest.raises(UsageError, match=r"The net has BatchNorm layers but its policy is 'none'."):
        Net(mlp(), "none")
    keeps_none = nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 4))
    with pytest.raises(UsageError, match=r"BatchNorm layer '0' keeps no running statistics that could be frozen"):
        Net(keeps_none, "frozen")
    x = torch.randn(7, 5)
    assert_close(Net(keeps_none, "recalibrate")(Net(keeps_none, "recalibrate").params(), x), keeps_none(x))


def test_the_loss_is_the_one_given():
    net = Net(nn.Linear(5, 1), loss=lambda out, y: ((out.squeeze(-1) - y) ** 2).mean())
    x, y = torch.randn(7, 5), torch.randn(7)
    assert_close(net.loss(net.params(), (x, y)), ((net(net.params(), x).squeeze(-1) - y) ** 2).mean())
    episode = Episode(x.reshape(1, 7, 5), y.reshape(1, 7), torch.zeros(1, dtype=torch.int64), torch.zeros(()))
    assert_close(net.losses(net.params(), episode), net.loss(net.params(), (x, y)).reshape(1))


class Unspoken:
    """A loss that must not be shown: on a GPU that would read what is still being computed."""

    def __call__(self, logits, y):
        return nn.functional.cross_entropy(logits, y)

    def __repr__(self):
        raise AssertionError("shown")


@pytest.mark.parametrize("algorithm", [build("agg"), build("undo-bias", branches="head"), build("dann")])
def test_a_loss_need_not_have_a_name(algorithm):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    episode = Episode(torch.randn(2, 7, 5), torch.arange(14).reshape(2, 7) % 3, torch.arange(2), torch.zeros(()))
    found = []
    for loss in (Unspoken(), nn.functional.cross_entropy):
        net = Net(module, loss=loss)
        params = algorithm.init(net, net.params(), 2, torch.Generator().manual_seed(0))
        found.append(algorithm.gradient(net, params, episode)[1])
    assert_close(*found)


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_weights_that_require_no_gradient_are_constants(policy):
    torch.manual_seed(0)
    module = mlp().double()
    for p in module[:2].parameters():
        p.requires_grad_(False)
    net, x = Net(module, policy), torch.randn(6, 5, dtype=torch.float64)
    whole = Net(copy.deepcopy(module).requires_grad_(), policy)
    assert net.names == net.head_names == ("4.weight", "4.bias")
    assert not net.has_features
    assert_close(net(net.params(), x), whole(whole.params(), x))
    assert_close(net.features(net.params(), x), whole.features(whole.params(), x))
    as_floats = net.to(dtype=torch.float32)
    assert_close(as_floats(as_floats.params(), x.float()), net(net.params(), x).float(), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        module[0].weight.zero_()
    assert_close(net(net.params(), x), whole(whole.params(), x))  # its own copies


def test_a_net_that_leaves_nothing_to_train_or_no_head_is_refused():
    with pytest.raises(UsageError, match="All weights of the net are frozen"):
        Net(nn.Linear(5, 4).requires_grad_(False))
    module = mlp()
    module[4].bias.requires_grad_(False)
    with pytest.raises(UsageError, match=r"The last layer of the net is frozen \(4.bias has requires_grad=False\)"):
        Net(module)

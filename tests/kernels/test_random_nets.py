"""Gradients of small networks of random structure, with kernels and without; on a CPU, in Triton's interpreter."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch.func import grad

from seqdg.kernels import convolution
from seqdg.nets import Net, RecomputingNet

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CHANNELS = 4


def list_seeds(*quick):
    return [pytest.param(seed, marks=() if seed in quick else pytest.mark.soak) for seed in range(100)]


class Layer(nn.Module):
    """A convolution, a BatchNorm, perhaps something that is added, and an activation."""

    def __init__(self, draw):
        super().__init__()
        if draw.random() < 0.65:
            dilation = 2 if draw.random() < 0.15 else 1  # with gaps it has no kernel
            self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, 1, dilation, dilation, CHANNELS, bias=False)
        else:
            self.conv = nn.Conv2d(CHANNELS, CHANNELS, 1, bias=draw.random() < 0.2)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.act = draw.choice([nn.ReLU(), nn.ReLU6(), nn.Identity()])

    def forward(self, x, rest):
        y = self.norm(self.conv(x))
        return self.act(y if rest is None else y + rest)


class RandomNet(nn.Module):
    """Layers that mostly read the one before, and some of which add their own input or another layer's output."""

    def __init__(self, draw, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Layer(draw) for _ in range(layers))
        self.reads = [i if draw.random() < 0.8 else draw.randrange(i + 1) for i in range(layers)]
        self.adds = [draw.choice([None, None, read, draw.randrange(i + 1)]) for i, read in enumerate(self.reads)]
        self.last = nn.Linear(CHANNELS, 3)

    def forward(self, x):
        outputs = [x]
        for layer, read, add in zip(self.layers, self.reads, self.adds, strict=True):
            outputs.append(layer(outputs[read], None if add is None else outputs[add]))
        return self.last(torch.mean(outputs[-1], (-2, -1)))


def make_case(seed):
    """Return a net, its weights, a minibatch, and the names of the weights that are trained."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    module = RandomNet(draw)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_var.uniform_(0.5, 1.5)
            layer.running_mean.normal_().mul_(0.1)
            layer.weight.data.uniform_(0.8, 2.0)
            layer.bias.data.normal_().mul_(0.5)
    net = Net(module.eval(), "frozen").to(DEVICE)
    params = {name: p.detach().clone().to(DEVICE) for name, p in net.params().items()}
    x = torch.randn(2, CHANNELS, 3, 2).contiguous(memory_format=torch.channels_last).to(DEVICE)
    trained = [name for name in params if draw.random() < 0.7] or ["last.weight"]
    return net, params, (x, torch.tensor([0, 2], device=DEVICE)), trained


@pytest.fixture
def compare(monkeypatch, triton):
    """Compares what a function returns with kernels and without."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)

    def run(differentiate):
        found = []
        for on in (True, False):
            monkeypatch.setattr(convolution, "_can_run_on", lambda x, on=on: on)
            found.append(differentiate())
        for got, want in zip(*found, strict=True):
            if want is None:
                assert got is None
            else:
                torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4 * float(want.abs().max()) + 1e-6)

    return run


@pytest.mark.parametrize("seed", list_seeds(7, 93))
def test_the_gradient_of_some_of_the_weights(compare, seed):
    net, params, minibatch, trained = make_case(seed)

    def differentiate():
        some = {name: params[name] for name in trained}
        return grad(lambda p: net.loss({**params, **p}, minibatch))(some).values()

    compare(differentiate)


@pytest.mark.parametrize("seed", list_seeds(93))
def test_gradients_by_plain_autograd_of_a_part_and_then_of_all_through_two_passes(compare, seed):
    net, params, (x, y), trained = make_case(seed)

    def differentiate():
        inputs = [t.clone().requires_grad_() for t in (x, x.flip(0) + 0.1)]
        weights = {name: p.clone().requires_grad_(name in trained) for name, p in params.items()}
        losses = [net.loss(weights, (t, y)) for t in inputs]
        tracked = [weights[name] for name in trained]
        found = []
        for wanted in (tracked[-1:], inputs, [*inputs, *tracked]):
            for loss in losses:
                found += torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        return found

    compare(differentiate)


@pytest.mark.parametrize("seed", list_seeds(96))
def test_the_gradient_of_a_net_that_computes_its_activations_again(compare, seed):
    net, params, minibatch, _ = make_case(seed)
    compare(lambda: grad(lambda p: RecomputingNet(net).loss(p, minibatch))(params).values())

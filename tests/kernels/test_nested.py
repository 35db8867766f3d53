"""Gradients of gradients of layers against those of torch, three deep."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, grad_and_value
from torch.nn.functional import max_pool2d

from seqdg import kernels
from seqdg.algorithms import _look_ahead
from seqdg.algorithms.mldg import MLDG
from seqdg.base import Episode, private
from seqdg.core import Sequential, build
from seqdg.kernels import convolution, nested
from seqdg.nets import Net

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype).to(DEVICE)


@pytest.fixture
def nest(monkeypatch):
    """Switches the nested layers on and off, wherever gradients are nested."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    token = convolution._nesting.set(True)

    def switch(on):
        def can_nest(x):
            return on and set(private.list_transforms()) <= {"grad"}

        monkeypatch.setattr(convolution, "can_nest", can_nest)
        monkeypatch.setattr(kernels, "can_nest", can_nest)

    yield switch
    convolution._nesting.reset(token)


def differentiate(loss, depth, *arguments):
    """The loss, and the gradients of nested functions of its gradients."""
    places = tuple(range(len(arguments)))

    def bend(function):
        return lambda *a: sum((g.sin() * (g + i)).sum() for i, g in enumerate(grad(function, places)(*a)))

    for _ in range(depth - 1):
        loss = bend(loss)
    gradients, value = grad_and_value(loss, places)(*arguments)
    return *gradients, value


def assert_same(nest, compute, tolerance=1e-9):
    nest(False)
    expected = compute()
    nest(True)
    for a, b in zip(compute(), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


GEOMETRIES = [((1, 1), (1, 1), (1, 1), 1), ((2, 2), (0, 1), (1, 1), 2), ((2, 1), (2, 2), (2, 2), 4)]


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("act", convolution.ACTIVATIONS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_folded_convolution_with_its_shortcut(nest, geometry, act, depth):
    mean, var = draw(8), draw(8) ** 2 + 0.1

    def loss(x, weight, bias, gain, offset, add):
        layer = convolution.ConvLayer(weight, bias, convolution.FrozenBatchNorm(gain, offset, mean, var, 1e-3))
        ready = convolution.prepare_layers([layer])[0]
        rest = convolution.convolve_and_activate(x, ready, None, act, geometry)
        out = convolution.convolve_and_activate(x, ready, add * rest, act, geometry)
        return (out * out.detach().cos()).mean() + out.square().mean()

    # Small weights: sines of large gradients turn last bits, which differ between CPUs, into first ones.
    weight = draw(8, 4 // geometry[3], 3, 3) / 10
    arguments = (draw(3, 4, 6, 5), weight, draw(8), 1 + draw(8) / 4, draw(8), draw(1))
    assert_same(nest, lambda: differentiate(loss, depth, *arguments))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_convolution_alone(nest, geometry):
    def loss(x, weight, bias):
        layers = [convolution.ConvLayer(weight), convolution.ConvLayer(weight, bias)]
        one, other = convolution.prepare_layers(layers)
        return (convolution.convolve(x, one, geometry) * convolution.convolve(x, other, geometry).sin()).mean()

    arguments = (draw(3, 4, 6, 5), draw(8, 4 // geometry[3], 3, 3), draw(8))
    assert_same(nest, lambda: differentiate(loss, 3, *arguments))


@pytest.mark.parametrize("window", [(3, 2, 1, 1, False), (2, 2, 0, 1, True)])
def test_the_largest_of_windows_that_overlap(window):
    x = draw(2, 3, 7, 7)

    def loss(pool):
        return lambda x: (pool(x.sin() * x, *window) ** 3).mean()

    for a, b in zip(*(differentiate(loss(p), 3, x) for p in (nested.pool_largest, max_pool2d)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("act", convolution.ACTIVATIONS[1:])
def test_what_passes_an_activation_by_kernels(triton, act):
    act = convolution.ACTIVATIONS.index(act)

    def loss(launches):
        return lambda x, shift, rest: nested.Activate.apply(4 * x.sin(), shift, rest, act, launches).square().mean()

    x = draw(4, 24, 5, 3, dtype=torch.float32).contiguous(memory_format=torch.channels_last)
    arguments = (x, draw(24, dtype=torch.float32), x.flip(0))
    for a, b in zip(*(differentiate(loss(launches), 3, *arguments) for launches in (True, False)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def make_net():
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1),
        nn.Conv2d(4, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6), nn.ReLU6(), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for value in module.state_dict().values():
        if value.is_floating_point():
            value.copy_(torch.rand(value.shape, generator=generator) - (0.5 if value.dim() > 1 else -0.5))
    return Net(module).to(DEVICE, torch.float64)


ALGORITHMS = [build("s-mldg"), build("mldg"), Sequential(MLDG(order=2)), Sequential(MLDG(recompute=True))]


@pytest.mark.parametrize("chosen", ALGORITHMS, ids=str)
def test_exact_steps_of_a_net_are_those_of_torch(nest, chosen):
    net = make_net()
    assert net.nests
    x, y = draw(3, 5, 2, 8, 8), torch.arange(15, device=DEVICE).reshape(3, 5) % 3
    episode = Episode(x, y, torch.arange(3, device=DEVICE), torch.zeros((), device=DEVICE))

    def compute():
        direction, value = chosen.gradient(net, net.params(), episode)
        return *direction.values(), value

    assert_same(nest, compute)


def test_nested_gradients_of_a_path_are_the_products_along_it(nest):
    net = make_net()
    chosen = build("s-mldg")
    x, y = draw(3, 5, 2, 8, 8), torch.arange(15, device=DEVICE).reshape(3, 5) % 3
    episode = Episode(x, y, torch.arange(3, device=DEVICE), torch.zeros((), device=DEVICE))
    nest(False)
    products, value = _look_ahead.exact_by_products(chosen.base, net, net.params(), episode)
    nest(True)
    direction, same = chosen.gradient(net, net.params(), episode)
    torch.testing.assert_close(same, value, rtol=1e-9, atol=0.0)
    for name, product in products.items():
        torch.testing.assert_close(direction[name], product, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("nests", [True, False])
def test_three_gradients_take_the_convolutions_that_the_mathematics_needs(nest, nests):
    """A gradient takes three, and each that is differentiated takes two more: 12 for two domains, 39 for three."""
    counted = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "convolution_backward" in str(function):
                counted.extend(wanted for wanted in args[-1] if wanted)
            elif "convolution" in str(function):
                counted.append(True)
            return function(*args, **(kwargs or {}))

    weight, x = draw(4, 4, 3, 3), draw(2, 4, 5, 5)
    geometry = ((1, 1), (1, 1), (1, 1), 1)

    class OneLayer:
        def loss(self, params, minibatch):
            ready = convolution.prepare_layers([convolution.ConvLayer(params["w"])])[0]
            return (convolution.convolve(minibatch[0] * params["b"], ready, geometry) ** 3).mean()

    episode = Episode(torch.stack([x, x.sin(), x.cos()]), draw(3, 2), torch.arange(3, device=DEVICE), torch.zeros(()))
    params = {"w": weight, "b": torch.ones((), dtype=torch.float64, device=DEVICE)}
    nest(nests)
    with Count():
        if nests:
            build("s-mldg").base.along(OneLayer(), params, episode)
        else:
            _look_ahead.exact_by_products(build("s-mldg").base, OneLayer(), params, episode)
    assert len(counted) == (39 if nests else 63)

"""The kernels against the formulas that they stand for; without a GPU, in the interpreter of Triton where that is."""

from __future__ import annotations

import os

import pytest
import torch
from torch.func import grad, grad_and_value, vmap
from torch.nn.functional import batch_norm

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from seqdg import tree
from seqdg.models import fused
from seqdg.models.efficientnet_lite import efficientnet_lite0
from seqdg.models.net import Net
from seqdg.models.resnet import resnet18

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def kernels(monkeypatch):
    """Switches the kernels on and off."""
    pytest.importorskip("triton", reason="The kernels are Triton's, and it is not installed here.")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return lambda on: monkeypatch.setattr(fused, "_kernels_run", lambda x: on)


def draws(*shape, generator=torch.Generator().manual_seed(0)):  # noqa: B008 - one stream for all draws
    x = torch.randn(shape, generator=generator)
    return (x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x).to(DEVICE)


def close(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def alike(kernels, function):
    """Whether what a function gives is the same with kernels and without."""
    found = []
    for on in (True, False):
        kernels(on)
        found.append(function())
    close(*found)


@pytest.mark.parametrize("act", fused.ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(3, 24), (24, 40), (8, 144)])
def test_a_folded_convolution(kernels, inputs, outputs, added, act):
    weight, x, probe = draws(outputs, inputs, 3, 3), draws(4, inputs, 5, 5), 3 * draws(4, outputs, 5, 5)
    gain, offset, mean, var = 1 + draws(outputs) / 4, draws(outputs), draws(outputs), draws(outputs) ** 2 + 0.1

    def loss(weight, gain, offset, x, rest):
        shape = ((1, 1), (1, 1), (1, 1), 1)
        rest = rest if added else None
        ready = fused.prepare([fused.Layer(weight, None, fused.Frozen(gain, offset, mean, var, 1e-3))])
        y = fused.conv_act(x, ready[0], rest, act, shape)
        return (y * probe).mean(), y

    def results():
        arguments = (weight, gain, offset, x, probe.flip(0))
        gradients, (value, y) = grad_and_value(loss, (0, 1, 2, 3, 4), has_aux=True)(*arguments)
        return *gradients, value, y

    alike(kernels, results)


@pytest.mark.parametrize(("stride", "padding", "groups"), [(1, 1, 1), (2, 0, 2), (1, 1, 8)])
def test_a_convolution_alone(kernels, stride, padding, groups):
    weight, x = draws(8, 8 // groups, 3, 3), draws(4, 8, 7, 7)
    shape = ((stride, stride), (padding, padding), (1, 1), groups)

    def loss(weight, x):
        y = fused.conv(x, fused.prepare([fused.Layer(weight)])[0], shape)
        return (y * y.detach().sin()).mean(), y

    def results():
        gradients, (value, y) = grad_and_value(loss, (0, 1), has_aux=True)(weight, x)
        return *gradients, value, y

    alike(kernels, results)


@pytest.mark.parametrize("act", fused.ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("parts", "channels", "size"), [(1, 24, 5), (2, 40, 5), (3, 144, 2), (2, 8, 40)])
def test_normalization_of_each_part_by_itself(kernels, parts, channels, size, added, act):
    x, probe = 20 + draws(6, channels, size, size), draws(6, channels, size, size)
    gain, offset = 1 + draws(channels) / 4, draws(channels)

    def by_kernels(x, gain, offset, rest):
        y = fused.norm_act(x, gain, offset, rest if added else None, parts, 1e-3, act)
        return (y * probe).mean(), y

    def by_torch(x, gain, offset, rest):
        x, gain, offset, rest = (t.double() for t in (x, gain, offset, rest))
        normal = [batch_norm(part, None, None, gain, offset, True, eps=1e-3) for part in x.chunk(parts)]
        y = fused.finish(torch.cat(normal), rest if added else None, act).float()
        return (y * probe).mean(), y

    kernels(True)
    found = []
    for loss in (by_kernels, by_torch):
        gradients, (value, y) = grad_and_value(loss, (0, 1, 2, 3), has_aux=True)(x, gain, offset, probe.flip(0))
        found.append((*gradients, value, y))
    close(*found)


@pytest.mark.parametrize("act", fused.ACTIVATIONS)
def test_the_gradient_of_an_activation_is_that_of_torch_where_it_bends(kernels, act):
    x = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0]).reshape(1, 1, 1, 5).to(DEVICE)
    one = torch.ones(1, device=DEVICE)
    shape = ((1, 1), (0, 0), (1, 1), 1)

    def loss(x):
        layer = fused.Layer(one.reshape(1, 1, 1, 1), None, fused.Frozen(one, 0 * one, 0 * one, one, 0.0))
        return fused.conv_act(x, fused.prepare([layer])[0], None, act, shape).sum()

    alike(kernels, lambda: [grad(loss)(x)])


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
@pytest.mark.parametrize("make", [resnet18, efficientnet_lite0])
@pytest.mark.parametrize("half", [False, True])
def test_the_gradient_of_a_whole_net(kernels, make, policy, half):
    torch.manual_seed(0)
    module = make(5)
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_var.uniform_(0.5, 1.5)
            layer.weight.data.uniform_(0.8, 1.2)
            layer.bias.data.normal_().mul_(0.3)
    net = Net(module, policy).to("cuda")
    params = net.params()
    x = torch.randn(3 * 8, 3, 96, 96, device="cuda").contiguous(memory_format=torch.channels_last)
    y = torch.arange(3 * 8, device="cuda") % 5

    def gradient(on, half, dtype):
        kernels(on)
        own, weights = net.to("cuda", dtype), {name: p.to(dtype) for name, p in params.items()}
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            found, value = grad_and_value(own.loss)(weights, (x.to(dtype), y))
        return torch.cat([g.double().flatten() for g in found.values()] + [value.double().reshape(1)])

    exact = gradient(False, False, torch.float64)
    plain, fast = (gradient(on, half, torch.float32) for on in (False, True))
    assert (fast - exact).norm() < 1.5 * (plain - exact).norm() + 1e-5 * exact.norm()
    assert (plain - exact).norm() < (1.0 if half else 0.01) * exact.norm()  # and the comparison means something


def test_weights_that_are_not_trained_ask_for_no_gradient(kernels):
    trained, frozen, x = draws(8, 3, 3, 3), draws(8, 8, 3, 3), draws(4, 3, 5, 5)
    seen = []

    def loss(weight):
        first, second = fused.prepare([fused.Layer(weight), fused.Layer(frozen)])
        seen.extend(ready.layer.weight.requires_grad for ready in (first, second))
        shape = ((1, 1), (1, 1), (1, 1), 1)
        return fused.conv(fused.conv(x, first, shape), second, shape).square().mean()

    alike(kernels, lambda: [grad(loss)(trained)])
    assert seen[:2] == [True, False]


def test_the_gradient_of_the_input_alone(kernels):
    weight, x, ones = draws(8, 3, 3, 3), draws(4, 3, 5, 5), torch.ones(8, device=DEVICE)
    shape = ((1, 1), (1, 1), (1, 1), 1)

    def loss(x):
        layers = [fused.Layer(weight, None, fused.Frozen(ones, ones, ones, ones, 0.0)), fused.Layer(weight)]
        one, other = fused.prepare(layers)
        return (fused.conv_act(x, one, None, "relu", shape) * fused.conv(x, other, shape)).mean()

    alike(kernels, lambda: [grad(loss)(x)])


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
@pytest.mark.parametrize("half", [False, True])
def test_recorded_gradients_one_after_the_other_are_the_gradients_to_the_bit(policy, half, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    net = Net(resnet18(5), policy).to("cuda")
    params = {name: p.to("cuda") for name, p in net.params().items()}
    x = torch.randn(3, 16, 3, 96, 96, device="cuda")
    y = torch.arange(16, device="cuda") % 5

    def path():
        weights = params
        for own in x:
            minibatch = (own.contiguous(memory_format=torch.channels_last), y)
            with torch.autocast("cuda", torch.bfloat16, enabled=half, cache_enabled=False):
                direction = grad(net.loss)(weights, minibatch)
            weights = tree.add(weights, direction, -0.01)
        return weights

    want = path()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        got = path()
    for _ in range(3):  # the branches of the graph may meet in another order every time
        graph.replay()
        assert all(torch.equal(got[name], want[name]) for name in want)


@pytest.mark.gpu
def test_a_stack_and_a_gradient_of_a_gradient_do_without_kernels():
    seen = []
    x = torch.randn(2, 4, 3, 5, 5, device="cuda")

    def look(x):
        seen.append(fused._kernels_run(x))
        return (x**3).sum()

    look(x[0])
    grad(look)(x[0])
    vmap(look)(x)
    grad(lambda x: grad(look)(x).sum())(x[0])
    torch.func.jvp(look, (x[0],), (x[0],))
    assert seen == [True, True, False, False, False]

"""The kernels against the formulas that they compute; without a GPU, in Triton's interpreter where it is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch.func import grad, grad_and_value, vmap
from torch.nn.functional import batch_norm, conv2d

from seqdg.base import tree
from seqdg.kernels import convolution
from seqdg.kernels.geometry import RELU
from seqdg.nets import Net, efficientnet_lite0, resnet18

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def kernels(monkeypatch, triton):
    """Switches the kernels on and off."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return lambda on: monkeypatch.setattr(convolution, "_can_run_on", lambda x: on)


PIECES = [(1, 24, 5, 4096, 2), (2, 40, 5, 4096, 1), (3, 144, 2, 4096, 1), (2, 8, 40, 4096, 10), (1, 8, 7, 64, 37)]


@pytest.fixture(params=PIECES)
def batch(request, monkeypatch, kernels):
    """Parts and shape of one whose statistics come in one piece, in some, and in more than a tile takes."""
    from seqdg.kernels import normalization

    kernels(True)
    parts, channels, size, tile, pieces = request.param
    monkeypatch.setattr(normalization, "TILE", tile)
    assert (
        normalization._choose_stretches(6 // parts * size * size, channels, parts, normalization.MERGED)[1][0] == pieces
    )
    return parts, (6, channels, size, size)


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


@pytest.mark.parametrize("geometry", [((1, 1), (0, 0), (1, 1), 1), ((2, 1), (3, 1), (1, 2), 2)])
@pytest.mark.parametrize("size", [(7, 9), (8, 8)])
def test_outputs_are_counted_before_there_are_any(geometry, size):
    x, weight = torch.zeros(3, 4, *size), torch.zeros(6, 4 // geometry[3], 3, 2)
    assert convolution._count_outputs(x, weight, geometry) == conv2d(x, weight, None, *geometry).numel()


@pytest.mark.parametrize("nests", [False, True])
def test_where_outputs_are_too_many_to_be_numbered_no_kernel_runs(nests, monkeypatch):
    x, weight = torch.zeros(64, 3, 1024, 1024, device="meta"), torch.zeros(32, 3, 1, 1, device="meta")  # 2^31 outputs
    norm = convolution.FrozenBatchNorm(*torch.zeros(4, 32, device="meta"), 1e-5)
    layer = convolution.PreparedLayer(
        convolution.ConvLayer(weight, None, norm), SimpleNamespace(wait_for=id), weight, norm.mean, None, nests
    )
    launches = []

    def note(*words):
        launches.append(words[-1] if nests else True)
        return [x]

    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(convolution, "has_triton", lambda: True)
    monkeypatch.setattr(convolution, "_choose_dtype", lambda x: x.dtype)
    monkeypatch.setattr(convolution.nested, "convolve_and_activate", note)
    stand_in = SimpleNamespace(ConvAct=SimpleNamespace(apply=note))
    monkeypatch.setitem(sys.modules, "seqdg.kernels.differentiable", stand_in)
    for images in (63, 64):
        convolution.convolve_and_activate(x[:images], layer, None, "relu", ((1, 1), (0, 0), (1, 1), 1))
    assert launches == ([True, False] if nests else [True])


@pytest.mark.parametrize("act", convolution.ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 24), (3, 24), (24, 40), (8, 144)])
def test_a_folded_convolution(kernels, inputs, outputs, added, act):
    weight, x, probe = draws(outputs, inputs, 3, 3), draws(4, inputs, 5, 5), 3 * draws(4, outputs, 5, 5)
    gain, offset, mean, var = 1 + draws(outputs) / 4, draws(outputs), draws(outputs), draws(outputs) ** 2 + 0.1

    def loss(weight, gain, offset, x, rest):
        shape = ((1, 1), (1, 1), (1, 1), 1)
        rest = rest if added else None
        ready = convolution.prepare_layers(
            [convolution.ConvLayer(weight, None, convolution.FrozenBatchNorm(gain, offset, mean, var, 1e-3))]
        )
        y = convolution.convolve_and_activate(x, ready[0], rest, act, shape)
        return (y * probe).mean(), y

    def results():
        arguments = (weight, gain, offset, x, probe.flip(0))
        gradients, (value, y) = grad_and_value(loss, (0, 1, 2, 3, 4), has_aux=True)(*arguments)
        return *gradients, value, y

    alike(kernels, results)


@pytest.mark.parametrize("act", convolution.ACTIVATIONS)
def test_a_number_that_is_none_passes_an_activation(kernels, act):
    kernels(True)
    weight, x = draws(8, 4, 3, 3), draws(2, 4, 5, 5)
    weight[3] = float("nan")
    norm = convolution.FrozenBatchNorm(*(torch.ones(8, device=weight.device) for _ in range(4)), 1e-3)
    ready = convolution.prepare_layers([convolution.ConvLayer(weight, None, norm)])
    y = convolution.convolve_and_activate(x, ready[0], None, act, ((1, 1), (1, 1), (1, 1), 1))
    assert bool(y[:, 3].isnan().all())
    assert bool(y[:, :3].isfinite().all())


@pytest.mark.parametrize(("stride", "padding", "groups"), [(1, 1, 1), (2, 0, 2), (1, 1, 8), (3, 1, 8)])
def test_a_convolution_alone(kernels, stride, padding, groups):
    weight, x = draws(8, 8 // groups, 3, 3), draws(4, 8, 7, 7)
    shape = ((stride, stride), (padding, padding), (1, 1), groups)

    def loss(weight, x):
        y = convolution.convolve(x, convolution.prepare_layers([convolution.ConvLayer(weight)])[0], shape)
        return (y * y.detach().sin()).mean(), y

    def results():
        gradients, (value, y) = grad_and_value(loss, (0, 1), has_aux=True)(weight, x)
        return *gradients, value, y

    alike(kernels, results)


@pytest.mark.parametrize("act", convolution.ACTIVATIONS)
@pytest.mark.parametrize("added", [False, True])
def test_normalization_of_each_part_by_itself(batch, added, act):
    parts, shape = batch
    x, probe = 20 + draws(*shape), draws(*shape)
    gain, offset = 1 + draws(shape[1]) / 4, draws(shape[1])

    def by_kernels(x, gain, offset, rest):
        y = convolution.normalize_and_activate(x, gain, offset, rest if added else None, parts, 1e-3, act)
        return (y * probe).mean(), y

    def by_torch(x, gain, offset, rest):
        x, gain, offset, rest = (t.double() for t in (x, gain, offset, rest))
        normal = [batch_norm(part, None, None, gain, offset, True, eps=1e-3) for part in x.chunk(parts)]
        y = convolution.add_and_activate(torch.cat(normal), rest if added else None, act).float()
        return (y * probe).mean(), y

    found = []
    for loss in (by_kernels, by_torch):
        gradients, (value, y) = grad_and_value(loss, (0, 1, 2, 3), has_aux=True)(x, gain, offset, probe.flip(0))
        found.append((*gradients, value, y))
    close(*found)


def normalized(x, parts):
    """All that the kernels give for a batch, there and back."""
    from seqdg.kernels import normalization

    gain = 1 + torch.arange(x.shape[1], device=x.device) / x.shape[1]
    out, mean, rstd = normalization.norm_act(x, gain, gain, x, parts, 1e-3, RELU)
    return out, mean, rstd, *normalization.norm_act_back(x, x, out, mean, rstd, gain, RELU, True)


def the_same(got, want):
    return all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_normalization_leaves_its_counters_for_the_next(batch):
    from seqdg.kernels import normalization

    parts, shape = batch
    x = draws(*shape)
    want = normalized(x, parts)
    assert all(not counters.any() for counters in normalization._counters.values())
    normalized(x[:4], 1)  # of other pieces
    assert the_same(normalized(x, parts), want)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("parts", "channels", "size"), [(1, 64, 112), (1, 128, 28), (2, 256, 14), (1, 512, 7)])
def test_whichever_program_is_the_last_the_bits_are_the_same(kernels, parts, channels, size, dtype):
    x = draws(32, channels, size, size).to(dtype)
    want = normalized(x, parts)
    exact = x.double().reshape(parts, -1, *x.shape[1:]).mean((1, 3, 4))
    torch.testing.assert_close(want[1].double(), exact, rtol=1e-4, atol=1e-5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = normalized(x, parts)
    for _ in range(300):
        assert the_same(normalized(x, parts), want)
        graph.replay()
        assert the_same(recorded, want)


@pytest.mark.gpu
def test_streams_and_a_graph_at_once_do_not_count_each_others_programs(kernels):
    x = [draws(32, 64, 56, 56) for _ in range(3)]
    want = [normalized(own, 1) for own in x]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = normalized(x[2], 1)
    for _ in range(100):
        found = []
        for own in x[:2]:
            with torch.cuda.stream(torch.cuda.Stream()):
                found.append([normalized(own, 1) for _ in range(3)])
        graph.replay()
        torch.cuda.synchronize()
        assert the_same(recorded, want[2])
        assert all(the_same(got, w) for each, w in zip(found, want[:2], strict=True) for got in each)


@pytest.mark.parametrize("act", convolution.ACTIVATIONS)
def test_the_gradient_of_an_activation_is_that_of_torch_where_it_bends(kernels, act):
    x = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0]).reshape(1, 1, 1, 5).to(DEVICE)
    one = torch.ones(1, device=DEVICE)
    shape = ((1, 1), (0, 0), (1, 1), 1)

    def loss(x):
        layer = convolution.ConvLayer(
            one.reshape(1, 1, 1, 1), None, convolution.FrozenBatchNorm(one, 0 * one, 0 * one, one, 0.0)
        )
        return convolution.convolve_and_activate(x, convolution.prepare_layers([layer])[0], None, act, shape).sum()

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
            found, value = grad_and_value(own.loss)(weights, (x.to(dtype), y, torch.tensor(7, device="cuda")))
        return torch.cat([g.double().flatten() for g in found.values()] + [value.double().reshape(1)])

    exact = gradient(False, False, torch.float64)
    plain, fast = (gradient(on, half, torch.float32) for on in (False, True))
    assert (fast - exact).norm() < 1.5 * (plain - exact).norm() + 1e-5 * exact.norm()
    assert (plain - exact).norm() < (1.0 if half else 0.01) * exact.norm()  # and the comparison means something


def test_weights_that_are_not_trained_ask_for_no_gradient(kernels):
    trained, frozen, x = draws(8, 3, 3, 3), draws(8, 8, 3, 3), draws(4, 3, 5, 5)
    seen = []

    def loss(weight):
        first, second = convolution.prepare_layers([convolution.ConvLayer(weight), convolution.ConvLayer(frozen)])
        seen.extend(ready.layer.weight.requires_grad for ready in (first, second))
        shape = ((1, 1), (1, 1), (1, 1), 1)
        return convolution.convolve(convolution.convolve(x, first, shape), second, shape).square().mean()

    alike(kernels, lambda: [grad(loss)(trained)])
    assert seen[:2] == [True, False]


def test_the_gradient_of_the_input_alone(kernels):
    weight, x, ones = draws(8, 3, 3, 3), draws(4, 3, 5, 5), torch.ones(8, device=DEVICE)
    shape = ((1, 1), (1, 1), (1, 1), 1)

    def loss(x):
        layers = [
            convolution.ConvLayer(weight, None, convolution.FrozenBatchNorm(ones, ones, ones, ones, 0.0)),
            convolution.ConvLayer(weight),
        ]
        one, other = convolution.prepare_layers(layers)
        return (
            convolution.convolve_and_activate(x, one, None, "relu", shape) * convolution.convolve(x, other, shape)
        ).mean()

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
        seen.append(convolution._can_run_on(x))
        return (x**3).sum()

    look(x[0])
    grad(look)(x[0])
    vmap(look)(x)
    grad(lambda x: grad(look)(x).sum())(x[0])
    torch.func.jvp(look, (x[0],), (x[0],))
    assert seen == [True, True, False, False, False]

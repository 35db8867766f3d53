"""Max pooling by kernels against torch; without a GPU, in Triton's interpreter where it is installed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, grad_and_value
from torch.nn.functional import max_pool2d

from seqdg.kernels import convolution
from seqdg.kernels.geometry import Window, make_window
from seqdg.nets import Net

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WINDOWS = [
    Window(3, 2, 1, False),
    Window(3, 2, 0, True),
    Window(2, 2, 1, True),
    Window(3, 1, 1, False),
    Window(2, 3, 0, False),
]
SIZES = [(7, 7), (8, 5), (3, 12), (2, 2)]


def draw(*shape, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x).to(DEVICE)


def pool_by_torch(x, window):
    return max_pool2d(x, window.size, window.stride, window.padding, 1, window.ceil)


def pool_by_kernels(x, window):
    from seqdg.kernels.differentiable import Pool

    return Pool.apply(x, window)[0]


def differentiate(pool, x, window):
    """Return what is pooled, and the gradient of a sum of it in which every entry weighs differently."""

    def weigh(x):
        out = pool(x, window)
        weights = torch.arange(out.numel(), device=x.device).remainder(64).reshape(out.shape) - 20
        return (out.nan_to_num(0.0, 0.0, 0.0) * weights).sum(), out

    d, out = grad(weigh, has_aux=True)(x)
    return out, d


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("length", range(2, 20))
def test_as_many_windows_as_torch_has(window, length):
    x = torch.zeros(1, 1, length, 4)
    try:
        want = pool_by_torch(x, window).shape[2]
    except RuntimeError:
        with pytest.raises(RuntimeError, match="does not fit"):
            window.count(length)
    else:
        assert window.count(length) == want


def test_the_kernels_take_square_windows_without_gaps():
    assert make_window(3, 2, 1, 1, False) == make_window((3, 3), [2, 2], (1, 1), 1, False) == Window(3, 2, 1, False)
    for sizes in [((3, 2), 2, 1, 1), (3, (2, 1), 1, 1), (3, 2, 1, 2), (9, 2, 1, 1), (2, 2, 2, 1)]:
        assert make_window(*sizes, False) is None


CASES = [*((WINDOWS[0], size, torch.float32) for size in SIZES), *((w, SIZES[0], torch.float32) for w in WINDOWS[1:]),
         (WINDOWS[0], SIZES[1], torch.bfloat16), (WINDOWS[1], SIZES[1], torch.float16)]  # fmt: skip


@pytest.mark.parametrize(("window", "size", "dtype"), CASES)
def test_the_largest_of_each_window_and_its_gradient_are_those_of_torch(triton, window, size, dtype):
    x = draw(2, 24, *size).to(dtype)
    got, want = (differentiate(pool, x, window) for pool in (pool_by_kernels, pool_by_torch))
    assert torch.equal(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=1e-6 if dtype is torch.float32 else 1e-2, atol=1e-6)
    again = differentiate(pool_by_kernels, x, window)
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))


@pytest.mark.parametrize("channels", [1, 5, 144])
def test_any_number_of_channels(triton, channels):
    x = draw(2, channels, 6, 9)
    got, want = (differentiate(pool, x, WINDOWS[0]) for pool in (pool_by_kernels, pool_by_torch))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("window", WINDOWS)
def test_the_first_of_equals_counts(triton, window):
    x = draw(2, 8, 9, 8).round().clamp(-1, 1)
    got, want = (differentiate(pool, x, window) for pool in (pool_by_kernels, pool_by_torch))
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_not_a_number_counts_and_infinity_is_one(triton, window):
    from seqdg.kernels import windows

    x = draw(2, 8, 9, 8)
    x[0, ::2, ::3, ::2] = float("nan")
    x[1, ::2] = float("-inf")
    x[1, 1::2, ::2, ::3] = float("inf")
    out, places = windows.pool(x, window)
    want, at = max_pool2d(x.cpu(), window.size, window.stride, window.padding, 1, window.ceil, return_indices=True)
    torch.testing.assert_close(out.cpu(), want, rtol=0, atol=0, equal_nan=True)
    down, along = torch.meshgrid(
        *(torch.arange(n) * window.stride - window.padding for n in want.shape[2:]), indexing="ij"
    )
    place = places.cpu().long()
    assert torch.equal((down + place // window.size) * x.shape[3] + along + place % window.size, at)


def test_a_gradient_that_is_not_a_number_goes_where_it_belongs(triton):
    from seqdg.kernels import windows

    x = draw(1, 4, 6, 6)
    g = torch.ones_like(pool_by_torch(x, WINDOWS[0]))
    g[0, 0, 1, 1] = float("nan")
    _, places = windows.pool(x, WINDOWS[0])
    d = windows.pool_back(g, places, (6, 6), WINDOWS[0])
    assert d.isnan().sum() == 1
    assert d[0, 1:].sum() == 3 * 9


@pytest.mark.parametrize("act", convolution.ACTIVATIONS)
def test_shift_and_activation_after_pooling_give_the_same_numbers_as_before(triton, act):
    from seqdg.kernels import normalization, windows

    y, shift, act = 4 * draw(2, 24, 9, 8).bfloat16(), draw(24, seed=1), convolution.ACTIVATIONS.index(act)
    want, _ = windows.pool(normalization.shift_act(y.clone(), shift, None, act), WINDOWS[0])
    got = normalization.shift_act(windows.pool(y, WINDOWS[0])[0], shift, None, act)
    assert torch.equal(got, want)


@pytest.fixture
def switch(monkeypatch, triton):
    """Switches the kernels on and off."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return lambda on: monkeypatch.setattr(convolution, "_can_run_on", lambda x: on)


def make_net(act, pool):
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, (5, 3), stride=(2, 1), padding=(2, 0), bias=False), nn.BatchNorm2d(8), act, pool,
        nn.Conv2d(8, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip
    module(torch.zeros(1, 3, 17, 14))
    for own in [*module.parameters(), module[1].running_mean, module[5].running_mean]:
        own.data.copy_(torch.randn(own.shape, generator=generator) / max(1, own[0].numel()) ** 0.5)
    return module.eval()


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
@pytest.mark.parametrize("act", [nn.ReLU(), nn.ReLU6(), nn.Identity()])
@pytest.mark.parametrize("pool", [nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((3, 2), 2)])
def test_a_net_that_pools_has_the_same_gradient_with_kernels(switch, policy, act, pool):
    net = Net(make_net(act, pool), policy).to(DEVICE)
    params = {name: p.to(DEVICE) for name, p in net.params().items()}
    x, y = draw(4, 3, 17, 14), torch.tensor([0, 2, 1, 0], device=DEVICE)
    found = []
    for on in (True, False):
        switch(on)
        found.append(grad_and_value(net.loss)(params, (x, y)))
    torch.testing.assert_close(found[0][1], found[1][1])
    got, want = (torch.cat([d.flatten() for d in gradients.values()]) for gradients, _ in found)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
@pytest.mark.parametrize("act", [nn.ReLU(), nn.Identity()])
def test_a_net_that_pools_is_the_module_without_kernels(policy, act):
    module = make_net(act, nn.MaxPool2d(3, 2, 1)).double().train(policy == "recalibrate")
    net, x = Net(module, policy), draw(4, 3, 17, 14).double().cpu()
    torch.testing.assert_close(net(net.params(), x), module(x))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(112, 112), (97, 64)])
def test_the_largest_of_many_windows(dtype, size):
    x = draw(16, 64, *size).to(dtype).relu()
    got, want = (differentiate(pool, x, WINDOWS[0]) for pool in (pool_by_kernels, pool_by_torch))
    assert torch.equal(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=1e-6 if dtype is torch.float32 else 1e-2, atol=1e-6)
    for _ in range(10):
        again = differentiate(pool_by_kernels, x, WINDOWS[0])
        assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))

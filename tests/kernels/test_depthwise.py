"""Depthwise convolutions by kernels against torch; without a GPU, in Triton's interpreter where it is installed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad_and_value
from torch.nn.functional import conv2d

from seqdg.kernels import convolution
from seqdg.kernels.geometry import Depthwise, find_depthwise, lay_out_by_position, pad_same
from seqdg.nets import Net
from seqdg.nets.backbones import Block, efficientnet_lite0

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ["convolve", "differentiate_input", "differentiate_weights"]
ACTIVATED = "differentiate_input, of an activation"
# size of the kernel, stride, padding, height and width
CASES = [
    (3, 1, "same", (6, 9)), (3, 2, "same", (8, 6)), (3, 2, "same", (7, 9)), (3, 1, (1, 1), (5, 4)),
    (3, 2, (1, 1), (6, 7)), (3, 1, (0, 0), (5, 6)), (3, 1, (2, 0), (3, 5)), (3, 2, (2, 1), (5, 8)),
    (5, 1, "same", (7, 7)), (5, 2, "same", (6, 8)), (5, 2, "same", (9, 7)), (5, 1, (2, 2), (3, 4)),
    (5, 2, (3, 4), (6, 5)), (7, 1, "same", (7, 5)), (7, 2, (3, 3), (8, 6)), (7, 2, (0, 0), (8, 9)),
    (3, 2, "same", (1, 1)), (5, 1, "same", (1, 2)),
]  # fmt: skip


def draw(*shape, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x).to(DEVICE)


def make_layer(size, stride, padding, lengths, images=2, channels=24, dtype=torch.float32):
    """Return an input, weights, the geometry, and the convolution as the kernels take it."""
    x, w = draw(images, channels, *lengths).to(dtype), draw(channels, 1, size, size, seed=1).to(dtype)
    geometry = ((stride, stride), padding, (1, 1), channels)
    shape = find_depthwise(x, w, geometry)
    assert shape is not None
    return x, w, geometry, shape


def convolve_by_torch(x, w, geometry):
    x, (stride, padding, dilation, groups) = pad_same(x, w, geometry)
    return conv2d(x, w, None, stride, padding, dilation, groups)


def differentiate_by_torch(x, w, geometry, seed=2):
    """Return the output, a gradient of it, and what that is for the input and the weights, in double precision."""
    x, w = (t.detach().double().requires_grad_() for t in (x, w))
    y = convolve_by_torch(x, w, geometry)
    g = draw(*y.shape, seed=seed)
    return y.detach(), g, *torch.autograd.grad(y, (x, w), g.double())


def check_all(x, w, geometry, shape, tolerance=1e-5):
    from seqdg.kernels import windows

    y, g, d_x, d_w = differentiate_by_torch(x, w, geometry)
    g = g.to(x.dtype)
    got = (
        windows.convolve(x, w, shape),
        windows.differentiate_input(g, w, x, shape)[0],
        windows.differentiate_weights(g, x, shape),
    )
    for one, want in zip(got, (y, d_x, d_w), strict=True):
        scale = float(want.abs().max())
        torch.testing.assert_close(one.double(), want, rtol=tolerance, atol=tolerance * scale)
    return got


@pytest.mark.parametrize(("size", "stride", "padding", "lengths"), CASES)
def test_the_output_and_both_gradients_are_those_of_torch(triton, size, stride, padding, lengths):
    check_all(*make_layer(size, stride, padding, lengths))


@pytest.mark.parametrize("case", [CASES[1], CASES[8]])
@pytest.mark.parametrize("channels", [1, 32, 144])
def test_any_number_of_channels(triton, case, channels):
    check_all(*make_layer(*case, channels=channels))


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[9]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(triton, case, dtype):
    x, w, geometry, shape = make_layer(*case, dtype=dtype)
    g = differentiate_by_torch(x, w, geometry)[1].to(dtype)
    from seqdg.kernels import windows

    exact = [t.detach().double().requires_grad_() for t in (x, w)]
    y = convolve_by_torch(*exact, geometry)
    d_x, d_w = torch.autograd.grad(y, exact, g.double())
    unit = torch.finfo(dtype).eps
    for got, want in (
        (windows.convolve(x, w, shape), y.detach()),
        (windows.differentiate_input(g, w, x, shape)[0], d_x),
    ):
        assert got.dtype is dtype
        torch.testing.assert_close(got.double(), want, rtol=unit, atol=1e-5)
    torch.testing.assert_close(windows.differentiate_weights(g, x, shape).double(), d_w, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("case", "ahead"), [(CASES[0], 1), (CASES[2], 2), (CASES[8], 3), (CASES[10], 1)])
def test_sums_over_several_programs_walks_and_rows_ahead(triton, monkeypatch, case, ahead):
    from seqdg.kernels import windows

    layer = make_layer(*case, images=3)
    whole = check_all(*layer)
    monkeypatch.setattr(windows, "SHORTEST", 2)
    monkeypatch.setitem(windows.SUMMING, layer[3].size, 2 * 3)  # three pieces of two blocks of channels
    monkeypatch.setitem(windows.TILES, layer[3].size, windows.Tile(8, 16, ahead))
    parts = check_all(*layer)
    assert all(torch.equal(a, b) for a, b in zip(whole[:2], parts[:2], strict=True))
    assert not torch.equal(whole[2], parts[2])
    assert torch.equal(check_all(*layer)[2], parts[2])


@pytest.mark.parametrize("case", [CASES[0], CASES[9]])
@pytest.mark.parametrize("act", range(3))
@pytest.mark.parametrize("added", [False, True])
def test_shift_rest_and_activation(triton, case, act, added):
    from seqdg.kernels import windows

    x, w, geometry, shape = make_layer(*case)
    y = convolve_by_torch(x.double(), w.double(), geometry)
    shift, rest = draw(24, seed=3), draw(*y.shape, seed=4) if added else None
    want = convolution.add_and_activate(y + shift.reshape(-1, 1, 1), rest, convolution.ACTIVATIONS[act])
    got = windows.convolve(x, lay_out_by_position(w), shape, shift, rest, act)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[9], CASES[12]])
@pytest.mark.parametrize("act", [1, 2])
@pytest.mark.parametrize("most", [1, 512])
def test_a_gradient_that_passes_back_through_the_activation_before(triton, monkeypatch, case, act, most):
    from seqdg.kernels import windows

    monkeypatch.setattr(windows, "MOST_PIECES", most)
    monkeypatch.setattr(windows, "SHORTEST", 2)
    monkeypatch.setitem(windows.TILES, case[0], windows.Tile(8, 16))
    before, w, geometry, shape = make_layer(*case)
    x = convolution.add_and_activate(4 * before, None, convolution.ACTIVATIONS[act])
    g, d_x = differentiate_by_torch(x, w, geometry)[1:3]
    want = torch.where((before > 0) & ((4 * before < 6) | (act == 1)), d_x, 0.0)
    got, pieces = windows.differentiate_input(g, w, x, shape, act)
    assert (len(pieces) == 1) is (most == 1)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pieces.double().sum(0), want.sum((0, 2, 3)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("act", range(3))
def test_what_is_not_a_number_passes_the_activation(triton, act):
    from seqdg.kernels import windows

    x, w, _, shape = make_layer(*CASES[0])
    w[3] = float("nan")
    out = windows.convolve(x, w, shape, draw(24, seed=3), None, act)
    assert bool(out[:, 3].isnan().all())
    assert int(out.isnan().sum()) == out[:, 3].numel()


def test_which_convolutions_have_kernels():
    x, w = torch.zeros(2, 8, 9, 6), torch.zeros(8, 1, 3, 3)

    def find(x=x, w=w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=8):
        return find_depthwise(x, w, (stride, padding, dilation, groups))

    assert find() == Depthwise(3, 1, 1, 1, 9, 6) == find(padding="same")
    assert find(stride=(2, 2)) == Depthwise(3, 2, 1, 1, 5, 3)
    assert find(stride=(2, 2), padding="same") == Depthwise(3, 2, 1, 0, 5, 3)
    assert (
        find(w=torch.zeros(8, 1, 9, 9)) is find(w=torch.zeros(8, 1, 3, 5)) is find(w=torch.zeros(16, 1, 3, 3)) is None
    )
    assert find(stride=(3, 3)) is find(stride=(1, 2)) is find(padding=(3, 1)) is find(dilation=(2, 2)) is None
    assert find(x=torch.zeros(2, 4, 9, 6), w=torch.zeros(8, 2, 3, 3), groups=4) is None
    assert find(x=torch.zeros(2, 1, 9, 6), groups=1) is None
    assert find(x=torch.zeros(2, 8, 2, 2), padding=(0, 0)) is None
    assert find(x=torch.zeros(0, 8, 9, 6)) is None, "torch convolves no images, too"
    assert find(x=torch.empty(60_000, 8, 9, 9, device="meta")) is None


@pytest.fixture
def switch(monkeypatch, triton):
    """Switches the kernels on and off."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return lambda on: monkeypatch.setattr(convolution, "_can_run_on", lambda x: on)


@pytest.fixture
def seen(monkeypatch, triton):
    """Lists the depthwise kernels that run."""
    from seqdg.kernels import windows

    names = []

    def watch(name, function):
        def call(*args):
            names.append(ACTIVATED if name == NAMES[1] and len(args) > 4 else name)
            return function(*args)

        return call

    for name in NAMES:
        monkeypatch.setattr(windows, name, watch(name, getattr(windows, name)))
    return names


def scramble(module):
    generator = torch.Generator().manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_var.uniform_(0.5, 1.5, generator=generator)
            layer.running_mean.normal_(generator=generator).mul_(0.1)
            layer.weight.data.uniform_(0.8, 1.2, generator=generator)
            layer.bias.data.normal_(generator=generator).mul_(0.3)
    return module


def compare_gradients(switch, net, x, y):
    """Compare the gradient with kernels to that without."""
    params = {name: p.to(DEVICE) for name, p in net.params().items()}
    found = []
    for on in (True, False):
        switch(on)
        found.append(grad_and_value(net.loss)(params, (x, y)))
    torch.testing.assert_close(found[0][1], found[1][1])
    for name, want in found[1][0].items():
        scale = float(want.abs().max())
        torch.testing.assert_close(found[0][0][name], want, rtol=1e-3, atol=1e-4 * scale + 1e-6)
    return params


@pytest.mark.parametrize("policy", ["frozen", "recalibrate"])
def test_a_net_of_blocks_has_the_same_gradient_with_kernels(switch, seen, policy):
    torch.manual_seed(0)
    blocks = [Block(3, 3, 3, 1, 4), Block(3, 6, 5, 2, 4), Block(6, 6, 3, 2, 1)]
    module = scramble(nn.Sequential(*blocks, nn.Flatten(), nn.LazyLinear(3)))
    module(torch.zeros(1, 3, 10, 9))
    net = Net(module.eval(), policy).to(DEVICE)
    x, y = draw(4, 3, 10, 9), torch.tensor([0, 2, 1, 0], device=DEVICE)
    params = compare_gradients(switch, net, x, y)
    expanded = 2 if policy == "frozen" else 0  # blocks whose activation is part of the convolution before
    assert sorted(seen) == sorted(3 * NAMES[::2] + (3 - expanded) * [NAMES[1]] + expanded * [ACTIVATED])
    switch(True)
    with torch.no_grad():
        net(params, x)
    assert seen[9:] == ["convolve"] * 3


class ReadTwice(nn.Module):
    """The first layer's output goes into a depthwise convolution, and perhaps past it: to before or after its ReLU."""

    def __init__(self, past):
        super().__init__()
        self.past = past
        self.first, self.first_norm = nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.deep, self.deep_norm = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.first_norm(self.first(x)))
        y = self.deep_norm(self.deep(x))
        y = torch.relu(y + x if self.past == "shortcut" else y)
        return self.last(torch.mean(y * x if self.past == "factor" else y, (-2, -1)))


@pytest.mark.parametrize("past", ["nothing", "shortcut", "factor"])
def test_a_gradient_is_masked_before_it_is_handed_on_only_if_nothing_is_added_to_it(switch, seen, past):
    torch.manual_seed(0)
    net = Net(scramble(ReadTwice(past)).eval(), "frozen").to(DEVICE)
    compare_gradients(switch, net, draw(4, 3, 7, 6), torch.tensor([0, 2, 1, 0], device=DEVICE))
    assert (ACTIVATED in seen) is (past == "nothing")
    assert (NAMES[1] in seen) is (past != "nothing")


@pytest.mark.slow
def test_the_gradient_of_the_whole_net(switch, seen, monkeypatch):
    from seqdg.kernels import windows

    if DEVICE == "cpu":  # fewer programs, which run one after the other
        monkeypatch.setattr(windows, "TILES", dict.fromkeys(windows.TILES, windows.Tile(4, 256)))
    torch.manual_seed(0)
    net = Net(scramble(efficientnet_lite0(5, dropout=0.0)), "frozen").to(DEVICE)
    compare_gradients(switch, net, draw(1, 3, 32, 32), torch.tensor([3], device=DEVICE))
    assert sorted(seen) == sorted(16 * [*NAMES[::2], ACTIVATED])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "stride", "channels", "length"), [(3, 2, 96, 112), (5, 1, 240, 28), (5, 2, 672, 14)])
def test_large_layers_and_the_same_bits_every_time(size, stride, channels, length, dtype):
    from seqdg.kernels import windows

    layer = make_layer(size, stride, "same", (length, length), 16, channels, dtype)
    want = check_all(*layer, tolerance=1e-4 if dtype is torch.float32 else 2e-2)
    x, w, _, shape = layer
    g = draw(*want[0].shape, seed=2).to(dtype)
    masked = windows.differentiate_input(g, w, x, shape, 1)
    assert torch.equal(masked[0], torch.where(x > 0, want[1], 0))
    for _ in range(10):
        assert all(torch.equal(a, b) for a, b in zip(check_all(*layer, 1e-1), want, strict=True))
        again = windows.differentiate_input(g, w, x, shape, 1)
        assert all(torch.equal(a, b) for a, b in zip(again, masked, strict=True))

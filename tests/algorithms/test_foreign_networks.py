"""Algorithms of the paper on networks of timm, transformers and open_clip with random weights, alone and in a stack."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.testing import assert_close

import seqdg
from packages import TINY, make_text_encoder, need
from seqdg import Episode, Net
from seqdg.base import tree
from seqdg.nets import NetSpec, build_net

PAPER = (
    "agg", "dann", "crossgrad", "undo-bias", "s-undo-bias", "mldg", "fo-mldg", "ffo-s-mldg", "fo-s-mldg", "s-mldg",
)  # fmt: skip
CLASSES, ROWS = 3, 2
SIDE = {"timm:test_vit": 32, "timm:test_convnext": 32, "hf vit": 32, "hf dinov2": 28, "text": 0, "clip": 32}
PACKAGES = {"text": "transformers", "hf vit": "transformers", "hf dinov2": "transformers", "clip": "open_clip"}
OF_PICTURES = ["timm:test_vit", "hf vit", "clip"]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:There is a performance drop")]


def build(kind: str, folder: Path, shape: tuple[int, ...]) -> nn.Module:
    """Build a tiny network of a package, with random weights."""
    name = kind
    if kind == "text":
        name = f"hf:{make_text_encoder(folder)}"
    if kind.startswith("hf "):
        from transformers import Dinov2Config, Dinov2Model, ViTConfig, ViTModel

        torch.manual_seed(0)
        if kind == "hf vit":
            ViTModel(ViTConfig(**TINY, image_size=32, patch_size=8)).save_pretrained(folder)
        else:
            Dinov2Model(Dinov2Config(**TINY, image_size=28, patch_size=14, mlp_ratio=2)).save_pretrained(folder)
        name = f"hf:{folder}"
    if kind == "clip":
        import open_clip

        vision = {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8, "head_width": 32}
        text = {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}
        about = {"embed_dim": 12, "vision_cfg": vision, "text_cfg": text}
        (folder / "tiny-tower.json").write_text(json.dumps(about))
        open_clip.add_model_config(folder / "tiny-tower.json")
        name = "open_clip:tiny-tower"
    return build_net(NetSpec(name), shape, CLASSES, torch.Generator().manual_seed(0)).module


@pytest.fixture(scope="module", params=SIDE)
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Net, Episode]:
    kind = request.param
    need(PACKAGES.get(kind, "timm"))
    side, g = SIDE[kind], torch.Generator().manual_seed(0)
    shape = (3, side, side) if side else (6,)
    module = build(kind, tmp_path_factory.mktemp("net"), shape).double()
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0  # so that nested autograd has nothing to draw
    x = torch.rand((3, ROWS, *shape), generator=g, dtype=torch.float64) if side else torch.randint(5, 13, (3, ROWS, 6))
    y = torch.randint(CLASSES, (3, ROWS), generator=g)
    progress = torch.tensor(0.5, dtype=torch.float64)
    return Net(module, "none"), Episode(x=x, y=y, domain=torch.arange(3), progress=progress)


def test_features_and_gradients_of_a_stack_are_those_of_each_alone(network: tuple[Net, Episode]):
    net, episode = network
    places = [net.params(), {name: 1.01 * w for name, w in net.params().items()}]
    stacked = tree.stack(places)
    features = vmap(lambda w: net.features(w, episode.x[0]))(stacked)
    gradients = vmap(lambda w: grad(lambda v: net.losses(v, episode).mean())(w))(stacked)
    for i, place in enumerate(places):
        assert_close(features[i], net.features(place, episode.x[0]))
        alone = grad(lambda v: net.losses(v, episode).mean())(place)
        for name, want in alone.items():
            assert_close(gradients[name][i], want, rtol=1e-7, atol=1e-10)


CASES = [(kind, name) for kind in SIDE for name in PAPER if kind in OF_PICTURES or "mldg" in name or name == "agg"]


@pytest.mark.parametrize(("network", "name"), CASES, indirect=["network"])
def test_a_step_of_an_algorithm_of_the_paper_is_finite(network: tuple[Net, Episode], name: str):
    net, episode = network
    algorithm = seqdg.build(name)
    params = algorithm.init(net, net.params(), 3, torch.Generator().manual_seed(1))
    memory = algorithm.memory(net, params, 3)
    direction, loss, _ = algorithm.step(net, params, memory, episode)
    assert bool(torch.isfinite(loss))
    assert any(bool(d.abs().max() > 0) for d in direction.values())
    assert all(bool(torch.isfinite(d).all()) for d in direction.values())


def layer_norm_by_hand(x, shape, weight=None, bias=None, eps=1e-5):
    """Torch's own has wrong derivatives of derivatives."""
    axes = tuple(range(-len(shape), 0))
    apart = x - x.mean(axes, keepdim=True)
    scaled = apart / (apart.pow(2).mean(axes, keepdim=True) + eps).sqrt()
    return scaled * (1 if weight is None else weight) + (0 if bias is None else bias)


@pytest.mark.parametrize("network", SIDE, indirect=True)
def test_exact_s_mldg_is_algorithm_1_by_nested_autograd(network: tuple[Net, Episode]):
    net, episode = network
    alpha, module = 0.1, net._training
    theta = {name: w.clone().requires_grad_() for name, w in net.params().items()}

    def loss(at, i):
        return F.cross_entropy(functional_call(module, at, (episode.x[i],)), episode.y[i])

    by_hand, math = patch.object(F, "layer_norm", layer_norm_by_hand), torch.nn.attention.SDPBackend.MATH
    with by_hand, torch.nn.attention.sdpa_kernel(math):
        total = loss(theta, 0)
        for i in (1, 2):
            step = torch.autograd.grad(total, list(theta.values()), create_graph=True, materialize_grads=True)
            ahead = {name: w - alpha * d for (name, w), d in zip(theta.items(), step, strict=True)}
            total = total + loss(ahead, i)
        want = torch.autograd.grad(total, list(theta.values()), materialize_grads=True)
    got, value = seqdg.build("s-mldg", alpha=alpha, beta=(1.0, 1.0)).gradient(net, net.params(), episode)
    assert_close(value, total.detach())
    scale = max(float(w.abs().max()) for w in want)
    for name, w in zip(theta, want, strict=True):
        assert_close(got[name], w, rtol=1e-6, atol=1e-8 * scale)

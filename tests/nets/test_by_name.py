"""The registry of backbones: real packages with random weights, and weight files under everybody's names."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from packages import TINY, make_text_encoder, need, save
from seqdg.base import UsageError
from seqdg.nets import (
    BACKBONE_NAMES,
    BACKBONES,
    BuiltNet,
    NetSpec,
    Normalization,
    build_backbone,
    build_net,
    find_backbone,
    load_tokenizer,
    weights,
)


def built(name: str, shape: tuple[int, ...] = (3, 32, 32), classes: int = 0, **settings: Any) -> BuiltNet:
    generator = torch.Generator().manual_seed(0)
    return build_backbone(find_backbone(name), NetSpec(name, **settings), shape, classes, generator)


def features(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = module.eval()(x)
    return result


def pictures(side: int = 32) -> torch.Tensor:
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(1))


# ---------------------------------------------------------------------------- ours


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "alexnet"])
def test_a_backbone_of_ours_without_classes_gives_the_inputs_of_its_head(name: str):
    with_head, without = (built(name, classes=n).module for n in (4, 0))
    without.load_state_dict(with_head.state_dict(), strict=False)
    z = features(without, pictures())
    head = with_head.get_submodule(BACKBONES[name].head)
    torch.testing.assert_close(head(z), features(with_head, pictures()))


def test_weight_files_without_a_head_are_accepted_and_the_head_is_drawn(tmp_path: Path):
    whole = built("resnet18", classes=4).module
    body = {n: t for n, t in whole.state_dict().items() if not n.startswith("fc.")}
    path = save(body, tmp_path / "w.safetensors")
    torch.testing.assert_close(
        features(built("resnet18", weights=path).module, pictures()),
        features(
            built("resnet18", weights=save(whole.state_dict(), tmp_path / "whole.safetensors")).module, pictures()
        ),
    )
    drawn = built("resnet18", classes=4, weights=path).module
    assert torch.equal(drawn.get_parameter("layer1.0.conv1.weight"), whole.get_parameter("layer1.0.conv1.weight"))
    assert torch.equal(drawn.get_parameter("fc.weight"), built("resnet18", classes=4).module.get_parameter("fc.weight"))


def test_a_weight_file_of_another_net_is_refused_with_three_of_the_names(tmp_path: Path):
    path = save(built("resnet18").module.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"w\.safetensors does not fit the net: it lacks \S+, \S+, \S+ and \d+ more; "):
        built("resnet50", weights=path)
    with pytest.raises(UsageError, match=r"it lacks .*; the net has no .* Give the weight file of this net"):
        built("efficientnet-lite0", weights=path)


def test_an_unknown_backbone_gets_a_suggestion():
    with pytest.raises(UsageError, match=r"no backbone 'dinov2-smal'\. Did you mean 'dinov2-small'\?"):
        find_backbone("dinov2-smal")
    with pytest.raises(UsageError, match=r"There is no net 'clip-vit-b61'\. Did you mean 'clip-vit-b16'\?"):
        NetSpec("clip-vit-b61")


# ---------------------------------------------------------------------------- timm


@pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_resnet"])
def test_a_model_of_timm_gives_its_own_features_and_logits(name: str):
    need("timm")
    import timm

    own = timm.create_model(name, num_classes=0, **({"img_size": 32} if name == "test_vit" else {})).eval()
    net = built(f"timm:{name}").module
    net.load_state_dict(own.state_dict())
    torch.testing.assert_close(features(net, pictures()), features(own, pictures()))
    logits = features(built(f"timm:{name}", classes=3).module, pictures())
    assert logits.shape == (2, 3)


def test_a_vision_transformer_is_built_for_the_side_of_its_pictures_and_its_positions_are_resized(tmp_path: Path):
    need("timm")
    large = built("timm:test_vit", (3, 64, 64)).module
    path = save(large.state_dict(), tmp_path / "w.safetensors")
    small = built("timm:test_vit", (3, 32, 32), weights=path).module
    assert small.pos_embed.shape[1] < large.pos_embed.shape[1]
    assert features(small, pictures()).shape == features(large, pictures(64)).shape


@pytest.mark.slow
def test_names_of_transformers_and_of_the_authors_fit_a_model_of_timm(tmp_path: Path):
    need("timm")
    need("transformers")
    import timm
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(**{**TINY, "hidden_size": 384, "num_attention_heads": 6}, image_size=56, patch_size=14)
    theirs = Dinov2Model(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.1)
    ours = timm.create_model("vit_small_patch14_dinov2", depth=2, img_size=56, num_classes=0)
    from seqdg.nets.weights import load_weights

    adapt = find_backbone("dinov2-small").adapt
    load_weights(ours, save(theirs.state_dict(), tmp_path / "hf.safetensors"), adapt, "head")
    torch.testing.assert_close(
        features(ours, pictures(56)), theirs(pictures(56)).pooler_output.detach(), rtol=1e-4, atol=1e-4
    )
    authors = {**ours.state_dict(), "mask_token": torch.zeros(1, 384)}
    again = timm.create_model("vit_small_patch14_dinov2", depth=2, img_size=56, num_classes=0)
    load_weights(again, save(authors, tmp_path / "meta.safetensors"), adapt, "head")
    torch.testing.assert_close(features(again, pictures(56)), features(ours, pictures(56)))


def test_recipes_have_the_size_and_normalization_that_their_models_want():
    need("timm")
    recipe = find_backbone("dinov2-small")
    assert (recipe.size, recipe.resampling) == (224, "bicubic")
    assert recipe.normalization == Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert find_backbone("clip-vit-b16").normalization.mean[0] == pytest.approx(0.48145466)
    assert recipe.describe()["size"] == 224
    for name in BACKBONE_NAMES:
        if name != "minilm":
            assert find_backbone(name).public_weights


def test_a_hub_that_cannot_be_reached_is_one_sentence_within_seconds(monkeypatch: pytest.MonkeyPatch):
    need("timm")

    def refuse(*args: Any, **settings: Any) -> Any:
        raise OSError("there is no network")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    weights._find_obstacle.cache_clear()
    start = time.monotonic()
    with pytest.raises(
        UsageError,
        match=r"(?s)needs the file model\.safetensors.*cannot be reached.*--weights FILE.*dinov2_vits14_pretrain",
    ):
        built("dinov2-small", (3, 224, 224), pretrained=True)
    assert time.monotonic() - start < 8
    weights._find_obstacle.cache_clear()


# ---------------------------------------------------------------------------- transformers


@pytest.mark.slow
def test_a_vision_model_of_transformers_from_its_folder(tmp_path: Path):
    need("transformers")
    from transformers import ViTConfig, ViTForImageClassification, ViTModel

    config = ViTConfig(**TINY, image_size=32, patch_size=8)
    ViTForImageClassification(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps(
            {"image_mean": [0.1] * 3, "image_std": [0.2] * 3, "size": {"height": 32, "width": 32}, "resample": 2}
        )
    )
    theirs = ViTModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    name = f"hf:{tmp_path}"
    backbone = find_backbone(name)
    assert (backbone.size, backbone.resampling, backbone.normalization.mean) == (32, "bilinear", (0.1,) * 3)
    net = built(name, pretrained=True)
    assert net.weights_sha256 is not None
    torch.testing.assert_close(features(net.module, pictures()), theirs(pictures()).last_hidden_state[:, 0].detach())
    assert features(built(name, (3, 48, 48), weights=tmp_path / "model.safetensors").module, pictures(48)).shape == (
        2,
        16,
    )
    logits = build_net(NetSpec(name, pretrained=True), (3, 32, 32), 5, torch.Generator()).module
    assert features(logits, pictures()).shape == (2, 5)
    other = save(built("resnet18").module.state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match=r"other\.safetensors does not fit the net: it lacks embeddings\.cls_token, "):
        built(name, weights=other)


def test_a_text_encoder_of_transformers_gives_the_mean_of_its_tokens_whatever_the_padding(tmp_path: Path):
    need("transformers")
    folder = make_text_encoder(tmp_path)
    backbone = find_backbone(f"hf:{folder}")
    assert backbone.reads == "texts"
    tokenize = load_tokenizer(backbone)
    alone, beside = tokenize(["a good book"]), tokenize(["a good book", "a bad film which nobody saw"])
    net = built(f"hf:{folder}", tuple(beside.shape[1:]), pretrained=True).module
    first, both = features(net, alone), features(net, beside)
    torch.testing.assert_close(first[0], both[0])
    from transformers import BertModel

    theirs = BertModel.from_pretrained(folder).eval()
    torch.testing.assert_close(first[0], theirs(input_ids=alone).last_hidden_state[0].mean(0).detach())


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    need("transformers")
    with pytest.raises(UsageError, match=r"has no config\.json: give the folder of a model that transformers saved"):
        find_backbone(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"config\.json describes no model that transformers can build"):
        find_backbone(f"hf:{tmp_path}")


# ---------------------------------------------------------------------------- open_clip


def test_the_image_tower_of_open_clip(tmp_path: Path):
    need("open_clip")
    import open_clip

    vision = {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8, "head_width": 32}
    text = {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}
    (tmp_path / "tiny-clip.json").write_text(json.dumps({"embed_dim": 12, "vision_cfg": vision, "text_cfg": text}))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    whole = open_clip.create_model("tiny-clip").eval()
    path = save(whole.state_dict(), tmp_path / "w.safetensors")
    backbone = find_backbone("open_clip:tiny-clip")
    assert backbone.normalization.mean[0] == pytest.approx(0.48145466)
    net = built("open_clip:tiny-clip", weights=path).module
    torch.testing.assert_close(features(net, pictures()), whole.encode_image(pictures()).detach())
    assert features(built("open_clip:tiny-clip", (3, 64, 64), weights=path).module, pictures(64)).shape == (2, 12)


def test_a_model_that_open_clip_does_not_have_gets_suggestions():
    need("open_clip")
    with pytest.raises(UsageError, match=r"open_clip has no model 'ViT-B-61'\. Did you mean: .*ViT-B-16"):
        find_backbone("open_clip:ViT-B-61")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    find_backbone.cache_clear()
    for prefix, package in (("timm", "timm"), ("hf", "transformers"), ("open_clip", "open_clip")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            UsageError, match=rf"The net {prefix}:x needs the package {package}, which cannot be imported"
        ):
            find_backbone(f"{prefix}:x")

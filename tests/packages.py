"""Packages of models that tests use where they are installed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from seqdg.base import UsageError
from seqdg.nets import find_backbone
from seqdg.nets.foreign_models import prepare_torchvision

TINY: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SMALL = {"timm": "timm:test_vit", "open_clip": "open_clip:ViT-B-32"}


@cache
def _why_not(package: str) -> str:
    try:
        find_backbone(SMALL[package])
    except UsageError as error:
        return str(error)
    return ""


def need(package: str) -> None:
    """Skip the test where a package of models cannot be imported."""
    prepare_torchvision()
    if package not in SMALL:
        pytest.importorskip(package)
    elif why := _why_not(package):
        pytest.skip(why)


def save(tensors: dict[str, torch.Tensor], path: Path) -> Path:
    safetensors.torch.save_file({name: t.clone().contiguous() for name, t in tensors.items()}, path)
    return path


def make_text_encoder(folder: Path) -> Path:
    """Save a tiny text encoder with random weights and its tokenizer."""
    from transformers import BertConfig, BertModel, BertTokenizer

    folder.mkdir(exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "book", "film", "which", "nobody", "saw"]
    (folder / "vocab.txt").write_text("\n".join(words))
    config = BertConfig(**TINY, vocab_size=len(words), max_position_embeddings=32)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder

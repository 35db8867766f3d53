"""Packages of models that tests use where they are installed."""

from __future__ import annotations

from functools import cache

import pytest

from seqdg.base import UsageError
from seqdg.nets import find_backbone

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
    if package == "transformers":
        pytest.importorskip("transformers")
    elif why := _why_not(package):
        pytest.skip(why)

from __future__ import annotations

import sys

import pytest

import seqdg
from seqdg.base.plugins import _later
from seqdg.core.registry import _factories, _origins


@pytest.fixture(autouse=True)
def _as_it_was():
    """Forget what a test registered or imported."""
    seqdg.list_algorithms()
    kept = dict(_factories), dict(_origins), dict(_later.files), set(sys.modules)
    yield
    for registry, before in zip((_factories, _origins, _later.files), kept, strict=False):
        registry.clear()
        registry.update(before)
    for name in set(sys.modules) - kept[3]:
        if "plugin" in name:
            del sys.modules[name]

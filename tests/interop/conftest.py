"""Checkouts of DomainBed: our stand-in, and the real one where `$SEQDG_DOMAINBED` names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from domainbed_classes import import_domainbed
from seqdg.base import DOMAINBED
from seqdg.interop import checkout

STAND_IN = Path(__file__).parents[1] / "stand_in"
REAL = os.environ.get(DOMAINBED, "")


def is_of_domainbed(name: str) -> bool:
    return name.partition(".")[0] == "domainbed"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No DomainBed is known or imported; afterwards all is as before."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if is_of_domainbed(name)}
    monkeypatch.setenv(DOMAINBED, "")  # so that it is undone even where a command sets it
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not REAL or p != REAL])
    monkeypatch.setattr(checkout, "_files", {})
    yield
    for name in list(sys.modules):
        if is_of_domainbed(name):
            del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def stand_in(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of our stand-in, as SEQDG_DOMAINBED."""
    monkeypatch.setenv(DOMAINBED, str(STAND_IN))
    return STAND_IN


@pytest.fixture
def real() -> Path:
    """The folder of a real checkout; tests that use it skip where there is none."""
    import_domainbed()
    return Path(REAL)

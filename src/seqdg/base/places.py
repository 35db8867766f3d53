"""Where the checkouts of other projects are. An environment variable holds each place: so it reaches every process that
trains, whoever starts it, and a user may set it once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DOMAINBED = "SEQDG_DOMAINBED"  # the folder that holds DomainBed's package `domainbed`


def set_place(variable: str, folder: str | Path | None) -> None:
    """Say where a checkout is, for this process and those that it starts; None leaves it as it is."""
    if folder is not None:
        os.environ[variable] = str(Path(folder).resolve())


def collect_places() -> dict[str, str]:
    """Return the places that this process knows, for workers that do not inherit its environment."""
    return {variable: os.environ[variable] for variable in (DOMAINBED,) if os.environ.get(variable)}


def adopt_places(places: Mapping[str, str]) -> None:
    """Know the places that another process knows."""
    os.environ.update(places)

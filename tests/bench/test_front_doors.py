"""`seqdg.bench` and `seqdg.training` name what others may use, and import it when it is first used."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from seqdg import bench, training


@pytest.mark.parametrize("door", [bench, training], ids=lambda door: door.__name__)
def test_every_name_of_the_front_door_is_there_and_is_no_module(door: ModuleType) -> None:
    assert set(dir(door)) == set(door.__all__)
    for name in door.__all__:
        assert getattr(door, name) is not None
        assert not isinstance(getattr(door, name), ModuleType), f"{name} is hidden by its module"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = door.nothing


def test_the_front_doors_are_light_to_import() -> None:
    code = "import sys, seqdg.bench, seqdg.training; print([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

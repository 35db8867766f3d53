"""`seqdg.data` names what others may use, and imports it when it is first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from seqdg import data


def test_every_name_of_the_front_door_is_there():
    assert dir(data) == sorted(data.__all__)
    for name in data.__all__:
        assert getattr(data, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = data.nothing


def test_the_front_door_is_light_to_import():
    code = "import sys, seqdg.data; print([m for m in ('torch', 'numpy', 'pyarrow', 'PIL') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"

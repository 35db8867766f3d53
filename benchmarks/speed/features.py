"""Pictures a second through a frozen network: `seqdg.extract_features`, and a loop as one writes it in torch.

    python benchmarks/speed/features.py [--net NAME] [--weights FILE] [--pictures 256] [--device cpu]

The pictures are noise as JPEG, of --side pixels, and the weights are random unless --weights names a file. The loop
reads with Pillow by torch's DataLoader, in as many workers as there are cores, normalizes and calls the network in eval
mode without gradients, in the same batches. The two take turns; the features must agree. A last line reads them from
the cache.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from seqdg.base import count_cores, prepare_process
from seqdg.data import FrozenBackbone, extract_features
from seqdg.nets import NetSpec, build_net


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="timm:vit_small_patch14_dinov2")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--size", type=int, default=224, help="side of the pictures that enter the network")
    parser.add_argument("--side", type=int, default=256, help="of the pictures on the disk")
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def write_pictures(folder: Path, count: int, side: int) -> list[Path]:
    draw, paths = np.random.default_rng(0), [folder / f"{i:06}.jpg" for i in range(count)]
    for path in paths:
        coarse = draw.integers(0, 256, (side // 16, side // 16, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


def write_weights(options: argparse.Namespace, folder: Path) -> Path:
    """Save random weights, so that nothing is fetched."""
    generator = torch.Generator().manual_seed(0)
    net = build_net(NetSpec(options.net), (3, options.size, options.size), 2, generator)
    torch.save(net.module.state_dict(), folder / "weights.pth")
    return folder / "weights.pth"


class Pictures(torch.utils.data.Dataset[Tensor]):
    def __init__(self, paths: list[Path], backbone: FrozenBackbone) -> None:
        self.paths, self.size = paths, backbone.size
        self.resampling = Image.Resampling[backbone.recipe.resampling.upper()]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Tensor:
        picture = Image.open(self.paths[i]).convert("RGB").resize((self.size, self.size), self.resampling)
        return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1).copy())


def loop(paths: list[Path], backbone: FrozenBackbone, options: argparse.Namespace) -> Any:
    """Extract features as one writes it in torch."""
    workers = count_cores()
    loader = torch.utils.data.DataLoader(Pictures(paths, backbone), options.batch, num_workers=workers)
    module, parts = backbone.module.to(options.device), []
    with torch.no_grad():
        for pixels in loader:
            x = backbone.normalization(pixels.to(options.device, non_blocking=True).float() / 255)
            parts.append(module(x).float().cpu())
    return torch.cat(parts).numpy()


def main() -> None:
    prepare_process()
    options = parse_options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pictures").mkdir()
        paths = write_pictures(folder / "pictures", options.pictures, options.side)
        backbone = FrozenBackbone(options.net, options.weights or write_weights(options, folder), options.size)
        loop(paths[: options.batch], backbone, options)  # the first batch is slower
        seconds: dict[str, list[float]] = {"seqdg": [], "torch": []}
        for i in range(options.repeats):
            os.environ["SEQDG_CACHE"] = str(folder / f"cache{i}")  # each extraction is a first one
            began = time.perf_counter()
            ours = extract_features(paths, backbone, batch=options.batch, device=options.device).x
            seconds["seqdg"].append(time.perf_counter() - began)
            began = time.perf_counter()
            theirs = loop(paths, backbone, options)
            seconds["torch"].append(time.perf_counter() - began)
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
        began = time.perf_counter()
        extract_features(paths, backbone, batch=options.batch, device=options.device)
        again = time.perf_counter() - began
    count = options.pictures
    print(f"{options.net}, {options.size}², {count} pictures, {options.device}, median of {options.repeats}:")
    for way, times in seconds.items():
        print(f"  {way:6} {count / median(times):8.1f} pictures a second")
    ratio = median(seconds["torch"]) / median(seconds["seqdg"])
    print(f"  ratio  {ratio:8.2f}; from the cache {count / again:.0f} a second")


if __name__ == "__main__":
    main()

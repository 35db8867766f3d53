"""Makes pacs_efficientnet_lite0.npz, the data of the benchmark pacs-features: ImageNet features of PACS.

    python scripts/make_pacs_features.py DIR

DIR holds what `seqdg check pacs --data DIR` looks for, and gets the file. Needs the extra `images`. A domain has arrays
<domain>_x (1280 features before the classifier, float16), _y (labels from 0), _is_val (validation) and _path.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from seqdg.base import UsageError
from seqdg.bench import load_benchmark
from seqdg.data import Container, DataSpec, File, open_container
from seqdg.data.image_folder import list_pictures, read_validation_split
from seqdg.nets import Net, NetSpec, build_net

BATCH = 64
FILE = "pacs_efficientnet_lite0.npz"


def make(root: Path) -> dict[str, np.ndarray]:
    spec = DataSpec.from_table("pacs", load_benchmark("pacs").data)
    path = next((root / name for name in spec.path if (root / name).exists()), None)
    if path is None:
        raise UsageError(f"There is no {' or '.join(spec.path)} in {root}.")
    container = open_container(path)
    contents, pictures = list_pictures(container, spec)
    validation, problems = read_validation_split(contents, pictures, root / spec.splits)
    if contents.problems or problems or validation is None:
        raise UsageError("; ".join(p.text for p in (*contents.problems, *problems)))
    features = extract(container, [picture.file for picture in pictures])
    arrays: dict[str, np.ndarray] = {}
    for i, name in enumerate(contents.domains):
        mine = contents.domain == i
        paths = [f"{p.domain}/{p.label}/{p.file.parts[-1]}" for p in pictures if p.domain == name]
        arrays |= {f"{name}_x": features[mine], f"{name}_y": contents.y[mine].astype(np.int8)}
        arrays |= {f"{name}_is_val": validation[mine], f"{name}_path": np.array(paths)}
    return arrays


def extract(container: Container, files: list[File]) -> np.ndarray:
    """(picture, feature) in float16."""
    built = build_net(NetSpec("efficientnet-lite0", pretrained=True), (3, 224, 224), 1000, torch.Generator())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = Net(built.module).to(device)
    params, parts = net.params(), []
    for start in range(0, len(files), BATCH):
        x = torch.stack([pixels(container.read(file)) for file in files[start : start + BATCH]])
        with torch.no_grad():
            parts.append(net.features(params, built.normalization(x).to(device)).half().cpu().numpy())
        print(f"\r{min(start + BATCH, len(files))} of {len(files)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return np.concatenate(parts)


def pixels(data: bytes) -> Tensor:
    """(channel, height, width) in [0, 1], resized to what the net was trained at."""
    small = Image.open(io.BytesIO(data)).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(small)).permute(2, 0, 1).float() / 255


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(str(__doc__))
    try:
        content = make(Path(sys.argv[1]))
    except UsageError as error:
        sys.exit(str(error))
    np.savez_compressed(Path(sys.argv[1]) / FILE, **content)
    print(Path(sys.argv[1]) / FILE)

"""Features of pictures and texts by a frozen backbone: once, in batches, on any device, kept by content.

The features of PART inputs are a file of the cache, named by a hash of the backbone, the preparation and the inputs: an
interrupted extraction goes on where it stopped, and a second one reads what is there.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from seqdg.base import (
    UsageError,
    choose_device,
    count_cores,
    count_things,
    has_broken_seal,
    private,
    refuse_broken,
    replace_file,
    save_sealed,
)
from seqdg.data.dataset import ProgressCallback
from seqdg.data.domain_rows import Matrix, Problem
from seqdg.data.pictures import Container, File, Pixels, decode_file, find_cache_folder, require_pillow
from seqdg.nets import PICTURES, TEXTS, Backbone, NetSpec, Normalization, build_backbone, find_backbone, find_weights
from seqdg.nets import load_tokenizer as load_tokenizer_of

PART = 256  # inputs whose features are kept together
BATCH = 32
VERSION = 1  # of how inputs become features; a new one makes every cache anew
LARGEST_SIDE = 4096


class FrozenBackbone:
    """A network whose weights stay as they are, and which gives features: built when it is first needed.

    Parameters
    ----------
    net : str or nn.Module
        The name of a backbone, or a module of the user's own that maps pictures (row, 3, height, width) to features.
    weights : str or Path, optional
        The weight file. Without one, that of an installed package or of the hub.
    size : int, optional
        The side of the pictures that enter it. By default what the backbone was made for.
    """

    def __init__(self, net: str | nn.Module, weights: str | Path | None = None, size: int | None = None) -> None:
        if isinstance(net, nn.Module):
            _check_own(net)
            self.recipe = Backbone(type(net).__name__, lambda shape, classes, dropout: net)
            self.path, self.weights_sha256 = None, _hash_tensors(net)
            self._own: nn.Module | None = net
        else:
            self.recipe = find_backbone(net)
            self.path = find_weights(self.recipe) if weights is None else Path(weights)
            self.weights_sha256 = _hash_file(self.path)
            self._own = None
        self.size = size or self.recipe.size
        if not 1 <= self.size <= LARGEST_SIDE:
            raise UsageError(f"The side of pictures is {self.size}, but it must be from 1 to {LARGEST_SIDE} pixels.")

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def reads(self) -> str:
        return self.recipe.reads

    @property
    def normalization(self) -> Normalization:
        return self.recipe.normalization

    @cached_property
    def module(self) -> nn.Module:
        """The network, with its weights, in eval mode and without gradients."""
        if self._own is not None:
            module = copy.deepcopy(self._own)
        else:
            shape = (3, self.size, self.size) if self.reads == PICTURES else (8,)
            spec = NetSpec(self.name, weights=self.path)
            module = build_backbone(self.recipe, spec, shape, 0, torch.Generator()).module
        return module.eval().requires_grad_(False)

    @cached_property
    def tokenize(self) -> Callable[[list[str]], Tensor]:
        tokenize: Callable[[list[str]], Tensor] = load_tokenizer_of(self.recipe)
        return tokenize

    def describe(self) -> dict[str, Any]:
        """Return what decides the features of an input, as JSON holds it."""
        preparation = self.recipe.describe()
        if self.reads == PICTURES:
            preparation["size"] = self.size
        return {"backbone": self.name, "weights_sha256": self.weights_sha256, "preprocessing": preparation}

    def compute(self, inputs: Any, device: torch.device) -> Matrix:
        """Return the features (row, feature) of decoded pictures, bytes of (row, 3, side, side), or of texts."""
        module = self._place(device)
        with torch.no_grad():
            if self.reads == TEXTS:
                x: Tensor = self.tokenize(list(inputs)).to(device)
            else:
                x = self.normalization(torch.as_tensor(inputs).to(device).float() / 255)
            what = "these texts" if self.reads == TEXTS else f"pictures of {self.size} × {self.size} pixels"
            with refuse_broken(f"{self.name} cannot read {what}", ": choose another --size."):
                out: Any = module(x)
        if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != len(x):
            got = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise UsageError(f"{self.name} gives {got} for {len(x)} inputs, but features are [{len(x)}, any number].")
        features: Matrix = out.float().cpu().numpy()
        if not np.isfinite(features).all():
            raise UsageError(f"{self.name} gives features that are not finite: are these its weights?")
        return features

    def _place(self, device: torch.device) -> nn.Module:
        return self.module.to(device)

    def read_pictures(self, container: Container, files: Sequence[File]) -> list[Pixels | Problem]:
        """Decode pictures as the backbone reads them; a picture that cannot be decoded is a problem."""
        return [decode_file(container, file, self.size, self.recipe.resampling) for file in files]


def _check_own(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, private.BatchNormLayer) and layer.training:
            raise UsageError(
                f"BatchNorm layer '{name}' of the backbone is in training mode, so that the features of a picture "
                "would depend on those beside it. Call .eval() first."
            )


def _hash_tensors(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
            return digest.hexdigest()
    except OSError as error:
        raise UsageError(f"The weight file {path} cannot be read ({error.strerror}). Check the path.") from None


# ---------------------------------------------------------------------------- the cache


def make_key(backbone: FrozenBackbone, content: str) -> str:
    """Return the name of what a backbone makes of inputs with this hash."""
    about = json.dumps([VERSION, backbone.describe(), content], sort_keys=True)
    return hashlib.sha256(about.encode()).hexdigest()[:32]


@contextmanager
def _explain_cache(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"The cache cannot be written to {folder}: {error.strerror or error}. Make room there, or set SEQDG_CACHE "
            "to another folder."
        ) from error


def find_parts_folder() -> Path:
    """Return the folder of the cache in which features lie."""
    return find_cache_folder() / "features"


def _read_part(path: Path) -> Matrix | None:
    """Read the features of a part; None: there are none, or they are damaged."""
    try:
        content = path.read_bytes()
        if not has_broken_seal(content):
            x: Matrix = safetensors.torch.load(content)["x"].numpy()
            return x
    except (OSError, KeyError, safetensors.SafetensorError):
        pass
    return None


def _write_part(path: Path, x: Matrix) -> None:
    content = save_sealed({"x": torch.from_numpy(x)}, {})
    with _explain_cache(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < 2 * len(content):
            raise OSError("the disk has too little room")
        with replace_file(path) as out:
            out.write(content)


# ---------------------------------------------------------------------------- pictures and texts

Read = Callable[[int, int], "list[Any]"]  # the inputs from one row to another; a Problem where one cannot be read


def extract(
    backbone: FrozenBackbone,
    lines: Sequence[str],
    read: Read,
    device: str = "auto",
    batch: int = BATCH,
    progress: ProgressCallback | None = None,
) -> Matrix:
    """Return the features (row, feature) of inputs, from the cache or computed into it.

    lines: what tells each input from others: a hash of it, and its name.   read: reads some of them.
    """
    if not lines:
        raise UsageError("There are no pictures or texts to extract features of.")
    if batch < 1:
        raise UsageError(f"The batch size is {batch}, but it must be at least 1.")
    there, total = torch.device(choose_device(device)), len(lines)
    starts = range(0, total, PART)
    paths = [
        find_parts_folder() / f"{make_key(backbone, chr(10).join(lines[start : start + PART]))}.safetensors"
        for start in starts
    ]
    parts, problems = list[Matrix](), list[Problem]()
    with ThreadPoolExecutor(count_cores()) as pool:
        for start, path in zip(starts, paths, strict=True):
            end = min(start + PART, total)
            known = _read_part(path)
            if known is None or len(known) != end - start:
                known = _compute_part(backbone, range(start, end), read, there, batch, pool, problems, progress, total)
                if known is not None:
                    _write_part(path, known)
            elif progress is not None:
                progress(end, total)
            if known is not None:
                parts.append(known)
    if problems:
        if len(problems) == 1:
            raise UsageError(problems[0].text)
        texts = [problem.text for problem in problems]
        raise UsageError(f"{count_things(len(problems), 'picture')} of {total} cannot be read:", texts)
    return np.concatenate(parts)


def _compute_part(
    backbone: FrozenBackbone,
    rows: range,
    read: Read,
    device: torch.device,
    batch: int,
    pool: ThreadPoolExecutor,
    problems: list[Problem],
    progress: ProgressCallback | None,
    total: int,
) -> Matrix | None:
    """Compute the features of some rows, while the next ones are read; None where one of them cannot be read.

    Once a picture is known to be broken, the others are only read, so that all broken ones are listed soon.
    """
    starts = list(rows[::batch])
    if backbone.reads == PICTURES:
        require_pillow()
    waiting: list[Future[list[Any]]] = []
    computed = list[Matrix]()
    for i, start in enumerate(starts):
        for later in starts[i + len(waiting) : i + 3]:
            waiting.append(pool.submit(read, later, min(later + batch, rows.stop)))
        inputs = waiting.pop(0).result()
        broken = [item for item in inputs if isinstance(item, Problem)]
        problems += broken
        if not problems:
            computed.append(backbone.compute(np.stack(inputs) if backbone.reads == PICTURES else inputs, device))
        if progress is not None:
            progress(min(start + batch, rows.stop), total)
    return np.concatenate(computed) if computed and not problems else None


def extract_pictures(
    backbone: FrozenBackbone,
    container: Container,
    files: Sequence[File],
    device: str = "auto",
    batch: int = BATCH,
    progress: ProgressCallback | None = None,
) -> tuple[Matrix, str]:
    """Return the features of the pictures of a container, and a hash of the pictures."""
    if backbone.reads != PICTURES:
        raise UsageError(f"{backbone.name} reads texts, and these are pictures: name a net for pictures.")
    lines = list_checksums(container, files)

    def read(start: int, end: int) -> list[Any]:
        return backbone.read_pictures(container, files[start:end])

    return extract(backbone, lines, read, device, batch, progress), hash_lines(lines)


def list_checksums(container: Container, files: Sequence[File]) -> list[str]:
    """Return a line for each picture that changes with its content, wherever it lies."""
    return [f"{file.size} {checksum:08x}" for file, checksum in zip(files, container.checksums(files), strict=True)]


def hash_lines(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def extract_texts(
    backbone: FrozenBackbone,
    texts: Sequence[str],
    device: str = "auto",
    batch: int = BATCH,
    progress: ProgressCallback | None = None,
) -> tuple[Matrix, str]:
    """Return the features of texts, and a hash of the texts."""
    if backbone.reads != TEXTS:
        raise UsageError(f"{backbone.name} reads pictures, and these are texts: name a text encoder, such as minilm.")
    lines = [hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest() for text in texts]
    return extract(backbone, lines, lambda start, end: list(texts[start:end]), device, batch, progress), hash_lines(
        lines
    )


def describe_features(backbone: FrozenBackbone, inputs_sha256: str) -> dict[str, Any]:
    """Return what a features file says of how it was made."""
    about: Mapping[str, Any] = backbone.describe()
    return {**about, "inputs_sha256": inputs_sha256}

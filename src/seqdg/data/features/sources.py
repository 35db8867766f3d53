"""From pictures and texts, wherever they are, to features: folders, zips, lists, tables, the data of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from seqdg.base import UsageError, list_some
from seqdg.data.columns import to_words
from seqdg.data.dataset import READERS, DataSpec, ProgressCallback
from seqdg.data.domain_rows import Contents, check_contents
from seqdg.data.features.extraction import (
    BATCH,
    FrozenBackbone,
    describe_features,
    extract_pictures,
    extract_texts,
)
from seqdg.data.features.feature_file import Features
from seqdg.data.image_folder import SUFFIXES
from seqdg.data.load import guess_format, locate
from seqdg.data.pictures import Container, FolderContainer, PictureFile
from seqdg.data.table_files import TableFormat, is_table, open_table
from seqdg.nets import TEXTS

DESCRIBING = ("images", "list")  # the formats of pictures


def extract_features(
    inputs: Any,
    net: str | nn.Module | FrozenBackbone,
    *,
    weights: str | Path | None = None,
    size: int | None = None,
    batch: int = BATCH,
    device: str = "auto",
    on_progress: ProgressCallback | None = None,
) -> Features:
    """Extract the features of pictures or texts by a frozen backbone, once: what was extracted is kept in the cache.

    Parameters
    ----------
    inputs : str, Path or list
        A folder or .zip of pictures: with labels and domains where they are in <domain>/<class>/, else without. Or a
        list of picture files, or of texts for a backbone that reads texts.
    net : str or nn.Module
        A backbone by name, such as 'dinov2-small', 'efficientnet-lite0', 'timm:NAME', 'hf:NAME' or 'open_clip:NAME'; or
        a module of your own that maps pictures (row, 3, height, width) from 0 to 1 to features (row, feature).
    weights : str or Path, optional
        Its weight file. By default that of an installed package, or of the hub.
    size : int, optional
        The side of the pictures that enter it. By default what the backbone was made for.
    batch : int, default 32
        How many inputs it reads at once.
    device : str, default 'auto'
        'auto', 'cpu' or 'cuda'.
    on_progress : callable, optional
        Called with how many are done, of how many.

    Returns
    -------
    Features
        The rows: `save` writes them to a file that benchmarks, `fit` and `compare` read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import torch
    >>> from PIL import Image
    >>> import seqdg
    >>> folder = Path(tempfile.mkdtemp())
    >>> for number in range(3):
    ...     Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(folder / f"{number}.png")
    >>> mean = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    >>> features = seqdg.extract_features(folder, net=mean, size=8)
    >>> features.x[:, 0].round(2).tolist()
    [0.0, 0.3100000023841858, 0.6299999952316284]
    """
    backbone = net if isinstance(net, FrozenBackbone) else FrozenBackbone(net, weights, size)
    how: dict[str, Any] = {"device": device, "batch": batch, "progress": on_progress}
    if isinstance(inputs, str | Path):
        return _extract_below(Path(inputs), backbone, how)
    items = list(inputs)
    if not all(isinstance(item, str | Path) for item in items):
        raise UsageError("Features are of a folder or .zip of pictures, a list of picture files, or a list of texts.")
    if backbone.reads == TEXTS:
        x, digest = extract_texts(backbone, [str(item) for item in items], **how)
        return Features(x, describe_features(backbone, digest), backbone=backbone)
    container = _list_files([Path(item) for item in items])
    x, digest = extract_pictures(backbone, container, container.files, **how)
    names = tuple(str(item) for item in items)
    return Features(x, describe_features(backbone, digest), paths=names, backbone=backbone)


def _list_files(paths: Sequence[Path]) -> FolderContainer:
    """Make a container of files that may lie anywhere."""
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise UsageError(f"There are no such files: {list_some(missing)}.")
    root = Path(paths[0].absolute().anchor) if paths else Path()
    return FolderContainer(root, [str(path.absolute().relative_to(root)) for path in paths])


def _extract_below(path: Path, backbone: FrozenBackbone, how: dict[str, Any]) -> Features:
    """Extract the features of a folder or zip: in <domain>/<class>/ with labels, else of any pictures without."""
    if not path.exists():
        raise UsageError(f"There is no {path}: give a folder or .zip of pictures.")
    if path.is_file() and path.suffix.lower() != ".zip":
        raise UsageError(f"{path} is neither a folder nor a .zip of pictures.")
    spec = DataSpec(path.stem, (path.name,), format="images")
    contents, container, pictures = import_module(READERS["images"]).describe(path, spec, path.parent)
    if pictures:
        return _extract_contents(spec, contents, container, pictures, backbone, how)
    files = [file for file in container.files if file.name.lower().endswith(SUFFIXES)]
    if container.problems or not files:
        raise UsageError(container.problems[0].text if container.problems else f"{path} holds no pictures.")
    x, digest = extract_pictures(backbone, container, files, **how)
    names = tuple(file.name for file in files)
    return Features(x, describe_features(backbone, digest), paths=names, backbone=backbone)


def extract_dataset(
    spec: DataSpec,
    root: Path,
    backbone: FrozenBackbone,
    *,
    allow_partial: bool = False,
    batch: int = BATCH,
    device: str = "auto",
    on_progress: ProgressCallback | None = None,
) -> Features:
    """Extract the features of a data set of pictures, with its official split, as a benchmark's [data] describes it."""
    path = locate(spec, root)
    form = spec.format or guess_format(path)
    how: dict[str, Any] = {"device": device, "batch": batch, "progress": on_progress}
    if form == "table" and spec.text:
        return _extract_table(path, spec, backbone, how)
    if form not in DESCRIBING:
        raise UsageError(f"{spec.name} holds no pictures: features are extracted from pictures and texts.")
    contents, container, pictures = import_module(READERS[form]).describe(path, spec, root)
    return _extract_contents(spec, contents, container, pictures, backbone, how, allow_partial)


def _extract_contents(
    spec: DataSpec,
    contents: Contents,
    container: Container,
    pictures: Sequence[PictureFile],
    backbone: FrozenBackbone,
    how: dict[str, Any],
    allow_partial: bool = True,
) -> Features:
    check = check_contents(spec, contents, allow_partial, held_out=())
    if check.problems:
        raise check.make_error()
    x, digest = extract_pictures(backbone, container, [p.file for p in pictures], **how)
    domains, classes = (np.array(names, dtype=object) for names in (contents.domains, contents.classes))
    return Features(
        x,
        describe_features(backbone, digest),
        y=classes[contents.y].astype(str),
        domains=domains[contents.domain].astype(str),
        paths=tuple(f"{p.domain}/{p.label}/{p.file.parts[-1]}" for p in pictures),
        classes=contents.classes,
        validation=contents.validation,
        backbone=backbone,
    )


def _extract_table(path: Path, spec: DataSpec, backbone: FrozenBackbone, how: dict[str, Any]) -> Features:
    """Extract the features of the texts of a table."""
    table = open_table(path, TableFormat(spec.separator, spec.na, spec.columns))
    table.require((*spec.text, spec.label_column, spec.domain_column))
    frame = table.read(text=table.names)
    cells = {name: to_words(column) for name, column in zip(frame.names, frame.columns, strict=True)}
    words = {name: ["" if v is None else str(v) for v in column.tolist()] for name, column in cells.items()}
    texts = [" ".join(row) for row in zip(*(words[name] for name in spec.text), strict=True)]
    x, digest = extract_texts(backbone, texts, **how)
    y = np.array(words[spec.label_column])
    return Features(
        x,
        describe_features(backbone, digest),
        y=y,
        domains=np.array(words[spec.domain_column]),
        classes=tuple(sorted(set(y.tolist()))),
        backbone=backbone,
    )


def make_spec(
    path: Path, label: str | None, domain: str | None, text: Sequence[str], images: str, splits: str
) -> DataSpec:
    """Describe a folder, a zip, a list of pictures or a table of texts that no benchmark's file describes.

    images: the folder of the pictures of a list.   splits: the folder of official split lists. Both below the folder
    of the path, or anywhere.
    """
    named: dict[str, Any] = {"label_column": label or "label", "domain_column": domain or "domain"}
    if is_table(path) or path.suffix.lower() == ".json":
        if text:
            return DataSpec(path.stem, (path.name,), format="table", text=tuple(text), **named)
        return DataSpec(path.stem, (path.name,), format="list", images=(images,) if images else (), **named)
    if text:
        raise UsageError(f"--text names columns of a table, and {path} is none: leave it out.")
    return DataSpec(path.stem, (path.name,), format="images", splits=splits)

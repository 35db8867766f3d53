"""Features of pictures or texts by a frozen backbone, and the file that keeps them: safetensors with a seal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray

from seqdg.base import UsageError, check_memory, has_broken_seal, refuse_broken, save_sealed, write_file
from seqdg.data.columns import NUMBERS, ColumnType, to_word
from seqdg.data.domain_rows import Matrix
from seqdg.data.frame import FeatureSource, Frame

SUFFIX = ".safetensors"
FORMAT, VERSION = "seqdg-features", "1"
NAMED = "y", "domain"  # tensors of positions in lists of names


@dataclass(frozen=True, eq=False)
class Features:
    """Rows of features with what is known of them.

    Parameters
    ----------
    x : array of shape (row, feature)
        The features, in float32.
    about : dict
        The backbone's name, the sha256 of its weights, how inputs were prepared, and a hash of the inputs.
    y, domains : array of shape (row,), or None
        The label and the domain of each row, as text.
    paths : tuple of str
        The file of each picture; of texts, none.
    classes : tuple of str
        The names of the labels, in order.
    validation : array of shape (row,), or None
        Which rows an official split validates on.
    backbone : object, optional
        The backbone itself, where it was built here: what trains on these features can then predict from pictures.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import seqdg
    >>> path = Path(tempfile.mkdtemp()) / "f.safetensors"
    >>> about = {"backbone": "mine", "weights_sha256": "", "preprocessing": {}}
    >>> seqdg.Features(np.ones((2, 3), np.float32), about, y=np.array(["cat", "dog"])).save(path)
    >>> seqdg.Features.load(path).y.tolist()
    ['cat', 'dog']
    """

    x: Matrix
    about: Mapping[str, Any]
    y: NDArray[Any] | None = None
    domains: NDArray[Any] | None = None
    paths: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    validation: NDArray[np.bool_] | None = None
    backbone: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features as columns of a table."""
        return name_columns(self.x.shape[1])

    def to_frame(self) -> Frame:
        """Return the features as a table with a column for each, which knows what made them.

        Returns
        -------
        Frame
            What `fit`, `compare` and `predict` read.
        """
        source = FeatureSource(self.about, self.names, backbone=self.backbone)
        return make_columns(self.x, self.names, source)

    def save(self, path: str | Path) -> None:
        """Write all of it to one file, whole or not at all.

        Parameters
        ----------
        path : str or Path
            A name that ends in .safetensors.
        """
        path = Path(path)
        if path.suffix != SUFFIX:
            raise UsageError(f"Features are kept in a {SUFFIX} file: end {path.name} in it.")
        tensors: dict[str, NDArray[Any]] = {"x": self.x}
        about: dict[str, Any] = {**self.about, "paths": list(self.paths)}
        for name, values in zip(NAMED, (self.y, self.domains), strict=True):
            if values is not None:
                words = [to_word(value) for value in values.tolist()]
                names = list(self.classes) if name == "y" and self.classes else sorted(set(words))
                index = {word: i for i, word in enumerate(names)}
                tensors[name] = np.array([index[word] for word in words], dtype=np.int64)
                about[name] = names
        if self.validation is not None:
            tensors["validation"] = self.validation
        text = {"format": FORMAT, "version": VERSION, "about": json.dumps(about)}
        write_file(path, save_sealed({n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in tensors.items()}, text))

    @classmethod
    def load(cls, path: str | Path) -> Features:
        """Read a file that `save` or `seqdg features` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Features
            What it holds; its backbone is known by name alone.
        """
        path = Path(path)
        try:
            check_memory(2 * path.stat().st_size, str(path))
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(f"The features {path} cannot be read ({error.strerror}). Check the path.") from None
        if has_broken_seal(content):
            raise UsageError(f"{path} is damaged: its bytes have changed since it was written. Make or copy it again.")
        with refuse_broken(f"{path} holds no features that seqdg wrote", ": make it with `seqdg features`."):
            return _parse(content)


def _parse(content: bytes) -> Features:
    """Make features of the content of a file; raise whatever it is where it is none that `save` wrote."""
    text = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    if text["format"] != FORMAT:
        raise ValueError("it is of another program")
    if text["version"] != VERSION:
        raise ValueError("it was written by another version of seqdg")
    arrays, about = safetensors.numpy.load(content), json.loads(text["about"])
    x, validation = arrays["x"], arrays.get("validation")
    if x.ndim != 2 or not x.size or x.dtype.kind not in "fiu":
        raise ValueError(f"x is {x.dtype} of shape {list(x.shape)}, and not a number for each row and feature")
    if validation is not None and (validation.shape != x.shape[:1] or validation.dtype != bool):
        raise ValueError("validation is not a yes or no for each row")
    paths = _take_names(about, "paths")
    if len(paths) not in (0, len(x)):
        raise ValueError(f"it names {len(paths)} files of {len(x)} rows")
    classes, domains = (_take_names(about, name) for name in NAMED)
    y, domain = (_spell(arrays, *pair, len(x)) for pair in zip(NAMED, (classes, domains), strict=True))
    if not all(isinstance(about[name], str) for name in ("backbone", "weights_sha256")):
        raise ValueError("it names no backbone")
    x = x.astype(np.float32, copy=False)
    return Features(x, y=y, domains=domain, paths=paths, classes=classes, validation=validation, about=about)


def _take_names(about: dict[str, Any], key: str) -> tuple[str, ...]:
    names = about.pop(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} is no list of names")
    return tuple(names)


def _spell(arrays: Mapping[str, Matrix], key: str, names: tuple[str, ...], rows: int) -> NDArray[Any] | None:
    """Return the name of each row's label or domain, of which the file has the positions; None: it has none."""
    if key not in arrays:
        return None
    index, count = arrays[key], len(set(names))
    if index.shape != (rows,) or index.dtype.kind not in "iu" or not 0 <= index.min() <= index.max() < count:
        raise ValueError(f"{key} is not one of {count} names for each row")
    words: NDArray[Any] = np.array(names, dtype=object)[index].astype(str)
    return words


def name_columns(width: int) -> tuple[str, ...]:
    return tuple(f"feature{i}" for i in range(width))


def make_columns(x: Matrix, names: tuple[str, ...], source: FeatureSource) -> Frame:
    """Make a table of features (row, feature)."""
    types = tuple(ColumnType(name, NUMBERS) for name in names)
    columns = tuple(np.ascontiguousarray(x.T, dtype=np.float64))
    return Frame(names, columns, named=True, types=types, source=source)


def describe_difference(about: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Say what differs between the backbones of two sets of features; empty: nothing that matters."""
    for key, what in (("backbone", "backbone"), ("weights_sha256", "weights"), ("preprocessing", "preprocessing")):
        if about.get(key) != other.get(key):
            return f"the {what} is {_shorten(other.get(key))}, not {_shorten(about.get(key))}"
    return ""


def _shorten(value: Any) -> str:
    return str(value)[:40]

"""Features of pictures and texts, wherever they are, by a frozen backbone: once, in batches, on any device.

The features of PART inputs are a file of the cache, named by a hash of the backbone, the preparation and the inputs: an
interrupted extraction goes on where it stopped, and a second one reads what is there.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
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
    find_seal,
    hash_file,
    is_intact,
    list_some,
    private,
    refuse_broken,
    remove_abandoned,
    replace_file,
    save_sealed,
)
from seqdg.data.columns import to_words
from seqdg.data.dataset import READERS, DataSpec, ProgressCallback, guess_format
from seqdg.data.domain_rows import Contents, Matrix, Problem, check_contents
from seqdg.data.features.domain_files import hash_ngrams
from seqdg.data.features.feature_file import Features, make_columns
from seqdg.data.frame import FeatureSource, Frame
from seqdg.data.load import LabeledRows, label_features
from seqdg.data.pictures import (
    PICTURE_SUFFIXES,
    Container,
    File,
    FolderContainer,
    PictureFile,
    Pixels,
    decode_file,
    explain_cache,
    find_cache_folder,
    require_pillow,
)
from seqdg.data.table_files import TableFormat, is_table, open_table
from seqdg.nets import (
    CONFIG,
    HF,
    HUB_TEXTS,
    PICTURES,
    TEXTS,
    Backbone,
    NetSpec,
    Normalization,
    build_backbone,
    find_backbone,
    find_hf,
    find_weights,
    read_weights,
)
from seqdg.nets import load_tokenizer as load_tokenizer_of

PART = 256  # inputs whose features are kept together
BATCH = 32
VERSION = 1  # of how inputs become features; a new one makes every cache anew
LARGEST_SIDE = 4096
DESCRIBING = ("images", "list", "shards")  # the formats of pictures
WEIGHTS = "weights.safetensors"  # of a backbone that is saved with a model
NGRAMS = {"backbone": "hashed n-grams", "weights_sha256": "", "preprocessing": {"reads": TEXTS}}


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
        self._saved: Mapping[str, Tensor] | None = None
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
        if self._saved is not None:
            with refuse_broken(f"The weights of {self.name} in this model do not fit it"):
                module.load_state_dict(self._saved)
            self._saved = None
        return module.eval().requires_grad_(False)

    @property
    def is_own(self) -> bool:
        """Whether it is a module of the user's own, whose code cannot be saved."""
        return self._own is not None

    def save(self, folder: Path) -> dict[str, Any]:
        """Write weights, and what else rebuilds it, into an empty folder; return its description, as JSON holds it.

        Numbers that are the same in float16 are kept so.
        """
        tensors = {}
        for name, tensor in self.module.state_dict().items():
            half = tensor.half() if tensor.is_floating_point() else tensor
            tensors[name] = (half if torch.equal(half.to(tensor.dtype), tensor) else tensor).cpu().contiguous().clone()
        contents = {WEIGHTS: safetensors.torch.save(tensors)}
        source = self.recipe.folder
        for name in HUB_TEXTS if source is not None else ():
            if source is not None and (source / name).is_file():
                contents[name] = (source / name).read_bytes()
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        return {"name": self.name, "size": self.size, "weights_sha256": self.weights_sha256, "files": hashes}

    @classmethod
    def restore(cls, about: Mapping[str, Any], folder: Path) -> FrozenBackbone:
        """Rebuild what `save` wrote. Nothing is fetched, and no code that the folder holds is run."""
        for name, digest in about["files"].items():
            if name not in (WEIGHTS, *HUB_TEXTS) or _hash_file(folder / name) != digest:
                raise UsageError(f"{folder / name} was changed after the model was saved: copy the model again.")
        backbone = cls.__new__(cls)
        name = str(about["name"])
        if CONFIG in about["files"]:
            backbone.recipe = replace(find_hf(f"{HF}{folder}"), name=name)
        elif name.startswith(HF):
            raise UsageError(f"{folder} has no {CONFIG}: it is not all of the model. Copy it again.")
        else:
            backbone.recipe = find_backbone(name)
        backbone.path, backbone._own = None, None
        backbone.size, backbone.weights_sha256 = int(about["size"]), str(about["weights_sha256"])
        backbone._saved = read_weights(folder / WEIGHTS)[0]
        return backbone

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
        module = self.module.to(device)
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

    def compute_pictures(
        self, container: Container, files: Sequence[File], device: torch.device, pool: ThreadPoolExecutor
    ) -> Matrix:
        """Return the features (row, feature) of some pictures, or raise a UsageError that lists all broken ones."""
        parts = list(pool.map(lambda file: self.read_pictures(container, [file])[0], files))
        if problems := [part.text for part in parts if isinstance(part, Problem)]:
            raise UsageError("These pictures cannot be read:", problems)
        return self.compute(np.stack([part for part in parts if not isinstance(part, Problem)]), device)

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
        return hash_file(path)
    except OSError as error:
        raise UsageError(f"The weight file {path} cannot be read ({error.strerror}). Check the path.") from None


# ---------------------------------------------------------------------------- the cache


def _read_part(path: Path, rows: int) -> Matrix | None:
    """Read the features of a part; None: there are none, or they are damaged."""
    try:
        content = path.read_bytes()
        if (at := find_seal(content)) is not None and is_intact(content, at):
            x: Matrix = safetensors.torch.load(content)["x"].numpy()
            if len(x) == rows:
                return x
    except FileNotFoundError:
        return None
    except (OSError, KeyError, safetensors.SafetensorError):
        pass
    warnings.warn(f"{path} is damaged: its features are extracted again.", stacklevel=2)
    return None


def _write_part(path: Path, x: Matrix) -> None:
    content = save_sealed({"x": torch.from_numpy(x)}, {})
    with explain_cache(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < 2 * len(content):
            raise OSError("the disk has too little room")
        with replace_file(path) as out:
            out.write(content)


# ---------------------------------------------------------------------------- pictures and texts

Read = Callable[[int, int], "list[Any]"]  # the inputs from one row to another; a Problem where one cannot be read


@dataclass(frozen=True)
class Extractor:
    """A backbone on a device, which reads a batch of inputs at once.

    progress: called with how many are done, of how many.
    """

    backbone: FrozenBackbone
    device: str = "auto"
    batch: int = BATCH
    progress: ProgressCallback | None = None

    def extract_pictures(self, container: Container, files: Sequence[File]) -> tuple[Matrix, dict[str, Any]]:
        """Return the features (row, feature) of the pictures of a container, and how they were made."""
        if self.backbone.reads != PICTURES:
            raise UsageError(f"{self.backbone.name} reads texts, and these are pictures: name a net for pictures.")
        # A line for each picture that changes with its content, wherever it lies.
        sums = container.checksums(files)
        lines = [f"{file.size} {checksum:08x}" for file, checksum in zip(files, sums, strict=True)]

        def read(start: int, end: int) -> list[Any]:
            return self.backbone.read_pictures(container, files[start:end])

        return self._extract(lines, read)

    def extract_texts(self, texts: Sequence[str]) -> tuple[Matrix, dict[str, Any]]:
        """Return the features (row, feature) of texts, and how they were made."""
        if self.backbone.reads != TEXTS:
            name = self.backbone.name
            raise UsageError(f"{name} reads pictures, and these are texts: name a text encoder, such as minilm.")
        lines = [_hash_text(text) for text in texts]
        return self._extract(lines, lambda start, end: list(texts[start:end]))

    def _extract(self, lines: Sequence[str], read: Read) -> tuple[Matrix, dict[str, Any]]:
        """Take the features of inputs from the cache, or compute them into it.

        lines: what tells each input from others: a hash of it, and its name.   read: reads some of them.
        """
        if not lines:
            raise UsageError("There are no pictures or texts to extract features of.")
        if self.batch < 1:
            raise UsageError(f"The batch size is {self.batch}, but it must be at least 1.")
        folder, device, total = find_cache_folder() / "features", torch.device(choose_device(self.device)), len(lines)
        parts, problems = list[Matrix](), list[Problem]()
        remove_abandoned(folder)
        with ThreadPoolExecutor(count_cores()) as pool:
            for start in range(0, total, PART):
                rows = range(start, min(start + PART, total))
                about = [VERSION, self.backbone.describe(), "\n".join(lines[start : rows.stop])]
                path = folder / f"{_hash_text(json.dumps(about, sort_keys=True))[:32]}.safetensors"
                known = _read_part(path, len(rows))
                if known is None:
                    known = self._compute_part(rows, read, device, pool, problems, total)
                    if known is not None:
                        _write_part(path, known)
                elif self.progress is not None:
                    self.progress(rows.stop, total)
                if known is not None:
                    parts.append(known)
        if len(problems) == 1:
            raise UsageError(problems[0].text)
        if problems:
            texts = [problem.text for problem in problems]
            raise UsageError(f"{count_things(len(problems), 'picture')} of {total} cannot be read:", texts)
        return np.concatenate(parts), {**self.backbone.describe(), "inputs_sha256": _hash_text("\n".join(lines))}

    def _compute_part(
        self,
        rows: range,
        read: Read,
        device: torch.device,
        pool: ThreadPoolExecutor,
        problems: list[Problem],
        total: int,
    ) -> Matrix | None:
        """Compute the features of some rows, while the next ones are read; None where one of them cannot be read.

        Once a picture is known to be broken, the others are only read, so that all broken ones are listed soon.
        """
        pictures = self.backbone.reads == PICTURES
        if pictures:
            require_pillow()
        starts = list(rows[:: self.batch])
        waiting: list[Future[list[Any]]] = []
        computed = list[Matrix]()
        for i, start in enumerate(starts):
            for later in starts[i + len(waiting) : i + 3]:
                waiting.append(pool.submit(read, later, min(later + self.batch, rows.stop)))
            inputs = waiting.pop(0).result()
            problems += [item for item in inputs if isinstance(item, Problem)]
            if not problems:
                computed.append(self.backbone.compute(np.stack(inputs) if pictures else inputs, device))
            if self.progress is not None:
                self.progress(min(start + self.batch, rows.stop), total)
        return np.concatenate(computed) if computed and not problems else None


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


# ---------------------------------------------------------------------------- wherever they are


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
    extractor = Extractor(backbone, device, batch, on_progress)
    if isinstance(inputs, str | Path):
        return _extract_below(Path(inputs), extractor)
    items = list(inputs)
    if not all(isinstance(item, str | Path) for item in items):
        raise UsageError("Features are of a folder or .zip of pictures, a list of picture files, or a list of texts.")
    if backbone.reads == TEXTS:
        x, about = extractor.extract_texts([str(item) for item in items])
        return Features(x, about, backbone=backbone)
    container = _list_files([Path(item) for item in items])
    x, about = extractor.extract_pictures(container, container.files)
    names = tuple(str(item) for item in items)
    return Features(x, about, paths=names, backbone=backbone)


def _list_files(paths: Sequence[Path]) -> FolderContainer:
    """Make a container of files that may lie anywhere."""
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise UsageError(f"There are no such files: {list_some(missing)}.")
    root = Path(paths[0].absolute().anchor) if paths else Path()
    return FolderContainer(root, [str(path.absolute().relative_to(root)) for path in paths])


def _extract_below(path: Path, extractor: Extractor) -> Features:
    """Extract the features of a folder or zip: in <domain>/<class>/ with labels, else of any pictures without."""
    if not path.exists():
        raise UsageError(f"There is no {path}: give a folder or .zip of pictures.")
    if path.is_file() and path.suffix.lower() != ".zip":
        raise UsageError(f"{path} is neither a folder nor a .zip of pictures.")
    spec = DataSpec(path.stem, (path.name,), format="images")
    contents, container, pictures = import_module(READERS["images"]).describe(path, spec, path.parent)
    if pictures:
        return _extract_contents(spec, contents, container, pictures, extractor)
    files = [file for file in container.files if file.name.lower().endswith(PICTURE_SUFFIXES)]
    if container.problems or not files:
        raise UsageError(container.problems[0].text if container.problems else f"{path} holds no pictures.")
    x, about = extractor.extract_pictures(container, files)
    names = tuple(file.name for file in files)
    return Features(x, about, paths=names, backbone=extractor.backbone)


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
    path = spec.locate(root)
    form = spec.format or guess_format(path)
    extractor = Extractor(backbone, device, batch, on_progress)
    if form == "table" and spec.text:
        return _extract_table(path, spec, extractor)
    if form not in DESCRIBING:
        raise UsageError(f"{spec.name} holds no pictures: features are extracted from pictures and texts.")
    contents, container, pictures = import_module(READERS[form]).describe(path, spec, root)
    return _extract_contents(spec, contents, container, pictures, extractor, allow_partial)


def _extract_contents(
    spec: DataSpec,
    contents: Contents,
    container: Container,
    pictures: Sequence[PictureFile],
    extractor: Extractor,
    allow_partial: bool = True,
) -> Features:
    check = check_contents(spec, contents, allow_partial, held_out=())
    if check.problems:
        raise check.make_error()
    x, about = extractor.extract_pictures(container, [p.file for p in pictures])
    domains, classes = (np.array(names, dtype=object) for names in (contents.domains, contents.classes))
    return Features(
        x,
        about,
        y=classes[contents.y].astype(str),
        domains=domains[contents.domain].astype(str),
        paths=tuple(f"{p.domain}/{p.label}/{p.file.parts[-1]}" for p in pictures),
        classes=contents.classes,
        validation=contents.validation,
        backbone=extractor.backbone,
    )


def _extract_table(path: Path, spec: DataSpec, extractor: Extractor) -> Features:
    """Extract the features of the texts of a table."""
    table = open_table(path, TableFormat(spec.separator, spec.na, spec.columns))
    table.require((*spec.text, spec.label_column, spec.domain_column))
    frame = table.read(text=table.names)
    cells = {name: to_words(column) for name, column in zip(frame.names, frame.columns, strict=True)}
    words = {name: ["" if v is None else str(v) for v in column.tolist()] for name, column in cells.items()}
    texts = [" ".join(row) for row in zip(*(words[name] for name in spec.text), strict=True)]
    x, about = extractor.extract_texts(texts)
    y = np.array(words[spec.label_column])
    return Features(
        x,
        about,
        y=y,
        domains=np.array(words[spec.domain_column]),
        classes=tuple(sorted(set(y.tolist()))),
        backbone=extractor.backbone,
    )


# ---------------------------------------------------------------------------- for models of a user's own rows


def read_frozen(
    path: Path, backbone: FrozenBackbone, device: str = "auto", progress: ProgressCallback | None = None
) -> LabeledRows:
    """Read pictures in <domain>/<class>/ as a table of their features."""
    spec = DataSpec(path.stem, (path.name,), format="images")
    features = extract_dataset(spec, path.absolute().parent, backbone, device=device, on_progress=progress)
    return label_features(features, path.name)


def embed_text(
    rows: LabeledRows,
    text: Sequence[str],
    backbone: FrozenBackbone | None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
) -> LabeledRows:
    """Return rows of a table with features in place of columns of text: of a text encoder, or else hashed n-grams."""
    about = NGRAMS if backbone is None else backbone.describe()
    source = FeatureSource(about, (), tuple(text), backbone)
    frame = replace_text(rows.x, source, device, progress)
    return rows._replace(x=frame)


def replace_text(
    frame: Frame, source: FeatureSource, device: str = "auto", progress: ProgressCallback | None = None
) -> Frame:
    """Return a table with features in place of its columns of text."""
    columns = [to_words(frame.columns[frame.names.index(name)]).tolist() for name in source.text]
    texts = [" ".join("" if cell is None else str(cell) for cell in row) for row in zip(*columns, strict=True)]
    if source.backbone is None:
        x = hash_ngrams(texts)
    else:
        x, _ = Extractor(source.backbone, device, progress=progress).extract_texts(texts)
    start = "+".join(source.text)
    source = replace(source, names=tuple(f"{start}.{i}" for i in range(x.shape[1])))
    made, rest = make_columns(x, source.names, source), frame.without(source.text)
    return replace(
        rest,
        names=(*rest.names, *made.names),
        columns=(*rest.columns, *made.columns),
        types=None if rest.types is None else (*rest.types, *(made.types or ())),
        source=source,
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
        raise UsageError(f"--text names columns of a table, and {path} is not one: leave it out.")
    return DataSpec(path.stem, (path.name,), format="images", splits=splits)

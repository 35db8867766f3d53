"""Models of other packages as backbones: timm, transformers (vision and text) and the image towers of open_clip."""

from __future__ import annotations

import difflib
import inspect
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from seqdg.base import UsageError, check_memory, refuse_broken, state_reason
from seqdg.nets.backbones import IMAGENET, TEXTS, Backbone, Normalization, Shape
from seqdg.nets.weights import WEIGHT_FILES, find_hub_file, read_weights, refuse_other_names

TIMM, HF, OPEN_CLIP = "timm:", "hf:", "open_clip:"  # before the name of a model there
HALF = Normalization((0.5,) * 3, (0.5,) * 3)
RESAMPLING = {2: "bilinear", 3: "bicubic"}  # as Pillow counts
LONGEST = 256  # tokens of a text
ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")
CONFIG, PREPROCESSOR, POOLING = "config.json", "preprocessor_config.json", "1_Pooling/config.json"
TOKENIZER = "tokenizer.json"
HUB_TEXTS = (
    CONFIG,
    PREPROCESSOR,
    POOLING,
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
"""What a folder of transformers has beside weights: all of it is read, and none of it is run."""
_OPERATORS: list[Any] = []  # torch forgets them with the object
# A folder may bring code of its own, which transformers else asks the user to run, on standard input.
_LOCAL: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def _import(package: str, needed_for: str, cure: str) -> Any:
    """Import a package, or raise a UsageError that says what to install."""
    prepare_torchvision()
    try:
        return import_module(package)
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"{needed_for} needs the package {package}, which cannot be imported ({state_reason(error)}). {cure}"
        ) from None


def prepare_torchvision() -> None:
    """Import torchvision, which these packages use, where it is installed.

    Where it was made for another build of torch, two of its operators are missing, and it could not be imported at all:
    they are declared. No network here uses them.
    """
    for again in (True, False):
        try:
            import_module("torchvision")
        except ImportError:
            return
        except RuntimeError as error:
            if not again or "operator torchvision::" not in str(error) or _OPERATORS:
                return
            library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _OPERATORS.append(library)


@contextmanager
def _keep_quiet() -> Iterator[None]:
    """Build a model without what its package says of random weights, in warnings and in the log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _explain(name: str) -> AbstractContextManager[None]:
    """Explain what a package raises of a size that its patches do not divide, among others."""
    return refuse_broken(f"{name} cannot be built", ". Choose another net or another size of its inputs.")


# ---------------------------------------------------------------------------- timm


def find_timm(name: str) -> Backbone:
    """Describe a model of the package timm."""
    needed_for, model = f"The net {name}", name.removeprefix(TIMM)
    cure = "Run: pip install timm (it brings torchvision, which must be the one made for your torch)."
    timm = _import("timm", needed_for, cure)
    if not timm.is_model(model):
        near = difflib.get_close_matches(model, timm.list_models(), n=3)
        hint = f"Did you mean: {', '.join(near)}?" if near else "timm.list_models() has them all."
        raise UsageError(f"timm has no model '{model}'. {hint}")
    try:
        about = timm.get_pretrained_cfg(model)
    except RuntimeError:  # after the dot stand weights that it has not
        base = model.partition(".")[0]
        known = ", ".join(name for name in timm.list_pretrained(f"{base}.*")) or f"none of {base}"
        raise UsageError(f"timm has no weights '{model}'. It has: {known}.") from None
    has_file = about is not None and bool(about.hf_hub_id)
    return Backbone(
        name,
        partial(_make_timm, model),
        normalization=Normalization(tuple(about.mean), tuple(about.std)) if about else IMAGENET,
        size=about.input_size[-1] if about else 224,
        resampling=about.interpolation if about and about.interpolation in RESAMPLING.values() else "bicubic",
        public_weights=f"model.safetensors of {about.hf_hub_id}" if has_file else "timm has none",
        find_weights=partial(find_hub_file, about.hf_hub_id, WEIGHT_FILES, needed_for) if has_file else None,
        head=about.classifier if about and isinstance(about.classifier, str) else "",
        adapt=_adapt_to_timm,
        draws=True,
    )


def _make_timm(model: str, shape: Shape, classes: int, dropout: float) -> nn.Module:
    import timm

    settings: dict[str, Any] = {"drop_rate": dropout} if dropout else {}
    about = timm.get_pretrained_cfg(model)
    if about is not None and about.fixed_input_size:
        settings["img_size"] = tuple(shape[1:])
    with _explain(f"{TIMM}{model}"):
        module: nn.Module = timm.create_model(model, pretrained=False, num_classes=classes, **settings)
        if min(getattr(getattr(module, "patch_embed", None), "grid_size", None) or (1,)) < 1:
            raise ValueError(f"pictures of {shape[1]} × {shape[2]} hold no patch")
    return module


def _adapt_to_timm(module: nn.Module, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a file as timm does: it knows the names of a model's authors, and resizes positions."""
    stored = _rename_transformers(stored)
    convert = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
    if convert is None:
        return stored
    try:
        with _keep_quiet():
            return {name: t for name, t in convert(stored, module).items() if isinstance(t, Tensor)}
    except Exception:  # a file of another net: what is wrong with its names is said by those who compare them
        return stored


# How transformers names the layers of a plain vision transformer, and how timm does.
_FROM_TRANSFORMERS = (
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^embeddings\.cls_token", "cls_token"),
    (r"^embeddings\.mask_token", "mask_token"),
    (r"^embeddings\.register_tokens", "reg_token"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"attention\.output\.dense|attention\.o_proj", "attn.proj"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(blocks\.\d+)\.output\.dense", r"\1.mlp.fc2"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head."),
)
_QUERY = re.compile(r"attention\.(?:attention\.)?(query|key|value|q_proj|k_proj|v_proj)\.")


def _rename_transformers(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the tensors of a ViT or DINOv2 of transformers the names of timm; others stay as they are."""
    plain = {re.sub(r"^(vit|dinov2|dinov2_with_registers)\.", "", name): t for name, t in stored.items()}
    if "embeddings.patch_embeddings.projection.weight" not in plain:
        return stored
    renamed, parts = dict[str, Tensor](), dict[str, dict[str, Tensor]]()
    for name, tensor in plain.items():
        if name.startswith("pooler."):
            continue
        is_part = _QUERY.search(name)
        for pattern, other in _FROM_TRANSFORMERS:
            name = re.sub(pattern, other, name)
        if is_part:
            parts.setdefault(_QUERY.sub("attn.qkv.", name), {})[is_part.group(1)[0]] = tensor
        else:
            renamed[name] = tensor
    joined = {name: torch.cat([p[key] for key in "qkv"]) for name, p in parts.items() if len(p) == 3}
    return {**renamed, **joined}


# ---------------------------------------------------------------------------- transformers


class Headed(nn.Module):
    """A body that gives a vector for each input, and a linear head; of no classes, the body alone."""

    def __init__(self, body: nn.Module, width: int, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.head = nn.Linear(width, classes) if classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(self.body(x)))
        return logits


class VisionBody(nn.Module):
    """A vision model of transformers as a function of pixels: its pooled output, or else the class token."""

    def __init__(self, model: nn.Module, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.settings = model, dict(settings)

    def forward(self, x: Tensor) -> Tensor:  # (row, 3, height, width)
        out = self.model(pixel_values=x, **self.settings)
        pooled = getattr(out, "pooler_output", None)
        if pooled is not None:
            return torch.flatten(pooled, 1)
        return take_token(out.last_hidden_state)


def take_token(states: Tensor) -> Tensor:
    """Return the class token of (row, token, feature), or the mean of a map (row, feature, height, width)."""
    return torch.mean(states, (-2, -1)) if states.dim() == 4 else torch.select(states, 1, 0)


class TextBody(nn.Module):
    """A text encoder of transformers as a function of token ids: the mean of its tokens, or the first."""

    def __init__(self, model: nn.Module, padding: int, pooling: str) -> None:
        super().__init__()
        self.model, self.padding, self.pooling = model, padding, pooling

    def forward(self, x: Tensor) -> Tensor:  # (row, token)
        ids = x.long()
        mask = (ids != self.padding).long()
        states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.pooling == "cls":
            return take_token(states)
        weight = mask.unsqueeze(-1).to(states.dtype)
        mean: Tensor = (states * weight).sum(1) / weight.sum(1).clamp(min=1)
        return mean


def find_hf(name: str) -> Backbone:
    """Describe a model of transformers: of a folder with its config.json, or of the hub."""
    needed_for, model = f"The net {name}", name.removeprefix(HF)
    _import("transformers", needed_for, "Run: pip install 'seqdg[hub]'.")
    is_folder = Path(model).is_dir() or model.startswith((".", "/", "~"))
    path = Path(model).expanduser()
    if is_folder and not (path / CONFIG).is_file():
        raise UsageError(f"{path} has no {CONFIG}: give the folder of a model that transformers saved.")
    folder = path if is_folder else find_hub_file(model, (CONFIG,), needed_for).parent
    config, about = _read_config(folder), dict[str, Any]()
    if not is_folder and hasattr(config, "image_size"):
        about = _read_json(_find_beside(model, PREPROCESSOR, needed_for, folder))
    about = about or _read_json(folder / PREPROCESSOR)
    shared: dict[str, Any] = {
        "public_weights": f"model.safetensors of {model}",
        "find_weights": partial(_find_hf_weights, model, folder if is_folder else None, needed_for),
        "head": "head",
        "load": load_hf,
        "draws": True,
        "folder": folder,
    }
    if not _reads_pictures(config, about):
        if not is_folder:
            for file in (TOKENIZER, "tokenizer_config.json", POOLING):
                _find_beside(model, file, needed_for, folder)
        return Backbone(name, partial(_make_hf, folder), reads=TEXTS, **shared)
    size: Any = _find_size(about) or getattr(_take_vision(config), "image_size", 224)
    scale = Normalization(tuple(about["image_mean"]), tuple(about["image_std"])) if "image_mean" in about else HALF
    return Backbone(
        name,
        partial(_make_hf, folder),
        normalization=scale,
        size=size if isinstance(size, int) else size[0],
        resampling=RESAMPLING.get(about.get("resample", 3), "bicubic"),
        **shared,
    )


@contextmanager
def _hide_progress() -> Iterator[None]:
    """Let transformers draw no progress bars of its own."""
    from transformers.utils import logging as log

    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        with _keep_quiet():
            yield
    finally:
        if shown:
            log.enable_progress_bar()


def _read_config(folder: Path) -> Any:
    from transformers import AutoConfig

    with refuse_broken(f"{folder / CONFIG} describes no model that transformers can build"), _running_no_code():
        return AutoConfig.from_pretrained(folder, **_LOCAL)


@contextmanager
def _running_no_code() -> Iterator[None]:
    """Read what a folder holds. That no code in it is run is our choice, and an option of transformers."""
    try:
        with _keep_quiet():
            yield
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ValueError("it needs code of its own, which is never run") from error
        raise


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _find_beside(repository: str, name: str, needed_for: str, folder: Path) -> Path:
    try:
        return find_hub_file(repository, (name,), needed_for)
    except UsageError:  # not every model has one
        return folder / name


def _find_hf_weights(model: str, folder: Path | None, needed_for: str) -> Path:
    if folder is None:
        return find_hub_file(model, WEIGHT_FILES, needed_for)
    files = [folder / name for name in WEIGHT_FILES if (folder / name).is_file()]
    if not files:
        raise UsageError(f"{folder} has no {' or '.join(WEIGHT_FILES)}: name its weight file with --weights FILE.")
    return files[0]


def _take_vision(config: Any) -> Any:
    """Return the part of a configuration that is of pictures: of CLIP and its kin there are two towers."""
    return getattr(config, "vision_config", None) or config


def _reads_pictures(config: Any, about: Mapping[str, Any]) -> bool:
    vision = _take_vision(config)
    return "image_mean" in about or hasattr(vision, "image_size") or hasattr(vision, "num_channels")


def _find_size(about: Mapping[str, Any]) -> int | None:
    for key in ("crop_size", "size"):
        size = about.get(key)
        if isinstance(size, Mapping):
            size = size.get("height", size.get("shortest_edge"))
        if isinstance(size, int):
            return size
    return None


def _make_hf(folder: Path, shape: Shape, classes: int, dropout: float) -> nn.Module:
    whole = _read_config(folder)
    if len(shape) == 1:
        body: nn.Module = TextBody(_build_hf(whole), _find_padding(whole), _find_pooling(folder))
        width = whole.hidden_size
    else:
        config = _take_vision(whole)
        side, native = shape[-1], getattr(config, "image_size", None)
        model = _build_hf(config)
        settings: dict[str, Any] = {}
        if native not in (None, side, [side, side]):
            takes = inspect.signature(model.forward).parameters
            settings = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in takes else {}
        body = VisionBody(model, settings)
        width = _measure_width(body, shape, f"{HF}{folder}")
    return Headed(body, width, classes, dropout)


def _build_hf(config: Any, **settings: Any) -> nn.Module:
    """Build the model without a pooler that is trained for another end, where it has one.

    First without memory for its weights: a small file may describe a model that no machine holds.
    """
    from transformers import AutoModel

    for name in ATTENTION_DROPOUT:  # it is within a fused function, where no mask of ours enters
        if hasattr(config, name):
            setattr(config, name, 0.0)

    def build(**settings: Any) -> nn.Module:
        module: nn.Module = AutoModel.from_config(config, trust_remote_code=False, **settings)
        return module

    broken = refuse_broken(f"transformers cannot build what {CONFIG} describes")
    with broken, _keep_quiet():
        with torch.device("meta"):
            try:
                bare, settings = build(add_pooling_layer=False), {"add_pooling_layer": False}
            except TypeError:
                bare, settings = build(), {}
        check_memory(sum(t.numel() * t.element_size() for t in bare.state_dict().values()), f"What {CONFIG} describes")
        return build(**settings).eval()


def _measure_width(body: nn.Module, shape: Shape, name: str) -> int:
    with _explain(name), torch.no_grad():
        return int(body.eval()(torch.zeros(1, *shape)).shape[1])


def _find_padding(config: Any) -> int:
    return int(getattr(config, "pad_token_id", None) or 0)


def _find_pooling(folder: Path) -> str:
    return "cls" if _read_json(folder / POOLING).get("pooling_mode_cls_token") else "mean"


def load_hf(module: nn.Module, path: Path) -> str:
    """Fill a model of transformers from a file, whose names and those of older versions transformers knows itself."""
    stored, digest = read_weights(path)
    assert isinstance(module, Headed)
    model: Any = module.body.model
    settings = {} if getattr(model, "pooler", True) is not None else {"add_pooling_layer": False}
    ours = {name.removeprefix("body.model."): t for name, t in stored.items() if not name.startswith("head.")}
    tower = f"{model.base_model_prefix}." if model.base_model_prefix else ""
    with refuse_broken(f"{path.name} does not fit {type(model).__name__}"), _hide_progress():
        loaded, info = type(model).from_pretrained(
            None,
            config=model.config,
            state_dict=ours,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **settings,
        )
    below = {name for name, _ in model.named_children()}
    strange = [n for n in info["unexpected_keys"] if n.removeprefix(tower).split(".")[0] in below]
    refuse_other_names(
        path,
        missing=sorted(info["missing_keys"]),
        strange=sorted(strange),
        shapes=[f"{n} {tuple(a)} for {tuple(b)}" for n, a, b in sorted(info["mismatched_keys"])],
    )
    model.load_state_dict(loaded.state_dict())
    for part in ("weight", "bias"):
        mine = getattr(module.head, part, None)
        if mine is not None and (other := stored.get(f"head.{part}")) is not None and other.shape == mine.shape:
            with torch.no_grad():
                mine.copy_(other)
    return digest


def load_tokenizer(backbone: Backbone) -> Any:
    """Return the tokenizer of a text encoder: texts -> ids (row, token), padded."""
    assert backbone.folder is not None
    from transformers import AutoTokenizer

    start, end = (
        f"{backbone.name} has no tokenizer that transformers can read",
        f": put its {TOKENIZER} beside {CONFIG}.",
    )
    with refuse_broken(start, end), _running_no_code():
        tokenizer = AutoTokenizer.from_pretrained(backbone.folder, **_LOCAL)
    longest = min(LONGEST, getattr(_read_config(backbone.folder), "max_position_embeddings", LONGEST))
    padding = _find_padding(_read_config(backbone.folder))

    def tokenize(texts: list[str]) -> Tensor:
        rows = tokenizer(texts, truncation=True, max_length=longest)["input_ids"]
        ids = torch.full((len(rows), max(map(len, rows), default=1)), padding)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        return ids

    return tokenize


# ---------------------------------------------------------------------------- open_clip


def find_open_clip(name: str) -> Backbone:
    """Describe the image tower of a model of open_clip."""
    needed_for, model = f"The net {name}", name.removeprefix(OPEN_CLIP)
    clip = _import("open_clip", needed_for, "Run: pip install open_clip_torch.")
    about = clip.get_model_config(model)
    if about is None:
        near = difflib.get_close_matches(model, clip.list_models(), n=3) or clip.list_models()[:3]
        raise UsageError(f"open_clip has no model '{model}'. Did you mean: {', '.join(near)}?")
    size = about["vision_cfg"].get("image_size", 224)
    siglip = "siglip" in model.lower()
    return Backbone(
        name,
        partial(_make_open_clip, model),
        normalization=HALF if siglip else Normalization(clip.OPENAI_DATASET_MEAN, clip.OPENAI_DATASET_STD),
        size=size if isinstance(size, int) else size[0],
        resampling="bicubic",
        public_weights=f"open_clip_model.safetensors of {model}",
        head="head",
        adapt=_adapt_to_open_clip,
        draws=True,
    )


def _make_open_clip(model: str, shape: Shape, classes: int, dropout: float) -> nn.Module:
    import open_clip

    height, width = shape[1:]
    with _explain(f"{OPEN_CLIP}{model}"), _keep_quiet():
        side = height if height == width else (height, width)
        whole: Any = open_clip.create_model(model, force_image_size=side)
    return Headed(whole.visual, _measure_width(whole.visual, shape, f"{OPEN_CLIP}{model}"), classes, dropout)


def _adapt_to_open_clip(module: nn.Module, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the image tower of a file of both towers, and resize its positions."""
    from open_clip.model import resize_pos_embed

    plain = {name.removeprefix("module."): t for name, t in stored.items()}
    if not any(name.startswith("visual.") for name in plain):
        return plain
    tower = {name: t for name, t in plain.items() if name.startswith("visual.")}
    with _keep_quiet():
        resize_pos_embed(tower, SimpleNamespace(visual=module.get_submodule("body")))
    heads = {name: t for name, t in plain.items() if name.startswith("head.")}
    return {**{name.replace("visual.", "body.", 1): t for name, t in tower.items()}, **heads}


# ---------------------------------------------------------------------------- by name

_DINOV2 = "Meta's dinov2_vit{}14_pretrain.pth, or model.safetensors of timm/vit_{}_patch14_dinov2.lvd142m"
# The model, the side of its pictures (0: as its package has it), and the file to get (empty: as its package has it).
RECIPES = {
    "dinov2-small": (f"{TIMM}vit_small_patch14_dinov2", 224, _DINOV2.format("s", "small")),
    "dinov2-base": (f"{TIMM}vit_base_patch14_dinov2", 224, _DINOV2.format("b", "base")),
    "dinov2-large": (f"{TIMM}vit_large_patch14_dinov2", 224, _DINOV2.format("l", "large")),
    "clip-vit-b16": (f"{TIMM}vit_base_patch16_clip_quickgelu_224.openai", 224, ""),
    "clip-vit-l14": (f"{TIMM}vit_large_patch14_clip_quickgelu_224.openai", 224, ""),
    "siglip-vit-b16": (f"{TIMM}vit_base_patch16_siglip_224.v2_webli", 224, ""),
    "convnext-tiny": (f"{TIMM}convnext_tiny.in12k_ft_in1k", 224, ""),
    "vit-small": (f"{TIMM}vit_small_patch16_224.augreg_in21k_ft_in1k", 224, ""),
    "minilm": (f"{HF}sentence-transformers/all-MiniLM-L6-v2", 0, ""),
}
"""Models of other packages with a size and a pooling that are known to work well for frozen features."""

FINDERS = {TIMM: find_timm, HF: find_hf, OPEN_CLIP: find_open_clip}
PREFIXES = tuple(FINDERS)


def find_foreign(name: str) -> Backbone:
    """Return what is known of a model of another package, by its recipe's name or the package's own."""
    model, size, file = RECIPES.get(name, (name, 0, ""))
    backbone = next(find for prefix, find in FINDERS.items() if model.startswith(prefix))(model)
    if name not in RECIPES:
        return backbone
    return replace(backbone, name=name, size=size or backbone.size, public_weights=file or backbone.public_weights)

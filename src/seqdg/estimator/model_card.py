"""What a saved model says of itself, read without building it: model.json, the hashes of its files, and its card.

It imports neither torch nor scikit-learn, so that `seqdg show` starts at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment

from seqdg.base import UsageError, hash_file, refuse_broken
from seqdg.results import CRITERIA, find_unit

FORMAT, SCHEMA = "seqdg-model", 4
WEIGHTS, TEXT, CARD = "model.safetensors", "model.json", "card.md"
ENSEMBLE, MEMBERS = "ensemble", "members"  # the list of members in model.json, and their folder
SOURCE, BACKBONE = "features", "backbone"  # what makes the features that it reads, and the folder of its weights


def read_description(path: Path) -> dict[str, Any]:
    """Read and check model.json."""
    if not path.is_dir():
        raise UsageError(f"There is no model directory {path}. Give the one that `seqdg fit --out` or `save` wrote.")
    require_file(path, TEXT)
    with refuse_broken(f"{path / TEXT} cannot be read", ": it was cut short or changed. Copy it again."):
        text = json.loads((path / TEXT).read_text(encoding="utf-8"))
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise UsageError(f"{path / TEXT} does not describe a model of seqdg.")
    if text.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} was written by another version of seqdg (its format is {text.get('schema')}, and this version "
            f"reads {SCHEMA}): use that version, or fit the model again."
        )
    check_hash(path / TEXT, text.get("sha256"), hash_description(text))
    if ENSEMBLE not in text:
        require_file(path, WEIGHTS)
    return text


def require_file(path: Path, name: str) -> None:
    if not (path / name).is_file():
        raise UsageError(f"{path} has no {name}: it is no model, or not all of it. Copy it again.")


def check_hash(path: Path, saved: Any, digest: str) -> None:
    if saved != digest:
        raise UsageError(f"{path} was changed after the model was saved: its hash does not match. Copy it again.")


def check_files(path: Path, text: Mapping[str, Any]) -> None:
    """Raise a UsageError where weights that model.json names are missing or were changed. Nothing in them is read."""
    with refuse_broken(f"{path / TEXT} does not describe a model of seqdg"):
        for about in text.get(ENSEMBLE, ()):
            inside = find_member(path, about)
            member = read_description(inside)
            check_hash(inside / TEXT, about["sha256"], member["sha256"])
            check_files(inside, member)
        if ENSEMBLE not in text:
            _check_file(path, WEIGHTS, text.get("weights_sha256"))
        for name, digest in text.get(SOURCE, {}).get(BACKBONE, {}).get("files", {}).items():
            _check_file(path / BACKBONE, Path(name).name, digest)


def _check_file(folder: Path, name: str, saved: Any) -> None:
    require_file(folder, name)
    check_hash(folder / name, saved, hash_file(folder / name))


def find_member(path: Path, about: Mapping[str, Any]) -> Path:
    """Return the directory of a member of an ensemble."""
    inside: Path = path / about["directory"]
    if inside.parent != path / MEMBERS or not inside.is_dir():
        raise UsageError(f"{path} has no {about['directory']}: it is not all of the model. Copy it again.")
    return inside


def hash_description(text: Mapping[str, Any]) -> str:
    content = {key: value for key, value in text.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def render_card(text: Mapping[str, Any]) -> str:
    """Render the content of model.json as Markdown."""
    environment = Environment(trim_blocks=True, lstrip_blocks=True)  # not of HTML: nothing is escaped
    environment.filters |= {"metric": _format_metric, "heading": lambda criterion: CRITERIA[criterion].title}
    template = (files("seqdg") / "estimator" / "card.md.jinja").read_text(encoding="utf-8")
    with refuse_broken("The description of the model cannot be shown", ": it is not as it was saved."):
        return environment.from_string(template).render(text) + "\n"


def _format_metric(criterion: str, domain: str, by_domain: Mapping[str, Mapping[str, float | None]]) -> str:
    """Format a domain's score, in the unit and digits of the table that it is part of."""
    value, unit = by_domain[domain][criterion], find_unit(criterion, [s[criterion] for s in by_domain.values()])
    return "-" if value is None or math.isnan(value) else f"{unit.factor * value:.{unit.digits}f}"

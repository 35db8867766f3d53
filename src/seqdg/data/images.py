"""A data set from pictures in `<domain>/<class>/`, in a folder or a zip."""

from __future__ import annotations

from pathlib import Path

from seqdg.base import UsageError
from seqdg.data import cache
from seqdg.data.container import open_container
from seqdg.data.contents import Contents
from seqdg.data.image_folder import list_pictures
from seqdg.data.readers import ProgressCallback
from seqdg.data.spec import DataSpec
from seqdg.data.splits import read_validation_split


def recognizes(path: Path) -> bool:
    """Recognize anything that no other reader does: `read` says what it expects."""
    return True


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    if path.is_file() and path.suffix.lower() != ".zip":
        raise UsageError(f"{path} is neither a folder nor a .zip of pictures.")
    container = open_container(path)
    exclude = [name for place in spec.exclude for name in _read_names(root / place)]
    listing = list_pictures(
        container, spec.domains, spec.classes, spec.drop_other_labels, spec.aliases, dict.fromkeys(exclude)
    )
    contents = Contents(
        listing.domains,
        listing.classes,
        listing.encode_labels(),
        listing.encode_domains(),
        problems=list(listing.problems),
        notes=list(listing.notes),
    )
    if spec.splits:
        contents.validation, problems = read_validation_split(listing, root / spec.splits)
        contents.problems += problems
    if listing.pictures:
        content = cache.hash_pictures(container, listing.pictures, cache.find_cache_folder())
        contents.x, broken = cache.open_pictures(container, listing.pictures, content, spec.size, progress)
        contents.content = "" if contents.x is None else f"{content} {contents.x.shape}"
        contents.problems += broken
    return contents


def _read_names(path: Path) -> list[str]:
    """Read the lines of an exclude list, `domain/class/file`."""
    if not path.is_file():
        raise UsageError(f"There is no file {path}, which `exclude` names as a list of pictures to leave out.")
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    return [line.strip().removeprefix("./") for line in lines if line.strip() and not line.startswith("#")]

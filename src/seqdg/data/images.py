"""A data set from pictures in `<domain>/<class>/`, in a folder or a zip."""

from __future__ import annotations

from pathlib import Path

from seqdg.base.errors import UsageError
from seqdg.data import cache
from seqdg.data.container import open_container
from seqdg.data.contents import Contents
from seqdg.data.image_folder import list_pictures
from seqdg.data.readers import ProgressCallback
from seqdg.data.spec import DataSpec
from seqdg.data.splits import read_validation_split


def recognizes(path: Path) -> bool:
    """Anything that no other reader recognizes: `read` says what it expects."""
    return True


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    if path.is_file() and path.suffix.lower() != ".zip":
        raise UsageError(f"{path} is neither a folder nor a .zip of pictures.")
    container = open_container(path)
    listing = list_pictures(container, spec.domains, spec.classes, spec.drop_other_labels)
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

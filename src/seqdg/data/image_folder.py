"""Image folders `<domain>/<class>/<file>`, in a folder or a zip, at the top or below a folder such as `PACS/`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from seqdg.base import count_things, list_some
from seqdg.data.checks import Labels, Problem, find_missing_domains
from seqdg.data.container import Container, File

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LAYOUT = "<domain>/<class>/<picture>"


class PictureFile(NamedTuple):
    domain: str
    label: str  # the class, by name
    file: File


@dataclass
class Pictures:
    """Every picture, sorted by domain, class and stem: the same order for any copy, however encoded."""

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    pictures: list[PictureFile]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def encode_labels(self) -> Labels:
        index = {name: i for i, name in enumerate(self.classes)}
        return np.array([index[p.label] for p in self.pictures], dtype=np.int64)

    def encode_domains(self) -> Labels:
        index = {name: i for i, name in enumerate(self.domains)}
        return np.array([index[p.domain] for p in self.pictures], dtype=np.int64)


def list_pictures(
    container: Container,
    domains: Sequence[str],
    classes: Sequence[str],
    drop_others: bool = False,
    aliases: Mapping[str, str] | None = None,
    exclude: Collection[str] = (),
) -> Pictures:
    """List the pictures of `domains` (all that are found, if none is named), by class folder.

    aliases: other names of folders, and the domain or class that each means.
    exclude: `domain/class/file` to leave out.
    """
    aliases, excluded = aliases or {}, set(exclude)
    top = _find_top(container, (*domains, *(other for other, name in aliases.items() if name in domains)))
    folders = {f[len(top)] for f in container.folders if len(f) == len(top) + 1 and f[: len(top)] == top}
    below = {aliases.get(name, name) for name in folders}
    problems = list(container.problems)
    if not container.files and not problems:
        problems.append(Problem(f"{container.place} holds no files: expected {LAYOUT}."))
    if domains:
        problems += find_missing_domains(domains, below, container.place)
    present = tuple(d for d in domains if d in below) or tuple(
        sorted({aliases.get(d, d) for d in folders if _may_be_domain(container, (*top, d))})
    )
    pictures, left_out = [], set()
    for file in container.files:
        inside = file.parts[len(top) :]
        if file.parts[: len(top)] != top or aliases.get(inside[0], inside[0]) not in present:
            continue
        if len(inside) == 3:
            domain, label = (aliases.get(name, name) for name in inside[:2])
            spellings = {"/".join(inside), f"{domain}/{label}/{inside[2]}"}
            if spellings & excluded:
                left_out |= spellings
            else:
                pictures.append(PictureFile(domain, label, file))
        elif file.name.lower().endswith(SUFFIXES):
            problems.append(Problem(f"{container.place}: '{file.name}' does not lie in <domain>/<class>/."))
    if not pictures and not problems:
        problems.append(Problem(f"{container.place} holds nothing in folders of folders: expected {LAYOUT}."))
    pictures.sort(key=lambda p: (p.domain, p.label, p.file.stem, p.file.name))
    result = Pictures(present, tuple(classes) or tuple(sorted({p.label for p in pictures})), pictures, problems)
    _set_others_apart(result, container.place, drop_others)
    if exclude:
        here = [name for name in exclude if name.partition("/")[0] in (*present, *folders)]
        absent = len([name for name in here if name not in left_out])
        gone = f" {absent} of it are not there." if absent else ""
        left = count_things(len(set(here) & left_out), "picture")
        result.notes.append(f"{left} of the exclude list left out.{gone}")
    return result


def _find_top(container: Container, domains: Sequence[str]) -> tuple[str, ...]:
    """Find the folder that holds the domains: where most of the named ones lie, or else most files."""
    score: Counter[tuple[str, ...]] = Counter()
    if domains:
        for folder in container.folders:
            score[folder[:-1]] += folder[-1] in domains
    else:
        for file in container.files:
            score[file.parts[:-3]] += len(file.parts) >= 3
    best = max(score.values(), default=0)
    return min((top for top, n in score.items() if n == best), key=lambda top: (len(top), top)) if best else ()


def _may_be_domain(container: Container, folder: tuple[str, ...]) -> bool:
    """Say whether a folder has class folders, or is empty beside those that do: not a folder of, say, split lists."""
    below = [f for f in container.folders if len(f) == len(folder) + 1 and f[:-1] == folder]
    return bool(below) or not any(file.parts[: len(folder)] == folder for file in container.files)


def _set_others_apart(listing: Pictures, place: str, drop: bool) -> None:
    """Leave out class folders that are none of the classes, with a note or as a problem."""
    known = set(listing.classes)
    others: dict[str, Counter[str]] = {}
    for picture in listing.pictures:
        if picture.label not in known:
            others.setdefault(picture.domain, Counter())[picture.label] += 1
    for domain, names in others.items():
        if drop:
            listing.notes.append(f"{domain}: {count_things(names.total(), 'picture')} of other classes left out.")
        else:
            text = f"{place}: {domain} has folders that are none of the classes: {list_some(sorted(names))}."
            listing.problems.append(Problem(text))
    listing.pictures = [p for p in listing.pictures if p.label in known]

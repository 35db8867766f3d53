"""A data set from pictures in `<domain>/<class>/`, in a folder or a zip, at the top or below a folder such as `PACS/`.

Official split lists are `{domain}_{train,crossval,test}_kfold.txt` with lines `domain/class/name.ext label`. Labels
count from 1. Files are matched by domain, class and stem, so a re-encoded copy (`.webp` for `.jpg`) works. `train` and
`crossval` share a domain out between them; `test`, where there is one, is the whole domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, list_some
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import Contents, Labels, Problem, find_missing_domains
from seqdg.data.images.pictures import (
    Container,
    PictureFile,
    find_cache_folder,
    get_stem,
    hash_pictures,
    open_container,
    open_pictures,
)

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
LAYOUT = "<domain>/<class>/<picture>"
Key = tuple[str, str, str]  # domain, class, stem


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
        content = hash_pictures(container, listing.pictures, find_cache_folder())
        contents.x, broken = open_pictures(container, listing.pictures, content, spec.size, progress)
        contents.content = "" if contents.x is None else f"{content} {contents.x.shape}"
        contents.problems += broken
    return contents


def _read_names(path: Path) -> list[str]:
    """Read the lines of an exclude list, `domain/class/file`."""
    if not path.is_file():
        raise UsageError(f"There is no file {path}, which `exclude` names as a list of pictures to leave out.")
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    return [line.strip().removeprefix("./") for line in lines if line.strip() and not line.startswith("#")]


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


def read_validation_split(listing: Pictures, folder: Path) -> tuple[NDArray[np.bool_] | None, list[Problem]]:
    """Mark the pictures that the crossval lists name, and collect all that is wrong with the lists."""
    if not folder.is_dir():
        return None, [Problem(f"There is no folder {folder} with the official split lists.")]
    keys: list[Key] = [(p.domain, p.label, p.file.stem) for p in listing.pictures]
    twice = sorted({"/".join(key) for key in _find_repeated(keys)})
    problems = (
        [Problem(f"Files that only their ending tells apart match no split list: {list_some(twice)}.")] if twice else []
    )
    chosen: set[Key] = set()
    for domain in listing.domains:
        lists = {part: folder / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")}
        absent = [path.name for part, path in lists.items() if part != "test" and not path.is_file()]
        if absent:
            problems.append(Problem(f"{folder} has no {' and no '.join(absent)}."))
            continue
        named = {part: _read_list(path, listing, problems) for part, path in lists.items() if path.is_file()}
        problems += _compare_lists(domain, {key for key in keys if key[0] == domain}, named)
        chosen |= set(named["crossval"])
    return np.array([key in chosen for key in keys], dtype=bool), problems


def _read_list(path: Path, listing: Pictures, problems: list[Problem]) -> list[Key]:
    """Read the files that a list names; add lines and labels that make no sense to the problems."""
    keys, odd, mislabelled = [], [], []
    expected = {name: str(number) for number, name in enumerate(listing.classes, 1)}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        name, label = [*line.rsplit(maxsplit=1), ""][:2]
        parts = name.split("/")
        if len(parts) < 3 or not label.isdigit():
            odd.append(number)
            continue
        key = (parts[-3], parts[-2], get_stem(parts[-1]))
        keys.append(key)
        if expected.get(key[1]) != label:
            mislabelled.append(f"{line.strip()} (line {number})")
    if odd:
        problems.append(Problem(f"{path.name}: lines that are not `domain/class/file label`: {list_some(odd)}."))
    if mislabelled:
        first = f"labels count from 1 in the order {', '.join(listing.classes)}"
        problems.append(Problem(f"{path.name}: labels that do not fit the class: {list_some(mislabelled)}; {first}."))
    return keys


def _compare_lists(domain: str, there: set[Key], named: dict[str, list[Key]]) -> list[Problem]:
    problems = []
    for part, keys in named.items():
        absent = sorted(set(keys) - there)
        if absent:
            names = list_some("/".join(key) for key in absent)
            text = f"{domain}_{part}_kfold.txt names {count_things(len(absent), 'file')} not there: {names}."
            problems.append(Problem(text, partial=True))
    left_out = sorted(there - set(named["train"]) - set(named["crossval"]))
    if left_out:
        names = list_some("/".join(key) for key in left_out)
        problems.append(
            Problem(f"The split lists of {domain} leave {count_things(len(left_out), 'file')} out: {names}.")
        )
    twice = sorted(_find_repeated([*named["train"], *named["crossval"]]))
    if twice:
        names = list_some("/".join(key) for key in twice)
        problems.append(
            Problem(f"The train and crossval lists of {domain} name {count_things(len(twice), 'file')} twice: {names}.")
        )
    return problems


def _find_repeated(keys: Iterable[Key]) -> set[Key]:
    seen: set[Key] = set()
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]

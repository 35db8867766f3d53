"""A data set from pictures in `<domain>/<class>/`, in a folder or a zip, at the top or below a folder such as `PACS/`.

Official split lists are `{domain}_{train,crossval,test}_kfold.txt` with lines `domain/class/name.ext label`. Labels
count from 1. Files are matched by domain, class and stem, so a re-encoded copy (`.webp` for `.jpg`) works. `train` and
`crossval` share a domain out between them; `test`, where there is one, is the whole domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, list_some
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import Contents, Problem, find_missing_domains
from seqdg.data.pictures import (
    PICTURE_SUFFIXES,
    Container,
    PictureFile,
    fill_pixels,
    get_stem,
    open_container,
)

LAYOUT = "<domain>/<class>/<picture>"
Key = tuple[str, str, str]  # domain, class, stem


def recognizes(path: Path) -> bool:
    """Recognize anything that no other reader does: `read` says what it expects."""
    return True


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    return fill_pixels(*describe(path, spec, root), spec, progress)


def describe(path: Path, spec: DataSpec, root: Path) -> tuple[Contents, Container, list[PictureFile]]:
    """Return all that is read of the pictures but their pixels, and where these are."""
    if path.is_file() and path.suffix.lower() != ".zip":
        raise UsageError(f"{path} is neither a folder nor a .zip of pictures.")
    container = open_container(path)
    exclude = [name for file in spec.exclude for name in _read_names(root / file)]
    contents, pictures = list_pictures(container, spec, exclude)
    if spec.splits:
        contents.validation, problems = read_validation_split(contents, pictures, root / spec.splits)
        contents.problems += problems
    return contents, container, pictures


def _read_names(path: Path) -> list[str]:
    """Read the lines of an exclude list, `domain/class/file`."""
    if not path.is_file():
        raise UsageError(f"There is no file {path}, which `exclude` names as a list of pictures to leave out.")
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    return [line.strip().removeprefix("./") for line in lines if line.strip() and not line.startswith("#")]


def list_pictures(
    container: Container, spec: DataSpec, exclude: Sequence[str] = ()
) -> tuple[Contents, list[PictureFile]]:
    """List the pictures of the domains (of all folders, if none is named), by class folder; fill in all but pixels.

    They are sorted by domain, class and stem: the same order for any copy, however encoded.

    exclude: `domain/class/file` to leave out.
    """
    domains, classes, aliases, excluded = spec.domains, spec.classes, spec.aliases, set(exclude)
    top = _find_top(container, (*domains, *(other for other, name in aliases.items() if name in domains)))
    folders = {f[len(top)] for f in container.folders if len(f) == len(top) + 1 and f[: len(top)] == top}
    below = {aliases.get(name, name) for name in folders}
    problems = list(container.problems)
    if not container.files and not problems:
        problems.append(Problem(f"{container.location} holds no files: expected {LAYOUT}."))
    if domains:
        problems += find_missing_domains(domains, below, container.location)
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
        elif file.name.lower().endswith(PICTURE_SUFFIXES):
            problems.append(Problem(f"{container.location}: '{file.name}' does not lie in <domain>/<class>/."))
    if not pictures and not problems:
        problems.append(Problem(f"{container.location} holds nothing in folders of folders: expected {LAYOUT}."))
    pictures.sort(key=lambda p: (p.domain, p.label, p.file.stem, p.file.name))
    notes, known = [], tuple(classes) or tuple(sorted({p.label for p in pictures}))
    for domain in present:
        others = Counter(p.label for p in pictures if p.domain == domain and p.label not in known)
        if others and spec.drop_other_labels:
            notes.append(f"{domain}: {count_things(others.total(), 'picture')} of other classes left out.")
        elif others:
            text = f"{domain} has folders that are none of the classes: {list_some(sorted(others))}."
            problems.append(Problem(f"{container.location}: {text}"))
    if exclude:
        here = {name for name in excluded if name.partition("/")[0] in (*present, *folders)}
        absent = len(here - left_out)
        left = count_things(len(here & left_out), "picture")
        notes.append(f"{left} of the exclude list left out." + (f" {absent} of it are not there." if absent else ""))
    pictures = [p for p in pictures if p.label in known]
    domain_numbers, class_numbers = ({name: i for i, name in enumerate(names)} for names in (present, known))
    y = np.array([class_numbers[p.label] for p in pictures], dtype=np.int64)
    domain_of = np.array([domain_numbers[p.domain] for p in pictures], dtype=np.int64)
    return Contents(present, known, y, domain_of, problems=problems, notes=notes), pictures


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


def read_validation_split(
    contents: Contents, pictures: Sequence[PictureFile], folder: Path
) -> tuple[NDArray[np.bool_] | None, list[Problem]]:
    """Mark the pictures that the crossval lists name, and collect all that is wrong with the lists."""
    if not folder.is_dir():
        return None, [Problem(f"There is no folder {folder} with the official split lists.")]
    keys: list[Key] = [(p.domain, p.label, p.file.stem) for p in pictures]
    twice = sorted({"/".join(key) for key in _find_repeated(keys)})
    problems = (
        [Problem(f"Files that only their ending tells apart match no split list: {list_some(twice)}.")] if twice else []
    )
    chosen: set[Key] = set()
    for domain in contents.domains:
        lists = {part: folder / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")}
        absent = [path.name for part, path in lists.items() if part != "test" and not path.is_file()]
        if absent:
            problems.append(Problem(f"{folder} has no {' and no '.join(absent)}."))
            continue
        named = {part: _read_list(path, contents.classes, problems) for part, path in lists.items() if path.is_file()}
        problems += _compare_lists(domain, {key for key in keys if key[0] == domain}, named)
        chosen |= set(named["crossval"])
    return np.array([key in chosen for key in keys], dtype=bool), problems


def _read_list(path: Path, classes: Sequence[str], problems: list[Problem]) -> list[Key]:
    """Read the files that a list names; add lines and labels that make no sense to the problems."""
    keys, odd, mislabelled = [], [], []
    expected = {name: str(number) for number, name in enumerate(classes, 1)}
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
        first = f"labels count from 1 in the order {', '.join(classes)}"
        problems.append(Problem(f"{path.name}: labels that do not fit the class: {list_some(mislabelled)}; {first}."))
    return keys


def _compare_lists(domain: str, there: set[Key], named: dict[str, list[Key]]) -> list[Problem]:
    both = [*named["train"], *named["crossval"]]
    wrong = [
        *((f"{domain}_{part}_kfold.txt names {{}} not there", set(keys) - there, True) for part, keys in named.items()),
        (f"The split lists of {domain} leave {{}} out", there - set(both), False),
        (f"The train and crossval lists of {domain} name {{}} twice", _find_repeated(both), False),
    ]
    return [
        Problem(f"{text.format(count_things(len(keys), 'file'))}: {list_some(map('/'.join, sorted(keys)))}.", partial)
        for text, keys, partial in wrong
        if keys
    ]


def _find_repeated(keys: Iterable[Key]) -> set[Key]:
    return {key for key, count in Counter(keys).items() if count > 1}

"""Official split lists: `{domain}_{train,crossval,test}_kfold.txt` with lines `domain/class/name.ext label`.

Labels count from 1. Files are matched by domain, class and stem, so a re-encoded copy (`.webp` for `.jpg`) works.
`train` and `crossval` share a domain out between them; `test`, where there is one, is the whole domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqdg.base import count_things, list_some
from seqdg.data.checks import Problem
from seqdg.data.container import get_stem
from seqdg.data.image_folder import Pictures

Key = tuple[str, str, str]  # domain, class, stem


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

"""A data set from a list of image files with a label and a domain for each: a table, or JSON.

JSON is a list of records, a table of columns, or the format of camera traps (COCO): `images`, `annotations` and
`categories`, which become a row for every picture and kind of animal in it. Its columns are those of `images` and
`category`, the name.

The lists of WILDS (Koh et al., ICML 2021; facts from its version 2) leave it to code which rows are for what. A
function such as `divide_fmow` gets the list as text, and its folder, and returns it with a column `part`: train,
id_val, val (another domain than those for training), id_test or test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, list_some, unknown
from seqdg.core import import_function
from seqdg.data.columns import is_missing, to_word, to_words
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import ID_TEST, Contents, Problem, divide_rows, encode_labels, find_missing_domains
from seqdg.data.features import get_form
from seqdg.data.pictures import (
    Container,
    FolderContainer,
    PictureFile,
    ZipContainer,
    fill_pixels,
)
from seqdg.data.table_files import TableFormat, is_table, open_table

Words = NDArray[Any]  # (row,) text, '' for a gap
CAMELYON_VALIDATION, CAMELYON_TEST = "1", "2"  # hospitals
FMOW_VALIDATION, FMOW_TEST = "2013", "2016"  # the first years of each


def recognizes(path: Path) -> bool:
    """Recognize a .json file. Tables may be anything: `format = "list"` says that they are lists of pictures."""
    return path.is_file() and path.suffix.lower() == ".json"


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    rows, problems, notes = _describe_rows(path, spec)
    container = _open_images(path, spec, root, rows.file)
    files = {file.name: file for file in container.files}
    absent = [name for name in rows.file if name not in files]
    if absent:
        many = f"{count_things(len(absent), 'file')} of the list {'is' if len(absent) == 1 else 'are'} not in"
        names = list_some(dict.fromkeys(absent))
        problems.append(Problem(f"{many} {container.place}: {names}.", partial=True))
        rows = rows.take(np.array([name in files for name in rows.file]))
    domains = spec.domains or tuple(sorted(set(rows.domain), key=_sort_key))
    place = {name: i for i, name in enumerate(domains)}
    classes, y, wrong = encode_labels(
        _to_numbers(rows.label), np.zeros(len(rows.file), np.int64), ("the list",), spec.classes, spec.label_base
    )
    contents = Contents(
        domains=domains,
        classes=classes,
        y=y,
        domain=np.array([place[name] for name in rows.domain], dtype=np.int64),
        validation=rows.validation,
        problems=[*problems, *wrong],
        notes=notes,
    )
    if rows.split is not None:
        division = divide_rows(rows.split, contents.domain, domains)
        contents.parts, contents.validation = division.parts, division.validation
        contents.problems += division.problems
    if rows.group is not None:
        contents.set_groups(rows.group)
    if len(rows.file) and not wrong:
        labels = [classes[i] for i in y]
        pictures = [
            PictureFile(domain, label, files[name])
            for domain, label, name in zip(rows.domain, labels, rows.file, strict=True)
        ]
        fill_pixels(contents, container, pictures, spec.size, progress)
    return contents


class Rows(NamedTuple):
    """The list's entries for every picture."""

    file: Words
    label: Words
    domain: Words
    validation: NDArray[np.bool_] | None
    group: Words | None
    split: Words | None

    def take(self, keep: NDArray[np.bool_]) -> Rows:
        return Rows(*(None if values is None else values[keep] for values in self))  # type: ignore[arg-type]


def _describe_rows(path: Path, spec: DataSpec) -> tuple[Rows, list[Problem], list[str]]:
    """Return the rows of the wanted domains and classes, what is wrong with the list, and what was left out."""
    frame = read_list(path, spec)
    label, domain = (fill_template(frame, name, path) for name in (spec.label_column, spec.domain_column))
    label, domain = (_rename(words, spec.aliases) for words in (label, domain))
    valid = None
    if spec.validation_column:
        marks = fill_template(frame, spec.validation_column, path)
        valid = np.array([word.strip().lower() in ("1", "1.0", "true") for word in marks], dtype=bool)
    group, split = (
        fill_template(frame, name, path) if name else None for name in (spec.group_column, spec.split_column)
    )
    rows = Rows(fill_template(frame, spec.file, path), label, domain, valid, group, split)
    problems, notes = [], []
    for name, words in (("label", label), ("domain", domain), ("file", rows.file)):
        gaps = int((words == "").sum())
        if gaps and not (name == "label" and spec.drop_other_labels):
            problems.append(Problem(f"{path.name} names no {name} in {count_things(gaps, 'row')}: fill in every one."))
    problems += find_missing_domains(spec.domains, sorted(set(domain)), path.name)
    wanted = np.array([not spec.domains or name in spec.domains for name in domain], dtype=bool)
    if not wanted.all():
        others = list_some(sorted(set(domain[~wanted])))
        notes.append(f"{count_things(int((~wanted).sum()), 'row')} of other domains left out: {others}.")
    if spec.drop_other_labels:
        known = np.array([not spec.classes or name in spec.classes for name in label]) & (label != "")
        if not known[wanted].all():
            left = count_things(int((wanted & ~known).sum()), "row")
            notes.append(f"{left} of other classes left out.")
        wanted &= known
    if split is not None:  # rows that serve nothing here: their pictures need not be read
        tested = wanted & np.array([word.strip().lower() == ID_TEST for word in split])
        if tested.any():
            notes.append(f"{count_things(int(tested.sum()), 'row')} called {ID_TEST} left out.")
        wanted &= ~tested
    return rows.take(wanted), problems, notes


def read_list(path: Path, spec: DataSpec) -> Any:
    """Read the list as a data frame of words, with '' for a gap: of one file, or of several in a folder."""
    import pandas

    lists = [path / name for name in spec.files] if path.is_dir() else [path]
    if not lists:
        raise UsageError(f"{path} is a folder: name the lists in it with `files`.")
    frames = [_read_json(one) if one.suffix.lower() == ".json" else _read_table(one, spec) for one in lists]
    frame = frames[0] if len(frames) == 1 else _join(frames)
    if spec.prepare:
        folder = path if path.is_dir() else path.parent
        function = import_function(spec.prepare, "prepare")
        try:
            frame = function(frame, folder)
        except UsageError:
            raise
        except Exception as error:  # it is the user's code
            raise UsageError(f"'{spec.prepare}' failed ({type(error).__name__}: {error}).") from error
        if not isinstance(frame, pandas.DataFrame):
            raise UsageError(f"'{spec.prepare}' returned a {type(frame).__name__}, where a data frame is needed.")
    if not len(frame):
        raise UsageError(f"{path} lists no pictures.")
    return frame.reset_index(drop=True)


def _join(frames: Sequence[Any]) -> Any:
    import pandas

    return pandas.concat(frames, ignore_index=True).drop_duplicates(ignore_index=True)


def _read_table(path: Path, spec: DataSpec) -> Any:
    if not is_table(path):
        raise UsageError(f"{path} is no list of pictures: give a table, such as a .csv, or a .json file.")
    return read_words(path, get_form(spec))


def read_words(path: Path, form: TableFormat | None = None) -> Any:
    """Read a table as a data frame of words, as they are written, with '' for a gap."""
    table = open_table(path, form)
    parts = list(table.read_batches(table.names, ()))
    columns = {
        name: np.concatenate([_to_text(part.columns[i]) for part in parts]) if parts else np.empty(0, dtype=object)
        for i, name in enumerate(table.names)
    }
    import pandas

    return pandas.DataFrame(columns)


def _read_json(path: Path) -> Any:
    import pandas

    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON ({error}).") from None
    if isinstance(content, Mapping) and {"images", "annotations", "categories"} <= set(content):
        return _join_annotations(path, content)
    try:
        frame = pandas.DataFrame(content)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{path} is no list of records, no table of columns and no file of camera traps ({error})."
        ) from None
    return pandas.DataFrame({str(name): _to_text(frame[name].to_numpy(dtype=object)) for name in frame.columns})


def _join_annotations(path: Path, content: Mapping[str, Any]) -> Any:
    """Return a row for every picture and every category that it is annotated with."""
    import pandas

    images, notes, kinds = (pandas.DataFrame(content[name]) for name in ("images", "annotations", "categories"))
    for part, frame, needed in (
        ("images", images, ("id",)),
        ("annotations", notes, ("image_id", "category_id")),
        ("categories", kinds, ("id", "name")),
    ):
        for name in needed:
            if name not in frame.columns:
                raise UsageError(f"{path.name} has no '{name}' in its {part}: it is no file of camera traps.")
    seen = notes[["image_id", "category_id"]].drop_duplicates()
    named = seen.merge(
        kinds[["id", "name"]].rename(columns={"id": "category_id", "name": "category"}), on="category_id"
    )
    joined = images.merge(named[["image_id", "category"]], left_on="id", right_on="image_id").drop(columns="image_id")
    return pandas.DataFrame({name: _to_text(joined[name].to_numpy(dtype=object)) for name in joined.columns})


def fill_template(frame: Any, template: str, path: Path) -> Words:
    """Return a column by its name, or text with columns in braces, such as `{patient}_{node}`; {row} is the row's
    number."""
    if template in frame.columns:
        return np.asarray(frame[template], dtype=object)
    try:
        names = list(dict.fromkeys(name for _, name, _, _ in Formatter().parse(template) if name is not None))
    except ValueError as error:
        raise UsageError(f"'{template}' is no column and no text with columns in braces ({error}).") from None
    for name in names or [template]:
        if name != "row" and name not in frame.columns:
            raise unknown("column", name, [str(column) for column in frame.columns], owner=path.name)
    columns = {name: range(len(frame)) if name == "row" else frame[name] for name in names}
    rows = zip(*columns.values(), strict=True)
    return np.array([template.format(**dict(zip(names, row, strict=True))) for row in rows], dtype=object)


def _open_images(path: Path, spec: DataSpec, root: Path, names: Words) -> Container:
    places = [root / name for name in spec.images] or [path if path.is_dir() else path.parent]
    place = next((place for place in places if place.exists()), None)
    if place is None:
        raise UsageError(f"There is no {places[0]}, where the pictures of {path.name} should be.")
    return FolderContainer(place, dict.fromkeys(names)) if place.is_dir() else ZipContainer(place)


def _rename(words: Words, aliases: Mapping[str, str]) -> Words:
    return np.array([aliases.get(word, word) for word in words], dtype=object) if aliases else words


def _to_text(values: NDArray[Any]) -> Words:
    words = to_words(values) if values.dtype != object else values
    return np.array(["" if is_missing(v) else to_word(v) for v in words], dtype=object)


def _to_numbers(words: Words) -> NDArray[Any]:
    """Return labels as whole numbers, where all of them are."""
    if all(word.isdigit() for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
    return words.astype(str)


def _sort_key(name: str) -> tuple[int, float, str]:
    """Rank numbers by size, before words by the alphabet."""
    return (0, float(name), "") if name.isdigit() else (1, 0.0, name)


def divide_camelyon17(frame: Any, folder: Path) -> Any:
    """Divide by hospitals: 1 validates and 2 tests. In the others, the list marks the rows that validate within."""
    _need(frame, "center", "split")
    part = np.where(frame["split"] == "1", "id_val", "train")
    part = np.where(frame["center"] == CAMELYON_VALIDATION, "val", part)
    return frame.assign(part=np.where(frame["center"] == CAMELYON_TEST, "test", part))


def divide_fmow(frame: Any, folder: Path) -> Any:
    """Divide by years: to 2012 they are for training, 2013 to 2015 validate, from 2016 on test, each by rows of one
    split of the list.

    Add `year`, `region` (of the country; `Other` where none is known) and the `number` by which a picture is named.
    Sequestered rows, and rows of later years that are of another split, serve nothing and are left out.
    """
    _need(frame, "split", "timestamp", "country_code")
    countries = read_words(folder / "country_code_mapping.csv")
    regions = dict(zip(countries["alpha-3"], countries["region"], strict=True))
    year = frame["timestamp"].str[:4]
    within = frame["split"].map({"train": "train", "val": "id_val", "test": "id_test"})
    part = within.where(year < FMOW_VALIDATION)
    part = part.mask((year >= FMOW_VALIDATION) & (year < FMOW_TEST) & (frame["split"] == "val"), "val")
    part = part.mask((year >= FMOW_TEST) & (frame["split"] == "test"), "test")
    region = [regions.get(code) or "Other" for code in frame["country_code"]]
    result = frame.assign(year=year, region=region, number=[str(i) for i in range(len(frame))], part=part)
    return result[part.notna()]


def _need(frame: Any, *names: str) -> None:
    for name in names:
        if name not in frame.columns:
            raise UsageError(f"The list has no column '{name}': it is not the one of WILDS.")

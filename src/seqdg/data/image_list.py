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
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, import_function, list_some, refuse_broken, unknown
from seqdg.data.columns import is_missing, rank_word, to_word, to_words
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import ID_TEST, Contents, Problem, find_missing_domains
from seqdg.data.features.domain_files import get_form
from seqdg.data.pictures import (
    Container,
    FolderContainer,
    PictureFile,
    ZipContainer,
    fill_pixels,
)
from seqdg.data.table_files import TableFormat, is_table, open_table

Words = NDArray[Any]  # (row,) text, '' where missing
CAMELYON_VALIDATION, CAMELYON_TEST = "1", "2"  # hospitals
FMOW_VALIDATION, FMOW_TEST = "2013", "2016"  # the first years of each


def recognizes(path: Path) -> bool:
    """Recognize a .json file. Tables may be anything: `format = "list"` says that they are lists of pictures."""
    return path.is_file() and path.suffix.lower() == ".json"


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    return fill_pixels(*describe(path, spec, root), spec, progress)


def describe(path: Path, spec: DataSpec, root: Path) -> tuple[Contents, Container, list[PictureFile]]:
    """Return all that is read of the pictures but their pixels, and where these are."""
    rows, problems, notes = choose_rows(read_list(path, spec), path, spec)
    return describe_rows(rows, problems, notes, _open_images(path, spec, root, rows["file"]), spec)


def describe_rows(
    rows: Any, problems: list[Problem], notes: list[str], container: Container, spec: DataSpec
) -> tuple[Contents, Container, list[PictureFile]]:
    """Return what `describe` returns, of the rows that `choose_rows` gives and the container of their files."""
    problems += container.problems
    files = {file.name: file for file in container.files}
    there = rows["file"].isin(files)
    if not there.all():
        many, names = int((~there).sum()), list_some(rows["file"][~there].unique())
        text = f"{count_things(many, 'file')} of the list {'is' if many == 1 else 'are'} not in {container.location}"
        problems.append(Problem(f"{text}: {names}.", partial=True))
        rows = rows[there]
    domains = spec.domains or tuple(sorted(rows["domain"].unique(), key=rank_word))
    contents = Contents(
        domains=domains,
        classes=spec.classes,
        y=np.empty(0, np.int64),
        domain=rows["domain"].map({name: i for i, name in enumerate(domains)}).to_numpy(np.int64, copy=True),
        validation=rows["validation"].to_numpy(bool, copy=True) if spec.validation_column else None,
        problems=problems,
        notes=notes,
    )
    is_labeled = contents.set_labels(_to_numbers(rows["label"]), spec.label_base)
    if spec.split_column:
        contents.divide(rows["split"].to_numpy())
    if spec.group_column:
        contents.set_groups(rows["group"].to_numpy(object))
    if not (len(rows) and is_labeled):
        return contents, container, []
    named = zip(rows["domain"], contents.y, rows["file"], strict=True)
    return contents, container, [PictureFile(domain, contents.classes[i], files[name]) for domain, i, name in named]


def choose_rows(frame: Any, path: Path, spec: DataSpec) -> tuple[Any, list[Problem], list[str]]:
    """Return the rows of the wanted domains and classes, what is wrong with the list, and what was left out.

    frame: the list, as text.   path: of the list, as errors name it.

    The rows are a data frame of text: file, label and domain, and validation, group and split where the list has them.
    """
    import pandas

    columns = ("label", "domain", "validation", "group", "split")
    templates = {"file": spec.file, **{name: getattr(spec, f"{name}_column") for name in columns}}
    rows = pandas.DataFrame(
        {name: fill_template(frame, template, path) for name, template in templates.items() if template}, dtype=object
    )
    rows[["label", "domain"]] = rows[["label", "domain"]].replace(dict(spec.aliases))
    if spec.validation_column:
        rows["validation"] = rows["validation"].str.strip().str.lower().isin(("1", "1.0", "true"))
    problems, notes = [], []
    for name in ("label", "domain", "file"):
        empty = int((rows[name] == "").sum())
        if empty and not (name == "label" and spec.drop_other_labels):
            problems.append(Problem(f"{path.name} names no {name} in {count_things(empty, 'row')}: fill in every one."))
    problems += find_missing_domains(spec.domains, rows["domain"].unique(), path.name)
    wanted = rows["domain"].isin(spec.domains or rows["domain"])
    if not wanted.all():
        others = list_some(sorted(rows["domain"][~wanted].unique()))
        notes.append(f"{count_things(int((~wanted).sum()), 'row')} of other domains left out: {others}.")
    rows = rows[wanted]
    if spec.drop_other_labels:
        known = rows["label"].isin(spec.classes or rows["label"]) & (rows["label"] != "")
        if not known.all():
            notes.append(f"{count_things(int((~known).sum()), 'row')} of other classes left out.")
        rows = rows[known]
    if spec.split_column:  # rows that serve nothing here: their pictures need not be read
        tested = rows["split"].str.strip().str.lower() == ID_TEST
        if tested.any():
            notes.append(f"{count_things(int(tested.sum()), 'row')} called {ID_TEST} left out.")
        rows = rows[~tested]
    return rows, problems, notes


def read_list(path: Path, spec: DataSpec) -> Any:
    """Read the list as a data frame of text, with '' where missing: of one file, or of several in a folder."""
    import pandas

    lists = [path / name for name in spec.files] if path.is_dir() else [path]
    if not lists:
        raise UsageError(f"{path} is a folder: name the lists in it with `files`.")
    frames = [_read_one(one, spec) for one in lists]
    frame = frames[0]
    if len(frames) > 1:
        frame = pandas.concat(frames, ignore_index=True).drop_duplicates(ignore_index=True)
    if spec.prepare:
        ours = {f"{__name__}:{function.__name__}": function for function in (divide_camelyon17, divide_fmow)}
        function = ours.get(spec.prepare) or import_function(spec.prepare, "prepare")
        try:
            frame = function(frame, path if path.is_dir() else path.parent)
        except UsageError:
            raise
        except Exception as error:  # it is the user's code
            raise UsageError(f"'{spec.prepare}' failed ({type(error).__name__}: {error}).") from error
        if not isinstance(frame, pandas.DataFrame):
            raise UsageError(f"'{spec.prepare}' returned a {type(frame).__name__}, where a data frame is needed.")
    if not len(frame):
        raise UsageError(f"{path} lists no pictures.")
    return frame.reset_index(drop=True)


def _read_one(path: Path, spec: DataSpec) -> Any:
    if path.suffix.lower() == ".json":
        return _read_json(path)
    if not is_table(path):
        raise UsageError(f"{path} is no list of pictures: give a table, such as a .csv, or a .json file.")
    return read_words(path, get_form(spec))


def read_words(path: Path, form: TableFormat | None = None) -> Any:
    """Read a table as a data frame of text, as it is written, with '' where a cell is empty."""
    import pandas

    table = open_table(path, form)
    frame = table.read(text=table.names)
    return make_text(pandas.DataFrame(dict(zip(frame.names, map(to_words, frame.columns), strict=True))))


def _read_json(path: Path) -> Any:
    import pandas

    with refuse_broken(f"{path} cannot be read as JSON"):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    with refuse_broken(f"{path} is no list of records, no table of columns and no file of camera traps"):
        if isinstance(content, Mapping) and {"images", "annotations", "categories"} <= set(content):
            return _join_annotations(path, content)
        return make_text(pandas.DataFrame(content))


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
    named = kinds.set_index("id")["name"].rename("category")
    seen = notes[["image_id", "category_id"]].drop_duplicates().join(named, on="category_id", how="inner")
    joined = images.merge(seen[["image_id", "category"]], left_on="id", right_on="image_id")
    return make_text(joined.drop(columns="image_id"))


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
    locations = [root / name for name in spec.images] or [path if path.is_dir() else path.parent]
    location = next((path for path in locations if path.exists()), None)
    if location is None:
        raise UsageError(f"There is no {locations[0]}, where the pictures of {path.name} should be.")
    return FolderContainer(location, dict.fromkeys(names)) if location.is_dir() else ZipContainer(location)


def make_text(frame: Any) -> Any:
    """Return a data frame of text, with '' where a cell is missing."""
    words = frame.rename(columns=str).astype(object)
    return words.apply(lambda column: column.map(lambda cell: "" if is_missing(cell) else to_word(cell)))


def _to_numbers(words: Any) -> NDArray[Any]:
    """Return labels as whole numbers, where all of them are."""
    return np.asarray(words.astype(np.int64 if words.str.isdigit().all() else str))


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

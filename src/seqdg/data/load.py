"""From files to rows: a description becomes a `Dataset`, or one error that lists everything that is wrong; a user's
table or folder becomes `LabeledRows`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from seqdg.base import UsageError, count_things, join_names, list_some, unknown
from seqdg.data.columns import (
    Column,
    WrongRows,
    drop_missing,
    has_codes,
    is_missing,
    means_missing,
    parse_column,
    rank_word,
    to_words,
)
from seqdg.data.dataset import READERS, Dataset, DataSpec, ProgressCallback, guess_format
from seqdg.data.domain_rows import (
    Contents,
    DataCheck,
    DomainRows,
    Problem,
    check_contents,
    collect_rows,
    split_by_domain,
)
from seqdg.data.features.feature_file import SUFFIX, Features
from seqdg.data.frame import Frame, note_columns
from seqdg.data.table_files import TableFile, TableFormat, is_table, open_table

CLASS, NUMBER = TASKS = ("class", "number")  # what is predicted
SPELLINGS = {"classification": CLASS, "classes": CLASS, "regression": NUMBER, "numbers": NUMBER}
FEW = 10  # classes that are counted one by one
MOST_NUMBERS = 20  # that a column of labels may hold; more are a measurement
MANY_DOMAINS = 10  # from which on most of them may not have a single row
MANY_CLASSES = 10  # from which on they need two rows each, on average


def load_data(
    table: Mapping[str, Any],
    root: Path | None,
    allow_partial: bool = False,
    name: str = "data",
    progress: ProgressCallback | None = None,
    held_out: Sequence[str] | None = None,
) -> Dataset:
    """Load the data set of a benchmark's [data] table. Bundled data need no root; all others lie below one."""
    from seqdg.data.rotated_mnist import BUNDLED, load_bundled

    if table.get("format") in BUNDLED:
        return load_bundled(table)
    spec = DataSpec.from_table(name, table)
    if root is None:
        raise UsageError(f"{name} does not come with seqdg: give the folder that holds {spec.path[0]} with --data DIR.")
    return load_dataset(spec, root, allow_partial, progress, held_out)


def load_dataset(
    spec: DataSpec,
    root: Path,
    allow_partial: bool = False,
    progress: ProgressCallback | None = None,
    held_out: Sequence[str] | None = None,
) -> Dataset:
    """Load a data set if nothing is wrong with it; otherwise raise one error that lists everything.

    Images come as a read-only memory map of uint8, features as a float32 tensor. allow_partial: counts other than
    the published ones become notes. held_out: the domains that will be held out in turn; None: every one.
    """
    return _make_checked(check_dataset(spec, root, allow_partial, progress, held_out))


def check_dataset(
    spec: DataSpec,
    root: Path,
    allow_partial: bool = False,
    progress: ProgressCallback | None = None,
    held_out: Sequence[str] | None = None,
) -> DataCheck:
    """Check what `load_dataset` would load. This decodes every picture, so that a load after it is quick.

    A mistake that leaves nothing to read is the only problem.
    """
    try:
        path = spec.locate(root)
        reader = import_module(READERS[spec.format or guess_format(path)])
        contents: Contents = reader.read(path, spec, root, progress)
    except UsageError as error:
        none = np.empty(0, np.int64)
        contents = Contents((), spec.classes, none, none, problems=[Problem(str(error))])
    return check_contents(spec, contents, allow_partial, held_out)


def make_dataset(
    x: Any, y: Any, domain: Any, spec: DataSpec | None = None, held_out: Sequence[str] | None = None
) -> Dataset:
    """Make a data set from arrays: features (row, feature), and each row's label and domain, as numbers or names."""
    spec = spec or DataSpec("arrays")
    matrix, labels, domains = np.asarray(x, np.float32), np.asarray(y), np.asarray(domain)
    if matrix.ndim != 2 or labels.shape != matrix.shape[:1] or domains.shape != matrix.shape[:1]:
        shapes = f"{list(matrix.shape)}, {list(labels.shape)} and {list(domains.shape)}"
        raise UsageError(f"x, y and domain have shapes {shapes}: they must be [rows, features], [rows] and [rows].")
    contents = collect_rows(spec, *split_by_domain(DomainRows(matrix, labels), domains, spec, "The domain array"))
    return _make_checked(check_contents(spec, contents, False, held_out))


def _make_checked(check: DataCheck) -> Dataset:
    if check.problems:
        raise check.make_error()
    arrays = {key: getattr(check.contents, key) for key in ("x", "y", "domain", "validation", "group")}
    tensors = {key: torch.from_numpy(v) for key, v in arrays.items() if v is not None and v.dtype != np.uint8}
    facts = {key: getattr(check.contents, key) for key in ("domains", "classes", "numbers", "groups", "parts", "files")}
    made = {"x": check.contents.x, **tensors, **facts}
    return Dataset(name=check.spec.name, fingerprint=check.fingerprint, notes=check.notes, **made)


class LabeledRows(NamedTuple):
    x: Any  # a table, or images (row, channel, height, width)
    y: NDArray[Any]
    domains: NDArray[Any]
    notes: tuple[str, ...] = ()  # on how a file was read
    weight: NDArray[np.float64] | None = None  # (row,) how much each counts; None: all the same

    @property
    def is_regression(self) -> bool:
        """True where y holds targets, not labels."""
        return self.y.dtype.kind == "f"


def read_rows(
    path: Path,
    label: str | None,
    domain: str | None,
    ignore: Sequence[str] = (),
    progress: ProgressCallback | None = None,
    *,
    ids: Sequence[str] = (),
    only: Collection[str] | None = None,
    types: Mapping[str, str] | None = None,
    na: Sequence[str] = (),
    encoding: str = "",
    task: str | None = None,
    weight: str | None = None,
    drop_unlabeled: bool = False,
) -> LabeledRows:
    """Read a table with columns for label and domain, or pictures in <domain>/<class>/.

    ignore, ids: columns that are no features.   only: the only ones that are; None: all others.
    types: by column, of `columns.TYPES`.
    na: text and numbers that mean missing, besides the usual ones.   encoding: of a file of text; empty: guessed.
    task: `class`, `number`, or None to tell it from the labels.
    weight: the column that says how much each row counts.
    drop_unlabeled: leave out rows of a table that have no label.
    """
    if not path.exists():
        raise UsageError(
            f"There is no {path}. Give a table, such as a .csv or .parquet file, or a folder or .zip of images."
        )
    if path.suffix.lower() == SUFFIX:
        return label_features(Features.load(path), path.name)
    if not is_table(path):
        return _read_images(path, progress)
    table, types = open_table(path, TableFormat(encoding=encoding)), types or {}
    task = SPELLINGS.get(str(task).lower(), task)
    if task not in (None, *TASKS):
        raise unknown("task", str(task), TASKS)
    dropped = {*ignore, *ids, *(name for name in table.names if only is not None and name not in {*only, weight})}
    roles = _check_roles(table, label, domain, weight, types, dropped, (*ignore, *ids))
    label, domain = roles[:2]
    with table.naming_lines():
        frame = read_frame(table, dropped - {label, domain}, types, codes=(label, domain))
        weights, notes = None, table.notes
        by_name = {n: drop_missing(c, na) for n, c in zip(frame.names, frame.columns, strict=True)}
        labels = by_name[label] if types.get(label) == "category" else parse_column(by_name[label])
        if drop_unlabeled:
            kept = np.flatnonzero([not is_missing(value) for value in labels.tolist()])
            if not len(kept):
                raise UsageError(f"Column '{label}' has no label in any row: name another with --label.")
            if len(kept) < len(labels):
                notes = (*notes, f"{count_things(len(labels) - len(kept), 'row')} without a label left out.")
            frame, labels, by_name = frame.take(kept), labels[kept], {name: c[kept] for name, c in by_name.items()}
        if weight is not None:
            weights = make_weights(weight, parse_column(by_name[weight]), frame.row_numbers)
        x = frame.without(roles)
        if not x.names:
            raise UsageError(
                f"{table.path.name} has no column beside those of label and domain: there is nothing to learn from."
            )
        task = choose_task(label, labels) if task is None else task
        labels = by_name[label] if task == CLASS and has_codes(by_name[label]) else labels
        domains = to_words(by_name[domain])
        check_domains(domains.tolist(), frame.row_numbers)
        check_domain_sizes(f"Column '{domain}'", len(set(domains.tolist())), len(domains))
        y = make_numbers(label, labels, frame.row_numbers) if task == NUMBER else make_labels(labels)
        if task == CLASS:
            numbers = ", or predict the number with --task number" if labels.dtype.kind == "f" else ""
            check_class_sizes(f"Column '{label}'", y, f"Name another column with --label{numbers}.")
        features = {name: kind for name, kind in types.items() if name not in roles}
        return LabeledRows(x.decide_types(features, na, is_text=True), y, domains, notes, weights)


def _check_roles(
    table: TableFile,
    label: str | None,
    domain: str | None,
    weight: str | None,
    types: Mapping[str, str],
    dropped: Collection[str],
    named: Sequence[str],
) -> list[str]:
    """Return the columns of labels, of domains and, if any, of weights; raise a UsageError where one cannot be that.

    dropped: columns that are no features.   named: those of them that the user named.
    """
    if label is None:
        raise UsageError("Which column holds the labels? Give it with --label.")
    if domain is None:
        raise UsageError(
            "Which column says where a row is from, such as the hospital or the device? Give it with --domain."
        )
    roles = [name for name in (label, domain, weight) if name is not None]
    table.require((*roles, *named, *types))
    if weight is not None and weight in {label, domain, *dropped}:
        raise UsageError(f"'{weight}' is the column of weights, and has another part too: give it one of them.")
    if label == domain:
        raise UsageError(
            f"'{label}' is the column of labels and of domains: give --domain the one that says where from."
        )
    parts = (("--label", ("category", "number")), ("--domain", ("category",)), ("--weight", ("number",)))
    for name, (option, allowed) in zip(roles, parts, strict=False):  # there may be no weights
        if types.get(name, allowed[0]) not in allowed:
            raise UsageError(f"'{name}' is given as {option}, so that its type can only be: {', '.join(allowed)}.")
    return roles


def label_features(features: Features, name: str) -> LabeledRows:
    """Return the rows of a features file as a table. name: that of the file, for errors."""
    if features.y is None or features.domains is None:
        raise UsageError(f"{name} has no labels and domains: its pictures did not lie in <domain>/<class>/.")
    return LabeledRows(features.to_frame(), features.y, features.domains)


def _read_images(path: Path, progress: ProgressCallback | None) -> LabeledRows:
    """Read pictures in <domain>/<class>/."""
    if guess_format(path) != "images":
        raise UsageError(f"{path} holds feature files: read them in Python and give DomainClassifier arrays.")
    dataset = load_dataset(
        DataSpec(path.stem, (path.name,), format="images"), path.parent, False, progress, held_out=()
    )
    classes, domains = (np.array(names, dtype=object) for names in (dataset.classes, dataset.domains))
    return LabeledRows(dataset.x, classes[dataset.y.numpy()].astype(str), domains[dataset.domain.numpy()])


def read_frame(table: TableFile, but: Collection[str], types: Mapping[str, str], codes: Collection[str] = ()) -> Frame:
    """Read all rows of a table as the text they are written with, before anything is decided about its columns.

    codes: columns of names, such as those of domains: 007 stays what it is.
    """
    ignored = {name for name, kind in types.items() if kind == "ignore"}
    text = [name for name, kind in types.items() if kind == "category"]
    return table.read(but={*but, *ignored}, text=text, codes=codes)


def check_table(
    path: Path,
    label: str | None,
    domain: str | None,
    ignore: Sequence[str],
    types: Mapping[str, str],
    na: Sequence[str],
    encoding: str = "",
    weight: str | None = None,
    **options: Any,
) -> str:
    """Say what each column of a table holds, and, where they are named, how many rows each domain has of each class.

    options: the others of `read_rows`.
    """
    table = open_table(path, TableFormat(encoding=encoding))
    if label is not None and domain is not None:
        rows = read_rows(path, label, domain, ignore, types=types, na=na, encoding=encoding, weight=weight, **options)
        frame, read, counts = rows.x, rows.notes, _count_rows(rows)
        names = [] if rows.is_regression else sorted(set(map(str, rows.y.tolist())))
        notes = [*note_missing_labels(rows.y), *note_spellings("class", names)]
        notes += [*note_spellings("domain", sorted(set(rows.domains.tolist()))), *note_columns(frame, rows.domains)]
    else:
        roles = {name for name in (label, domain, weight) if name is not None}
        table.require((*roles, *ignore, *types))
        with table.naming_lines():
            frame = read_frame(table, {*ignore, *roles}, types).decide_types(types, na, is_text=True)
        read, counts, notes = table.notes, [], note_columns(frame)
    width = max(len(name) for name in frame.names)
    lines = [f"{path.name}: {count_things(len(frame), 'row')}, {count_things(len(table.names), 'column')}", *read]
    lines += [f"  {t.name:<{width}}  {t.describe()}" for t in frame.types or ()]
    return "\n".join([*lines, *counts, *(f"note: {note}" for note in notes)])


def _count_rows(rows: LabeledRows) -> list[str]:
    """List the domains with their rows of every class, or with where their numbers lie; of many classes, with their
    rows alone."""
    classes = [] if rows.is_regression else np.unique(rows.y).tolist()
    lines = [f"{count_things(len(classes), 'class')}: {list_some(classes)}"]
    if rows.is_regression:
        lines = [f"a regression target, from {rows.y.min():.4g} to {rows.y.max():.4g}, mean {rows.y.mean():.4g}"]
    for name in sorted(set(rows.domains.tolist()), key=rank_word):
        y = rows.y[rows.domains == name]
        more = ", ".join(f"{c} {int((y == c).sum())}" for c in classes) if len(classes) <= FEW else ""
        more = f"mean {y.mean():.4g}, deviation {y.std():.4g}" if rows.is_regression else more
        lines.append(f"  {name}: {count_things(len(y), 'row')}" + (f" ({more})" if more else ""))
    return lines


def choose_task(name: str, column: Column) -> str:
    """Tell whether labels name classes or are numeric targets; raise a UsageError where both may be meant.

    Words, and up to 20 different numbers, are classes. More, with fractions, are numbers. Whole ones, such as ages, may
    be either.
    """
    if column.dtype.kind != "f":
        return CLASS
    known = np.unique(column[np.isfinite(column)])
    if len(known) <= MOST_NUMBERS:
        return CLASS
    if (known != np.floor(known)).any():
        return NUMBER
    if len(column) < 2 * len(known):  # too few rows of each to be classes
        other = "name another column with --label if it is an identifier of rows"
    else:
        other = "--task class if each names a class"
    raise UsageError(
        f"Column '{name}' has {len(known)} different whole numbers in {len(column)} rows: say --task number for "
        f"regression, or {other}."
    )


def make_numbers(name: str, column: Column, row_numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the numbers of a column to predict; raise a UsageError where a row has none.

    row_numbers: (row,) in the user's table, for the error message.
    """
    if column.dtype.kind != "f":
        first = next((str(v) for v in column.tolist() if v is not None), "")
        raise UsageError(
            f"Column '{name}' does not hold numbers alone, for example '{first[:40]}': fix it, say with --na which "
            "text means missing, or predict classes with --task class."
        )
    lacking = row_numbers[~np.isfinite(column)]
    if len(lacking):
        raise WrongRows(
            f"Column '{name}' has no number in {count_things(len(lacking), 'row')} ({WrongRows.SEVERAL}): fill it in, "
            "or leave these rows out with --drop-unlabeled.",
            lacking,
        )
    return column.astype(np.float64)


def make_weights(name: str, column: Column, row_numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights of rows; raise a UsageError unless they are numbers of at least 0, and not all 0.

    row_numbers: (row,) in the user's table, for the error message.
    """
    if column.dtype.kind != "f":
        first = next((str(v) for v in column.tolist() if v is not None), "")
        raise UsageError(f"The column of weights, '{name}', does not hold numbers alone, for example '{first[:40]}'.")
    wrong = row_numbers[~(np.isfinite(column) & (column >= 0))]
    if len(wrong):
        raise WrongRows(
            f"The column of weights, '{name}', is empty or below 0 in {count_things(len(wrong), 'row')} "
            f"({WrongRows.SEVERAL}): give numbers of at least 0, and 0 to rows that shall not count.",
            wrong,
        )
    if not column.any():
        raise UsageError(f"The column of weights, '{name}', is 0 in every row: no row counts.")
    return column.astype(np.float64)


def make_labels(column: Column) -> NDArray[Any]:
    """Return the labels of a column: whole numbers, or words."""
    column = to_words(column) if column.dtype.kind == "M" else column
    check_labels(column.tolist(), "leave them out with --drop-unlabeled")
    if column.dtype == object:
        return column.astype(str)
    whole = np.isfinite(column).all() and (column == np.floor(column)).all()
    return column.astype(np.int64) if whole else to_words(column).astype(str)


def note_spellings(what: str, names: Iterable[str]) -> list[str]:
    """Return a note where names differ by case, spaces or leading zeros alone. what: they name, `class` or `domain`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        plain = "".join(str(name).casefold().split())
        alike.setdefault(plain.lstrip("0") or plain, []).append(str(name))
    groups = [" and ".join(repr(name) for name in group) for group in alike.values() if len(group) > 1]
    if not groups:
        return []
    each = f"Is each a {what} of its own?"
    return [f"Names that differ by case, spaces or leading zeros alone: {list_some(groups)}. {each} If not, fix them."]


def note_missing_labels(y: NDArray[Any]) -> list[str]:
    """Return a note where labels that elsewhere mean missing, such as NA, are classes among others."""
    names = sorted(map(str, set(y.tolist()))) if y.dtype.kind in "OU" else []
    signs = [name for name in names if means_missing(name)]
    if not signs or len(names) == len(signs):
        return []
    said = join_names([repr(name) for name in signs])
    what = f"The label {said} counts as a class" if len(signs) == 1 else f"The labels {said} count as classes"
    return [
        f"{what}. Where that means that there is no label, leave these rows out, on the command line by --na "
        f"'{','.join(name.strip() for name in signs)}' --drop-unlabeled."
    ]


def check_domains(domains: Sequence[Any], row_numbers: Iterable[int] | None = None) -> None:
    """Raise a UsageError unless every row has a domain. row_numbers: in the user's table; None: 0, 1, 2, ..."""
    numbered = zip(range(len(domains)) if row_numbers is None else row_numbers, domains, strict=True)
    lacking = [number for number, value in numbered if is_missing(value)]
    if lacking:
        raise WrongRows(
            f"There is no domain for {count_things(len(lacking), 'row')} ({WrongRows.SEVERAL}): name it for every row.",
            lacking,
        )


def check_domain_sizes(what: str, domains: int, rows: int) -> None:
    """Raise a UsageError where most domains have one row, of which nothing can be learned. what: names them."""
    if domains >= MANY_DOMAINS and rows < 2 * domains:
        raise UsageError(
            f"{what} has {domains} different domains in {rows} rows, so that most have one row: is it an identifier of "
            "rows? A domain is where many rows are from, such as the hospital, the device or the year."
        )


def check_class_sizes(what: str, y: NDArray[Any], cure: str) -> None:
    """Raise a UsageError where labels look like identifiers: many classes, with fewer than two rows each on average.

    what: holds the labels, at the start of the sentence.   cure: what to do about it, at its end.
    """
    _, rows = np.unique(y, return_counts=True)
    if len(rows) >= MANY_CLASSES and len(y) < 2 * len(rows):
        single = "each of them" if (rows == 1).all() else f"{int((rows == 1).sum())} of them"
        raise UsageError(
            f"{what} has {len(rows)} different labels in {len(y)} rows, {single} in a single row: nothing can be "
            f"learned about such classes. Is it an identifier of rows? {cure}"
        )


def check_labels(y: Sequence[Any], remedy: str = "leave them out") -> None:
    """Raise a UsageError unless every row has a label."""
    lacking = [i for i, value in enumerate(y) if is_missing(value)]
    if lacking:
        raise WrongRows(
            f"Input y contains NaN: {count_things(len(lacking), 'row')} without a label ({WrongRows.SEVERAL}). Label "
            f"them or {remedy}.",
            lacking,
        )

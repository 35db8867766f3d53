"""Rows of features: one table, or files of one domain each (`.mat`, `.npz` or a table), or one file of all.

A table has a column for the domain, one for the label, and features in all others. A feature is a number; a category,
which becomes a column of 0 and 1 for each of its values; or free text, which becomes hashed n-grams, or what an encoder
of the user's makes of it. The numbers come first, then the categories, then the text. An `.npz` of all domains has
`<domain>_x` and `<domain>_y`; a `.safetensors` is what `seqdg features` wrote.

Published layouts that need nothing said: Office-Caltech10 SURF (`fts`, `labels`), VLCS DeCAF6 (`data`, whose last
column is the label), IXMAS dense trajectories (`desc` with a column per video, `labels`). MATLAB files are of version 5
(scipy reads them) or 7.3, which is HDF5 (h5py).
"""

from __future__ import annotations

import glob
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, check_memory, count_things, import_function, list_some, refuse_broken, unknown
from seqdg.data.columns import parse_column, parse_truth, to_words
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_rows import (
    Contents,
    DomainRows,
    Matrix,
    Problem,
    collect_rows,
    find_missing_domains,
    split_by_domain,
)
from seqdg.data.features.feature_file import SUFFIX, Features
from seqdg.data.table_files import TableFormat, is_table, open_table

ARRAYS = (".mat", ".npz")
X_NAMES = ("x", "fts", "features", "feature", "feats", "feat", "fea", "desc", "data")
Y_NAMES = ("y", "labels", "label", "gnd", "class", "classes", "target", "targets")
LAST_COLUMN = "last-column"
Arrays = dict[str, NDArray[Any]]
HDF5 = b"\x89HDF\r\n\x1a\n"
BYTES = {"double": 8, "single": 4, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2}
EXACT = 2.0**53  # above it, whole numbers of a column can no longer be told apart


def recognizes(path: Path) -> bool:
    """Recognize a table, an .npz file, or a folder with feature files at its top or one folder below."""
    if path.is_file():
        return path.suffix.lower() in (".npz", SUFFIX) or is_table(path)
    return any(is_feature_file(item) for pattern in ("*", "*/*") for item in path.glob(pattern))


def is_feature_file(path: Path) -> bool:
    return path.suffix.lower() in ARRAYS or is_table(path)


def _get_stem(path: Path) -> str:
    """Return the domain that a file is named after: `north` of `north.csv` and of `north.csv.gz`."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    if path.is_file() and path.suffix.lower() == SUFFIX:
        return _read_features(path, spec)
    if path.is_file():
        return read_table(path, spec) if is_table(path) else _read_one_npz(path, spec)
    return _read_folder(path, spec)


def _read_features(path: Path, spec: DataSpec) -> Contents:
    """Read a file of features that `seqdg features` wrote."""
    features = Features.load(path)
    if features.y is None or features.domains is None:
        raise UsageError(f"{path} has no labels and domains: its pictures did not lie in <domain>/<class>/.")
    spec = spec if spec.classes else replace(spec, classes=features.classes)
    y = features.y.astype(np.float64) if spec.is_regression else features.y
    rows, missing, left_out = split_by_domain(
        DomainRows(features.x, y, features.validation), features.domains, spec, str(path)
    )
    return collect_rows(spec, rows, missing, left_out)


def _read_folder(path: Path, spec: DataSpec) -> Contents:
    """Read the files of every domain. One that cannot be read is a problem, and the next one is read all the same."""
    files = {d: _find_files(path, d, spec.files) for d in spec.domains} if spec.domains else _find_domains(path)
    there = {d for d in files if files[d]}
    used = {file for names in files.values() for file in names}
    there |= {_get_stem(p) for p in path.iterdir() if is_feature_file(p) and p not in used}
    problems = find_missing_domains(list(files), there, str(path))
    if not files:
        problems.append(Problem(f"{path} holds no feature files: expected <domain>.mat, .npz, .csv or .parquet."))
    rows, notes = {}, list[str]()
    for domain, names in files.items():
        parts = []
        for file in names:
            try:
                parts.append(read_file(file, spec, notes))
            except UsageError as error:
                problems.append(Problem(str(error)))
        if len(parts) == len(names) and parts:
            rows[domain] = _join_parts(domain, parts, problems)
    return collect_rows(spec, rows, problems, notes)


def read_file(path: Path, spec: DataSpec, notes: list[str]) -> DomainRows:
    """Read the rows of one domain. notes: gets those on how a table is written."""
    if not is_table(path):
        # With both keys given nothing else in the file is touched.
        both = (spec.x_key, spec.y_key)
        keys = [key for key in both if key != LAST_COLUMN] if all(both) else None
        arrays = read_mat(path, keys) if path.suffix.lower() == ".mat" else read_npz(path, keys)
        return DomainRows(*pick_arrays(arrays, *both, str(path), spec.is_regression))
    columns, written = read_columns(path, get_form(spec))
    notes += written
    last = list(columns)[-1]
    usual = next((n for n in columns if n.lower() in Y_NAMES), last)
    y_key = last if spec.y_key == LAST_COLUMN else spec.y_key or usual
    if y_key not in columns:
        raise unknown("column", y_key, columns, owner=str(path))
    problems: list[Problem] = []
    y = columns.pop(y_key)
    x = stack_columns(columns, len(y), str(path), problems)
    if problems:
        raise UsageError(problems[0].text)
    return DomainRows(x, y)


def read_npz(path: Path, keys: Sequence[str] | None = None) -> Arrays:
    """Read the arrays named by `keys`; None: all of them."""
    arrays, name = {}, path.name
    with refuse_broken(f"{path} cannot be read as an .npz file", ": is it whole?"):
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                wanted = list(file.files if keys is None else keys)
                for name in wanted:
                    if name not in file.files:
                        raise unknown("array", name, file.files, owner=str(path))
                sizes = {info.filename.removesuffix(".npy"): info.file_size for info in file.zip.infolist()}
                check_memory(sum(sizes[name] for name in wanted), str(path))
                for name in wanted:
                    arrays[name] = np.asarray(file[name])
        except ValueError as error:
            if "pickle" in str(error) and not isinstance(error, UsageError):
                raise _refuse_objects(path, name) from error
            raise
    return arrays


def pick_arrays(
    arrays: Arrays, x_key: str, y_key: str, location: str, numbers: bool = False
) -> tuple[Matrix, NDArray[Any]]:
    """Pick the features, with a row per example, and the labels: by their keys, or by usual names and shapes."""
    here = f"It has: {', '.join(f'{n} {list(a.shape)}' for n, a in arrays.items()) or 'nothing'}."
    for key in (x_key, y_key):
        if key not in ("", LAST_COLUMN, *arrays):
            raise unknown("array", key, arrays, owner=location)
    y_key = y_key or next((n for n in arrays if n.lower() in Y_NAMES and arrays[n].ndim < 3), "")
    matrices = [n for n, a in arrays.items() if n != y_key and a.ndim == 2 and a.dtype.kind in "iufb"]
    usual = [n for n in matrices if n.lower() in X_NAMES]
    x_key = x_key or (usual or matrices)[0] if x_key or len(usual) == 1 or len(matrices) == 1 else ""
    if not x_key:
        raise UsageError(f"{location}: which array holds the features? Give x_key. {here}")
    x = arrays[x_key]
    if x.ndim != 2 or x.dtype.kind not in "iufb":
        raise UsageError(f"{location}: '{x_key}' is no matrix of real numbers with a row per example. {here}")
    if y_key in ("", LAST_COLUMN):
        x, y = x[:, :-1], x[:, -1]
        if not y_key and (numbers or not (np.isfinite(y).all() and (y == np.round(y)).all())):
            raise UsageError(f"{location}: which array holds the labels? Give y_key. {here}")
    else:
        y = arrays[y_key].reshape(-1)
    if len(x) != len(y) and x.shape[1] == len(y):
        x = x.T  # a column per example
    if len(x) != len(y):
        raise UsageError(f"{location}: '{x_key}' has {len(x)} rows and '{y_key}' {len(y)} labels.")
    return x.astype(np.float32), y


def _read_one_npz(path: Path, spec: DataSpec) -> Contents:
    if path.suffix.lower() != ".npz":
        raise UsageError(f"{path} is one file: features are read from a folder with a file per domain, or one .npz.")
    with refuse_broken(f"{path} cannot be read as an .npz file", ": is it whole?"), np.load(path) as file:
        names = list(file.files)
    there = [n[:-2] for n in names if n.endswith("_x") and f"{n[:-2]}_y" in names]
    problems = (
        find_missing_domains(spec.domains, there, str(path))
        if spec.domains or there
        else [Problem(f"{path} has no arrays <domain>_x and <domain>_y. It has: {', '.join(names)}.")]
    )
    rows = {}
    for domain in (d for d in spec.domains or there if d in there):
        keys = [key for key in (f"{domain}_x", f"{domain}_y", f"{domain}_is_val") if key in names]
        try:
            arrays = read_npz(path, keys)
            split = [arrays[key].reshape(-1).astype(bool) for key in keys[2:]]
            rows[domain] = DomainRows(*pick_arrays(arrays, keys[0], keys[1], str(path)), *split)
        except UsageError as error:
            problems.append(Problem(str(error)))
    return collect_rows(spec, rows, problems)


def _find_files(folder: Path, domain: str, templates: Sequence[str]) -> list[Path]:
    """Find a domain's files: by the templates, by its name, in its folder, or in folders such as train and test."""
    if templates:
        named = [folder / template.format(domain=domain) for template in templates]
        return named if all(path.is_file() for path in named) else []
    name = glob.escape(domain)
    for pattern in (f"{name}.*", f"{name}[_.-]*", f"{name}/*", f"*/{name}.*"):
        files = sorted(path for path in folder.glob(pattern) if is_feature_file(path))
        if len(files) > 1 and "/" not in pattern:
            names = list_some(path.name for path in files)
            raise UsageError(f"{folder} has several files that may be the domain '{domain}': {names}. Say `files`.")
        if files:
            return files
    return []


def _find_domains(folder: Path) -> dict[str, list[Path]]:
    """Find the domains: every feature file is one, or else every folder that has some."""
    files = sorted(path for path in folder.iterdir() if is_feature_file(path))
    if files:
        return {_get_stem(path): [path] for path in files}
    return {
        d.name: files for d in sorted(folder.iterdir()) if d.is_dir() and (files := _find_files(folder, d.name, ()))
    }


def _join_parts(domain: str, parts: Sequence[DomainRows], problems: list[Problem]) -> DomainRows:
    widths = [part.x.shape[1] for part in parts]
    if len(set(widths)) > 1:
        text = f"The files of {domain} have different numbers of features: {', '.join(map(str, widths))}."
        problems.append(Problem(text))
        return parts[0]
    return DomainRows(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))


def read_mat(path: Path, keys: Sequence[str] | None = None) -> Arrays:
    """Read the arrays named by `keys`; None: all of them."""
    with refuse_broken(f"{path} cannot be read as a MATLAB file", ": is it whole?"):
        with path.open("rb") as file:
            is_73 = HDF5 in file.read(520)
        arrays = (_read_73 if is_73 else _read_5)(path)
    wanted = list(arrays if keys is None else keys)
    for name in wanted:
        if name not in arrays:
            raise unknown("array", name, arrays, owner=str(path))
        if arrays[name].dtype.kind in "OV":  # cells and structs
            raise _refuse_objects(path, name)
    return {name: arrays[name] for name in wanted}


def _read_5(path: Path) -> Arrays:
    import scipy.io

    sizes = [math.prod(shape) * BYTES.get(kind, 1) for _, shape, kind in scipy.io.whosmat(path)]
    check_memory(sum(sizes), str(path))
    # Of the two kinds of sparse arrays, the one that stays, where scipy knows both and warns of the change.
    kind = {"spmatrix": False} if "spmatrix" in inspect.signature(scipy.io.loadmat).parameters else {}
    arrays = {name: array for name, array in scipy.io.loadmat(path, **kind).items() if not name.startswith("__")}
    return {n: np.asarray(array.toarray() if hasattr(array, "toarray") else array) for n, array in arrays.items()}


def _read_73(path: Path) -> Arrays:
    try:
        import h5py
    except ImportError:
        raise UsageError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'seqdg[mat]'.") from None
    with h5py.File(path, "r") as file:
        items = {name: item for name, item in file.items() if not name.startswith("#")}
        check_memory(sum(item.nbytes for item in items.values() if isinstance(item, h5py.Dataset)), str(path))
        # Text is kept there as numbers. MATLAB writes columns first, so HDF5 shows every array transposed.
        return {
            name: np.asarray(item[()]).T if isinstance(item, h5py.Dataset) else np.empty(0, object)
            for name, item in items.items()
            if item.attrs.get("MATLAB_class") != b"char"
        }


def _refuse_objects(path: Path, name: str) -> UsageError:
    """Make the error for an array of objects: building an object from a file can run code from the file."""
    return UsageError(
        f"{path}: '{name}' is an array of objects, which is refused. Save plain numbers, or give x_key and y_key to "
        "read those two alone."
    )


def read_table(path: Path, spec: DataSpec) -> Contents:
    """Read one table of all domains."""
    named = (spec.domain_column, spec.label_column, spec.validation_column, spec.group_column, spec.split_column)
    roles = list(dict.fromkeys(name for name in named if name))
    words = (*spec.categories, *spec.text)
    columns, notes = read_columns(path, get_form(spec), (*roles, *words), spec.ignore, spec.text)
    empty = {name: find_missing(columns[name]) for name in (spec.domain_column, spec.label_column)}
    if spec.drop_other_labels and (lacking := empty[spec.label_column]).any():
        columns, empty = ({name: v[~lacking] for name, v in some.items()} for some in (columns, empty))
        notes.append(f"{count_things(int(lacking.sum()), 'row')} without a label left out.")
    problems = [
        Problem(f"The column '{name}' has {count_things(int(cells.sum()), 'empty cell')}: fill in every one.")
        for name, cells in empty.items()
        if cells.any()
    ]
    for name in (spec.domain_column, "" if spec.is_regression else spec.label_column, spec.group_column):
        if name and columns[name].dtype.kind == "f" and (np.abs(columns[name]) >= EXACT).any():
            text = "numbers of more than 15 digits, which cannot be told apart: make text of them."
            problems.append(Problem(f"The column '{name}' has {text}"))
    if spec.cuts:
        columns[spec.label_column], classes = cut_labels(columns[spec.label_column], spec)
        spec = replace(spec, classes=classes)
    features = {name: values for name, values in columns.items() if name not in (*roles, *words)}
    x = stack_columns(features, len(columns[spec.label_column]), path.name, problems, may_be_empty=bool(words))
    parts = [x, *(split_words(columns[name]) for name in spec.categories)]
    if spec.text:
        texts = [" ".join(cells) for cells in zip(*(columns[name] for name in spec.text), strict=True)]
        parts.append(encode_text(texts, spec.encode, spec.hash_size, (spec.ngrams[0], spec.ngrams[1])))
    whole = DomainRows(
        np.concatenate(parts, axis=1) if len(parts) > 1 else x,
        columns[spec.label_column],
        columns[spec.validation_column] == 1 if spec.validation_column else None,
        columns[spec.group_column] if spec.group_column else None,
        columns[spec.split_column] if spec.split_column else None,
    )
    rows, missing, left_out = split_by_domain(whole, columns[spec.domain_column], spec, str(path))
    return collect_rows(spec, rows, problems + missing, notes + left_out, x.shape[1])


def get_form(spec: DataSpec) -> TableFormat:
    return TableFormat(spec.separator, spec.na, spec.columns)


def read_columns(
    path: Path, form: TableFormat, roles: Sequence[str] = (), ignore: Sequence[str] = (), text: Sequence[str] = ()
) -> tuple[Arrays, list[str]]:
    """Read the columns of a table that may lack a header, and notes on how it is written. A missing value is NaN among
    numbers and '' among text; true is 1.

    roles: columns that must be there and are no features, so that they may hold dates.   ignore: columns to leave out.
    text: columns whose cells stay text, whatever they look like.
    """
    table = open_table(path, form, may_lack_header=True)
    table.require((*roles, *ignore))
    frame = table.read(but=set(ignore) - set(roles))
    columns: Arrays = {}
    for name, values in zip(frame.names, frame.columns, strict=True):
        # Objects: an array of numpy's own would give every text the room of the longest.
        values = to_words(values) if name in text else parse_truth(parse_column(values))
        values = to_words(values) if name in roles and values.dtype.kind == "M" else values
        if values.dtype == object:
            values = np.array(["" if v is None else v for v in values], dtype=object if name in text else str)
        columns[name] = values
    return columns, list(table.notes)


def stack_columns(
    columns: Mapping[str, NDArray[Any]], rows: int, location: str, problems: list[Problem], may_be_empty: bool = False
) -> Matrix:
    """Return the columns of numbers side by side; columns of text are added to the problems."""
    text = [name for name, values in columns.items() if values.dtype.kind not in "iufb"]
    if text:
        cure = "name them in `categories`, `text` or `ignore`, or make numbers of them"
        problems.append(Problem(f"{location} has columns that are not numbers: {list_some(text)}; {cure}."))
    numbers = [values.astype(np.float32) for name, values in columns.items() if name not in text]
    if not numbers and not may_be_empty:
        problems.append(Problem(f"{location} has no column of features."))
    return np.stack(numbers, axis=1) if numbers else np.empty((rows, 0), np.float32)


def split_words(values: NDArray[Any]) -> Matrix:
    """Return a column of 0 and 1 for each category, in the order of the alphabet; a missing one is 0 in all of them."""
    words, number = np.unique(values.astype(str) if values.dtype.kind != "f" else values, return_inverse=True)
    named = [i for i, word in enumerate(words) if str(word) not in ("", "nan")]
    check_memory(4 * len(number) * len(named), f"A column for each of {len(named)} categories")
    result: Matrix = (number[:, None] == np.array(named, dtype=np.int64)).astype(np.float32)
    return result


def cut_labels(values: NDArray[Any], spec: DataSpec) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Make classes of measurements: class k has those above cut k - 1, up to and including cut k. Return the class of
    each row and the names of all classes."""
    if values.dtype.kind != "f":
        raise UsageError(f"cuts makes classes of numbers, but the column '{spec.label_column}' holds text.")
    cuts = [f"{cut:g}" for cut in spec.cuts]
    between = [f"{low} to {high}" for low, high in pairwise(cuts)]
    names = spec.classes or (f"up to {cuts[0]}", *between, f"above {cuts[-1]}")
    return np.array(names)[np.digitize(values, spec.cuts, right=True)], tuple(names)


def find_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = np.isnan(values) if values.dtype.kind == "f" else values == ""
    return missing


def encode_text(texts: Sequence[str], encode: str, size: int, ngrams: tuple[int, int]) -> Matrix:
    """Return numbers for every text. encode: `hash`, or where to import an encoder from."""
    if encode == "hash":
        return hash_ngrams(texts, size, ngrams)
    encoder = import_function(encode, "encode")
    try:
        returned = encoder(list(texts))
        x = np.asarray(returned.toarray() if hasattr(returned, "toarray") else returned, dtype=np.float32)
    except Exception as error:  # it is the user's code
        raise UsageError(f"The encoder '{encode}' failed ({type(error).__name__}: {error}).") from error
    if x.ndim != 2 or len(x) != len(texts):
        raise UsageError(
            f"The encoder '{encode}' returned shape {list(x.shape)} for {len(texts)} texts: a row of numbers for each "
            "is needed."
        )
    return x


def hash_ngrams(texts: Sequence[str], size: int = 2048, ngrams: tuple[int, int] = (1, 2)) -> Matrix:
    """Mark which of `size` buckets of n-grams of words occur, in a row of length 1 (scikit-learn's hashing).

    Nothing is fitted to the texts, so that nothing of a held-out domain leaks.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    check_memory(4 * len(texts) * size, f"{len(texts)} texts in {size} columns (hash_size)", "Choose fewer columns.")
    hasher = HashingVectorizer(n_features=size, ngram_range=ngrams, binary=True, norm="l2", alternate_sign=False)
    result: Matrix = hasher.transform(texts).astype(np.float32).toarray()
    return result

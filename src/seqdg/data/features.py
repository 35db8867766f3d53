"""Feature files, one per domain (`.mat`, `.npz` or a table), or one `.npz` with `<domain>_x`, `<domain>_y`.

Published layouts that need nothing said: Office-Caltech10 SURF (`fts`, `labels`), VLCS DeCAF6 (`data`, whose last
column is the label), IXMAS dense trajectories (`desc` with a column per video, `labels`). MATLAB files are of version 5
(scipy reads them) or 7.3, which is HDF5 (h5py).
"""

from __future__ import annotations

import glob
import inspect
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError, list_some
from seqdg.data.checks import Problem, find_missing_domains
from seqdg.data.contents import Contents, DomainRows, Matrix, RowsByDomain, collect_rows
from seqdg.data.dataset import DataSpec, ProgressCallback
from seqdg.data.domain_table import get_table_format, read_columns, stack_columns
from seqdg.data.tables.table_files import TableFormat, is_table

ARRAYS = (".mat", ".npz")
X_NAMES = ("x", "fts", "features", "feature", "feats", "feat", "fea", "desc", "data")
Y_NAMES = ("y", "labels", "label", "gnd", "class", "classes", "target", "targets")
LAST_COLUMN = "last-column"
Arrays = dict[str, NDArray[Any]]
OBJECTS = ("cell", "struct", "object", "function", "function_handle", "opaque", "unknown")
HDF5 = b"\x89HDF\r\n\x1a\n"


def recognizes(path: Path) -> bool:
    """Recognize an .npz file, or a folder with feature files at its top or one folder below."""
    if path.is_file():
        return path.suffix.lower() == ".npz"
    return any(is_feature_file(item) for pattern in ("*", "*/*") for item in path.glob(pattern))


def is_feature_file(path: Path) -> bool:
    return path.suffix.lower() in ARRAYS or is_table(path)


def _get_stem(path: Path) -> str:
    """Return the domain that a file is named after: `north` of `north.csv` and of `north.csv.gz`."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def read(path: Path, spec: DataSpec, root: Path, progress: ProgressCallback | None) -> Contents:
    return collect_rows(spec, read_domains(path, spec))


def read_domains(path: Path, spec: DataSpec) -> RowsByDomain:
    """Read the rows of every domain. A file that cannot be read is a problem, and the next one is read all the same."""
    if path.is_file():
        return _read_one_npz(path, spec)
    files = {d: _find_files(path, d, spec.files) for d in spec.domains} if spec.domains else _find_domains(path)
    there = {d for d in files if files[d]}
    used = {file for names in files.values() for file in names}
    there |= {_get_stem(p) for p in path.iterdir() if is_feature_file(p) and p not in used}
    problems = find_missing_domains(list(files), there, str(path))
    if not files:
        problems.append(Problem(f"{path} holds no feature files: expected <domain>.mat, .npz, .csv or .parquet."))
    rows = {}
    for domain, names in files.items():
        parts = []
        for file in names:
            try:
                parts.append(read_file(file, spec.x_key, spec.y_key, get_table_format(spec), spec.is_regression))
            except UsageError as error:
                problems.append(Problem(str(error)))
        if len(parts) == len(names) and parts:
            rows[domain] = _join_parts(domain, parts, problems)
    return RowsByDomain(rows, problems, [])


def read_file(
    path: Path, x_key: str = "", y_key: str = "", form: TableFormat | None = None, numbers: bool = False
) -> DomainRows:
    """Read the rows of one domain. numbers: labels are numbers to predict, which need not be whole."""
    suffix = path.suffix.lower()
    if is_table(path):
        return _read_columns(path, y_key, form)
    # With both keys given nothing else in the file is touched.
    keys = [key for key in (x_key, y_key) if key != LAST_COLUMN] if x_key and y_key else []
    arrays = read_mat(path, keys) if suffix == ".mat" else read_npz(path, keys)
    return DomainRows(*pick_arrays(arrays, x_key, y_key, str(path), numbers))


def read_npz(path: Path, keys: Sequence[str] = ()) -> Arrays:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            absent = [key for key in keys if key not in file.files]
            if absent:
                raise UsageError(f"{path} has no array '{absent[0]}'. It has: {', '.join(file.files)}.")
            return {name: _read_array(path, file, name) for name in keys or file.files}
    except UsageError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        if "pickle" in str(error):
            raise refuse_objects(path, path.name, "a pickle") from error
        raise UsageError(f"{path} cannot be read as an .npz file ({error}): is it whole?") from error


def _read_array(path: Path, file: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(file[name])
    except ValueError as error:
        if "Object arrays" in str(error):
            raise refuse_objects(path, name, "pickled") from error
        raise


def pick_arrays(
    arrays: Arrays, x_key: str, y_key: str, place: str, numbers: bool = False
) -> tuple[Matrix, NDArray[Any]]:
    """Pick the features, with a row per example, and the labels: by their keys, or by usual names and shapes."""
    here = f"It has: {', '.join(f'{n} {list(a.shape)}' for n, a in arrays.items()) or 'nothing'}."
    for key in (x_key, y_key):
        if key not in ("", LAST_COLUMN, *arrays):
            raise UsageError(f"{place} has no array '{key}'. {here}")
    y_key = y_key or next((n for n in arrays if n.lower() in Y_NAMES and arrays[n].ndim < 3), "")
    matrices = [n for n, a in arrays.items() if n != y_key and a.ndim == 2 and a.dtype.kind in "iufb"]
    usual = [n for n in matrices if n.lower() in X_NAMES]
    x_key = x_key or (usual or matrices)[0] if x_key or len(usual) == 1 or len(matrices) == 1 else ""
    if not x_key:
        raise UsageError(f"{place}: which array holds the features? Give x_key. {here}")
    x = arrays[x_key]
    if x.ndim != 2 or x.dtype.kind not in "iufb":
        raise UsageError(f"{place}: '{x_key}' is no matrix of real numbers with a row per example. {here}")
    if y_key in ("", LAST_COLUMN):
        x, y = x[:, :-1], x[:, -1]
        if not y_key and (numbers or not (np.isfinite(y).all() and (y == np.round(y)).all())):
            raise UsageError(f"{place}: which array holds the labels? Give y_key. {here}")
    else:
        y = arrays[y_key].reshape(-1)
    if len(x) != len(y) and x.shape[1] == len(y):
        x = x.T  # a column per example
    if len(x) != len(y):
        raise UsageError(f"{place}: '{x_key}' has {len(x)} rows and '{y_key}' {len(y)} labels.")
    return x.astype(np.float32), y


def _read_columns(path: Path, y_key: str, form: TableFormat | None) -> DomainRows:
    columns = read_columns(path, form=form)
    y_key = y_key if y_key != LAST_COLUMN else list(columns)[-1]
    y_key = y_key or next((n for n in columns if n.lower() in Y_NAMES), list(columns)[-1])
    if y_key not in columns:
        raise UsageError(f"{path} has no column '{y_key}'. It has: {', '.join(columns)}.")
    problems: list[Problem] = []
    x = stack_columns({n: v for n, v in columns.items() if n != y_key}, len(columns[y_key]), str(path), problems)
    if problems:
        raise UsageError(problems[0].text)
    return DomainRows(x, columns[y_key])


def _read_one_npz(path: Path, spec: DataSpec) -> RowsByDomain:
    if path.suffix.lower() != ".npz":
        raise UsageError(f"{path} is one file: features are read from a folder with a file per domain, or one .npz.")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            names = list(file.files)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        return RowsByDomain({}, [Problem(f"{path} cannot be read as an .npz file ({error}).")], [])
    there = [n[:-2] for n in names if n.endswith("_x") and f"{n[:-2]}_y" in names]
    problems = (
        find_missing_domains(spec.domains, there, str(path))
        if spec.domains or there
        else [Problem(f"{path} has no arrays <domain>_x and <domain>_y. It has: {', '.join(names)}.")]
    )
    rows = {}
    for domain in (d for d in spec.domains or there if d in there):
        x_key, y_key, v_key = f"{domain}_x", f"{domain}_y", f"{domain}_is_val"
        try:
            arrays = read_npz(path, [x_key, y_key, *([v_key] if v_key in names else [])])
            x, y = pick_arrays(arrays, x_key, y_key, str(path))
            rows[domain] = DomainRows(x, y, arrays[v_key].reshape(-1).astype(bool) if v_key in names else None)
        except UsageError as error:
            problems.append(Problem(str(error)))
    return RowsByDomain(rows, problems, [])


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


def refuse_objects(path: Path, name: str, kind: str) -> UsageError:
    """Make the error for an array of objects: building an object from a file can run code from the file."""
    what = f"{path}: '{name}' is an array of objects ({kind}), which is refused."
    return UsageError(f"{what} Save plain numbers, or give x_key and y_key to read those two alone.")


def read_mat(path: Path, keys: Sequence[str] = ()) -> Arrays:
    """Read the arrays named by `keys`, or all of them."""
    with path.open("rb") as file:
        head = file.read(520)
    if HDF5 in (head[:8], head[512:520]):
        return _read_73(path, keys)
    return _read_5(path, keys)


def _read_5(path: Path, keys: Sequence[str]) -> Arrays:
    import scipy.io

    try:
        kinds = {name: kind for name, _, kind in scipy.io.whosmat(path)}
        wanted = _select(path, keys, kinds)
        arrays = scipy.io.loadmat(path, variable_names=wanted, **_sparse(scipy.io.loadmat))
    except UsageError:
        raise
    except Exception as error:  # scipy raises many kinds on a broken file
        raise UsageError(f"{path} cannot be read as a MATLAB file ({error}): is it whole?") from error
    return {name: _to_dense(arrays[name]) for name in wanted}


def _sparse(load: Callable[..., Any]) -> dict[str, bool]:
    """Choose, of the two kinds of sparse arrays, the one that stays, where scipy knows both and warns of the change."""
    return {"spmatrix": False} if "spmatrix" in inspect.signature(load).parameters else {}


def _to_dense(array: Any) -> NDArray[Any]:
    return np.asarray(array.toarray() if hasattr(array, "toarray") else array)


def _read_73(path: Path, keys: Sequence[str]) -> Arrays:
    try:
        import h5py
    except ImportError:
        raise UsageError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'seqdg[mat]'.") from None
    try:
        with h5py.File(path, "r") as file:
            kinds = {name: _kind_73(h5py, file[name]) for name in file if not name.startswith("#")}
            kinds = {name: kind for name, kind in kinds.items() if kind != "char"}  # text, kept there as numbers
            # MATLAB writes columns first, so HDF5 shows every array transposed.
            return {name: np.asarray(file[name][()]).T for name in _select(path, keys, kinds)}
    except UsageError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a MATLAB 7.3 file ({error}): is it whole?") from error


def _kind_73(h5py: Any, item: Any) -> str:
    if not isinstance(item, h5py.Dataset):
        return "struct"
    kind = item.attrs.get("MATLAB_class", b"")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    return "cell" if item.dtype.kind not in "iufb" else kind or "double"


def _select(path: Path, keys: Sequence[str], kinds: dict[str, str]) -> list[str]:
    absent = [key for key in keys if key not in kinds]
    if absent:
        raise UsageError(f"{path} has no array '{absent[0]}'. It has: {', '.join(kinds) or 'none'}.")
    wanted = list(keys or kinds)
    for name in wanted:
        if kinds[name] in OBJECTS:
            raise refuse_objects(path, name, kinds[name])
    return wanted

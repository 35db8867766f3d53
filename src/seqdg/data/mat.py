"""MATLAB files, of version 5 (scipy) and 7.3, which is HDF5 (h5py): the arrays of numbers and text in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqdg.base import UsageError

Arrays = dict[str, NDArray[Any]]
OBJECTS = ("cell", "struct", "object", "function", "function_handle", "opaque", "unknown")
HDF5 = b"\x89HDF\r\n\x1a\n"


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

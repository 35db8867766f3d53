"""The code of the user's own algorithms, noted in a run's store: their trials must all be of the same code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seqdg.base import UsageError, count_things
from seqdg.bench.learner import Learner, find_learner
from seqdg.bench.trial import Trial
from seqdg.core import FOREIGN, is_same, list_origins, read_own_code, shorten
from seqdg.results import Store

META = "own_code"


def read_code(name: str, learner: Learner) -> str:
    """Return the code of the user's own classes behind a name: an algorithm, its wrappers, or a learner."""
    return read_own_code(learner.list_classes(name))


def read_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the user's own code behind these names, by part: an algorithm or a learner, and each wrapper. Parts of
    this package are left out, and so is code that cannot be read, as in a plain Python prompt."""
    codes: dict[str, str] = {}
    for name in dict.fromkeys(names):
        first, *wrappers = shorten(name).split("+")
        classes = find_learner(name).list_classes(name)  # of a chain, from the outside in
        codes[first] = read_own_code(classes[len(wrappers) :])
        codes |= {part: read_own_code([kind]) for part, kind in zip(reversed(wrappers), classes, strict=False)}
    return {part: code for part, code in codes.items() if code}


def check_code(store: Store, directory: Path, trials: Sequence[Trial]) -> None:
    """Note the code of every own algorithm and wrapper that is to be trained, and refuse one that has changed since the
    store got trials of it."""
    codes = read_codes(trial.algorithm for trial in trials)
    refuse_changed(store, directory, codes)
    store.set_meta(META, json.dumps({**_read_noted(store), **codes}))


def refuse_changed(store: Store, directory: Path, codes: Mapping[str, str]) -> None:
    """Refuse code that has changed: a table would show the old trials as the new algorithm's."""
    for name, sentence in describe_changes(store, directory, codes).items():
        rename = "class another name" if name.startswith(FOREIGN) else "code another name in @register"
        raise UsageError(
            f"{sentence}: trials of old and new code do not belong in one table. Give the new {rename}, to compare the "
            "two, or give --out another directory."
        )


def describe_changes(store: Store, directory: Path, codes: Mapping[str, str]) -> dict[str, str]:
    """Say of each part of a name whose code is not that of its stored trials that it has changed, without a full stop.

    Trials of all chains with that part count, and those of its other names.
    """
    noted, trials = _read_noted(store), store.count_by_algorithm()
    sentences = {}
    for part in codes:
        for name in _list_names(part):
            count = sum(n for chain, n in trials.items() if name in chain.split("+"))
            if count and name in noted and not is_same(codes[part], noted[name]):
                stored = f"{count_things(count, 'trial')} of it {'was' if count == 1 else 'were'} stored in {directory}"
                sentences[name] = f"The code of {name} has changed since {stored}"
    return sentences


def _list_names(name: str) -> list[str]:
    """List all names of the class that has this one: an algorithm and its sequential form are one class."""
    origins = list_origins()
    return [other for other in origins if origins[other] == origins[name]] if name in origins else [name]


def _read_noted(store: Store) -> dict[str, str]:
    noted: dict[str, str] = json.loads(store.meta(META) or "{}")
    return noted

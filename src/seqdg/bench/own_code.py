"""The code of the user's own algorithms, noted in a run's store: their trials must all be of the same code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seqdg.base.errors import UsageError
from seqdg.base.phrases import count_things
from seqdg.bench.learner import Learner, find_learner
from seqdg.bench.trial import Trial
from seqdg.core.names import FOREIGN, shorten
from seqdg.core.source import is_own, is_same, read_source
from seqdg.results.store import Store

META = "own_code"


def read_code(name: str, learner: Learner) -> str:
    """Return the code of the user's own classes behind a name: an algorithm, its wrappers, or a learner."""
    return "\n".join(read_source(kind) for kind in learner.list_classes(name) if is_own(kind))


def read_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the user's own code behind these names, by short name. Names of this package alone are left out, and so
    is code that cannot be read, as in a plain Python prompt."""
    codes = {shorten(name): read_code(name, find_learner(name)) for name in dict.fromkeys(names)}
    return {name: code for name, code in codes.items() if code}


def check_code(store: Store, directory: Path, trials: Sequence[Trial]) -> None:
    """Note the code of every own algorithm that is to be trained, and refuse one that has changed since the store got
    trials of it."""
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
    """Say of each algorithm whose code is not that of its stored trials that it has changed, without a full stop."""
    noted, counts = _read_noted(store), store.count_by_algorithm()
    changed = [n for n in codes if counts.get(n) and n in noted and not is_same(codes[n], noted[n])]
    return {
        name: f"The code of {name} has changed since {count_things(counts[name], 'trial')} of it "
        f"{'was' if counts[name] == 1 else 'were'} stored in {directory}"
        for name in changed
    }


def _read_noted(store: Store) -> dict[str, str]:
    noted: dict[str, str] = json.loads(store.meta(META) or "{}")
    return noted

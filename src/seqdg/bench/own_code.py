"""The code of the user's own algorithms, noted in a run's store: their trials must all be of the same code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from seqdg.base.errors import UsageError
from seqdg.base.phrases import count_things
from seqdg.bench.learner import Learner, StackLearner, find_learner
from seqdg.bench.trial import Trial
from seqdg.core.registry import build
from seqdg.core.source import is_own, is_same, read_source
from seqdg.core.wrapper import list_layers
from seqdg.results.store import Store

META = "own_code"


def read_code(name: str, learner: Learner) -> str:
    """Return the code of the user's own classes behind a name: an algorithm, its wrappers, or a learner."""
    parts = list_layers(build(name)) if isinstance(learner, StackLearner) else (learner,)
    return "\n".join(read_source(type(part)) for part in parts if is_own(type(part)))


def check_code(store: Store, directory: Path, trials: Sequence[Trial]) -> None:
    """Note the code of every own algorithm that is to be trained, and refuse one that has changed since the store got
    trials of it: a table would show the old trials as the new algorithm's."""
    noted: dict[str, str] = json.loads(store.meta(META) or "{}")
    counts = store.count_by_algorithm()
    for name, place in {trial.short_name: trial.algorithm for trial in trials}.items():
        code = read_code(place, find_learner(place))
        if not code:  # an algorithm of this package, or one whose code cannot be read, as in a plain Python prompt
            continue
        if counts.get(name) and name in noted and not is_same(code, noted[name]):
            stored = f"{count_things(counts[name], 'trial')} of it {'was' if counts[name] == 1 else 'were'} stored"
            raise UsageError(
                f"The code of {name} has changed since {stored} in {directory}: trials of old and new code do not "
                "belong in one table. Give the new code another name in @register, to compare the two, or give --out "
                "another directory."
            )
        noted[name] = code
    store.set_meta(META, json.dumps(noted))

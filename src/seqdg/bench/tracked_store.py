"""A store whose trials are also written to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from seqdg.base import UsageError
from seqdg.results import FAILED, TOOLS, Record, RunningGroup, RunProgress, Store, Tracker, describe_trial, make_table


class TrackedStore:
    """A sink that stores records first, and then hands those that tables show to the trackers.

    What the store has and a tracker lacks, because of a crash or because it was not asked for, is written when a run
    begins. A tracker that fails is left out from then on: training goes on, and the next run makes up for it.
    """

    def __init__(self, store: Store, trackers: Sequence[Tracker], say: Callable[[str], None]) -> None:
        self._store, self._say = store, say
        self._trackers = list(trackers)
        self._known: dict[str, set[str]] = {}
        self._run_all(self._list_known)

    def _list_known(self, tracker: Tracker) -> None:
        self._known[tracker.name] = tracker.list_known()

    def begin(self, planned: Mapping[str, str]) -> None:
        self._store.begin(planned)
        stored = self._store.finished() & planned.keys()
        if any(stored - self._known[tracker.name] for tracker in self._trackers):
            self._track([r for r in self._store.records() if r.key in stored])

    def note(self, run: RunProgress, running: Iterable[RunningGroup]) -> None:
        self._store.note(run, running)

    def add(self, records: Iterable[Record], group: str = "") -> None:
        records = [replace(r, finished=r.finished or time.time()) for r in records]
        self._store.add(records, group)
        self._track(records)

    def show_table(self, keys: Collection[str], rule: str) -> None:
        """Write the table of the trials with these keys."""
        if not self._trackers:
            return
        try:
            table = make_table([r for r in self._store.records() if r.key in keys], rule)
        except UsageError as error:  # nothing is finished, or the rule has nothing to choose by
            self._say(f"note: no table is logged: {error}")
            return
        self._run_all(lambda tracker: tracker.show(table))

    def _track(self, records: Iterable[Record]) -> None:
        if not self._trackers:
            return
        trials = [describe_trial(r) for r in records if r.status != FAILED and r.is_tabled]

        def add(tracker: Tracker) -> None:
            for trial in trials:
                if trial.key not in self._known[tracker.name]:
                    tracker.add(trial)
                    self._known[tracker.name].add(trial.key)

        self._run_all(add)

    def _run_all(self, act: Callable[[Tracker], None]) -> None:
        for tracker in tuple(self._trackers):
            try:
                act(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                self._say(
                    f"note: nothing more is logged to {TOOLS[tracker.name]} ({type(error).__name__}: {error}). The run "
                    "goes on; the same command later logs what is missing."
                )

"""How far a run is, by the time that its groups take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from seqdg.bench.learner import count_work
from seqdg.bench.trial import Group
from seqdg.results import RunningGroup, RunProgress, estimate_seconds_left


class Progress:
    """How far the groups of a run are. Where the seconds of some are unknown, each step of a trial counts alike."""

    def __init__(self, groups: Sequence[Group], costs: Mapping[str, float]) -> None:
        known = all(group.key in costs for group in groups)
        self._cost = {group.key: costs[group.key] if known else count_work(group) for group in groups}
        self._last = {group.key: count_work(group) // len(group.trainings) for group in groups}  # step of each training
        self._steps: dict[str, tuple[Group, int]] = {}
        self._finished = 0.0
        self.trials = sum(len(group.trials) for group in groups)
        self.trials_done = 0
        self.limit: float | None = None  # seconds after which it will be cut; None: it runs to the end
        self.started = self._noted = time.time()

    def note_step(self, group: Group, step: int) -> None:
        """Note that a group has taken so many steps."""
        self._steps[group.key] = group, step

    def finish_group(self, group: Group) -> None:
        """Note that a group is finished."""
        self._steps.pop(group.key, None)
        self._finished += self._cost[group.key]
        self.trials_done += len(group.trials)

    @property
    def share(self) -> float:
        """The part of the work that is done, from 0 to 1."""
        total = sum(self._cost.values())
        if not total:
            return 1.0
        under_way = sum(self._cost[g.key] * step / self._last[g.key] for g, step in self._steps.values())
        return (self._finished + under_way) / total

    @property
    def left(self) -> float | None:
        """Seconds left at the pace so far; None while too little is done to tell."""
        left = estimate_seconds_left(time.time() - self.started, self.share)
        return left if left is None or self.limit is None else min(left, self.limit)

    def list_running(self) -> list[RunningGroup]:
        """List the groups that are being trained."""
        return [
            RunningGroup(g.key, g.trials[0].algorithm, len(g.trials), step, self._last[g.key])
            for g, step in self._steps.values()
        ]

    def summarize(self) -> RunProgress:
        """Return how far the run is now, for the sink."""
        self._noted = time.time()
        return RunProgress(self.started, self._noted, self.share)

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last summary."""
        return time.time() - self._noted

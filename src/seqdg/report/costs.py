"""The cost of a run: time and memory of every algorithm, from its records."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from seqdg.base import UsageError, unknown
from seqdg.report.text import draw_table, escape_markdown, join_lines
from seqdg.results import DONE, FAILED, Record

FORMATS = ("text", "markdown", "csv", "json")
NOTE = (
    "Time is a trial's share of that of the stack that it was trained in, evaluation included; steps are those of the "
    "protocol, of the trials with one domain held out, and stages that come on top count in. Memory is the peak of a "
    "stack."
)


@dataclass(frozen=True)
class AlgorithmCost:
    """The cost of one algorithm on one kind of device."""

    algorithm: str
    device: str
    trainings: int  # with all candidates, and with pairs of domains held out for selection
    seconds: float  # in all
    per_step: float  # milliseconds of one trial
    times: float | None  # of the baseline's step
    stacked: int  # trials in a stack, at most
    memory: int  # bytes, at most


def sum_costs(records: Sequence[Record], baseline: str = "agg") -> list[AlgorithmCost]:
    """Return the cost of each algorithm and device, in the order of the records."""
    by_kind: dict[tuple[str, str], list[Record]] = {}
    for r in records:
        if r.status != FAILED and not r.members:  # mixing trials trains nothing
            by_kind.setdefault((r.algorithm, r.device), []).append(r)
    if not by_kind:
        raise UsageError("The run holds no finished trial yet, so there is no table to print.")
    steps = {kind: _time_per_step(trials) for kind, trials in by_kind.items()}
    costs = []
    for (name, device), trials in by_kind.items():
        base = steps.get((baseline, device))
        costs.append(
            AlgorithmCost(
                algorithm=name,
                device=device,
                trainings=len(trials),
                seconds=sum(r.seconds for r in trials),
                per_step=steps[name, device],
                times=steps[name, device] / base if base else None,
                stacked=max(r.stacked for r in trials),
                memory=max(r.peak_memory for r in trials),
            )
        )
    return costs


def _time_per_step(records: Sequence[Record]) -> float:
    whole = [r for r in records if r.status == DONE] or records  # one that diverged may have ended early
    single = [r for r in whole if r.is_tabled] or whole
    return 1000 * sum(r.seconds for r in single) / sum(int(r.description["protocol"]["steps"]) for r in single)


def describe_totals(records: Sequence[Record]) -> list[str]:
    """Say for each device `4160 trainings in 312 s on NVIDIA H200: 800 per minute.`, and whether several ran at a
    time."""
    ran = [r for r in records if r.status != FAILED and not r.members]
    sentences = []
    for device in dict.fromkeys(r.device for r in ran):
        trials = [r for r in ran if r.device == device]
        shares, clock = _share_trainings(trials), _measure_busy_time(trials)
        summed, count = sum(r.seconds * share for r, share in zip(trials, shares, strict=True)), round(sum(shares))
        pace = f": {60 * count / clock:.{0 if 60 * count > 10 * clock else 2}f} per minute" if clock else ""
        sentences.append(f"{count} trainings in {clock:.0f} s on {device}{pace}.")
        if clock < summed:
            sentences[-1] += f" Several ran at a time: their seconds add up to {summed:.0f}."
    return sentences


def _share_trainings(records: Sequence[Record]) -> list[float]:
    """Return how much of a training each record stands for: averages of one training have a record each.

    The records of a stack have its seconds in common, and it has `stacked` trainings.
    """
    stacks = [(r.device, r.seconds, r.stacked) for r in records]
    averaged = {stack for stack, r in zip(stacks, records, strict=True) if "+" in r.algorithm}
    sizes = Counter(stacks)
    return [min(1.0, stack[2] / sizes[stack]) if stack in averaged else 1.0 for stack in stacks]


def _measure_busy_time(records: Sequence[Record]) -> float:
    """Return the seconds during which at least one stack was at work.

    Packed records say only to a second when they were finished, so where stacks overlap by less than that this is the
    sum of their times.
    """
    shares = _share_trainings(records)
    summed = sum(r.seconds * share for r, share in zip(records, shares, strict=True))
    stacks = sum(share / r.stacked for r, share in zip(records, shares, strict=True))
    if not all(r.finished for r in records):
        return summed
    busy, until = 0.0, 0.0
    for begun, finished in sorted({(r.finished - r.seconds * r.stacked, r.finished) for r in records}):
        busy += max(0.0, finished - max(begun, until))
        until = max(until, finished)
    return busy if summed - busy > stacks else summed


def render_costs(records: Sequence[Record], form: str = "text", baseline: str = "agg") -> str:
    """Return the table of costs as text, Markdown, CSV or JSON."""
    if form not in FORMATS:
        raise unknown("format of the cost table", form, FORMATS)
    costs = sum_costs(records, baseline)
    if form == "json":
        return json.dumps([asdict(s) for s in costs], indent=2) + "\n"
    if form == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, [f.name for f in fields(AlgorithmCost)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(s) for s in costs)
        return out.getvalue()
    head = ["algorithm", "trainings", "seconds", "ms per step", f"times {baseline}", "in a stack", "MiB", "device"]
    rows = [
        [
            join_lines(s.algorithm), str(s.trainings), f"{s.seconds:.1f}", f"{s.per_step:.3g}",
            "-" if s.times is None else f"{s.times:.2f}", str(s.stacked), f"{s.memory / 2**20:.0f}", s.device,
        ]
        for s in costs
    ]  # fmt: skip
    notes = [*describe_totals(records), NOTE]
    if form == "text":
        return "\n".join([*draw_table([head, *rows]), "", *notes]) + "\n"
    rule = ["---", *["---:"] * (len(head) - 2), "---"]
    cells = [[escape_markdown(cell) for cell in row] for row in rows]
    lines = [f"| {' | '.join(line)} |" for line in (head, rule, *cells)]
    return "\n".join([*lines, "", *(f"{note}  " for note in notes)]) + "\n"

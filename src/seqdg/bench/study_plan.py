"""What a study will run, in words: trainings, steps, and what is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from seqdg.bench.study_trials import make_benchmark
from seqdg.results import DONE, Part, Record, Study, collect_records, count_wanted, find_runs, format_duration

TRAININGS = (
    "Trainings: at most so many, as plain and averaged weights share one where the search chooses the same for both."
)
RECORDS = "Records: one for the plain weights of a training and one for each of their averages; done are those in --out"
TIME = (
    "Time left: by the mean of the trainings of the part that are done, where there are some, in as many processes as"
)


def describe_plan(study: Study, parts: Sequence[Part], out: Path | None, data: Path | None, workers: int = 1) -> str:
    """Say of every part how many trainings and steps it takes, how many records are there, and how long the rest
    takes with so many workers, where some are."""
    head = ("part", "trainings", "million steps", "records done", "of", "time left")
    rows, sums = [head], [0, 0.0, 0, 0]
    for part in parts:
        benchmark = make_benchmark(part, data or Path())
        folds = len(part.held_out or benchmark.held_out or benchmark.data.get("domains") or _list_domains(part))
        wanted = count_wanted(part, folds)
        found = {f: collect_records(find_runs(study, part, f, out), "accuracy") for f in part.folders}
        trainings, records = (sum(counts[i] for counts in wanted.values()) for i in (0, 1))
        steps = trainings * (part.steps or benchmark.protocol.steps) / 1e6
        done = sum(len(some) for some in found.values())
        missing = {f: max(0.0, 1 - len(found[f]) / wanted[f][1]) for f in part.folders}  # the share of its records
        left = sum(wanted[f][0] * missing[f] for f in part.folders)  # trainings
        time = _estimate_time(left / max(1, workers), part, [r for some in found.values() for r in some.values()])
        rows.append((part.name, str(trainings), f"{steps:.2f}", str(done), str(records), time))
        sums = [sums[0] + trainings, sums[1] + steps, sums[2] + done, sums[3] + records]
    rows.append(("all", str(sums[0]), f"{sums[1]:.2f}", str(sums[2]), str(sums[3]), ""))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(x.ljust(w) if i in (0, 5) else x.rjust(w) for i, (x, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    published = "" if study.published is None else " and those that are published"
    return "\n".join(
        [
            study.title,
            "",
            *(line.rstrip() for line in lines),
            "",
            TRAININGS,
            f"{RECORDS}{published}.",
            f"{TIME} --workers says: {max(1, workers)}.",
        ]
    )


def _estimate_time(left: float, part: Part, records: Sequence[Record]) -> str:
    """Say how long the trainings that are left to each process take, by the mean of those that are done.

    A training that diverged ended early. One that gives plain and averaged weights has a record of each, with the
    same seconds: the plain one counts, where there are plain ones.
    """
    if not left:
        return "none"
    done = [r for r in records if r.status == DONE]
    plain = [r for r in done if r.algorithm.rpartition("+")[2] not in part.averages]
    return format_duration(left * fmean(r.seconds for r in plain or done)) if done else "unknown"


def _list_domains(part: Part) -> Sequence[Any]:
    """List the domains of a data set whose benchmark does not name them: from the names of its counts, or its rows."""
    benchmark = make_benchmark(part, Path())
    counts = benchmark.data.get("counts")
    return list(counts) if counts else list(benchmark.make_task(None).dataset().domains)

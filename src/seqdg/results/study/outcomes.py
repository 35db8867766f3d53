"""The records of a study's parts: where they lie, and what a comparison reads from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seqdg.results.archive.layout import TRIALS
from seqdg.results.archive.reading import open_run
from seqdg.results.pooling import Place
from seqdg.results.record import FAILED, Evaluation, Record
from seqdg.results.run import RecordSource
from seqdg.results.select import InnerTrials, average_finite, score_candidate, select_outcomes
from seqdg.results.store import FILE as STORE
from seqdg.results.study.file import COSINE, COSINE_FOLDER, SEARCH, Part, Side, Study

CRITERION = "accuracy"  # of all that a study answers
USUAL = "source-val"  # the rule of the answers
RULES = (USUAL, "last", "oracle", "oracle-split")  # others need trials that a study does not have
SOURCES = 6  # up to so many, the accuracy on each source is kept; above, their mean


def find_runs(study: Study, part: Part, folder: str, out: Path | None) -> list[RecordSource]:
    """Open what there is of a part's run directory, and of its published records."""
    places = [] if out is None else [out / part.name / folder]
    places += [] if study.published is None else [study.published / part.name / folder]
    return [open_run(place) for place in places if (place / STORE).is_file() or (place / TRIALS).is_file()]


def collect_records(runs: Iterable[RecordSource], criterion: str | None = None) -> dict[str, Record]:
    """Return the finished trials of all runs by key; the first run that has one gives it."""
    records: dict[str, Record] = {}
    for run in runs:
        for record in run.records(criterion):
            if record.status != FAILED:
                records.setdefault(record.key, record)
        run.close()
    return records


def make_lean(record: Record) -> Record:
    """Keep what tables and curves of a study need: per evaluation the criteria on the held-out domain and their means
    over the sources; the two parts of the held-out rows after the last step alone; no loss curve."""

    def shorten(source: Mapping[str, list[float]]) -> dict[str, list[float]]:
        return {c: v if c == CRITERION and len(v) <= SOURCES else [average_finite(v)] for c, v in source.items()}

    def keep(e: Evaluation, is_last: bool) -> Evaluation:
        lean = replace(e, source=shorten(e.source))
        return lean if is_last else replace(lean, held_out_fifth={}, held_out_rest={})

    last = len(record.history) - 1
    return replace(record, history=[keep(e, i == last) for i, e in enumerate(record.history)], losses=[])


@dataclass(frozen=True)
class Scores:
    """The accuracy of one algorithm in a part, in percent, at the steps that a rule chooses."""

    held_out: dict[Place, float]
    source: dict[Place, float]  # its source validation at its best step, which chooses the best algorithm
    diverged: frozenset[str]  # the held-out domains of trainings that diverged


class PartScores:
    """The scores of a part's algorithms, with `+cosine` after those under that schedule."""

    def __init__(self, study: Study, part: Part, out: Path | None, select: str = USUAL) -> None:
        self.part, self.records = part, dict[str, list[Record]]()
        for folder in part.folders:
            for record in () if folder == SEARCH else _read_trials(study, part, folder, out):
                name = record.algorithm + (f"+{COSINE}" if folder == COSINE_FOLDER else "")
                self.records.setdefault(name, []).append(record)
        self.scores = {name: _score(records, select) for name, records in self.records.items()}


def _score(records: Sequence[Record], select: str) -> Scores:
    outcomes = select_outcomes(records, select, CRITERION)
    known = [o for o in outcomes if o.value is not None]
    return Scores(
        held_out={(o.held_out, o.seed): 100 * o.value for o in known if o.value is not None},
        source={
            (o.held_out, o.seed): 100 * score_candidate(o.record, InnerTrials(()), USUAL, CRITERION) for o in known
        },
        diverged=frozenset(o.held_out for o in outcomes if o.value is None),
    )


def _read_trials(study: Study, part: Part, folder: str, out: Path | None) -> list[Record]:
    """Read the trials of a part, without those of its search."""
    records = collect_records(find_runs(study, part, folder, out), CRITERION)
    return [r for r in records.values() if r.seed < part.trials]


def pair_scores(better: Mapping[Place, float], worse: Mapping[Place, float]) -> dict[Place, float]:
    """Return the differences over the held-out domains and seeds that both sides have."""
    return {place: value - worse[place] for place, value in better.items() if place in worse}


def find_scores(parts: Mapping[tuple[str, str], PartScores], of: str, side: Side) -> Scores | None:
    """Find the scores of a side on a set."""
    part = parts.get((of, side.kind))
    return None if part is None else part.scores.get(side.algorithm)

"""Publish a study: pack the run directories of its parts into the folder that its file names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqdg.base import UsageError
from seqdg.results.archive.layout import EVALUATIONS, TRIALS
from seqdg.results.archive.reading import open_run
from seqdg.results.archive.writing import pack
from seqdg.results.store import FILE as STORE
from seqdg.results.study.file import Part, Study
from seqdg.results.study.outcomes import CRITERION


def publish_parts(study: Study, parts: Sequence[Part], out: Path) -> Iterator[str]:
    """Pack what there is of these parts, and yield a sentence for each file: of criteria, accuracy alone is kept.

    What was published before and is in no run directory stays: a run copies it first.
    """
    if study.published is None:
        raise UsageError(f"{study.path} does not say where its records are published: published = 'FOLDER'.")
    for part in parts:
        for folder in part.folders:
            directory, place = out / part.name / folder, study.published / part.name / folder
            if not (directory / STORE).is_file():
                continue
            run = open_run(directory)
            if run.statuses():
                pack([(directory, run)], place, criteria=[CRITERION])
                size = sum((place / name).stat().st_size for name in (TRIALS, EVALUATIONS)) / 1e6
                yield f"{len(run.statuses())} trials of {part.name} ({folder}) in {place}, {size:.2f} MB."
            run.close()

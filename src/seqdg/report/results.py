"""The results of a run in Python: tables, data frames, tests and the report."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqdg import results as stored
from seqdg.base import UsageError, write_file
from seqdg.report.run_contents import list_draws, read_contents
from seqdg.report.sheet import build_sheet, choose_baseline
from seqdg.report.table import PairedTests, ResultTable

if TYPE_CHECKING:
    from seqdg.report.page import Page


class Results:
    """The results of a run, finished or not.

    A run that goes on is read anew by every call. Only `oracle` and `oracle-split` look at the held-out domain.

    Parameters
    ----------
    path : Path
        The run directory. `Results.open` is the usual way to a run.
    source : RecordSource
        What reads its records.
    trials : sequence of str, optional
        Keys of the trials to show, in order. None: all.

    Examples
    --------
    >>> import tempfile
    >>> import seqdg
    >>> out = tempfile.mkdtemp()
    >>> _ = seqdg.run("rotated-mnist", ["agg"], held_out=["0"], trials=2, steps=5, out=out, progress=False)
    >>> results = seqdg.Results.open(out)
    >>> results.describe_progress()
    '2 done'
    >>> list(results.frame(select="source-val")["seed"])
    [0, 1]
    """

    def __init__(self, path: Path, source: stored.RecordSource, trials: Sequence[str] | None = None) -> None:
        self.path = path
        self._source = source
        self._trials = trials  # keys of those that are shown, in order; None: all

    @classmethod
    def open(cls, directory: str | Path, *others: str | Path) -> Results:
        """Open a run directory, or one that `seqdg pack` wrote; several stand side by side in one table.

        Parameters
        ----------
        directory : str or Path
            The run directory.
        others : str or Path
            More of them.

        Returns
        -------
        Results
            Their results.
        """
        return cls(Path(directory), stored.open_runs([Path(directory), *map(Path, others)]))

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return self._source.benchmark

    def records(self, criterion: str | None = None) -> list[stored.Record]:
        """Return the record of every trial, in the order in which they were planned.

        Parameters
        ----------
        criterion : str, optional
            Read at least what a table of this criterion needs, in less time. None: read all.

        Returns
        -------
        list of Record
            The records.
        """
        records = self._source.records(criterion)
        if self._trials is None:
            return records
        order = {key: i for i, key in enumerate(self._trials)}
        return sorted((r for r in records if r.key in order), key=lambda r: order[r.key])

    def only(self, trials: Sequence[str]) -> Results:
        """Return the results of some trials.

        Parameters
        ----------
        trials : sequence of str
            Keys of the trials, in order.

        Returns
        -------
        Results
            The results of these alone.
        """
        return Results(self.path, self._source, trials)

    def failures(self) -> list[stored.Record]:
        """Return the records of trials that failed; `seqdg status DIR --errors` shows where.

        Returns
        -------
        list of Record
            The records.
        """
        if not self.count_statuses()[stored.FAILED]:
            return []  # most runs: nothing needs to be read
        return [record for record in self.records() if record.status == stored.FAILED]

    def frame(self, select: str | None = None, criterion: str | None = None) -> Any:
        """Return a pandas DataFrame with a row for each trial, evaluation and held-out domain.

        `accuracy` and the other criteria are of the held-out domain; `source_accuracy` and its like are means over the
        validation rows of the sources. A trial that has no evaluation, as it failed or diverged, has one row without
        them. Trials with two domains held out, which serve selection alone, name the other in `also_held_out`, as do
        those of a fixed split with several.

        Parameters
        ----------
        select : str, optional
            A rule such as "source-val". Then there is one row for each algorithm, held-out domain and seed, with the
            settings and the step that the rule selects by the criterion.
        criterion : str, optional
            What the rule selects by. None: accuracy, or the RMSE of numbers.

        Returns
        -------
        pandas.DataFrame
            The rows.
        """
        import pandas  # when a frame is asked for

        rows: list[dict[str, Any]] = []
        if select is None:
            for record in self.records():
                for i in range(len(record.held_out)):
                    evaluations: list[stored.Evaluation | None] = [*record.history] or [None]
                    rows += [_make_row(record, evaluation, i) for evaluation in evaluations]
        else:
            for outcome in stored.select_outcomes(self.records(), select, criterion):
                selected = [e for e in outcome.record.history if e.step == outcome.step and outcome.value is not None]
                evaluation = selected[0] if selected else None
                if evaluation is not None and select == "oracle-split":
                    evaluation = replace(evaluation, held_out=evaluation.held_out_rest)
                rows.append(_make_row(outcome.record, evaluation, outcome.domain_index))
        known = {name for row in rows for name in row}
        return pandas.DataFrame(rows, columns=[name for name in _COLUMNS if name in known])

    def table(
        self,
        select: str = "source-val",
        criterion: str | None = None,
        baseline: str | None = None,
        format: str = "text",
        against: str | None = None,
        spread: str = "stderr",
    ) -> ResultTable:
        """Return the table of means and standard errors over trials.

        Parameters
        ----------
        select : str
            How the step and the settings are chosen: "source-val", "last", "leave-one-out", "domain-val", "oracle" or
            "oracle-split".
        criterion : str, optional
            What is shown. None: accuracy, or the RMSE of numbers.
        baseline : str, optional
            The algorithm that the others are tested against.
        format : str
            Of the printed table: "text", "markdown", "latex", "csv" or "json".
        against : str, optional
            Whose published numbers are set beside these: "paper", or on PACS "domainbed".
        spread : str
            What ± means: "stderr" divides the squares by n - 1 trials, "stderr-ddof0" by n, as DomainBed's tables do.

        Returns
        -------
        ResultTable
            A table that prints itself, also in a notebook.
        """
        criterion = self._choose(criterion)
        with stored.pause_garbage_collection():  # the records are needed to the end
            records = self.records(criterion)
            draws = list_draws(self._source.read_commands())
            sheet = build_sheet(
                records, select, criterion, baseline, against, self.benchmark, spread=spread, draws=draws
            )
            return ResultTable(sheet, format)

    def compare(
        self, baseline: str | None = None, select: str = "source-val", criterion: str | None = None
    ) -> PairedTests:
        """Test every other algorithm against the baseline, paired over seed and held-out domain.

        Parameters
        ----------
        baseline : str, optional
            The algorithm to test against. None: `agg` where it ran, else the first.
        select : str
            How the step and the settings are chosen: "source-val", "last", "leave-one-out", "domain-val", "oracle" or
            "oracle-split".
        criterion : str, optional
            What is shown. None: accuracy, or the RMSE of numbers.

        Returns
        -------
        PairedTests
            The tests, as a table that prints itself.
        """
        criterion = self._choose(criterion)
        outcomes = stored.select_outcomes(self.records(criterion), select, criterion)
        if not outcomes:
            raise UsageError("The run holds no finished trial yet, so there is nothing to compare.")
        baseline = baseline or choose_baseline([o.algorithm for o in outcomes])
        unit = stored.find_unit(criterion, [o.value for o in outcomes])
        return PairedTests(stored.compare_pairs(outcomes, baseline, unit.factor, unit.higher_is_better), unit)

    def report(
        self,
        out: str | Path | None = None,
        select: str = "source-val",
        criterion: str | None = None,
        baseline: str | None = None,
        version: str = "",
    ) -> Path:
        """Write the report, one HTML page that needs no network, and return its path.

        Parameters
        ----------
        out : str or Path, optional
            A file, or a directory for report.html. None: beside the records.
        select : str
            The rule that the page shows at first; others can be chosen on it.
        criterion : str, optional
            The criterion that it shows at first.
        baseline : str, optional
            The algorithm that the others are tested against at first.
        version : str
            Of a page that is written again and again, see `watch_run`.

        Returns
        -------
        Path
            Where the page is.
        """
        path = Path(out) if out is not None else self.path.parent if self.path.is_file() else self.path
        if path.suffix != ".html" or path.is_dir():
            path /= "report.html"
        from seqdg.report.page import render_page  # it and its figures are imported when a report is made

        with stored.pause_garbage_collection():
            page = render_page(self.page(select, criterion, baseline, every_choice=True), version)
        # Names of files need not be text. A browser that loads it meanwhile finds a whole one.
        write_file(path, page.encode(errors="backslashreplace"), " Make room for it, or free its name.")
        return path

    def page(
        self,
        select: str = "source-val",
        criterion: str | None = None,
        baseline: str | None = None,
        every_choice: bool = False,
    ) -> Page:
        """Return the contents of the report: its sections, tables and figures.

        Parameters
        ----------
        select : str
            The rule that the page shows at first.
        criterion : str, optional
            The criterion that it shows at first.
        baseline : str, optional
            The algorithm that the others are tested against at first.
        every_choice : bool
            Whether the contents of every other choice come along.

        Returns
        -------
        Page
            The contents.
        """
        from seqdg.report.page import build_page

        criterion = self._choose(criterion)
        contents = read_contents(self._source, self.path if (self.path / stored.FILE).is_file() else None)
        return build_page(contents, select, criterion, baseline, every_choice)

    def describe_progress(self) -> str:
        """Say how far the run is.

        Returns
        -------
        str
            Such as `12 done, 1 failed`.
        """
        statuses = self.count_statuses()
        return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())) or "no trial yet"

    def count_statuses(self) -> Counter[str]:
        """Count the trials that have a record by their status.

        Returns
        -------
        Counter
            The number of trials that are done, diverged or failed.
        """
        statuses = self._source.statuses()
        keys = statuses if self._trials is None else [key for key in self._trials if key in statuses]
        return Counter(statuses[key] for key in keys)

    def _choose(self, criterion: str | None) -> str:
        """Return the criterion, or accuracy, or the RMSE of numbers, where none is named."""
        return criterion or stored.find_usual_criterion(self._source)

    def close(self) -> None:
        """Close the file of the run."""
        self._source.close()

    def __repr__(self) -> str:
        return f"<Results of {self.benchmark} in {self.path}: {self.describe_progress()}>"

    def _repr_html_(self) -> str:
        if not self.count_statuses().keys() - {stored.FAILED}:
            return f"<p>{escape(repr(self))}</p>"
        return self.table()._repr_html_()


_ABOUT = ("trial", "algorithm", "held_out", "also_held_out", "seed", "lr", "settings", "status", "seconds", "step")
_COLUMNS = (*_ABOUT, *stored.CRITERIA, *(f"source_{name}" for name in stored.CRITERIA))


def _make_row(record: stored.Record, evaluation: stored.Evaluation | None, domain_index: int) -> dict[str, Any]:
    """Return a row of the frame: the value of every criterion on one held-out domain, and its mean over the sources."""
    description = record.description
    row = {
        "trial": record.key,
        "algorithm": record.algorithm,
        "held_out": record.held_out[domain_index],
        "also_held_out": ",".join(d for i, d in enumerate(record.held_out) if i != domain_index),
        "seed": record.seed,
        "lr": description["protocol"].get("lr", math.nan),
        "settings": description.get("settings", {}),
        "status": record.status,
        "seconds": record.seconds,
        "step": None if evaluation is None else evaluation.step,
    }
    if evaluation is not None:
        row |= {name: values[domain_index] for name, values in evaluation.held_out.items()}
        row |= {f"source_{name}": stored.average_finite(values) for name, values in evaluation.source.items()}
    return row


# The report of a run that goes on ------------------------------------------------------------------------------------

PAUSE = 2.0  # seconds between two looks, of the page too


def watch_run(
    directories: Sequence[Path],
    write: Callable[[Results, str], Path],
    on_message: Callable[[str], None],
    pause: float = PAUSE,
) -> Path:
    """Write the report whenever a trial has finished, until no run writes to the directories, or until Ctrl-C.

    A directory that is not there yet, or whose run has not begun to write, is waited for.

    write: writes the page as the version that it is given, and returns its path; the last has none.
    """
    results, version, path = _wait_for_run(directories, on_message, pause), "", None
    try:
        while any(map(stored.is_locked, directories)):
            now = results.describe_progress()
            if now != version:
                # they name what they share when they are opened, and more may be shared by now
                results.close()
                results = Results.open(*directories)
                path, version = write(results, now), now
                _note_version(path, version)
                on_message(f"{path}  {now}")
            time.sleep(pause)
    except KeyboardInterrupt:
        pass
    results.close()
    results = Results.open(*directories)
    last = write(results, "")
    results.close()
    if path is not None:
        _note_version(last, "the last")
        time.sleep(1.2 * pause)  # pages that are open see it once more
        _find_note(last).unlink(missing_ok=True)
    return last


def _wait_for_run(directories: Sequence[Path], on_message: Callable[[str], None], pause: float) -> Results:
    """Open the runs when all of them have begun."""
    has_said = False
    while True:
        try:
            return Results.open(*directories)
        except UsageError:
            if not any(stored.is_locked(d) or not d.exists() for d in directories):
                raise
        if not has_said:
            on_message(f"Waiting for a run to begin in {' and '.join(map(str, directories))}; Ctrl-C ends it.")
            has_said = True
        time.sleep(pause)


def _find_note(page: Path) -> Path:
    return page.with_name(f"{page.name}.version.js")


def _note_version(page: Path, version: str) -> None:
    _find_note(page).write_text(f'seqdgVersion("{version}");\n', encoding="utf-8")

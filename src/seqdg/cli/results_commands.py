"""Commands that show and publish results: table, report, pack, predictions, analyze, import-domainbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from seqdg import base, bench, interop, paper
from seqdg import report as reports
from seqdg import results as stored
from seqdg.cli import options
from seqdg.cli.terminal import quote_command, say


def table(
    directories: list[Path],
    /,
    form: str = "text",
    select: str = "source-val",
    criterion: str | None = None,
    against: str | None = None,
    baseline: str | None = None,
    cost: bool = False,
    spread: str = "stderr",
    settings_out: Path | None = None,
) -> None:
    """Print the table of a run: mean ± standard error over trials, with the best of every held-out domain marked.

    seqdg table runs/rotated-mnist --baseline agg

    Parameters
    ----------
    form : --format text|markdown|latex|csv|json
        Format of the table.
    against : paper|domainbed
        Show published numbers beside these, and how the two differ: the paper's, or those of DomainBed's suite
        (PACS with ResNet-50).
    baseline : ALGORITHM
        Test every other algorithm against this one, paired over seed and domain.
    cost
        Show the time and memory of every algorithm instead, from its records.
    spread : stderr|stderr-ddof0
        What ± means: the standard error over n trials, with n - 1 degrees of freedom, or with n (ddof 0), as
        DomainBed's tables have it.
    settings_out : FOLDER
        Also write the chosen settings, a TOML file for each held-out domain, for `seqdg bench --settings-from`.
    """
    results = reports.Results.open(*directories)
    if cost:
        typer.echo(reports.render_costs(results.records(criterion), form, baseline or "agg"), nl=False)
    else:
        typer.echo(results.table(select, criterion, baseline, form, against, spread))
    if settings_out is not None:
        for path in bench.write_settings(results.records(), settings_out, select, criterion):
            typer.echo(path)
    results.close()


def report(
    directories: list[Path],
    /,
    select: str = "source-val",
    criterion: str | None = None,
    baseline: str | None = None,
    figures: Path | None = None,
    watch: bool = False,
) -> None:
    """Write DIR/report.html: one page with tables, figures, tests and how to reproduce them. It needs no network.

        seqdg report runs/rotated-mnist --figures figures

    What is given here is shown at first. On the page, choose another criterion, rule or baseline, follow an algorithm
    through all figures, sort tables, and save them as CSV or LaTeX.

    Parameters
    ----------
    baseline : ALGORITHM
        The algorithm that others are compared with. Default: agg, if it ran.
    watch
        While a run goes on, write the page anew as trials finish; it reloads itself.
    """
    if watch:
        reports.watch_run(
            directories, lambda results, version: results.report(None, select, criterion, baseline, version), say
        )
    results = reports.Results.open(*directories)
    typer.echo(directories[0] / "report.html" if watch else results.report(None, select, criterion, baseline))
    if figures is not None:
        for path in reports.write_figures(results.page(select, criterion, baseline).figures, figures):
            typer.echo(path)
    results.close()


def pack(
    runs: list[Path],
    /,
    out: Path,
    exact: bool = False,
    criteria: str | None = None,
) -> None:
    """Pack runs into two Parquet files to publish. `table`, `report`, `status` and `rerun` read them.

    So do pandas, polars and DuckDB: a row for each trial, and one for each domain of each evaluation, with every digit.
    The same records give the same bytes. It prints what it leaves out.

        seqdg pack runs/rotated-mnist --out docs/results/rotated-mnist

    Parameters
    ----------
    runs : DIR...
        Run directories of one benchmark, or packed runs.
    out : DIR
        The directory to write trials.parquet and evaluations.parquet in.
    exact
        Keep the full loss curves, also of trials with two domains held out.
    criteria : A,B
        Keep these criteria beside accuracy. Default: all that were measured.
    """
    if out.suffix == ".parquet":
        raise base.UsageError(
            f"A packed run is two files: give --out a directory for them, such as {out.with_suffix('')}."
        )
    opened = [(path, stored.open_run(path)) for path in runs]
    notes = stored.pack(opened, out, exact, options.split_names(criteria))
    files = stored.TRIALS, stored.EVALUATIONS
    count, size = len(stored.open_run(out).statuses()), sum((out / name).stat().st_size for name in files)
    typer.echo(f"{count} trials of {opened[0][1].benchmark} in {out}: {' and '.join(files)}, {size / 1e6:.2f} MB.")
    for note in notes:
        typer.echo(note)


def predictions(
    directory: Path,
    /,
    out: Path,
    step: str = "chosen",
) -> None:
    """Write what every trial predicts for every held-out row, of a run that `seqdg bench --save-predictions` made.

    seqdg predictions runs/rotated-mnist --out predictions.csv

    Parameters
    ----------
    directory : DIR
        A run directory, as given to `seqdg bench --out`.
    out : FILE
        A file that ends in .csv or .parquet.
    step : chosen|last
        The step that source validation chose for a trial, or its last.
    """
    written = stored.write_predictions(directory, out, step)
    typer.echo(f"{written.rows} rows of {base.count_things(written.trials, 'trial')} are in {out}.")
    if written.lacking:
        typer.echo(f"Of {written.lacking} trials no predictions were kept.")


def import_domainbed(
    sweep: Path,
    /,
    out: Path,
    domains: str | None = None,
    allow_partial: bool = False,
) -> None:
    """Read the results of DomainBed, SWAD, MIRO, SAGM or GGA into a run directory, for `table`, `report` and `status`.

    seqdg import-domainbed sweep --out runs/theirs

    seqdg table runs/theirs --select oracle-split --spread stderr-ddof0

    Parameters
    ----------
    sweep : SWEEP
        The --output_dir of a DomainBed sweep, or the train_output of a fork.
    out
        Run directory to write. Of several data sets, one below it for each, by name.
    domains : A,B,C
        Names of the environments in their order, to match those of another run. Default: DomainBed's.
    allow_partial
        Leave out trainings that were cut short.
    """
    names = options.split_names(domains)
    for imported in interop.import_sweep(sweep, out, names, allow_partial, quote_command()):
        typer.echo(interop.describe_import(imported))


def analyze(
    kind: str,
    benchmark: str = "rotated-mnist",
    /,
    algorithms: str | None = None,
    held_out: str | None = None,
    trials: int | None = None,
    steps: int | None = None,
    first_steps: int | None = None,
    seed: int = 0,
    settings: list[str] | None = None,
    domain: str | None = None,
    out: Path | None = None,
    data: Path | None = None,
    device: str = "auto",
    figures: Path | None = None,
) -> None:
    """Analyze what algorithms learn: train them, keep the numbers in the run directory, and print them.

    `seqdg report` shows the pictures of the same directory.

        seqdg analyze alignment --algorithms agg,fo-s-mldg

    Parameters
    ----------
    kind : KIND
        Which analysis, such as invariance, tsne or cost; the documentation lists all.
    held_out : D
        The domain to hold out. Default: the last; for ensemble, each in turn.
    trials
        Number of seeds. Default: one or two, depending on the analysis.
    first_steps : N
        Training steps of the first phase, for invariance. Default: as many as of the second (--steps).
    domain : D
        The domain of interest, for ranks. Default: the first source.
    """
    analysis = reports.find_analysis(kind)
    if analysis is None:
        raise base.unknown("analysis", kind, reports.list_analyses())
    if first_steps is not None and not analysis.has_first_phase:
        raise base.UsageError(f"{kind} has one phase. Give its length with --steps, without --first-steps.")
    chosen = bench.load_benchmark(benchmark)
    directory = out or bench.default_directory(chosen.name)
    stored.make_directory(directory)
    if figures is not None:
        stored.make_directory(figures, "--figures")  # now, not after the training
    executor, device = bench.choose_executor(bench.ExecutorChoice(), device)
    session = bench.Session(chosen.make_task(data), device)
    base.prepare_process()
    with stored.lock_directory(directory), _count_steps(f"{kind} on {chosen.name}") as on_progress:
        store = stored.Store.create(directory, chosen.name)
        study = paper.Study(
            chosen, session, options.split_names(algorithms) or analysis.algorithms,
            held_out or session.task.dataset().domains[-1],
            analysis.trials if trials is None else trials, seed, analysis.steps if steps is None else steps,
            settings or (), first_steps=first_steps, domain=domain,
            everywhere=analysis.everywhere and held_out is None, executor=executor, on_progress=on_progress,
        )  # fmt: skip
        payload = {
            "of": {**study.describe(), "domain": domain},
            "numbers": analysis.compute(study),
            "command": quote_command(),
        }
        store.add_analysis(kind, payload)
        store.close()
    section = reports.show_analysis(kind, payload)
    typer.echo(_format_section(section), nl=False)
    say(f"The numbers are kept. `seqdg report {directory}` shows the picture.")
    if figures is not None:
        for path in reports.write_figures(section.figures, figures):
            typer.echo(path)


@contextmanager
def _count_steps(label: str) -> Iterator[Callable[[int], None]]:
    """Count steps on a terminal; yield a function to call with the number of new ones."""
    from rich.console import Console

    taken = 0
    with Console(stderr=True).status(label) as status:

        def on_progress(steps: int) -> None:
            nonlocal taken
            taken += steps
            status.update(f"{label}: {taken} steps")

        yield on_progress


def _format_section(section: reports.Section) -> str:
    """Format its sentences, then its tables, for a terminal."""
    lines = [section.title, *section.text]
    for table in [*section.tables, *(t for t in section.aside if t.caption != reports.HOW)]:
        grid = [list(table.head), *([name, *cells] for name, cells in table.rows)]
        lines += ["", table.caption]
        lines += reports.draw_table([[cell.removeprefix("*") for cell in line] for line in grid])
    return "\n".join(lines) + "\n"

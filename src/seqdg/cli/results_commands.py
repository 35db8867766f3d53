"""Commands that show and check what there is: table, report, pack, predictions, import-domainbed, list, data, check."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from seqdg import base, core, estimator, interop
from seqdg import bench as benchmarks
from seqdg import data as datasets
from seqdg import report as reports
from seqdg import results as stored
from seqdg.cli import options
from seqdg.cli.fit_commands import report_model
from seqdg.cli.terminal import quote_command, say

WRAPPED = ("agg", "fo-s-mldg", "metareg")  # what a wrapper is checked around: plain, sequential, of two stages
Entry = dict[str, Any]


def table(
    directories: list[Path],
    /,
    form: Annotated[str, "--format"] = "text",
    select: str = "source-val",
    criterion: str | None = None,
    against: str | None = None,
    baseline: str | None = None,
    cost: bool = False,
    spread: str = "stderr",
    settings_out: Path | None = None,
    summary: bool = False,
    force: bool = False,
) -> None:
    """Print the table of a run: mean ± standard error.

    The best of every held-out domain is marked.

        seqdg table runs/rotated-mnist --baseline agg

    For several runs it prints one table: algorithms × data sets with their average, or, where they hold out the same
    domains, the algorithms of all of them.

        seqdg table runs/pacs runs/vlcs runs/office-home --format latex

    Parameters
    ----------
    select : RULE
        How the settings and the step that count are chosen: source-val, last, leave-one-out, domain-val, oracle or
        oracle-split, as in `seqdg bench`. For several data sets, one for all or one for each run, with commas.
    criterion : NAME
        Which metric to show, such as accuracy, macro_f1 or log_loss. For several data sets, one for all or one for each
        run, with commas. Default: accuracy; for regression, rmse.
    form : text|markdown|latex|csv|json
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
    summary
        Print algorithms × data sets also where runs of several benchmarks hold out domains of the same names.
    force
        Replace files of settings that lie at --settings-out already.
    """
    if summary or (len(directories) > 1 and reports.are_several_sets(directories)):
        _refuse_for_summary(against=against, cost=cost, settings_out=settings_out)
        sheet = reports.summarize_runs(directories, select, criterion, baseline, spread)
        typer.echo(reports.render(sheet, form), nl=False)
        return
    results = reports.Results.open(*directories)
    if cost:
        typer.echo(reports.render_costs(results.records(criterion), form, baseline or "agg"), nl=False)
    else:
        typer.echo(results.table(select, criterion, baseline, form, against, spread))
    if settings_out is not None:
        for path in benchmarks.write_settings(results.records(), settings_out, select, criterion, force):
            typer.echo(path)
    results.close()


def _refuse_for_summary(**options: object) -> None:
    for name, value in options.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise base.UsageError(
                f"{option} is of one data set, and these runs are of several: leave it out, or name runs of one."
            )


def report(
    directories: list[Path],
    /,
    select: str = "source-val",
    criterion: str | None = None,
    baseline: str | None = None,
    figures: Path | None = None,
    watch: bool = False,
    data: Path | None = None,
) -> None:
    """Write the report of a run or of a model: one interactive page.

    DIR/report.html has tables, figures, tests and how to reproduce them. It needs no network.

        seqdg report runs/rotated-mnist --figures figures

        seqdg report model

    The page of a model has its candidates by domain, what to expect on the next domain, errors by class and
    calibration.

    The options set what is shown first. On the page, choose another criterion, rule or baseline, follow an algorithm
    through all figures, sort tables, and save them as CSV or LaTeX.

    For runs of several data sets it writes summary.html beside the first directory: algorithms × data sets, and the
    table of each.

    Parameters
    ----------
    baseline : ALGORITHM
        The algorithm that others are compared with. Default: agg, if it ran.
    watch
        While a run goes on, rewrite the page as trials finish; it reloads itself.
    data : TABLE
        For a model: the table it was fitted on, to measure which columns transfer.
    """
    if any((directory / "model.json").exists() for directory in directories):
        if len(directories) > 1:
            raise base.UsageError("A report is of one model or of runs, and several are named with a model among them.")
        if criterion or baseline or figures or watch or select != "source-val":
            raise base.UsageError(f"{directories[0]} is a model: its report has no options but --data.")
        typer.echo(report_model(directories[0], data))
        return
    if data is not None:
        raise base.UsageError("--data is of the report of a model: leave it out.")
    if len(directories) > 1 and not watch and reports.are_several_sets(directories):
        _refuse_for_summary(figures=figures)
        sheet = reports.summarize_runs(directories, select, criterion, baseline)
        typer.echo(reports.write_summary_page(directories, sheet))
        return
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
    force: bool = False,
) -> None:
    """Pack runs into two Parquet files to publish.

    `seqdg table`, `report`, `status` and `rerun` read them. So do pandas, polars and DuckDB: a row for each trial, and
    one for each domain of each evaluation, with every digit. The same records give the same bytes. It prints what it
    leaves out.

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
    base.check_output(out, force, [stored.TRIALS])
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
    force: bool = False,
) -> None:
    """Write what every trial predicted for held-out rows.

    The run is one that `seqdg bench --save-predictions` made.

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
    base.check_output(out, force)
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
    """Read a sweep of DomainBed, or of a fork, as a run.

    `seqdg table`, `report` and `status` read the run. The forks are SWAD, MIRO, SAGM and GGA.

        seqdg import-domainbed sweep --out runs/theirs
        seqdg table runs/theirs --select oracle-split --spread stderr-ddof0

    Parameters
    ----------
    sweep : SWEEP
        The --output_dir of a DomainBed sweep, or the train_output of a fork.
    out
        Run directory to write. For several data sets, one below it for each, by name.
    domains : A,B,C
        Names of the environments in their order, to match those of another run. Default: DomainBed's.
    allow_partial
        Leave out trainings that were cut short.
    """
    names = options.split_names(domains)
    for imported in interop.import_sweep(sweep, out, names, allow_partial, quote_command()):
        typer.echo(interop.describe_import(imported))


def list_names(
    kind: str | None = None,
    /,
    as_json: options.AsJson = False,
    domainbed: Path | None = None,
) -> None:
    """List algorithms, wrappers, benchmarks or data sets.

    Parameters
    ----------
    kind : [algorithms|wrappers|benchmarks|datasets]
        What to list. Default: how many there are.
    """
    base.set_checkout(base.DOMAINBED, domainbed)
    # What is not ours can be known by importing it alone.
    is_plain = domainbed is None and not entry_points(group=base.ENTRY_POINTS)
    catalog = read_catalog() if is_plain else build_catalog()
    kinds = ("algorithms", "wrappers", "benchmarks", "datasets")
    if kind is None:
        counts = {name: len(catalog[name]) for name in kinds}
        lines = [f"{count:>4} {name:<10}  seqdg list {name}" for name, count in counts.items()]
        typer.echo(json.dumps(counts, indent=2) if as_json else "\n".join(lines))
        return
    if kind not in kinds:
        raise base.unknown("list", kind, kinds)
    entries = catalog[kind]
    if domainbed is not None and kind == "algorithms":
        entries += interop.describe_classes()
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
    elif kind == "datasets":
        typer.echo("\n\n".join(map(_format_dataset, entries)))
    else:
        _print_titles(entries)
        if kind == "algorithms":
            typer.echo("\nWrappers, each around any algorithm (agg+ema, fo-s-mldg+mixup+sma), in this order:\n")
            _print_titles(catalog["wrappers"])
            typer.echo(
                "\nAround those that are no neural network (logistic+combat), which then predict the rows of a\n"
                "domain together:\n"
            )
            _print_titles(catalog["harmonizations"])


def build_catalog() -> dict[str, list[Any]]:
    """Return what `list` lists, from the code and the benchmarks' files."""
    return {
        "files": _list_source_files(),
        "algorithms": _list_algorithms(),
        "wrappers": _list_wrappers(),
        "harmonizations": [{"name": f"+{name}", "title": text} for name, text in benchmarks.HARMONIZATIONS.items()],
        "benchmarks": _list_benchmarks(),
        "datasets": _list_datasets(),
    }


def read_catalog() -> dict[str, list[Any]]:
    """Return the same as scripts/make_docs.py has written it, unless files were added since: that imports no torch."""
    text = (files("seqdg") / "cli" / "catalog.json").read_text(encoding="utf-8")
    catalog: dict[str, list[Any]] = json.loads(text)
    return catalog if catalog["files"] == _list_source_files() else build_catalog()


def _list_source_files() -> list[str]:
    """List the files that algorithms and benchmarks are in."""
    folders = [files("seqdg") / name for name in ("algorithms", "benchmarks")]
    return sorted(file.name for folder in folders for file in folder.iterdir() if file.name.endswith((".py", ".toml")))


def _print_titles(entries: list[Entry]) -> None:
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        typer.echo(f"{entry['name']:<{width}}  {entry['title']}")


def _list_algorithms() -> list[Entry]:
    entries: list[Entry] = []
    algorithms = {name: core.build(name) for name in core.list_algorithms()}
    named = {type(algorithm) for algorithm in algorithms.values()}  # a chain whose base has no name has its own title
    for name, algorithm in algorithms.items():
        title = base.read_title(type(core.find_core(algorithm)))
        if isinstance(algorithm, core.Sequential) and type(algorithm.base) in named:
            title = f"Sequential: {title}"
        entries.append({"name": name, "title": title, "settings": core.format_settings(algorithm)})
    for name in benchmarks.list_learners():
        learner = benchmarks.find_learner(name)
        settings = learner.settings if isinstance(learner, benchmarks.ArrayLearner) else {}
        texts = {setting: core.format_value(value) for setting, value in settings.items()}
        entries.append(
            {"name": name, "title": f"No neural network: {base.read_title(type(learner))}", "settings": texts}
        )
    return entries


def _list_wrappers() -> list[Entry]:
    kinds = {name: core.find_wrapper(name) for name in core.list_wrappers()}
    return [
        {"name": f"+{name}", "title": base.read_title(kind), "settings": core.format_settings(kind(core.Algorithm()))}
        for name, kind in kinds.items()
    ]


def _list_benchmarks() -> list[Entry]:
    loaded = map(benchmarks.load_benchmark, benchmarks.list_benchmarks())
    return [{"name": b.name, "title": b.title, "source": b.source} for b in loaded]


def _list_datasets() -> list[Entry]:
    """List the data of every benchmark; data without a path comes with the package."""
    entries: list[Entry] = []
    for name in benchmarks.list_benchmarks():
        table = benchmarks.load_benchmark(name).data
        entry: Entry = {"name": name, "format": "bundled", "path": [], "get": "comes with seqdg"}
        if table["format"] in datasets.BUNDLED:
            data = datasets.load_bundled(table)
            entry["counts"] = {domain: len(data.rows(domain)) for domain in data.domains}
            entry |= {"domains": data.domains, "classes": data.classes, "class_count": len(data.classes)}
        else:
            spec = datasets.DataSpec.from_table(name, table)
            entry |= {"format": spec.format, "path": spec.path, "get": spec.get, "counts": spec.counts}
            entry |= {"domains": spec.domains or list(spec.counts), "classes": spec.classes}
            entry["class_count"] = spec.class_count or len(spec.classes)
        entries.append(entry)
    return entries


def _format_dataset(entry: Entry) -> str:
    counts = entry["counts"]
    domains = ", ".join(f"{name} ({counts[name]})" if name in counts else name for name in entry["domains"])
    classes = f": {', '.join(entry['classes'])}" if entry["classes"] else ""
    lines = [
        f"{entry['name']}: {entry['format']}",
        f"  {len(entry['domains'])} domains: {domains}" if domains else "  domains: as the data name them",
        f"  {entry['class_count']} classes{classes}" if entry["class_count"] else "  regression",
        *([f"  below --data DIR: {', or '.join(entry['path'])}"] if entry["path"] else []),
        f"  from: {entry['get']}",
    ]
    return "\n".join(lines)


def show(model: Path, /, as_json: options.AsJson = False) -> None:
    """Show a model's card: what to expect, its data, its choice.

        seqdg show model
        seqdg show fo-s-mldg

    It also shows the settings of an algorithm or wrapper, and what a benchmark reads.

    Parameters
    ----------
    model : MODEL|NAME
        A directory that `seqdg fit` wrote, or a name from `seqdg list`.
    """
    if not model.exists() and (text := _describe_entry(str(model), as_json)):
        typer.echo(text)
        return
    description = estimator.read_description(model)
    estimator.check_files(model, description)
    if as_json:
        typer.echo(json.dumps(description, indent=1))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    text, console = estimator.render_card(description), Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        typer.echo(text, nl=False)


def _describe_entry(name: str, as_json: bool) -> str:
    """Return what `list` knows of a name, or nothing where it knows none."""
    catalog = read_catalog()
    kinds = ("algorithms", "wrappers", "benchmarks", "datasets")
    known = [entry for kind in kinds for entry in catalog[kind] if entry["name"].removeprefix("+") == name.lstrip("+")]
    if not known:
        return ""
    entry: Entry = {key: value for part in reversed(known) for key, value in part.items()}
    if as_json:
        return json.dumps(entry, indent=2)
    if "format" in entry:
        data = "" if entry["format"] == "bundled" else " --data DIR"
        return f"{entry['title']}\n\n{_format_dataset(entry)}\n\nNext: seqdg bench {name}{data}"
    lines = [f"{entry['name']}: {entry['title']}"]
    if settings := entry["settings"]:
        width = max(map(len, settings))
        lines += ["", "Settings:", *(f"  {setting:<{width}}  {value}" for setting, value in settings.items())]
    in_chain = name.lstrip("+") if not entry["name"].startswith("+") else f"agg{entry['name']}"
    change = f" --set {in_chain}.{next(iter(settings))}=VALUE" if settings else ""
    compared = ",".join(dict.fromkeys(["agg", in_chain]))
    return "\n".join([*lines, "", f"Next: seqdg bench --algorithms {compared}{change}"])


def fetch(name: str, /, data: Path | None = None) -> None:
    """Say what a known data set needs, or download it.

        seqdg data parkinsons --data ~/data

    Without --data it says what must lie where. With --data it downloads what a licence and a public address allow, goes
    on where an earlier download stopped, and checks the data, as `seqdg check` does.

    Parameters
    ----------
    name : NAME
        A data set from `seqdg list datasets`.
    """
    entries = {entry["name"]: entry for entry in read_catalog()["datasets"]}
    if name not in entries:
        raise base.unknown("data set", name, entries)
    entry, download = entries[name], datasets.DOWNLOADS.get(name)
    if entry["format"] == "bundled":
        typer.echo(f"{_format_dataset(entry)}\n\nNothing to get. Next: seqdg bench {name}")
        return
    if data is None:
        how = f"`seqdg data {name} --data DIR` "
        how += f"downloads {download.file} ({download.licence}) and checks it." if download else "checks your copy."
        typer.echo(f"{_format_dataset(entry)}\n\n{how}")
        return
    paths = [path for path in entry["path"] if path != "."]
    if not any((data / path).exists() for path in paths):
        if download is None:
            raise base.UsageError(
                f"{data} has no {' or '.join(paths)}, and seqdg does not download {name}. Get it from {entry['get']}."
            )
        say(f"Downloading {download.address} to {data}")
        with base.count_files("downloading") as on_progress:
            datasets.fetch_data(download, data, on_progress)
    _check_benchmark(benchmarks.load_benchmark(name), data, allow_partial=False)
    typer.echo(f"Next: seqdg bench {name} --data {data}")


def check(
    name: str,
    /,
    data: Path | None = None,
    allow_partial: bool = False,
    benchmark: str | None = None,
    net: str | None = None,
    settings: options.Settings = None,
    *,
    table: options.TableOptions,
) -> None:
    """Check a table, the data of a benchmark, or an algorithm.

    A table: show what each column holds as `seqdg fit` reads it, with --label and --domain also the counts.

        seqdg check patients.csv --label ill --domain hospital

    Data on disk: show domains, classes and counts beside the published ones, and every problem.

        seqdg check pacs-lite0 --data ~/data

    An algorithm or a wrapper: does it keep the contract that training relies on?

        seqdg check ./pull.py:pull
        seqdg check fo-s-mldg+./mine.py:mine

    Parameters
    ----------
    benchmark : BENCHMARK
        Check the algorithm with the rows and the network of this benchmark, by name or by its file.
    settings : net.SETTING=VALUE
        A setting of that network. May be repeated.
    name : NAME
        A table, such as a .csv file; a benchmark from `seqdg list benchmarks`, or your own .toml file; or an algorithm
        from `seqdg list algorithms`, or your own, as module:name or file.py:name.
    """
    if datasets.is_table(Path(name)):
        arguments = table.parse()
        ignore = (*arguments.pop("ignore"), *arguments.pop("ids"))
        typer.echo(datasets.check_table(Path(name), ignore=ignore, **arguments))
        return
    table.refuse(name)
    if _is_algorithm(name):
        task = (
            None
            if benchmark is None
            else benchmarks.load_benchmark(benchmark).with_net(net, settings or ()).make_task(data)
        )
        _check_algorithm(name, task)
    elif name.endswith(".toml") or name in benchmarks.list_benchmarks():
        _check_benchmark(benchmarks.load_benchmark(name), data, allow_partial)
    else:
        near = base.find_similar(name, (*benchmarks.list_benchmarks(), *core.list_algorithms()))
        hint = f"Did you mean '{near}'? " if near is not None else ""
        raise base.UsageError(
            f"There is no table, benchmark or algorithm '{name}'. {hint}`seqdg list benchmarks` and `seqdg list "
            f"algorithms` show what there is; an algorithm of your own is FILE.py:{name}."
        )


def _check_benchmark(benchmark: benchmarks.Benchmark, data: Path | None, allow_partial: bool) -> None:
    """Check the data of a benchmark; exit with code 2 where they have a problem."""
    if benchmark.data.get("format") in datasets.BUNDLED:
        dataset = datasets.load_bundled(benchmark.data)
        counts = ", ".join(f"{name} {len(dataset.rows(name))}" for name in dataset.domains)
        _check_domains_per_step(benchmark, len(dataset.domains) - 1)
        typer.echo(f"{benchmark.name} comes with seqdg: {len(dataset.classes)} classes; rows by domain: {counts}.")
        return
    spec = datasets.DataSpec.from_table(benchmark.name, benchmark.data)
    if data is None:
        raise base.UsageError(f"Give --data the folder that holds {' or '.join(spec.path)}.")
    with base.count_files("reading images") as on_progress:
        outcome = datasets.check_dataset(spec, data, allow_partial, on_progress, benchmark.held_out_in_turn)
    split = _describe_split(benchmark, data, allow_partial) if outcome.ok else ""
    if outcome.ok and not split:  # every domain is held out in turn
        _check_domains_per_step(benchmark, len(outcome.contents.domains) - 1)
    typer.echo(split + outcome.format())
    if not outcome.ok:
        raise typer.Exit(2)


def _describe_split(benchmark: benchmarks.Benchmark, data: Path, allow_partial: bool) -> str:
    """Say what a fixed split trains on, chooses by and tests; raise a UsageError where it makes no sense."""
    if benchmark.held_out_in_turn != () and not benchmark.data.get("split_column"):
        return ""
    fixed = benchmark.fix_split(benchmark.make_task(data, allow_partial).dataset())
    parts = {
        "train": fixed.protocol.train_domains,
        "validation": fixed.protocol.validation_domains,
        "test": fixed.test_domains,
    }
    return f"fixed split: {'; '.join(f'{part} {base.list_some(names)}' for part, names in parts.items() if names)}\n"


def _check_domains_per_step(benchmark: benchmarks.Benchmark, sources: int) -> None:
    """Raise a UsageError where a step of the benchmark, or of one of its algorithms, is to meet too many domains."""
    steps = {"A step": benchmark.protocol.domains_per_step}
    steps |= {f"A step of {name}": table.get("domains_per_step", 0) for name, table in benchmark.tables.items()}
    for step, domains in steps.items():
        benchmarks.check_domains_per_step(domains, sources, step, benchmark.name)


def _is_algorithm(name: str) -> bool:
    """Whether the name is that of a registered algorithm or wrapper, of a chain, or of a file to import one from."""
    known = (*core.list_algorithms(), *core.list_wrappers())
    return not name.endswith(".toml") and (":" in name or "+" in name or name.endswith(".py") or name in known)


def _check_algorithm(name: str, task: benchmarks.Task | None) -> None:
    """Check an algorithm against the contract, with its settings as they are: on small networks, or on a task's."""
    from seqdg import testing  # which imports torch

    short = core.shorten(name)
    if not isinstance(benchmarks.find_learner(name), benchmarks.StackLearner):
        raise base.UsageError(
            f"{short} is a learner, and the contract is for algorithms. `seqdg bench --algorithms {name}` runs it."
        )
    chains = [f"{inner}+{name}" for inner in WRAPPED] if short in core.list_wrappers() else [name]
    net, rows, where = None, None, "each without and with BatchNorm"
    if task is not None:
        net, examples, classes = benchmarks.draw_examples(task)
        rows, where = testing.Rows(examples, classes), f"each with the network and rows of {task.name}"
    for chain in chains:
        try:
            testing.check_algorithm(core.build(chain), net, rows)
        except testing.ContractError as error:
            raise base.UsageError(str(error)) from None
        typer.echo(f"{core.shorten(chain)} keeps the contract: {len(testing.CHECKS)} checks, {where}.")

"""Commands that say what there is, and whether it is as it should be: list, check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from seqdg import base, core, interop
from seqdg import bench as benchmarks
from seqdg import data as datasets
from seqdg.cli import options

WRAPPED = ("agg", "fo-s-mldg", "metareg")  # what a wrapper is checked around: plain, sequential, of two stages
Entry = dict[str, Any]


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[algorithms|wrappers|benchmarks|datasets]", help="What to list. Default: how many there are."
        ),
    ] = None,
    as_json: options.AsJson = False,
    domainbed: options.DomainBed = None,
) -> None:
    """List the algorithms, the wrappers around them (`agg+ema`), the benchmarks or the data sets to choose from."""
    base.set_checkout(base.DOMAINBED, domainbed)
    kinds: dict[str, Callable[[], list[Entry]]] = {
        "algorithms": _list_algorithms,
        "wrappers": _list_wrappers,
        "benchmarks": _list_benchmarks,
        "datasets": _list_datasets,
    }
    if kind is None:
        counts = {name: len(list_entries()) for name, list_entries in kinds.items()}
        lines = [f"{count:>4} {name:<10}  seqdg list {name}" for name, count in counts.items()]
        typer.echo(json.dumps(counts, indent=2) if as_json else "\n".join(lines))
        return
    if kind not in kinds:
        raise base.unknown("list", kind, kinds)
    entries = kinds[kind]()
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
            _print_titles(_list_wrappers())


def _print_titles(entries: list[Entry]) -> None:
    width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        typer.echo(f"{entry['name']:<{width}}  {entry['title']}")


def _read_title(kind: type) -> str:
    """Return the first paragraph of a docstring, in one line."""
    return " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())


def _list_algorithms() -> list[Entry]:
    entries: list[Entry] = []
    algorithms = {name: core.build(name) for name in core.list_algorithms()}
    named = {type(algorithm) for algorithm in algorithms.values()}  # a chain whose base has no name has its own title
    for name, algorithm in algorithms.items():
        title = _read_title(type(core.find_core(algorithm)))
        if isinstance(algorithm, core.Sequential) and type(algorithm.base) in named:
            title = f"Sequential: {title}"
        entries.append({"name": name, "title": title, "settings": core.format_settings(algorithm)})
    for name in benchmarks.list_learners():
        learner = benchmarks.find_learner(name)
        settings = learner.settings if isinstance(learner, benchmarks.ArrayLearner) else {}
        texts = {setting: core.format_value(value) for setting, value in settings.items()}
        entries.append({"name": name, "title": f"No neural network: {_read_title(type(learner))}", "settings": texts})
    return entries


def _list_wrappers() -> list[Entry]:
    kinds = {name: core.find_wrapper(name) for name in core.list_wrappers()}
    return [
        {"name": f"+{name}", "title": _read_title(kind), "settings": core.format_settings(kind(core.Algorithm()))}
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
            data = datasets.BUNDLED[table["format"]]()
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
        f"  {entry['class_count']} classes{classes}" if entry["class_count"] else "  a number to predict",
        *([f"  below --data DIR: {', or '.join(entry['path'])}"] if entry["path"] else []),
        f"  from: {entry['get']}",
    ]
    return "\n".join(lines)


@options.takes
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A table, such as a .csv file; a benchmark from `seqdg list benchmarks`, or your own .toml file; or "
            "an algorithm from `seqdg list algorithms`, or your own, as module:name or file.py:name.",
        ),
    ],
    data: options.Data = None,
    allow_partial: options.AllowPartial = False,
    *,
    table: options.TableOptions,
) -> None:
    """Check a table: show what each column holds as `seqdg fit` reads it, with --label and --domain also the counts.

        seqdg check patients.csv --label ill --domain hospital

    Check data on disk: show domains, classes and counts beside the published ones, and every problem.

        seqdg check pacs-lite0 --data ~/data

    Check an algorithm or a wrapper: does it keep the contract that training relies on?

        seqdg check ./pull.py:pull

        seqdg check fo-s-mldg+./mine.py:mine
    """
    if datasets.is_table(Path(name)):
        arguments = table.parse()
        ignore = (*arguments.pop("ignore"), *arguments.pop("ids"))
        typer.echo(datasets.check_table(Path(name), ignore=ignore, **arguments))
        return
    table.refuse(name)
    if _is_algorithm(name):
        _check_algorithm(name)
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
        dataset = datasets.BUNDLED[benchmark.data["format"]]()
        counts = ", ".join(f"{name} {len(dataset.rows(name))}" for name in dataset.domains)
        _check_domains_per_step(benchmark, len(dataset.domains) - 1)
        typer.echo(f"{benchmark.name} comes with seqdg: {len(dataset.classes)} classes; rows by domain: {counts}.")
        return
    spec = datasets.DataSpec.from_table(benchmark.name, benchmark.data)
    if data is None:
        raise base.UsageError(f"Give --data the folder that holds {' or '.join(spec.path)}.")
    with benchmarks.count_files("reading images") as progress:
        outcome = datasets.check_dataset(spec, data, allow_partial, progress, benchmark.held_out_in_turn)
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


def _check_algorithm(name: str) -> None:
    """Check an algorithm against the contract, with its settings as they are."""
    from seqdg import testing  # which imports torch

    short = core.shorten(name)
    if not isinstance(benchmarks.find_learner(name), benchmarks.StackLearner):
        raise base.UsageError(
            f"{short} is a learner, and the contract is for algorithms. `seqdg bench --algorithms {name}` runs it."
        )
    chains = [f"{inner}+{name}" for inner in WRAPPED] if short in core.list_wrappers() else [name]
    for chain in chains:
        try:
            testing.check_algorithm(core.build(chain))
        except testing.ContractError as error:
            raise base.UsageError(str(error)) from None
        checks = len(testing.CHECKS)
        typer.echo(f"{core.shorten(chain)} keeps the contract: {checks} checks, each without and with BatchNorm.")

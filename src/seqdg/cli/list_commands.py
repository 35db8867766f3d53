"""Commands that say what there is, and whether it is as it should be: list, check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.base import UsageError
    from seqdg.bench import Benchmark

WRAPPED = ("agg", "fo-s-mldg", "metareg")  # what a wrapper is checked around: plain, sequential, of two stages


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
    from seqdg.base import DOMAINBED, set_checkout, unknown

    set_checkout(DOMAINBED, domainbed)
    kinds: dict[str, Callable[[], list[dict[str, object]]]] = {
        "algorithms": _list_algorithms,
        "wrappers": _list_wrappers,
        "benchmarks": _list_benchmarks,
        "datasets": _list_datasets,
    }
    if kind is None:
        _print_counts({name: len(list_entries()) for name, list_entries in kinds.items()}, as_json)
        return
    if kind not in kinds:
        raise unknown("list", kind, kinds)
    entries = kinds[kind]()
    if domainbed is not None and kind == "algorithms":
        from seqdg.interop import describe_classes

        entries += describe_classes()
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    if kind == "datasets":
        typer.echo("\n\n".join(map(_format_dataset, entries)))
        return
    _print_titles(entries)
    if kind == "algorithms":
        typer.echo("\nWrappers, each around any algorithm (agg+ema, fo-s-mldg+mixup+sma), in this order:\n")
        _print_titles(_list_wrappers())


def _print_counts(counts: dict[str, int], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(counts, indent=2))
        return
    for name, count in counts.items():
        typer.echo(f"{count:>4} {name:<10}  seqdg list {name}")


def _print_titles(entries: list[dict[str, object]]) -> None:
    width = max(len(str(e["name"])) for e in entries)
    for entry in entries:
        typer.echo(f"{entry['name']!s:<{width}}  {entry['title']}")


def _read_title(kind: type) -> str:
    """Return the first paragraph of a docstring, in one line."""
    return " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())


def _list_algorithms() -> list[dict[str, object]]:
    from seqdg.bench import ArrayLearner, find_learner, list_learners
    from seqdg.core import Sequential, build, find_core, format_settings, format_value, list_algorithms

    entries: list[dict[str, object]] = []
    algorithms = {name: build(name) for name in list_algorithms()}
    named = {type(algorithm) for algorithm in algorithms.values()}  # a chain whose base has no name is told by its own
    for name, algorithm in algorithms.items():
        title = _read_title(type(find_core(algorithm)))
        chained = isinstance(algorithm, Sequential) and type(algorithm.base) in named
        title = f"Sequential: {title}" if chained else title
        entries.append({"name": name, "title": title, "settings": format_settings(algorithm)})
    for name in list_learners():
        learner = find_learner(name)
        settings = learner.settings if isinstance(learner, ArrayLearner) else {}
        texts = {setting: format_value(value) for setting, value in settings.items()}
        entries.append({"name": name, "title": f"No neural net: {_read_title(type(learner))}", "settings": texts})
    return entries


def _list_wrappers() -> list[dict[str, object]]:
    from seqdg.core import Algorithm, find_wrapper, format_settings, list_wrappers

    kinds = [(name, find_wrapper(name)) for name in list_wrappers()]
    return [
        {
            "name": f"+{name}",
            "title": _read_title(kind),
            "settings": format_settings(kind(Algorithm())),
        }
        for name, kind in kinds
    ]


def _list_benchmarks() -> list[dict[str, object]]:
    from seqdg.bench import list_benchmarks, load_benchmark

    loaded = [load_benchmark(name) for name in list_benchmarks()]
    return [{"name": b.name, "title": b.title, "source": b.source} for b in loaded]


def _list_datasets() -> list[dict[str, object]]:
    """List the data of every benchmark; data without a path comes with the package."""
    from seqdg.bench import list_benchmarks, load_benchmark
    from seqdg.data import BUNDLED, DataSpec

    entries: list[dict[str, object]] = []
    for name in list_benchmarks():
        table = load_benchmark(name).data
        bundled = BUNDLED[table["format"]]() if table["format"] in BUNDLED else None
        data = bundled or DataSpec.from_table(name, table)
        entry: dict[str, object] = {"name": name, "domains": list(data.domains), "classes": list(data.classes)}
        entry["class_count"] = len(data.classes)
        if isinstance(data, DataSpec):
            entry["domains"] = list(data.domains or data.counts)
            entry["class_count"] = data.class_count or len(data.classes)
            entry |= {"format": data.format, "counts": data.counts, "path": list(data.path), "get": data.get}
        else:
            counts = {domain: len(data.rows(domain)) for domain in data.domains}
            entry |= {"format": "bundled", "counts": counts, "path": [], "get": "comes with seqdg"}
        entries.append(entry)
    return entries


def _format_dataset(entry: dict[str, Any]) -> str:
    counts = entry["counts"]
    domains = ", ".join(f"{name} ({counts[name]})" if name in counts else name for name in entry["domains"])
    classes = f": {', '.join(entry['classes'])}" if entry["classes"] else ""
    lines = [
        f"{entry['name']}: {entry['format']}",
        f"  {len(entry['domains'])} domains: {domains}" if domains else "  domains: as the data name them",
        f"  {entry['class_count']} classes{classes}" if entry["class_count"] else "  a number to predict",
        f"  below --data DIR: {', or '.join(entry['path'])}",
        f"  from: {entry['get']}",
    ]
    return "\n".join(line for line in lines if not line.endswith("DIR: "))


def check(
    benchmark: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A table, such as a .csv file; a benchmark from `seqdg list benchmarks`, or your own .toml file; or "
            "an algorithm from `seqdg list algorithms`, or your own, as module:name or file.py:name.",
        ),
    ],
    data: options.Data = None,
    allow_partial: options.AllowPartial = False,
    label: options.Label = None,
    domain: options.Domain = None,
    ignore: options.Ignore = None,
    identifier: options.Identifier = None,
    types: options.Types = None,
    na: options.Gaps = None,
    drop_unlabeled: options.DropUnlabeled = False,
    weight: options.Weight = None,
    encoding: options.Encoding = "",
    task: options.Task = None,
) -> None:
    """Check a table: show what each column holds as `seqdg fit` reads it, with --label and --domain also the counts.

        seqdg check patients.csv --label ill --domain hospital

    Check data on disk: show domains, classes and counts beside the published ones, and every problem.

        seqdg check pacs-lite0 --data ~/data

    Check an algorithm or a wrapper: does it keep the contract that training relies on?

        seqdg check ./pull.py:pull

        seqdg check fo-s-mldg+./mine.py:mine
    """
    from seqdg.base import UsageError
    from seqdg.bench import count_files, list_benchmarks, load_benchmark
    from seqdg.data import BUNDLED, DataSpec, check_dataset, check_table, is_table, parse_types

    if is_table(Path(benchmark)):
        dropped = [*(options.split_names(ignore) or ()), *(options.split_names(identifier) or ())]
        typer.echo(
            check_table(
                Path(benchmark), label, domain, dropped,
                parse_types(options.split_names(types) or ()), options.split_words(na), encoding, task, weight,
                drop_unlabeled,
            )
        )  # fmt: skip
        return
    of_tables = {"label": label, "domain": domain, "ignore": ignore, "id": identifier, "types": types, "na": na,
                 "weight": weight, "task": task, "drop-unlabeled": drop_unlabeled or None}  # fmt: skip
    for option, value in of_tables.items():
        if value is not None:
            raise UsageError(f"--{option} is of a table, and {benchmark} is none: leave it out.")
    if _is_algorithm(benchmark):
        _check_algorithm(benchmark)
        return
    if not benchmark.endswith(".toml") and benchmark not in list_benchmarks():
        raise _refuse(benchmark)
    chosen = load_benchmark(benchmark)
    if chosen.data.get("format") in BUNDLED:
        dataset = BUNDLED[chosen.data["format"]]()
        counts = ", ".join(f"{name} {len(dataset.rows(name))}" for name in dataset.domains)
        _check_domains_per_step(chosen, len(dataset.domains) - 1)
        typer.echo(f"{chosen.name} comes with seqdg: {len(dataset.classes)} classes; rows by domain: {counts}.")
        return
    spec = DataSpec.from_table(chosen.name, chosen.data)
    if data is None:
        raise UsageError(f"Give --data the folder that holds {' or '.join(spec.path)}.")
    with count_files("reading images") as progress:
        outcome = check_dataset(spec, data, allow_partial, progress, chosen.held_out_in_turn)
    split = _describe_split(chosen, data, allow_partial) if outcome.ok else ""
    if outcome.ok and not split:  # every domain is held out in turn
        _check_domains_per_step(chosen, len(outcome.domains) - 1)
    typer.echo(split + outcome.format())
    if not outcome.ok:
        raise typer.Exit(2)


def _refuse(name: str) -> UsageError:
    """Return the error for a name that is neither a table, nor a benchmark, nor an algorithm."""
    from seqdg.base import UsageError, find_similar
    from seqdg.bench import list_benchmarks
    from seqdg.core import list_algorithms

    near = find_similar(name, (*list_benchmarks(), *list_algorithms()))
    hint = f"Did you mean '{near}'? " if near is not None else ""
    return UsageError(
        f"There is no table, benchmark or algorithm '{name}'. {hint}`seqdg list benchmarks` and `seqdg list "
        f"algorithms` show what there is; an algorithm of your own is FILE.py:{name}."
    )


def _describe_split(benchmark: Benchmark, data: Path, allow_partial: bool) -> str:
    """Say what a fixed split trains on, chooses by and tests; raise a UsageError where it makes no sense."""
    from seqdg.base import list_some

    if benchmark.held_out_in_turn != () and not benchmark.data.get("split_column"):
        return ""
    fixed = benchmark.fix_split(benchmark.make_task(data, allow_partial).dataset())
    parts = {
        "train": fixed.protocol.train_domains,
        "validation": fixed.protocol.validation_domains,
        "test": fixed.test_domains,
    }
    return f"fixed split: {'; '.join(f'{part} {list_some(names)}' for part, names in parts.items() if names)}\n"


def _check_domains_per_step(benchmark: Benchmark, sources: int) -> None:
    """Raise a UsageError where a step of the benchmark, or of one of its algorithms, is to meet too many domains."""
    from seqdg.bench import check_domains_per_step

    check_domains_per_step(benchmark.protocol.domains_per_step, sources, "A step", benchmark.name)
    for name, table in benchmark.tables.items():
        wanted = table.get("domains_per_step", 0)
        check_domains_per_step(wanted, sources, f"A step of {name}", benchmark.name)


def _is_algorithm(name: str) -> bool:
    """Whether the name is that of a registered algorithm or wrapper, of a chain, or a place to import one from."""
    from seqdg.core import list_algorithms, list_wrappers

    known = (*list_algorithms(), *list_wrappers())
    return not name.endswith(".toml") and (":" in name or "+" in name or name.endswith(".py") or name in known)


def _check_algorithm(name: str) -> None:
    """Check an algorithm against the contract, with its settings as they are."""
    from seqdg.base import UsageError
    from seqdg.bench import StackLearner, find_learner
    from seqdg.core import build, list_wrappers, shorten
    from seqdg.testing import CHECKS, ContractError, check_algorithm

    short = shorten(name)
    if not isinstance(find_learner(name), StackLearner):
        raise UsageError(
            f"{short} is a learner, and the contract is for algorithms. `seqdg bench --algorithms {name}` runs it."
        )
    chains = [f"{base}+{name}" for base in WRAPPED] if short in list_wrappers() else [name]
    for chain in chains:
        try:
            check_algorithm(build(chain))
        except ContractError as error:
            raise UsageError(str(error)) from None
        typer.echo(f"{shorten(chain)} keeps the contract: {len(CHECKS)} checks, each without and with BatchNorm.")

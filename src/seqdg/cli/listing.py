"""`seqdg list`"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from seqdg.cli import options


def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[algorithms|wrappers|benchmarks|datasets]", help="What to list. Default: how many there are."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    domainbed: options.DomainBed = None,
) -> None:
    """List the algorithms, the wrappers around them (`agg+ema`), the benchmarks or the data sets to choose from."""
    from seqdg.base import DOMAINBED, set_place, unknown

    set_place(DOMAINBED, domainbed)
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

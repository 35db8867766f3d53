"""`seqdg list`"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer


def list_names(
    kind: Annotated[str, typer.Argument(metavar="algorithms|benchmarks")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what there is to choose from."""
    from seqdg.errors import unknown

    kinds: dict[str, Callable[[], list[dict[str, object]]]] = {"algorithms": _algorithms, "benchmarks": _benchmarks}
    if kind not in kinds:
        raise unknown("list", kind, kinds)
    entries = kinds[kind]()
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    width = max(len(str(e["name"])) for e in entries)
    for entry in entries:
        typer.echo(f"{entry['name']!s:<{width}}  {entry['title']}")


def _algorithms() -> list[dict[str, object]]:
    from seqdg.registry import algorithms, build
    from seqdg.sequential import Sequential
    from seqdg.settings import printed

    found: list[dict[str, object]] = []
    for name in algorithms():
        algorithm = build(name)
        base = algorithm.base if isinstance(algorithm, Sequential) else algorithm
        title = (type(base).__doc__ or "").strip().splitlines()[0]
        title = f"Sequential: {title}" if base is not algorithm else title
        found.append({"name": name, "title": title, "settings": printed(algorithm)})
    return found


def _benchmarks() -> list[dict[str, object]]:
    from seqdg.benchmark import benchmarks, load_benchmark

    loaded = [load_benchmark(name) for name in benchmarks()]
    return [{"name": b.name, "title": b.title, "source": b.source} for b in loaded]

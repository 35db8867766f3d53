"""`seqdg check`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.base import UsageError
    from seqdg.bench import Benchmark

WRAPPED = ("agg", "fo-s-mldg", "metareg")  # what a wrapper is checked around: plain, sequential, of two stages


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

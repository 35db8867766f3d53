"""Published numbers, of the paper and of DomainBed's suite, to set beside those of a run, and how the two differ.

What was published lies in `paper.toml` and `domainbed.toml`. How a run differs from it is a comparison of two
dictionaries of settings, one of the publication and one read from the run's records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from seqdg.base import UsageError, read_toml, unknown
from seqdg.results import AVERAGE, Cell, Record, count_candidates, drop_label

PUBLISHED = {"paper": "paper", "domainbed": "DomainBed"}  # whose numbers there are, and how tables call them
MISSING = {
    "paper": "The paper has no table for '{benchmark}': it has IXMAS, VLCS and PACS (with ResNet-18 and with AlexNet). "
    "Leave out --against.",
    "domainbed": "The published numbers of DomainBed's suite that we have are of PACS, and this run holds out "
    "{held_out}. Leave out --against.",
}
NOT_GIVEN = "not given"
DEPARTURES = "The table of settings lists where the two differ; what it does not list is the same, or given by neither."
NOTHING = ("", "0", "none", "no")  # values that are no difference where the publication gives none
TITLES = {
    "batch": "batch size of a domain", "lr": "learning rate", "batchnorm_policy": "BatchNorm", "size": "image size",
    "augment": "augmentation",
}  # fmt: skip
NETS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "resnet50-v1": "ResNet-50 v1", "alexnet": "AlexNet"}
OPTIMIZERS = dict.fromkeys(("auto", "momentum"), "SGD with momentum")  # "auto" is plain SGD for FFO-S-MLDG
# Parts of a description that the net and the split are described by.
_NET, _SPLIT = ("name", "hidden", "batchnorm", "pretrained", "weights"), ("split", "validation", "test")
_WORDS = {"true": "yes", "false": "no", "none": "none"}
_INERT = (("order", "0"), ("recompute", "no"), ("recompute", "yes"))  # of s-mldg: exact, and how it is computed


@dataclass(frozen=True)
class PublishedTable:
    """One published table; `values` are by (row, column), as printed, in percent."""

    name: str
    location: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: Mapping[tuple[str, str], float]
    protocol: Mapping[str, Any]  # what is said about the net, inputs, split, steps, optimizer and trials
    unprinted: Mapping[str, str]  # columns that its source alone has: "commented out", or "cut"


@dataclass(frozen=True)
class PublishedColumns:
    """The columns of a published table that belong to the algorithms of a run."""

    table: PublishedTable
    columns: Mapping[str, str]  # the published name of each algorithm
    values: Mapping[tuple[str, str], float]  # by (held-out, algorithm), in our names
    notes: tuple[str, ...]  # what to know before comparing
    departures: tuple[tuple[str, str, str], ...]  # setting, its value there, its value here, below their head
    source: str  # who published them, as tables call it


@cache
def _read_content(source: str = "paper") -> dict[str, Any]:
    return read_toml(Path(__file__).parent / f"{source}.toml")


@cache
def load_tables(source: str = "paper") -> dict[str, PublishedTable]:
    """Return the tables of accuracy by name; of the paper ixmas, vlcs, pacs, pacs-alexnet. Columns that are printed
    come first."""
    tables = {}
    for name, table in _read_content(source)["tables"].items():
        rest = {
            k: v for k, v in table.items() if k not in ("location", "title", "columns", "rows", "unprinted", "partly")
        }
        hidden, others = table.get("unprinted", {}), {**table.get("partly", {}), **table.get("unprinted", {})}
        values = {(r, c): v for r, line in table["rows"].items() for c, v in zip(table["columns"], line, strict=True)}
        values |= {(r, c): number for c, line in others.items() for r, number in line.items() if r in table["rows"]}
        tables[name] = PublishedTable(
            name=name,
            location=table["location"],
            title=table["title"],
            columns=(*table["columns"], *others),
            rows=tuple(table["rows"]),
            values=values,
            protocol={**_read_content(source).get("protocol", {}), **rest},
            unprinted={column: other["status"] for column, other in hidden.items()},
        )
    return tables


def load_settings(table: str) -> dict[str, dict[str, Any]]:
    """Return the settings that appendix C of the paper gives for a table, by the names of our algorithms."""
    known = _read_content()["settings"].get(table)
    if known is None:
        return {}
    settings: dict[str, dict[str, Any]] = {name: dict(s) for name, s in known.items()}
    return {**settings, "s-mldg": settings["fo-s-mldg"]}


def find_wrong_averages(table: PublishedTable) -> dict[str, float]:
    """Return the columns whose printed average is not the mean of their rows, even to rounding, with that mean."""
    means = {}
    for column in table.columns:
        rows = [table.values[row, column] for row in table.rows if row != AVERAGE and (row, column) in table.values]
        if rows and abs(fmean(rows) - table.values[AVERAGE, column]) > 0.0501:
            means[column] = fmean(rows)
    return means


def load_minutes() -> dict[str, float]:
    """Return the minutes of training by column, from the paper's cost table."""
    return {str(name): float(minutes) for name, minutes in _read_content()["cost"]["minutes"].items()}


def find_column(algorithm: str, source: str = "paper") -> str | None:
    """Return the published name of one of our algorithms."""
    columns = _read_content(source)["columns"].items()
    return next((str(column) for column, ours in columns if algorithm in ours), None)


def find_table(benchmark: str, records: Sequence[Record], source: str = "paper") -> PublishedTable | None:
    """Return the table for the benchmark of this name, or one with the domains of the run."""
    tables, held_out = load_tables(source), list_held_out(records)
    for name, table in tables.items():
        named = benchmark.lower().startswith(name)
        full = name != "ixmas" and all(len(d) > 1 for d in held_out)  # whose domains are digits
        if (named or full or source != "paper") and held_out and all(find_row(table, d) is not None for d in held_out):
            nets = {r.description["net"]["name"] for r in records}
            return tables["pacs-alexnet"] if name == "pacs" and nets == {"alexnet"} else table
    return None


def list_held_out(records: Sequence[Record]) -> list[str]:
    """Return every domain that a trial of the run's tables holds out, once."""
    return list(dict.fromkeys(domain for r in records if r.is_tabled for domain in r.held_out))


def find_row(table: PublishedTable, domain: str) -> str | None:
    """Return the table's name of a domain, under whatever name it goes."""
    for row, names in _read_content()["domains"][table.name.partition("-")[0]].items():
        if _simplify(domain) in {_simplify(row), *map(_simplify, names)}:
            return str(row)
    return None


def _simplify(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())


def set_beside(
    source: str, cells: Sequence[Cell], records: Sequence[Record], benchmark: str, select: str = "source-val"
) -> PublishedColumns:
    """Return published numbers to set beside those of a run; a UsageError where there are none.

    source: whose, one of PUBLISHED.
    """
    if source not in PUBLISHED:
        raise unknown("source of numbers to set beside ours", source, PUBLISHED)
    table, held_out = find_table(benchmark, records, source), list_held_out(records)
    if table is None:
        lacking = MISSING[source].format(benchmark=benchmark, held_out=", ".join(held_out) or "nothing")
        raise UsageError(lacking)
    rows = {AVERAGE: AVERAGE, **{d: row for d in held_out if (row := find_row(table, d)) is not None}}
    algorithms = dict.fromkeys(c.algorithm for c in cells)
    columns = {a: c for a in algorithms if (c := find_column(drop_label(a), source)) and c in table.columns}
    values = {
        (d, a): table.values[row, c] for d, row in rows.items() for a, c in columns.items() if (row, c) in table.values
    }
    missing = [row for row in table.rows if row not in rows.values()]
    theirs = {"domains in the average": "all", **describe_published(table.protocol)}
    ours = {
        **describe_run([r for r in records if r.is_tabled], theirs),
        "trials": _describe_trials(cells),
        "selection": select,
        "domains in the average": f"all but {', '.join(missing)}" if missing else "all",
    }
    if "settings_tried" in theirs:
        tried = sorted({most for _, most in count_candidates(records).values()})
        ours["settings_tried"] = " or ".join(map(str, tried))
    departures = (
        *compare_settings(theirs, ours),
        *compare_algorithms(load_settings(table.name), len(table.rows) - 2, records),
    )
    notes = (*_write_notes(source, table, columns, list(algorithms)), *([DEPARTURES] if departures else []))
    head = "setting", PUBLISHED[source], "here"
    return PublishedColumns(table, columns, values, notes, (head, *departures), PUBLISHED[source])


def _describe_trials(cells: Sequence[Cell]) -> str:
    """Say how many trials the cells have: `3`, `2 to 3`."""
    trials = sorted({c.trials for c in cells if c.held_out != AVERAGE and c.trials})
    return " to ".join(str(n) for n in sorted({trials[0], trials[-1]})) if trials else "none"


def _write_notes(
    source: str, table: PublishedTable, columns: Mapping[str, str], algorithms: Sequence[str]
) -> list[str]:
    """Say where the numbers are from, what to know of them, and which are in one of the two tables alone."""
    content, columns_here = _read_content(source), set(columns.values())
    notes = [f"Published: {table.title} ({table.location} of {content['source']}).{content['remark']}"]
    notes += [table.protocol["note"]] if "note" in table.protocol else []
    notes += [text for column, text in content["notes"].items() if column in columns_here]
    for column, mean in find_wrong_averages(table).items():
        if column in columns_here:
            average = table.values[AVERAGE, column]
            notes.append(f"The paper prints {average} as the average of {column}; the mean of its rows is {mean:.1f}.")
    others = [c for c in table.columns if c not in columns_here]
    if printed := [c for c in others if c not in table.unprinted]:
        notes.append(f"Published and not in this run (averages): {_list_averages(table, printed)}.")
    for why in dict.fromkeys(table.unprinted.values()):
        if hidden := [c for c in others if table.unprinted.get(c) == why]:
            numbers = _list_averages(table, hidden)
            notes.append(f"In the source of the paper's table, but {why}, and not in this run (averages): {numbers}.")
    if alone := [a for a in algorithms if a not in columns]:
        notes.append(f"In this run and not published there: {', '.join(alone)}.")
    return notes


def _list_averages(table: PublishedTable, columns: Sequence[str]) -> str:
    return ", ".join(f"{c} {table.values[AVERAGE, c]:.1f}" for c in columns)


# How a run differs ---------------------------------------------------------------------------------------------------


def compare_settings(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return a row for every setting of ours that is another one there, or is not given there."""
    return [
        (TITLES.get(name, name.replace("_", " ")), theirs.get(name, NOT_GIVEN), value)
        for name, value in ours.items()
        if value != theirs.get(name) and (name in theirs or value not in NOTHING)
    ]


def describe_published(protocol: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a published table, as they are compared."""
    net = {**protocol, "name": protocol["net"], "weights": protocol["pretrained"]}
    rest = {k: _format(v) for k, v in protocol.items() if k not in ("net", "kind", "note", *_NET)}
    return {"net": _describe_net(net), **rest}


def describe_run(records: Sequence[Record], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a run, as they are compared. Rates are compared algorithm by algorithm, unless all of
    theirs have one."""
    settings: dict[str, dict[str, None]] = {}
    for record in records:
        about = record.description
        net, protocol = about["net"], about["protocol"]
        skipped = _SPLIT if "lr" in theirs else (*_SPLIT, "lr")
        here = {
            "net": _describe_net(net),
            "inputs": _describe_inputs(net["name"], theirs.get("inputs", "")),
            "split": _describe_split(protocol),
            **{name: value for name, value in protocol.items() if name not in skipped},
            "dropout": "none",
            **{name: value for name, value in net.items() if name not in _NET},
            "augment": about.get("augment") or "none",
            "size": about.get("size", 0),
        }
        if "optimizer" in here:
            here["optimizer"] = OPTIMIZERS.get(here["optimizer"], here["optimizer"])
        for name, value in here.items():
            settings.setdefault(name, {})[_format(value)] = None
    return {name: join_values(values) for name, values in settings.items()}


def _describe_net(net: Mapping[str, Any]) -> str:
    """Describe a net: `mlp 2000 with BatchNorm`, `ResNet-18 from ImageNet weights`."""
    name = str(NETS.get(net["name"], net["name"]))
    if net["name"] != "mlp":
        return name + (" from ImageNet weights" if net.get("weights") else "")
    layers = "-".join(str(width) for width in net.get("hidden", ()))
    return f"{name} {layers}".strip() + (" with BatchNorm" if net.get("batchnorm") else "")


def _describe_inputs(net: str, theirs: str) -> str:
    """Describe the inputs. Records do not say of which kind features are."""
    if theirs in ("", "images"):
        return "precomputed features" if net == "mlp" else theirs
    return "not recorded"


def _describe_split(protocol: Mapping[str, Any]) -> str:
    """Describe a split: `random, 70 % to train on and 30 % to test on`."""
    if protocol.get("split") == "official":
        return "official" if protocol.get("test", "whole") == "whole" else "official, tested on its validation rows"
    share = 100 * protocol.get("validation", 0)
    tested = "the whole held-out domain" if protocol.get("test") == "whole" else f"{share:.0f} %"
    return f"random, {100 - share:.0f} % to train on and {tested} to test on"


def compare_algorithms(
    published: Mapping[str, Mapping[str, Any]], sources: int, records: Sequence[Record]
) -> list[tuple[str, str, str]]:
    """Return a row for every algorithm whose settings differ, with those that do, position by position of the path.

    published: the settings by the names of our algorithms.   sources: how many domains the paths there have.
    """
    rows: list[tuple[str, str, str]] = []
    if not published:
        return rows
    single = [r for r in records if r.is_tabled]
    for name in dict.fromkeys(r.algorithm for r in single):
        tried = []
        for about in (r.description for r in single if r.algorithm == name):
            settings = {**about.get("settings", {}), **{k: v for k, v in about["protocol"].items() if k == "lr"}}
            tried.append({key: _expand(name, key, value, sources) for key, value in settings.items()})
        names = dict.fromkeys(key for s in tried for key in s if (key, s[key]) not in _INERT)
        here = {key: join_values(s.get(key, "as before") for s in tried) for key in names}
        known = published.get(drop_label(name))
        there = {key: _expand(name, key, value, sources) for key, value in (known or {}).items()}
        differing = [key for key in {**there, **here} if there.get(key) != here.get(key)]
        if differing:
            texts = [
                "; ".join(f"{key} {side[key]}" for key in differing if key in side) or "-" for side in (there, here)
            ]
            rows.append((f"settings of {name}", NOT_GIVEN if known is None else texts[0], texts[1]))
    return rows


def _expand(algorithm: str, name: str, value: Any, sources: int) -> str:
    """Return the value of a setting in one form: alpha and beta position by position, unless all are the same.

    alpha has a value for every look-ahead, beta for every domain; a short list of betas is of the last ones. S-MLDG's
    first domain has no beta.
    """
    if name not in ("alpha", "beta"):
        return _format(value)
    algorithm = drop_label(algorithm)
    whole = isinstance(value, float | int) or (isinstance(value, str) and "," not in value)
    parts = [value] if whole else value.split(",") if isinstance(value, str) else list(value)
    numbers = [float(part) for part in parts if str(part).strip()]
    chained = algorithm in ("s-mldg", "fo-s-mldg")
    if name == "alpha":
        count = sources - 1 if chained else sources if algorithm == "ffo-s-mldg" else 1
        numbers = (numbers * count)[:count] if whole else [*numbers, *[numbers[-1]] * (count - len(numbers))]
    else:
        count = sources if chained or algorithm == "ffo-s-mldg" else 1
        numbers = numbers * count if whole else [*[1.0] * (count - len(numbers)), *numbers]
        numbers = [1.0, *numbers[1:]] if chained else numbers
    return f"{numbers[0]:g}" if len(set(numbers)) == 1 else ", ".join(f"{n:g}" for n in numbers)


def _format(value: Any) -> str:
    """Return a setting's value as text, whether a record has it as a number or as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value))
    text = str(value)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def join_values(values: Iterable[object]) -> str:
    """Join what a run has of one kind: `a`, `a or b`, `5 values from 0.1 to 2`."""
    texts = list(dict.fromkeys(str(v) for v in values))
    if len(texts) <= 4:
        return " or ".join(texts)
    try:
        numbers = sorted(float(t) for t in texts)
    except ValueError:
        return f"{len(texts)} values, such as {texts[0]}"
    return f"{len(texts)} values from {numbers[0]:.4g} to {numbers[-1]:.4g}"

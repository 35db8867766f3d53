"""A benchmark is a TOML file: its data, net, protocol and the settings of every algorithm. Here it becomes a plan."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

from seqdg.base.errors import UsageError, unknown
from seqdg.base.toml_table import read_fields, read_value
from seqdg.bench.search import MULTIPLES, Proposal, proposals
from seqdg.bench.trial import Trial, settings_of
from seqdg.core.algorithm import Algorithm
from seqdg.core.registry import build, list_algorithms
from seqdg.core.settings import flatten_settings, parse_settings, with_settings
from seqdg.data import Dataset
from seqdg.data.augment import find_augmentation
from seqdg.nets import NET_NAMES, NetSpec
from seqdg.training.protocol import Protocol, sources, split

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN = {  # what the tables [net] and [protocol] say beside the fields of NetSpec and Protocol
    "net": {"policy": "str", "size": "int", "augment": "str"},
    "protocol": {
        "trials": "int", "algorithms": "tuple[str, ...]", "held_out": "tuple[str, ...]",
        "lr_search": "tuple[float, ...]",
    },
}  # fmt: skip
TRAINING = ("steps", "batch", "evaluations", "optimizer", "lr", "momentum", "weight_decay", "precision")


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark's file says."""

    name: str
    title: str
    source: str  # where in the paper, or what it is
    data: Mapping[str, Any]
    net: NetSpec
    batchnorm: str  # policy
    protocol: Protocol
    trials: int
    algorithms: tuple[str, ...]  # run where none are named
    held_out: tuple[str, ...] = ()  # empty: every domain
    size: int = 0  # side of the images that enter the net; 0: as they are stored
    augment: str = ""
    lr_search: tuple[float, ...] = MULTIPLES  # of an algorithm's learning rate, between which a search draws others
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings and training, by algorithm

    def __post_init__(self) -> None:
        if self.size < 0:
            raise UsageError(f"{self.name}: size in [net] is {self.size}. Give the side of its images in pixels.")
        if len(self.lr_search) != 2 or not 0 < self.lr_search[0] <= self.lr_search[1] < math.inf:
            raise UsageError(
                f"{self.name}: lr_search in [protocol] is {list(self.lr_search)}. Give the smallest and the largest "
                "multiple of a learning rate to try, such as [0.1, 2.0]."
            )

    def with_weights(self, file: Path | None) -> Benchmark:
        """With a net that starts from this file, where one is given."""
        return self if file is None else replace(self, net=replace(self.net, weights=file))


def benchmarks() -> tuple[str, ...]:
    """Names of the benchmarks that come with the package."""
    folder = files("seqdg") / "benchmarks"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def load_benchmark(name: str) -> Benchmark:
    """A benchmark by name, or from the user's own TOML file."""
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"There is no benchmark file '{name}'.")
        return _read(path.stem, path.read_text())
    if name not in benchmarks():
        raise unknown("benchmark", name, benchmarks())
    return _read(name, (files("seqdg") / "benchmarks" / f"{name}.toml").read_text())


def _read(name: str, text: str) -> Benchmark:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The benchmark file of '{name}' is not valid TOML: {error}.") from None
    known = ("title", "source", "data", "net", "protocol", "algorithms")
    for part in content:
        if part not in known:
            raise unknown(f"part of the benchmark file '{name}'", part, known)
    for part in ("data", "net", "protocol"):
        if part not in content:
            raise UsageError(f"The benchmark file of '{name}' has no [{part}] table.")

    def own(part: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a table says that is the benchmark's own, and what remains."""
        table = dict(read_value(content[part], "table", f"[{part}] of {name}"))
        place = f"the [{part}] table of {name}"
        taken = {k: read_value(table.pop(k), kind, f"'{k}' in {place}") for k, kind in OWN[part].items() if k in table}
        return taken, table

    (about_net, net), (about_trials, protocol) = own("net"), own("protocol")
    find_augmentation(about_net.get("augment", ""))
    return Benchmark(
        name=name,
        title=read_value(content.get("title", name), "str", f"The title of {name}"),
        source=read_value(content.get("source", ""), "str", f"The source of {name}"),
        data=read_value(content["data"], "table", f"[data] of {name}"),
        net=_net(name, net),
        batchnorm=about_net.get("policy", "none"),
        protocol=_protocol(Protocol(), protocol, f"the [protocol] table of {name}"),
        trials=about_trials.get("trials", 5),
        algorithms=about_trials.get("algorithms", ("agg",)),
        held_out=about_trials.get("held_out", ()),
        size=about_net.get("size", 0),
        augment=about_net.get("augment", ""),
        lr_search=about_trials.get("lr_search", MULTIPLES),
        tables=_tables(name, content.get("algorithms", {})),
    )


def _net(benchmark: str, table: dict[str, Any]) -> NetSpec:
    place = f"the [net] table of {benchmark}"
    values = read_fields(NetSpec, table, place, also=tuple(OWN["net"]))
    if "name" not in values:
        raise UsageError(f"There is no name in {place}. Choose one of: {', '.join(NET_NAMES)}, timm:NAME.")
    return NetSpec(**values)


def _protocol(protocol: Protocol, table: Mapping[str, Any], place: str) -> Protocol:
    return replace(protocol, **read_fields(Protocol, table, place, also=tuple(OWN["protocol"])))


def _tables(name: str, tables: Any) -> dict[str, Mapping[str, Any]]:
    found = read_value(tables, "table", f"[algorithms] of {name}")
    return {short: read_value(table, "table", f"[algorithms.{short}] of {name}") for short, table in found.items()}


@dataclass(frozen=True)
class Choice:
    """What the user asks of a benchmark; None leaves it as the benchmark has it."""

    algorithms: Sequence[str] | None = None
    held_out: Sequence[str] | None = None
    trials: int | None = None
    steps: int | None = None
    seed: int = 0
    settings: Sequence[str] = ()  # `algorithm.setting=value`
    search: int = 1  # candidates per algorithm: the first as it is, the others with settings and learning rate drawn
    leave_one_out: bool = False  # also the trials that selection within the sources needs
    precision: str | None = None


def variant(benchmark: Benchmark, name: str, given: Mapping[str, str]) -> tuple[Algorithm, Protocol]:
    """An algorithm with the benchmark's settings for it, then the user's; and the protocol that it is trained by."""
    short = name.rpartition(":")[2]
    table, algorithm = benchmark.tables.get(short, {}), build(name)
    known = flatten_settings(algorithm)
    for key in (*table, *given):
        if key not in known and key not in TRAINING:
            raise unknown(f"setting of {short}", key, (*known, *TRAINING))
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items() if k not in TRAINING}
    algorithm = parse_settings(with_settings(algorithm, values), {k: v for k, v in given.items() if k not in TRAINING})
    training = {k: v for k, v in table.items() if k in TRAINING}
    protocol = _protocol(benchmark.protocol, training, f"[algorithms.{short}] of {benchmark.name}")
    return algorithm, protocol.changed(_training({k: v for k, v in given.items() if k in TRAINING}))


def _training(texts: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in texts.items():
        kind: type[str] | type[int] | type[float] = type(getattr(Protocol(), name))
        try:
            found[name] = kind(text)
        except ValueError:
            raise UsageError(f"{name} is '{text}', but it must be a number.") from None
    return found


def given_settings(texts: Sequence[str], algorithms: Sequence[str]) -> dict[str, dict[str, str]]:
    """`fo-s-mldg.alpha=0.05,0.6` by algorithm and name."""
    found: dict[str, dict[str, str]] = {}
    shorts = [name.rpartition(":")[2] for name in algorithms]
    for text in texts:
        where, equals, value = text.partition("=")
        algorithm, dot, name = where.rpartition(".")
        if not equals or not dot:
            raise UsageError(f"A setting is written algorithm.setting=value, not '{text}'.")
        if algorithm not in shorts:
            raise unknown("algorithm in this run", algorithm, shorts)
        found.setdefault(algorithm, {})[name] = value
    return found


def _check_tables(benchmark: Benchmark, names: Sequence[str]) -> None:
    """Settings of an algorithm that there is none of are a mistake, even where it is not run."""
    known = dict.fromkeys((*list_algorithms(), *(n.rpartition(":")[2] for n in (*benchmark.algorithms, *names))))
    for short in benchmark.tables:
        if short not in known:
            raise unknown("algorithm", short, known)


def _held_out(dataset: Dataset, names: Sequence[str], leave_one_out: bool) -> list[tuple[str, ...]]:
    """What is held out together: each name by itself, and with another for selection within the sources."""
    outs: list[tuple[str, ...]] = [(name,) for name in names]
    if leave_one_out:
        outs += [pair for pair in combinations(dataset.domains, 2) if set(pair) & set(names)]
    for out in outs:
        if not sources(dataset, out):
            raise UsageError(f"Holding out {', '.join(out)} leaves no domain of {dataset.name} to learn from.")
    return outs


def _tried(
    benchmark: Benchmark, algorithm: Algorithm, protocol: Protocol, choice: Choice, fixed: Mapping[str, str]
) -> tuple[tuple[Algorithm, Protocol], ...]:
    """The candidates, the same for every held-out domain and seed: the first as it is; of the others the learning rate
    is drawn too, so that every algorithm has as many, unless the user fixed all that could be searched."""
    multiples = (benchmark.lr_search[0], benchmark.lr_search[1])
    tried = proposals(Proposal(algorithm, protocol.lr), choice.search, fixed=fixed, multiples=multiples)
    return tuple((candidate, replace(protocol, lr=lr)) for candidate, lr in tried)


def plan(benchmark: Benchmark, dataset: Dataset, choice: Choice) -> tuple[Trial, ...]:
    """Every trial that is asked for: algorithm x candidate settings x held-out x seed."""
    names = tuple(choice.algorithms) if choice.algorithms is not None else benchmark.algorithms
    held_out = tuple(choice.held_out or benchmark.held_out or dataset.domains)
    trials = benchmark.trials if choice.trials is None else choice.trials
    if trials < 1:
        raise UsageError(f"{trials} trials were asked for, but at least 1 is needed.")
    if not names:
        raise UsageError("No algorithm was named. `seqdg list algorithms` shows all.")
    _check_tables(benchmark, names)
    given = given_settings(choice.settings, names)
    outs = _held_out(dataset, held_out, choice.leave_one_out)
    split(dataset, benchmark.protocol, outs[0], choice.seed)  # every domain can be
    found = []
    for name in names:
        own = given.get(name.rpartition(":")[2], {})
        algorithm, protocol = variant(benchmark, name, own)
        if choice.steps is not None:
            protocol = replace(protocol, steps=choice.steps)
        if choice.precision is not None:
            protocol = replace(protocol, precision=choice.precision)
        found += [
            Trial(
                data=dataset.fingerprint,
                net=benchmark.net,
                batchnorm=benchmark.batchnorm,
                weights=None,
                algorithm=name,
                settings=settings_of(candidate),
                protocol=training,
                held_out=out,
                seed=seed,
                sources=len(dataset.domains) - 1,
                size=(benchmark.size or dataset.shape[-1]) if dataset.is_image else 0,
                augment=benchmark.augment if dataset.is_image else "",
            )
            for candidate, training in _tried(benchmark, algorithm, protocol, choice, own)
            for out in outs
            for seed in range(choice.seed, choice.seed + trials)
        ]
    return tuple({trial.key: trial for trial in found}.values())  # what is named twice is run once

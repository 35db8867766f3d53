"""A benchmark is a TOML file: its data, net, protocol and the settings of every algorithm. Here it becomes a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

from seqdg.algorithm import Algorithm
from seqdg.data.domain import Dataset
from seqdg.errors import UsageError, unknown
from seqdg.models.factory import NetSpec
from seqdg.protocol import Protocol, sources
from seqdg.registry import build
from seqdg.search import candidates
from seqdg.settings import parsed, with_settings
from seqdg.trial import Trial, settings_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
    size: int = 224  # side of the images that enter the net
    augment: str = ""
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings and training, by algorithm

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
    net, protocol = dict(content["net"]), dict(content["protocol"])
    batchnorm, augment, size = net.pop("policy", "none"), net.pop("augment", ""), net.pop("size", 224)
    trials, held_out = protocol.pop("trials", 5), tuple(protocol.pop("held_out", ()))
    chosen = tuple(protocol.pop("algorithms", ("agg",)))
    return Benchmark(
        name=name,
        title=content.get("title", name),
        source=content.get("source", ""),
        data=content["data"],
        net=_net(name, net),
        batchnorm=batchnorm,
        protocol=Protocol().changed(protocol),
        trials=trials,
        algorithms=chosen,
        held_out=held_out,
        size=size,
        augment=augment,
        tables=content.get("algorithms", {}),
    )


def _net(benchmark: str, table: dict[str, Any]) -> NetSpec:
    names = [f.name for f in fields(NetSpec)]
    for name in table:
        if name not in names:
            raise unknown(f"field of [net] in '{benchmark}'", name, (*names, "policy", "size", "augment"))
    return NetSpec(**table)


@dataclass(frozen=True)
class Choice:
    """What the user asks of a benchmark; None leaves it as the benchmark has it."""

    algorithms: Sequence[str] | None = None
    held_out: Sequence[str] | None = None
    trials: int | None = None
    steps: int | None = None
    seed: int = 0
    settings: Sequence[str] = ()  # `algorithm.setting=value`
    search: int = 1  # candidates per algorithm: the first as it is, the others drawn from the ranges of its settings
    leave_one_out: bool = False  # also the trials that selection within the sources needs


def variant(benchmark: Benchmark, name: str, given: Mapping[str, str]) -> tuple[Algorithm, Protocol]:
    """An algorithm with the benchmark's settings for it, then the user's; and the protocol that it is trained by."""
    short = name.rpartition(":")[2]
    table = dict(benchmark.tables.get(short, {}))
    training = {k: table.pop(k) for k in TRAINING if k in table}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    algorithm = with_settings(build(name), values)
    own = {k: v for k, v in given.items() if k in TRAINING}
    algorithm = parsed(algorithm, {k: v for k, v in given.items() if k not in TRAINING})
    return algorithm, benchmark.protocol.changed(training).changed(_training(own))


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


def plan(benchmark: Benchmark, dataset: Dataset, choice: Choice) -> tuple[Trial, ...]:
    """Every trial that is asked for: algorithm x candidate settings x held-out x seed."""
    names = tuple(choice.algorithms) if choice.algorithms is not None else benchmark.algorithms
    held_out = tuple(choice.held_out or benchmark.held_out or dataset.domains)
    trials = benchmark.trials if choice.trials is None else choice.trials
    if trials < 1:
        raise UsageError(f"{trials} trials were asked for, but at least 1 is needed.")
    if not names:
        raise UsageError("No algorithm was named. `seqdg list algorithms` shows all.")
    given = given_settings(choice.settings, names)
    outs: list[tuple[str, ...]] = [(name,) for name in held_out]
    if choice.leave_one_out:
        pairs = combinations(dataset.domains, 2)
        outs += [pair for pair in pairs if set(pair) & set(held_out)]
    for out in outs:
        if not sources(dataset, out):
            raise UsageError(f"Holding out {', '.join(out)} leaves no domain of {dataset.name} to learn from.")
    found = []
    for name in names:
        own = given.get(name.rpartition(":")[2], {})
        algorithm, protocol = variant(benchmark, name, own)
        if choice.steps is not None:
            protocol = replace(protocol, steps=choice.steps)
        found += [
            Trial(
                data=dataset.fingerprint,
                net=benchmark.net,
                batchnorm=benchmark.batchnorm,
                weights=None,
                algorithm=name,
                settings=settings_of(candidate),
                protocol=protocol,
                held_out=out,
                seed=seed,
                sources=len(dataset.domains) - 1,
                size=benchmark.size if dataset.is_image else 0,
                augment=benchmark.augment if dataset.is_image else "",
            )
            for candidate in candidates(algorithm, choice.search, choice.seed, fixed=own)
            for out in outs
            for seed in range(choice.seed, choice.seed + trials)
        ]
    return tuple(found)

"""A benchmark is a TOML file: its data, net, protocol and the settings of every algorithm."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, list_some, make_file_name, parse_text, read_fields, read_toml, read_value, unknown
from seqdg.bench.executors import ExecutorChoice
from seqdg.bench.learners.contract import DROPOUT, SPACES, TRAINING, Candidate, Draft
from seqdg.bench.learners.stack_learner import find_learner, list_learners
from seqdg.bench.planning import Plan, parse_shard, plan
from seqdg.bench.search import MULTIPLES
from seqdg.bench.task import RowsOnDisk, Task
from seqdg.core import build, format_value, list_algorithms, list_inner_names, shorten, split_chain, use_own_names
from seqdg.data import Dataset, find_augmentation
from seqdg.nets import NET_NAMES, NetSpec, get_published_dropout, is_own_net, shorten_net
from seqdg.results import RULES
from seqdg.training import Protocol, check_rule, fix_split, list_sources

FOLDER = Path(__file__).parents[1] / "benchmarks"
SAMPLERS = ("random", "optuna")
QUICK = {"trials": 1, "steps": 2, "rows": 0}  # what --quick asks for; 0 rows: as few as that needs
MOST_TRIALS = 100_000  # of an algorithm and a held-out domain
NET_SETTING = "net."  # begins what `--set` says of the net
FIELDS = {  # what the tables [net] and [protocol] say beside the fields of NetSpec and Protocol
    "net": {"policy": "str", "size": "int", "augment": "str"},
    "protocol": {
        "trials": "int", "algorithms": "tuple[str, ...]", "held_out": "tuple[str, ...]",
        "test_domains": "tuple[str, ...]",
        "lr_search": "tuple[float, ...]",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Request(ExecutorChoice):
    """What the user asks of a benchmark: which trials, and where and how they run. None: as the benchmark says.

    `seqdg.run` and the command `bench` have these names, and `seqdg.run` says what each of them means.
    """

    algorithms: Sequence[str] | None = None
    held_out: Sequence[str] | None = None
    trials: int | None = None
    steps: int | None = None
    seed: int = 0
    settings: Sequence[str] = ()  # `algorithm.setting=value`, or by algorithm and name
    search: int = 1
    search_space: str = SPACES[0]
    sampler: str = SAMPLERS[0]
    reuse: bool = False
    settings_from: Path | None = None
    select: str = "source-val"  # refused before training where the table cannot be made so
    precision: str | None = None
    net: str | None = None
    weights: Path | None = None
    data: Path | None = None
    out: Path | None = None
    device: str = "auto"
    compile: str = "auto"
    checkpoint: float = 60.0
    save_weights: str = ""  # last, chosen, or a truth value
    save_predictions: bool = False
    allow_partial: bool = False
    domainbed: Path | None = None
    log: Sequence[str] = ()
    trust: Sequence[str] = ()
    shard: str | None = None  # which part of the plan, as `parse_shard` reads it
    held_out_together: int | None = None  # domains that each trial holds out at once
    single_source: bool = False  # hold out all domains but one
    rows: int | None = None  # of every domain, a fixed sample; None: all
    quick: bool = False  # everything once, for two steps, on few rows

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("algorithms", "held_out", "log", "trust"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise UsageError(f"{name} is '{value}', but it must be a list of names, such as ['{value}'].")
        paths = {name: getattr(self, name) for name in ("settings_from", "weights", "data", "out", "domainbed")}
        saved: Any = self.save_weights
        plain = {
            **{name: Path(path) for name, path in paths.items() if path is not None},
            "settings": _write_settings(self.settings),
            "save_weights": ("last" if saved else "") if isinstance(saved, bool) else saved or "",
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.select not in RULES:
            raise unknown("selection rule", self.select, RULES)
        if self.reuse and self.search < 2:
            raise UsageError(
                "--reuse uses what a search on the first seed chose on the others, and there is no search: give "
                "--search 2 or more."
            )
        if self.search_space not in SPACES:
            raise unknown("search space", self.search_space, SPACES)
        if self.sampler not in SAMPLERS:
            raise unknown("sampler", self.sampler, SAMPLERS)
        for name in ("search_space", "sampler"):
            if getattr(self, name) != getattr(Request, name) and self.search < 2:
                raise UsageError(
                    f"--{name.replace('_', '-')} {getattr(self, name)} says how candidates are drawn, and there is no "
                    "search: give --search 2 or more."
                )
        if self.sampler == "optuna":
            self._check_optuna()
        if self.single_source and (self.held_out or self.held_out_together):
            raise UsageError(
                "--single-source holds out all domains but one, each of which is the source in turn: leave out "
                f"{'--held-out' if self.held_out else '--held-out-together'}."
            )
        if self.held_out_together is not None and self.held_out_together < 1:
            raise UsageError(f"--held-out-together is {self.held_out_together}, but at least 1 is needed.")
        several = self.single_source or (self.held_out_together or 1) > 1
        if several and (self.leave_one_out or self.reuse):
            raise UsageError(
                f"{'--select leave-one-out' if self.leave_one_out else '--reuse'} is for one domain held out at a "
                "time: leave it out."
            )
        if self.rows is not None and self.rows < 1:
            raise UsageError(f"--rows is {self.rows}. Give how many rows of every domain to take, at least 1.")
        if self.quick and self.reuse:
            raise UsageError("--quick runs everything once, and --reuse chooses between seeds: leave one of them out.")
        if self.quick:
            if taken := [name for name in ("trials", "steps", "rows") if getattr(self, name) is not None]:
                raise UsageError(f"--quick says itself how many {taken[0]}: leave out --{taken[0]}.")
            for name, number in QUICK.items():
                object.__setattr__(self, name, number)
        if self.reuse and self.shard:
            raise UsageError(
                "--reuse waits for a search that is spread over the shards: search with --shard, merge, and continue "
                "without it."
            )
        if not 0 <= self.checkpoint < float("inf"):
            raise UsageError(f"--checkpoint is {self.checkpoint:g} seconds. Give a positive number, or 0 for none.")
        if self.save_weights not in ("", "last", "chosen"):
            raise unknown("weights to save", self.save_weights, ("last", "chosen"))

    def _check_optuna(self) -> None:
        """Refuse what does not go with candidates that follow from the scores of those before them."""
        conflicts = {
            "--shard": self.shard is not None,
            "--search-space domainbed": self.search_space != SPACES[0],
            "--select leave-one-out": self.leave_one_out,
        }
        if taken := [name for name, is_asked in conflicts.items() if is_asked]:
            raise UsageError(
                f"--sampler optuna proposes candidates from the scores of those before them, which does not go with "
                f"{taken[0]}: leave one of the two out."
            )

    @property
    def draws(self) -> str:
        """Say where candidates come from, as tables do; "" where there is no search."""
        return "" if self.search < 2 else "optuna" if self.sampler == "optuna" else self.search_space

    @property
    def leave_one_out(self) -> bool:
        """Whether trials with two domains held out run too, which selection within the sources needs."""
        return self.select == "leave-one-out"

    def find_directory(self, benchmark: Benchmark) -> Path:
        """Return the run directory of a benchmark: what was asked for, or one below runs/ for its name and what its
        trials have in common."""
        net = f"-{make_file_name(shorten_net(self.net))}" if self.net else ""
        sample = "-quick" if self.quick else "" if self.rows is None else f"-rows-{self.rows}"
        is_usual = self.quick or self.steps in (None, benchmark.protocol.steps)
        steps = "" if is_usual else f"-{self.steps}-steps"
        together = f"-{self.held_out_together}-together" if (self.held_out_together or 1) > 1 else ""
        held_out = "-single-source" if self.single_source else together
        whole = self.out or Path("runs") / f"{benchmark.name.replace(':', '-')}{net}{sample}{steps}{held_out}"
        return whole if self.shard is None else whole / parse_shard(self.shard).folder

    def write_command(self, benchmark: str) -> str:
        """Write the command that asks for the same trials."""
        words = ["seqdg", "bench", benchmark]
        names = [
            "algorithms",
            "held_out",
            "trials",
            "steps",
            "seed",
            "search",
            "search_space",
            "sampler",
            "precision",
            "net",
            "settings_from",
            "held_out_together",
            "rows",
            "trust",
        ]
        names = [name for name in names if not self.quick or name not in QUICK]
        for name in [*names, *(["select"] if self.leave_one_out or self.reuse else [])]:
            value = getattr(self, name)
            if name == "select" or value != getattr(Request, name):
                text = str(value) if isinstance(value, str | int | Path) else ",".join(value)
                words += [f"--{name.replace('_', '-')}", text]
        flags = [f"--{n.replace('_', '-')}" for n in ("reuse", "quick", "single_source") if getattr(self, n)]
        return shlex.join([*words, *flags, *(w for s in self.settings for w in ("--set", s))])


def _write_settings(settings: Mapping[str, Mapping[str, Any]] | Sequence[str]) -> tuple[str, ...]:
    """Write settings as the command line has them: `fo-s-mldg.alpha=0.05,0.6`."""
    if not isinstance(settings, Mapping):
        return tuple(settings)
    for name, values in settings.items():
        if not isinstance(values, Mapping):
            raise UsageError(
                f"settings has {values!r} for {name!r}, but it must have settings by name, such as "
                "{'agg': {'lr': 0.1}}."
            )
    return tuple(
        f"{name}.{setting}={format_value(tuple(value) if isinstance(value, list) else value)}"
        for name, values in settings.items()
        for setting, value in values.items()
    )


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, as its file describes it."""

    name: str
    title: str
    source: str  # where in the paper, or what it is
    data: Mapping[str, Any]
    net: NetSpec
    batchnorm: str  # policy
    protocol: Protocol
    trials: int = 5
    algorithms: tuple[str, ...] = ("agg",)  # run where none are named
    held_out: tuple[str, ...] = ()  # empty: every domain
    size: int = 0  # side of the images that enter the net; 0: as they are stored
    augment: str = ""
    lr_search: tuple[float, ...] = MULTIPLES  # of an algorithm's learning rate, between which a search draws others
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings and training, by algorithm
    test_domains: tuple[str, ...] = ()  # of a fixed split: held out at once

    def __post_init__(self) -> None:
        if self.size < 0:
            raise UsageError(f"{self.name}: size in [net] is {self.size}. Give the side of its images in pixels.")
        if len(self.lr_search) != 2 or not 0 < self.lr_search[0] <= self.lr_search[1] < math.inf:
            raise UsageError(
                f"{self.name}: lr_search in [protocol] is {list(self.lr_search)}. Give the smallest and the largest "
                "multiple of a learning rate to try, such as [0.1, 2.0]."
            )
        if self._fixed_domains and self.held_out:
            raise UsageError(
                f"{self.name}: [protocol] has held_out, which are held out in turn, and a fixed split, whose "
                "test_domains are held out at once. Keep one."
            )

    @property
    def _fixed_domains(self) -> tuple[str, ...]:
        """Domains that the file names of a fixed split; () where it has none."""
        return self.test_domains or self.protocol.validation_domains or self.protocol.train_domains

    @property
    def held_out_in_turn(self) -> tuple[str, ...] | None:
        """The domains that the file says are held out in turn; None: every one, unless the data fix a split."""
        return () if self._fixed_domains else self.held_out or None

    def fix_split(self, dataset: Dataset) -> Benchmark:
        """Return the benchmark with its fixed split, or that of the data, written out; itself where there is none."""
        protocol, test = fix_split(dataset, self.protocol, self.test_domains)
        return self if not test else replace(self, protocol=protocol, test_domains=test)

    def with_weights(self, file: Path | None) -> Benchmark:
        """Return the benchmark with a net that starts from this file, where there is one."""
        return self if file is None else replace(self, net=replace(self.net, weights=file))

    def with_net(self, name: str | None, settings: Sequence[str] = ()) -> Benchmark:
        """Return the benchmark with another net, where one is named, and with what `net.SETTING=VALUE` says of it.

        Another net keeps `pretrained`, where it is no function of the user's and not without such weights.
        """
        spec = self.net
        if name is not None and name != spec.name:
            pretrained = spec.pretrained and not is_own_net(name) and name not in ("mlp", "convnet")
            spec = NetSpec(name, pretrained=pretrained, dropout=get_published_dropout(name))
        values = {}
        kinds = {**{f.name: str(f.type) for f in fields(NetSpec)}, **FIELDS["net"]}
        for key, text in (setting.removeprefix(NET_SETTING).split("=", 1) for setting in settings):
            if key not in kinds:
                raise unknown("setting", key, kinds, owner="The net")
            values[key] = parse_text(text, kinds[key], f"net.{key}")
        about = {"batchnorm" if key == "policy" else key: values.pop(key) for key in FIELDS["net"] if key in values}
        find_augmentation(about.get("augment", ""))
        return replace(self, net=replace(spec, **values), **about)

    def with_settings(self, file: Path | None) -> Benchmark:
        """Return the benchmark with the [algorithms] tables of another file before its own."""
        others = {} if file is None else read_settings(file)
        return replace(self, tables=_join_tables(self.tables, others))

    def make_task(
        self,
        root: Path | None = None,
        allow_partial: bool = False,
        held_out: Sequence[str] | None = None,
        sample: int | None = None,
    ) -> Task:
        """Make the task: its data lie below `root`. held_out: the domains that will be; None: the benchmark's.
        sample: so many rows of every domain; None: all."""
        in_turn = self.held_out_in_turn
        names = in_turn if in_turn == () else tuple(held_out or ()) or in_turn
        return Task(
            name=self.name,
            rows=RowsOnDisk(self.name, self.data, root, allow_partial, names, sample),
            net=self.net,
            batchnorm=self.batchnorm,
            protocol=self.protocol,
            size=self.size,
            augment=self.augment,
            title=self.title,
        )

    def list_seeds(self, request: Request) -> range:
        """List the seeds that a request asks for."""
        trials = self.trials if request.trials is None else request.trials
        if trials < 1:
            raise UsageError(f"{trials} trials were asked for, but at least 1 is needed.")
        if trials > MOST_TRIALS:
            raise UsageError(f"{trials} trials were asked for, but at most {MOST_TRIALS} are planned at once.")
        return range(request.seed, request.seed + trials)

    def list_candidates(
        self, request: Request, domains: Sequence[str], shape: tuple[int, ...] = ()
    ) -> tuple[Candidate, ...]:
        """List the candidates that a request asks for, of a data set with these domains and inputs of this shape."""
        names = tuple(self.algorithms if request.algorithms is None else request.algorithms)
        if not names:
            raise UsageError("No algorithm was named. `seqdg list algorithms` shows all.")
        self._check_tables(names)
        settings = split_settings([s for s in request.settings if not s.startswith(NET_SETTING)], names)
        sources = len(self.protocol.train_domains) or len(domains) - self.protocol.held_out_together
        return tuple(c for name in names for c in self._propose(name, settings[shorten(name)], request, sources, shape))

    def plan(self, task: Task, request: Request, device: str = "cpu", finished: Iterable[str] = ()) -> Plan:
        """Plan what a request asks for; trials with these keys are finished."""
        dataset = task.dataset()
        list_sources(dataset, tuple(request.held_out or self.held_out))  # raises where one is unknown
        fixed = self.hold_out_together(request, dataset).fix_split(dataset)
        check_rule(dataset, fixed.protocol, fixed.test_domains, request.select)
        shape = (dataset.shape[0], self.size, self.size) if dataset.is_image and self.size else dataset.shape
        candidates = fixed.list_candidates(request, dataset.domains, shape)
        held_out = fixed.list_held_out(request, dataset.domains)
        return plan(task, candidates, held_out, self.list_seeds(request), device, finished)

    def hold_out_together(self, request: Request, dataset: Dataset) -> Benchmark:
        """Return the benchmark with as many domains held out at once as a request asks for."""
        domains = len(dataset.domains)
        asked = domains - 1 if request.single_source else request.held_out_together
        count = self.protocol.held_out_together if asked is None else asked
        if count == 1:
            return self
        if self._fixed_domains or dataset.parts:
            raise UsageError(f"{self.name} has a fixed split, which says what is held out: leave out other choices.")
        if not 1 <= count < domains:
            raise UsageError(
                f"{count} domains are to be held out at once, of {domains} of {dataset.name}: give 1 to {domains - 1}."
            )
        return replace(self, protocol=replace(self.protocol, held_out_together=count))

    def list_held_out(self, request: Request, domains: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """List what is held out together: all test domains of a fixed split, or each domain in turn."""
        if not self.protocol.is_fixed:
            names = tuple(request.held_out or self.held_out or domains)
            together = self.protocol.held_out_together
            if together > len(names):
                raise UsageError(f"{together} domains are held out at once: name as many with --held-out, or more.")
            if together > 1:
                return tuple(combinations([domain for domain in domains if domain in names], together))
            pairs = combinations(domains, 2) if request.leave_one_out else ()
            return (*((name,) for name in names), *(pair for pair in pairs if set(pair) & set(names)))
        if request.held_out:
            raise UsageError(
                f"{self.name} has a fixed split, whose test domains ({list_some(self.test_domains)}) are held out at "
                "once: leave out --held-out."
            )
        if request.leave_one_out:
            raise UsageError(
                f"{self.name} has a fixed split, so that no domain is held out in turn for leave-one-out: choose "
                f"--select {'domain-val or ' if self.protocol.validation_domains else ''}source-val."
            )
        return (self.test_domains,)

    def _propose(
        self, name: str, settings: Mapping[str, str], request: Request, sources: int, shape: tuple[int, ...]
    ) -> list[Candidate]:
        """Propose candidates, the same for every held-out domain and seed: the first as it is, of the others settings
        and learning rate are drawn, unless the user fixed them."""
        # A chain has the tables of all that it wraps, and one of its own comes before those.
        tables = {shorten(written): table for written, table in self.tables.items()}
        table = {k: v for inner in list_inner_names(name) for k, v in tables.get(inner, {}).items()}
        learner = find_learner(name)
        training = {k: v for k, v in table.items() if k in TRAINING}
        asked = {"steps": request.steps, "precision": request.precision}
        protocol = _read_protocol(self.protocol, training, f"[algorithms.{shorten(name)}] of {self.name}")
        parsed = _parse_training({k: v for k, v in settings.items() if k in TRAINING})
        dropout = read_dropout(name, settings, table)
        settings, table = ({k: v for k, v in part.items() if k != DROPOUT} for part in (settings, table))
        protocol = replace(protocol, **{**parsed, **{k: v for k, v in asked.items() if v is not None}})
        multiples = (self.lr_search[0], self.lr_search[1])
        draft = Draft(name, protocol, table, settings, request.search, multiples, sources, shape, request.search_space)
        candidates = learner.propose(draft)
        return candidates if dropout is None else [replace(c, dropout=dropout) for c in candidates]

    def _check_tables(self, names: Sequence[str]) -> None:
        """Refuse settings of an algorithm that does not exist, even where it is not run."""
        chains = [inner for name in (*self.algorithms, *names) for inner in list_inner_names(name)]
        known = dict.fromkeys((*list_algorithms(), *list_learners(), *chains))
        for name in self.tables:
            if shorten(name) not in known:
                base, *wrappers = split_chain(name)
                if ":" in base:
                    find_learner(base)  # raises where its file may not be imported, or does not have it
                elif base not in known or not wrappers:
                    raise unknown("algorithm", name, known)
                if wrappers:
                    build(name)  # raises where it is no chain


def read_dropout(name: str, settings: Mapping[str, str], table: Mapping[str, Any]) -> float | None:
    """Return the share that dropout drops of the net of an algorithm, where its settings give one."""
    value = settings.get(DROPOUT, table.get(DROPOUT))
    if value is None or not find_learner(name).trains_net:
        return None
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = math.nan
    if not 0 <= share < 1:
        raise UsageError(f"{shorten(name)}.dropout is {value!r}, but it must be a share from 0 to below 1.")
    return share


def list_benchmarks() -> tuple[str, ...]:
    """List the names of the benchmarks that come with the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_benchmark(name: str) -> Benchmark:
    """Load a benchmark by name, or from the user's own TOML file.

    `turned-digits:number=12,degrees=30` has these values in its [data] table in place of the file's.
    """
    whole, colon, changes = name.rpartition(":")
    if colon and "=" in changes:
        chosen = load_benchmark(whole)
        return replace(chosen, name=f"{chosen.name}:{changes}", data=_change_data(chosen, changes))
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise UsageError(f"There is no benchmark file '{name}'.")
        raise unknown("benchmark", name, list_benchmarks())
    return _read(path.stem, read_toml(path))


def _change_data(benchmark: Benchmark, changes: str) -> dict[str, Any]:
    """Return the [data] table with other values of what it has."""
    data = dict(benchmark.data)
    for change in changes.split(","):
        key, _, text = change.partition("=")
        if key not in data:
            raise unknown("key", key, data, owner=f"[data] of {benchmark.name}")
        data[key] = parse_text(text, type(data[key]).__name__, f"'{key}' in [data] of {benchmark.name}")
    return data


def load_requested(name: str, request: Request) -> Benchmark:
    """Load a benchmark with the net, the weights and the settings that a request has for it."""
    about_net = [setting for setting in request.settings if setting.startswith(NET_SETTING)]
    chosen = load_benchmark(name).with_net(request.net, about_net)
    return chosen.with_weights(request.weights).with_settings(request.settings_from)


def read_settings(path: Path) -> dict[str, Mapping[str, Any]]:
    """Read the settings of algorithms from a file with [algorithms.NAME] tables, as `seqdg table --settings-out`
    writes."""
    if not path.is_file():
        raise UsageError(f"There is no file {path} to take settings from. `seqdg table --settings-out` writes some.")
    return _read_tables(str(path), read_toml(path).get("algorithms", {}))


def _read(name: str, content: Mapping[str, Any]) -> Benchmark:
    known = ("title", "source", "data", "net", "protocol", "algorithms")
    for part in content:
        if part not in known:
            raise unknown("part", part, known, owner=f"The benchmark file '{name}'")
    for part in ("data", "net", "protocol"):
        if part not in content:
            raise UsageError(f"The benchmark file of '{name}' has no [{part}] table.")

    def split(part: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Split a table into the benchmark's fields and what remains."""
        table = dict(read_value(content[part], "table", f"[{part}] of {name}"))
        location = f"the [{part}] table of {name}"
        kinds = {k: kind for k, kind in FIELDS[part].items() if k in table}
        taken = {k: read_value(table.pop(k), kind, f"'{k}' in {location}") for k, kind in kinds.items()}
        return taken, table

    (about_net, net), (about_trials, protocol) = split("net"), split("protocol")
    find_augmentation(about_net.get("augment", ""))
    return Benchmark(
        name=name,
        title=read_value(content.get("title", name), "str", f"The title of {name}"),
        source=read_value(content.get("source", ""), "str", f"The source of {name}"),
        data=_read_data(name, content["data"]),
        net=_read_net(name, net),
        batchnorm=about_net.pop("policy", "none"),
        protocol=_read_protocol(Protocol(), protocol, f"the [protocol] table of {name}"),
        tables=_read_tables(name, content.get("algorithms", {})),
        **about_net,
        **about_trials,
    )


def _read_data(benchmark: str, table: Any) -> Mapping[str, Any]:
    """Return the [data] table, whose other values are read where the data are."""
    data: Mapping[str, Any] = read_value(table, "table", f"[data] of {benchmark}")
    read_value(data.get("format", ""), "str", f"'format' in [data] of {benchmark}")
    return data


def _read_net(benchmark: str, table: dict[str, Any]) -> NetSpec:
    location = f"the [net] table of {benchmark}"
    values = read_fields(NetSpec, table, location, also=tuple(FIELDS["net"]))
    if "name" not in values:
        raise UsageError(f"There is no name in {location}. Choose one of: {', '.join(NET_NAMES)}, timm:NAME.")
    return NetSpec(**{"dropout": get_published_dropout(values["name"]), **values})


def _read_protocol(protocol: Protocol, table: Mapping[str, Any], location: str) -> Protocol:
    return replace(protocol, **read_fields(Protocol, table, location, also=tuple(FIELDS["protocol"])))


def _read_tables(name: str, tables: Any) -> dict[str, Mapping[str, Any]]:
    whole = read_value(tables, "table", f"[algorithms] of {name}")
    return _join_tables(
        {
            use_own_names(written): read_value(table, "table", f"[algorithms.{written}] of {name}")
            for written, table in whole.items()
        }
    )


def _join_tables(*several: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Join tables of settings. Those of one algorithm, with and without the file that it comes from, become one."""
    joined: dict[str, Mapping[str, Any]] = {}
    for name, table in (item for tables in several for item in tables.items()):
        known = next((other for other in joined if shorten(other) == shorten(name)), name)
        joined[name] = {**joined.pop(known, {}), **table}
    return joined


def _parse_training(texts: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in texts.items():
        kind: type[str] | type[int] | type[float] = type(getattr(Protocol(), name))
        try:
            values[name] = kind(text)
        except ValueError:
            raise UsageError(f"{name} is '{text}', but it must be a number.") from None
    return values


def split_settings(texts: Sequence[str], algorithms: Sequence[str]) -> dict[str, dict[str, str]]:
    """Split `fo-s-mldg.alpha=0.05,0.6` into names and values, for every algorithm of a run by its short name.

    What is set for an algorithm holds for the chains around it too; what is set for a chain comes before that.
    """
    inner = {shorten(name): list_inner_names(name) for name in algorithms}
    known = dict.fromkeys(part for parts in inner.values() for part in parts)
    by_algorithm: dict[str, dict[str, str]] = {}
    for text in texts:
        where, equals, value = text.partition("=")
        algorithm, dot, name = where.rpartition(".")
        if not equals or not dot:
            raise UsageError(f"A setting is written algorithm.setting=value, not '{text}'.")
        if (short := shorten(algorithm)) not in known:
            raise unknown("algorithm", algorithm, known, owner="This run")
        by_algorithm.setdefault(short, {})[name] = value
    return {
        short: {name: value for part in parts for name, value in by_algorithm.get(part, {}).items()}
        for short, parts in inner.items()
    }

"""A study: its file, with parts that are run in order and hypotheses that are fixed beforehand, and its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, make_file_name, read_fields, read_toml, read_value, unknown
from seqdg.results import FAILED, InnerTrials, Record, RecordSource, has_run, open_run, score_candidate

CRITERION = "accuracy"  # of all that a study answers
PLAIN, COSINE = "plain", "cosine"
AVERAGES = ("ema", "sma", "swad")
VARIANTS = (PLAIN, COSINE, *AVERAGES)
LEADER = "ema"  # the average by whose records settings are chosen for all averages
SEARCH = "search"  # a run directory inside that of a part, as COSINE is


@dataclass(frozen=True)
class Part:
    """Some trials of one benchmark. Fields that are left out are as the benchmark has them.

    name: `SET/KIND`; a hypothesis compares kinds within each set.
    variants: of every algorithm: `plain`, `cosine` (the plain weights, under a rate that falls to 0), and the averages
        `ema`, `sma`, `swad`, which one training gives for nothing.
    lr: of every algorithm, in place of the benchmark's rates, which are for its own optimizer.
    draws: candidates that a search tries for every algorithm and schedule, the first as it is; 1: no search.
    rates: multiples of the learning rate that a search tries, in place of draws.
    search_seed: of the search; the trials have the seeds from 0 on.
    net, weights: another network, and the file below the data's folder that it starts from.
    settings: `algorithm.setting=value`, as for `seqdg bench --set`; never searched.
    """

    name: str
    benchmark: str
    algorithms: tuple[str, ...]
    variants: tuple[str, ...] = (PLAIN,)
    trials: int = 10
    held_out: tuple[str, ...] = ()
    steps: int = 0
    evaluations: int = 30
    batch: int = 0
    optimizer: str = ""
    lr: float = 0.0
    weight_decay: float = -1.0
    precision: str = ""
    path: str = "random"
    net: str = ""
    weights: str = ""
    draws: int = 1
    rates: tuple[float, ...] = ()
    search_seed: int = 100
    search_evaluations: int = 6
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.variants:
            if name not in VARIANTS:
                raise unknown("variant", name, VARIANTS, owner=self.name)
        words = self.name.split("/")
        if len(words) != 2 or any(word != make_file_name(word, "+-_. ") for word in words):  # it is a folder of --out
            raise UsageError(
                f"The part '{self.name[:80]}' must have a name of the form SET/KIND, such as digits/momentum."
            )
        if self.search_seed < self.trials:
            raise UsageError(f"{self.name}: the search has seed {self.search_seed}, which is one of its trials'.")
        if set(self.variants) & set(AVERAGES) and self.searches and LEADER not in self.variants:
            raise UsageError(f"{self.name}: settings of averages are chosen by +{LEADER}, which is no variant here.")

    @property
    def set(self) -> str:
        return self.name.split("/")[0]

    @property
    def kind(self) -> str:
        return self.name.split("/")[1]

    @property
    def searches(self) -> bool:
        return self.draws > 1 or bool(self.rates)

    @property
    def averages(self) -> tuple[str, ...]:
        return tuple(v for v in self.variants if v in AVERAGES)

    def list_algorithms(self) -> list[str]:
        """List its algorithms, each alone and with the averages of its weights."""
        return [name + view for name in self.algorithms for view in ("", *(f"+{a}" for a in self.averages))]

    @property
    def schedules(self) -> tuple[str, ...]:
        constant = ("constant",) if set(self.variants) - {COSINE} else ()
        return (*constant, COSINE) if COSINE in self.variants else constant

    @property
    def folders(self) -> tuple[str, ...]:
        """The run directories of the part: its own (`.`), and those inside it."""
        trials = [COSINE if schedule == COSINE else "." for schedule in self.schedules]
        return (*trials, SEARCH) if self.searches else tuple(trials)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: an algorithm in the parts of a kind."""

    kind: str
    algorithm: str  # with its average: `agg+ema`; `agg+cosine`: under the cosine schedule

    def __str__(self) -> str:
        return f"{self.algorithm} ({self.kind})"


@dataclass(frozen=True)
class Comparison:
    """`better` minus `worse`, paired over held-out domain and seed."""

    better: Side
    worse: Side


@dataclass(frozen=True)
class Hypothesis:
    """The claim that `better` is above `worse`, or at least not more than `margin` points below it.

    beside: the same question of other algorithms, averages or kinds: reported, and not part of the answer.
    """

    name: str
    says: str
    comparison: Comparison
    margin: float = 0.0
    beside: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class Study:
    """The contents of a study's file. published: the folder, beside the file's root, of packed records of the parts."""

    title: str
    parts: tuple[Part, ...]
    hypotheses: tuple[Hypothesis, ...]
    published: Path | None = None
    sequential: tuple[str, ...] = ()  # algorithms that count as sequential, for the best against the best of the rest
    path: Path = field(default=Path("study.toml"))

    def select_parts(self, patterns: Sequence[str] | None) -> tuple[Part, ...]:
        """Return the parts of these names, in the order of the file; `*` stands for anything, and a set for all its
        parts."""
        if patterns is None:
            return self.parts
        for pattern in patterns:
            if not any(_fits(part, pattern) for part in self.parts):
                raise unknown("part", pattern, [part.name for part in self.parts], owner=str(self.path))
        return tuple(part for part in self.parts if any(_fits(part, pattern) for pattern in patterns))

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.set for part in self.parts))

    def find_part(self, set_name: str, kind: str) -> Part | None:
        return next((part for part in self.parts if (part.set, part.kind) == (set_name, kind)), None)


def _fits(part: Part, pattern: str) -> bool:
    return fnmatch(part.name, pattern) or part.set == pattern


def load_study(path: Path) -> Study:
    """Read a study's file."""
    if not path.is_file():
        raise UsageError(f"There is no study's file {path}.")
    content = read_toml(path)
    defaults = read_value(content.pop("defaults", {}), "table", f"[defaults] of {path}")
    tables = {name: content.pop(name, []) for name in ("parts", "hypotheses")}
    for name, some in tables.items():
        if not isinstance(some, list):
            raise UsageError(f"{name} in {path} must be a list of tables: [[{name}]].")
    values = read_fields(Study, content, str(path), but=(*tables, "path"), also=("defaults", *tables))
    if "published" in values:
        values["published"] = (path.parent / values["published"]).resolve()
    parts = tuple(_read_part({**defaults, **table}, path) for table in tables["parts"])
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{path} has two parts named '{twice}'. Rename one.")
    hypotheses = tuple(_read_hypothesis(table, path) for table in tables["hypotheses"])
    study = Study(**{"title": path.stem, **values}, parts=parts, hypotheses=hypotheses, path=path)
    _check_kinds(study)
    return study


def _read_part(table: Mapping[str, Any], path: Path) -> Part:
    owner = f"the part {table.get('name', '')!r} of {path}"
    return Part(**_require(read_fields(Part, table, owner), ("name", "benchmark", "algorithms"), owner))


def _require(values: dict[str, Any], names: Sequence[str], owner: str) -> dict[str, Any]:
    for name in names:
        if name not in values:
            raise UsageError(f"There is no {name} in {owner}.")
    return values


def _read_hypothesis(table: Any, path: Path) -> Hypothesis:
    owner = f"a hypothesis of {path}"
    about = dict(read_value(table, "table", owner))
    better, worse, beside = (about.pop(name, None) for name in ("better", "worse", "beside"))
    if not isinstance(beside or [], list) or not all(isinstance(p, list) and len(p) == 2 for p in beside or ()):
        raise UsageError(f"beside in {owner} must be a list of pairs: [['KIND: ALGORITHM', 'KIND: ALGORITHM'], ...].")
    values = read_fields(Hypothesis, about, owner, ("comparison", "beside"), ("better", "worse", "beside"))
    pairs = [(better, worse), *(beside or ())]
    comparison, *others = [Comparison(*(_read_side(text, owner) for text in pair)) for pair in pairs]
    return Hypothesis(**_require(values, ("name", "says"), owner), comparison=comparison, beside=tuple(others))


def _read_side(text: Any, owner: str) -> Side:
    kind, colon, algorithm = read_value(text, "str", f"A side in {owner}").partition(": ")
    if not colon:
        raise UsageError(f"A side in {owner} is '{text}', but it must be 'KIND: ALGORITHM'.")
    return Side(kind.strip(), algorithm.strip())


def _check_kinds(study: Study) -> None:
    """Refuse a comparison that no set can make."""
    for hypothesis in study.hypotheses:
        for pair in (hypothesis.comparison, *hypothesis.beside):
            for side in (pair.better, pair.worse):
                base, _, variant = side.algorithm.partition("+")
                parts = [p for p in study.parts if p.kind == side.kind and base in p.algorithms]
                if not any((variant or PLAIN) in p.variants for p in parts):
                    raise UsageError(f"{hypothesis.name} of {study.path} compares {side}, which no part of it has.")


def find_runs(study: Study, part: Part, folder: str, out: Path | None) -> list[RecordSource]:
    """Open what there is of a part's run directory, and of its published records."""
    roots = [root for root in (out, study.published) if root is not None]
    directories = [root / part.name / folder for root in roots]
    return [open_run(directory) for directory in directories if has_run(directory)]


def score_source(record: Record) -> float:
    """Return the accuracy on source validation at the step that is best there."""
    return score_candidate(record, InnerTrials(()), "source-val", CRITERION)


def collect_records(runs: Iterable[RecordSource], criterion: str | None = None) -> dict[str, Record]:
    """Return the finished trials of all runs by key; the first run that has one gives it."""
    records: dict[str, Record] = {}
    for run in runs:
        for record in run.records(criterion):
            if record.status != FAILED:
                records.setdefault(record.key, record)
        run.close()
    return records

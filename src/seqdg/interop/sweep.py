"""Sweeps of DomainBed and of its forks (SWAD, MIRO, SAGM, GGA) as run directories.

DomainBed writes a results.jsonl per training, a line per evaluation: `args`, `hparams`, `step`, and for every
environment i the accuracy on 80 % of its rows (`env{i}_in_acc`) and on the other 20 % (`env{i}_out_acc`); a file `done`
says that the training ended. Its forks write one per command, which trains with every environment held out in turn
(`args.real_test_envs`); the names are `env{i}_in` and `env{i}_out`, beside the means `test_in`, `test_out` and
`train_out`, and nothing says that it ended but the summary in log.txt, which also has the accuracy of SWAD's averages.

| record | from |
|---|---|
| seed | args.trial_seed |
| held out | the test environments, by name; two are a trial of leave-one-out |
| sources | out accuracy of the others |
| held-out domain, and the rest of `oracle-split` | in accuracy of the test environment |
| the fifth of `oracle-split` | out accuracy of the test environment |
| settings | hparams, but lr, weight_decay and batch_size, which are the protocol's |
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, count_things, list_some, make_file_name
from seqdg.results import (
    DONE,
    IMPORTED,
    UNPAIRED,
    VERSION,
    Evaluation,
    Record,
    Store,
    add_command,
    lock_directory,
    make_key,
)

FILE, ENDED, LOG = "results.jsonl", "done", "log.txt"
ENVIRONMENT = re.compile(r"env(\d+)_(in|out)(?:_acc)?$")
_JOB = re.compile(r"[0-9a-f]{32}$")  # the folder that a sweep makes for every training, before it begins
_AVERAGED = re.compile(r"SWAD( \(inD\))? = ([0-9]+(?:\.[0-9]+)?)%")
SPAWRIOUS = [f"Spawrious{kind}_{level}" for kind in ("O2O", "M2M") for level in ("easy", "medium", "hard")]
ENVIRONMENTS = {  # the names of the test environments, in their order
    "Debug28": ("0", "1", "2"),
    "Debug224": ("0", "1", "2"),
    "ColoredMNIST": ("+90%", "+80%", "-90%"),
    "RotatedMNIST": ("0", "15", "30", "45", "60", "75"),
    "VLCS": ("C", "L", "S", "V"),
    "PACS": ("A", "C", "P", "S"),
    "OfficeHome": ("A", "C", "P", "R"),
    "TerraIncognita": ("L100", "L38", "L43", "L46"),
    "DomainNet": ("clip", "info", "paint", "quick", "real", "sketch"),
    "SVIRO": ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe"),
    "WILDSCamelyon": tuple(f"hospital_{i}" for i in range(5)),
    "WILDSFMoW": tuple(f"region_{i}" for i in range(6)),
    **dict.fromkeys(SPAWRIOUS, ("Test", "SC_group_1", "SC_group_2")),
}
PROTOCOL = {"lr": "lr", "weight_decay": "weight_decay", "batch_size": "batch"}  # of hparams, and their names here
NEEDED = ("args", "hparams", "step", "algorithm", "dataset", "test_envs", "trial_seed")  # of a line and its args
MOST = 1000  # environments; the largest data sets have some dozens
MEANS = {"source": ("train_out", "tr_out"), "rest": ("test_in", "te_in"), "fifth": ("test_out", "te_out")}  # of forks

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Imported:
    """What was imported of one data set, where to, and what a reader should know of it."""

    dataset: str
    directory: Path
    records: Sequence[Record]
    sentences: Sequence[str]


def import_sweep(
    sweep: Path,
    out: Path,
    domains: Sequence[str] | None = None,
    allow_partial: bool = False,
    command: str = "",
) -> list[Imported]:
    """Import every training below a folder into a run directory; of several data sets, one each below `out`.

    domains: the names of the environments, in their order, in place of DomainBed's.
    allow_partial: leave out trainings that were cut short.
    """
    trainings = read_sweep(sweep)
    cut = [t for t in trainings if not t.ended]
    if cut and (not allow_partial or len(cut) == len(trainings)):
        raise UsageError(
            f"{len(cut)} of {count_things(len(trainings), 'training')} below {sweep} were cut short, such as "
            f"{cut[0].path.parent.name} at step {cut[0].lines[-1]['step'] if cut[0].lines else 0}: end them"
            + ("." if len(cut) == len(trainings) else ", or leave them out with --allow-partial.")
        )
    left_out = f"Left out: {count_things(len(cut), 'training')} that {'was' if len(cut) == 1 else 'were'} cut short."
    whole = [t for t in trainings if t.ended]
    datasets = list(dict.fromkeys(t.dataset for t in whole))
    folders: dict[str, str] = {}
    for name in datasets:
        other = folders.setdefault(make_file_name(name).casefold(), name)
        if other != name:
            raise UsageError(
                f"The data sets '{other}' and '{name}' of {sweep} would go to the same folder below {out}, and nothing "
                "was imported. Import the trainings of each from a folder of their own."
            )
    imported = []
    for name in datasets:
        directory = out if len(datasets) == 1 else out / make_file_name(name)
        records, sentences = make_records([t for t in whole if t.dataset == name], domains)
        imported.append(Imported(name, directory, records, [*sentences, *([left_out] if cut else [])]))
    for one in imported:
        _store(one, command)
    return imported


def _store(imported: Imported, command: str) -> None:
    with lock_directory(imported.directory), closing(Store.create(imported.directory, imported.dataset)) as store:
        known = {r.key: r for r in store.records()}
        for record in imported.records:
            if record.key in known and known[record.key].history != record.history:
                raise UsageError(
                    f"{imported.directory} holds {name_trial(record)} with other numbers, from another sweep. Give "
                    f"--out another directory; `seqdg table {imported.directory} OTHER` sets both side by side."
                )
        store.begin({**dict.fromkeys(store.planned(), ""), **{record.key: "" for record in imported.records}})
        store.add(r for r in imported.records if r.key not in known)
        if command:
            add_command(store, command, [r.description for r in imported.records])


def describe_import(imported: Imported) -> str:
    """`40 trials of VLCS (ERM; C, L, S, V held out; seeds 0, 1) are in runs/vlcs.`, and what is to be known of them."""
    single = [r for r in imported.records if len(r.held_out) == 1]
    algorithms = Counter(r.algorithm for r in imported.records)
    held_out = dict.fromkeys(name for r in single or imported.records for name in r.held_out)
    seeds = sorted({r.seed for r in imported.records})
    what = f"{list_some(algorithms)}; {list_some(held_out)} held out; seeds {list_some(seeds)}"
    head = f"{count_things(len(imported.records), 'trial')} of {imported.dataset} ({what}) are in {imported.directory}."
    return "\n".join([head, *imported.sentences])


@dataclass(frozen=True)
class Training:
    """The lines of one training, from its first evaluation to its last."""

    path: Path  # of its results.jsonl
    lines: Sequence[Line]
    test_envs: tuple[int, ...]
    ended: bool
    is_fork: bool
    averaged: tuple[float, float] | None = None  # SWAD's accuracy: on the held-out domain and on source validation

    @property
    def args(self) -> Mapping[str, Any]:
        args: Mapping[str, Any] = self.lines[0]["args"]
        return args

    @property
    def dataset(self) -> str:
        return str(self.args["dataset"])

    @property
    def environments(self) -> int:
        """How many environments its lines tell of."""
        numbers = [int(m[1]) for name in self.lines[0] if (m := ENVIRONMENT.match(name))]
        return 1 + max((*numbers, *self.test_envs))


def read_sweep(sweep: Path) -> list[Training]:
    """Read every results.jsonl below a folder; a training without an evaluation has no lines, and has not ended."""
    if not sweep.is_dir():
        raise UsageError(f"There is no folder {sweep}. Give the --output_dir of a sweep of DomainBed.")
    files = sorted(sweep.rglob(FILE))
    files += sorted(p / FILE for p in sweep.rglob("*") if _JOB.match(p.name) and p.is_dir() and p / FILE not in files)
    trainings = [training for path in files for training in _read_file(path)]
    if not any(training.lines for training in trainings):
        raise UsageError(
            f"There is no {FILE} with an evaluation below {sweep}. Give the --output_dir of a sweep of DomainBed, or "
            "the train_output of a fork."
        )
    return trainings


def _read_file(path: Path) -> list[Training]:
    """Read a results.jsonl: one training of DomainBed, or several of a fork, one after the other."""
    lines, is_cut = _read_lines(path)
    if not lines:
        return [Training(path, [], (), ended=False, is_fork=False)]
    by_envs = _split_trainings(lines)
    if "real_test_envs" in lines[0]["args"]:
        return _list_fork(path, by_envs, is_cut)
    ended = (path.parent / ENDED).exists()
    if is_cut and ended:
        raise UsageError(f"The last line of {path} is half a line: the file is damaged. Remove its folder.")
    return [Training(path, its, envs, ended, is_fork=False) for envs, its in by_envs.items()]


def _read_lines(path: Path) -> tuple[list[Line], bool]:
    """Read the whole lines of a file, and whether half a line follows them."""
    lines: list[Line] = []
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for i, text in enumerate(texts):
        try:
            line = json.loads(text)
            if "\\ud" in text:
                json.dumps(line, ensure_ascii=False).encode()  # half of a character, which no text has
        except (ValueError, RecursionError):  # a number of thousands of digits, lists nested as deep
            if i == len(texts) - 1:
                return lines, True
            raise UsageError(f"Line {i + 1} of {path} is not JSON: the file is damaged. Remove its folder.") from None
        _check_line(line, path, i)
        lines.append(line)
    return lines, False


def _check_line(line: Any, path: Path, i: int) -> None:
    fields = line if isinstance(line, dict) else {}
    args = fields.get("args")
    known = {*fields, *(args if isinstance(args, dict) else ())}
    for name in NEEDED:
        if name not in known:
            raise UsageError(
                f"{path} is no results file of DomainBed or a fork: its line {i + 1} has no '{name}'. Give a folder "
                "that holds none but theirs."
            )
    for name, value, is_allowed, wanted in _list_values(fields):
        if not is_allowed(value):
            text = json.dumps(value)[:80]
            raise UsageError(
                f"{name} in line {i + 1} of {path} is {text}, but it must be {wanted}: the file is damaged. Remove its "
                "folder."
            )


def _list_values(line: Line) -> Iterator[tuple[str, Any, Callable[[Any], bool], str]]:
    """List what is read of a line: its name, its value, whether that is allowed, and what is, in words."""
    args, hparams = line["args"], line["hparams"]
    yield "hparams", hparams, lambda value: isinstance(value, dict), "a table of settings"
    for name in ("algorithm", "dataset"):
        yield name, args[name], lambda value: isinstance(value, str) and bool(value) and value.isprintable(), "a name"
    steps = args.get("steps")
    for name, value in (("step", line["step"]), ("trial_seed", args["trial_seed"]), ("steps", steps or 0)):
        yield name, value, lambda value: _is_whole(value, 2**53), "a whole number of at least 0"
    envs = args.get("real_test_envs") or args["test_envs"]
    yield "test_envs", envs, _are_environments, f"a list of numbers of environments, from 0 to {MOST}"
    names = [name for name in line if ENVIRONMENT.match(name)]
    for name in (*names, *(name for names in MEANS.values() for name in names if name in line)):
        yield name, line[name], lambda value: _is_between(value, 1), "a number from 0 to 1"
    numbers = [int(name[3:].split("_")[0]) for name in names]
    yield "the number of an environment", max(numbers, default=0), lambda value: value <= MOST, f"at most {MOST}"
    share = args.get("holdout_fraction") or 0.2
    yield "holdout_fraction", share, lambda value: _is_between(value, 1), "a number from 0 to 1"
    costs = {name: line[name] for name in ("step_time", "mem_gb") if name in line}
    for name, value in (*costs.items(), *((name, hparams[name]) for name in PROTOCOL if name in hparams)):
        yield name, value, lambda value: _is_between(value, 1e9), "a number of at least 0"
    yield "loss", line.get("loss", 0.0), lambda value: _is_between(value, math.inf) or value != value, "a number"


def _is_between(value: Any, most: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (0 if most < math.inf else -math.inf) <= value <= most
    )


def _is_whole(value: Any, most: int) -> bool:
    return _is_between(value, most) and value == int(value)


def _are_environments(value: Any) -> bool:
    return isinstance(value, list) and all(_is_whole(v, MOST) for v in value) and 0 < len(value) == len(set(value))


def _split_trainings(lines: Sequence[Line]) -> dict[tuple[int, ...], list[Line]]:
    """Return the lines of each training by its test environments; of one that was begun again, the last."""
    passes: list[list[Line]] = []
    for line in lines:
        last = passes[-1][-1] if passes else None
        if last is None or _list_test_envs(last) != _list_test_envs(line) or line["step"] <= last["step"]:
            passes.append([])
        passes[-1].append(line)
    return {_list_test_envs(its[0]): its for its in passes}


def _list_test_envs(line: Line) -> tuple[int, ...]:
    args = line["args"]
    return tuple(int(i) for i in args.get("real_test_envs") or args["test_envs"])


def _list_fork(path: Path, by_envs: Mapping[tuple[int, ...], list[Line]], is_cut: bool) -> list[Training]:
    """Say which trainings of a fork's file ended, and what SWAD's averages of these are."""
    log = path.with_name(LOG)
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    *earlier, latest = by_envs
    steps = max(its[-1]["step"] for its in by_envs.values())
    ended = set(earlier)
    if (
        "=== Summary ===" in text
        or _reaches_end(by_envs[latest])
        or (earlier and by_envs[latest][-1]["step"] == steps and not is_cut)
    ):
        ended.add(latest)
    averages = iter(_read_averages(log, text, len(ended)))
    return [
        Training(path, its, envs, envs in ended, is_fork=True, averaged=next(averages) if envs in ended else None)
        for envs, its in by_envs.items()
    ]


def _reaches_end(lines: Sequence[Line]) -> bool:
    """Whether no further evaluation was due, where the number of steps is known."""
    if len(lines) < 2 or not lines[0]["args"].get("steps"):
        return False
    return bool(2 * lines[-1]["step"] - lines[-2]["step"] > lines[0]["args"]["steps"])


def _read_averages(path: Path, log: str, count: int) -> Sequence[tuple[float, float] | None]:
    """Read SWAD's accuracy from a log: on the held-out domain and on source validation, for every training."""
    accuracies = [(bool(inside), float(value) / 100) for inside, value in _AVERAGED.findall(log)]
    if any(value > 1 for _, value in accuracies):
        raise UsageError(f"{path} gives SWAD an accuracy above 100 %: the file is damaged. Remove it.")
    outside, inside = ([value for is_inside, value in accuracies if is_inside == kind] for kind in (False, True))
    if not len(outside) == len(inside) == count:
        return [None] * count
    return list(zip(outside, inside, strict=True))


def make_records(trainings: Sequence[Training], domains: Sequence[str] | None = None) -> tuple[list[Record], list[str]]:
    """Make the records of trainings on one data set, and sentences on what they lack."""
    first = trainings[0]
    names = _name_environments(first, max(t.environments for t in trainings), domains)
    several = [t for t in trainings if len(t.test_envs) > 2]
    if len(several) == len(trainings):
        raise UsageError(f"All trainings on {first.dataset} have more than two test environments: nothing to import.")
    records: dict[str, tuple[Record, Path]] = {}
    copies = 0
    for training, record in _list_records(trainings, names):
        known = records.setdefault(record.key, (record, training.path))
        if known[1] == training.path:
            continue
        if known[0].history != record.history:
            raise UsageError(
                f"Two trainings are of {name_trial(record)} and have other numbers: {known[1].parent} and "
                f"{training.path.parent}. Import each sweep into a directory of its own; `seqdg table DIR OTHER` sets "
                "them side by side."
            )
        copies += 1
    sentences = [f"{count_things(copies, 'training')} lay there twice and were taken once."] if copies else []
    if several:
        sentences.append(f"Left out: {len(several)} with more than two test environments, which no rule here reads.")
    if domains is None and first.dataset not in ENVIRONMENTS:
        sentences.append(f"The names of {first.dataset}'s environments are not known: give them with --domains A,B,C.")
    every = [record for record, _ in records.values()]
    return every, [*sentences, *_describe_absent(every, trainings)]


def name_trial(record: Record) -> str:
    """`ERM with C held out, trial seed 0 and settings seed 1`"""
    drawn = record.description[IMPORTED].get("hparams_seed")
    settings = " and the same settings" if drawn is None else f" and settings seed {drawn}"
    return f"{record.algorithm} with {' and '.join(record.held_out)} held out, trial seed {record.seed}{settings}"


def _name_environments(training: Training, count: int, domains: Sequence[str] | None) -> Sequence[str]:
    names = domains or ENVIRONMENTS.get(training.dataset) or [f"env{i}" for i in range(count)]
    if len(names) != count or len(set(names)) != count:
        raise UsageError(
            f"{training.dataset} has {count} environments in {training.path}, and {len(set(names))} different names "
            f"were given ({', '.join(names)}): give one for each, in their order, with --domains."
        )
    return names


def _list_records(trainings: Sequence[Training], names: Sequence[str]) -> Iterator[tuple[Training, Record]]:
    """List the record of each training that a rule here reads, followed by that of SWAD's average of it, if any."""
    read = [t for t in trainings if len(t.test_envs) <= 2]
    for t in sorted(read, key=lambda t: (t.args["algorithm"], len(t.test_envs), t.test_envs, t.args["trial_seed"])):
        yield t, _make_record(t, names)
        if t.averaged is not None:
            yield t, _make_averaged(t, names, *t.averaged)


def _make_record(training: Training, names: Sequence[str]) -> Record:
    description = _describe(training, names)
    seconds, before = 0.0, -1
    for line in training.lines:
        seconds += float(line.get("step_time", 0.0)) * (line["step"] - before)
        before = line["step"]
    return Record(
        key=make_key(description),
        description=description,
        status=DONE,
        history=[_read_evaluation(line, training) for line in training.lines],
        losses=[float(line["loss"]) for line in training.lines if "loss" in line],
        seconds=seconds,
        peak_memory=round(2**30 * max(float(line.get("mem_gb", 0.0)) for line in training.lines)),
        notes=[f"read from {training.path.parent.name}/{FILE}"],
    )


def _make_averaged(training: Training, names: Sequence[str], outside: float, inside: float) -> Record:
    """Make the record of SWAD's average of a training, of which a log gives two numbers."""
    description = _describe(training, names)
    description["algorithm"] += "+SWAD"
    history = [Evaluation(training.lines[-1]["step"], {"accuracy": [inside]}, {"accuracy": [outside]})]
    notes = [f"read from {training.path.parent.name}/{LOG}"]
    return Record(make_key(description), description, DONE, history, notes=notes)


def _describe(training: Training, names: Sequence[str]) -> dict[str, Any]:
    args, hparams = training.args, training.lines[0]["hparams"]
    share = float(args.get("holdout_fraction") or 0.2)
    steps = args.get("steps") or training.lines[-1]["step"] + 1
    origin: dict[str, Any] = {"from": "a fork of DomainBed" if training.is_fork else "DomainBed", "share": 1 - share}
    if "hparams_seed" in args:
        origin["hparams_seed"] = args["hparams_seed"]
    return {
        "version": VERSION,
        "data": f"DomainBed {training.dataset}",
        "net": {"name": "DomainBed's", "weights": None},
        "algorithm": str(args["algorithm"]),
        "settings": {name: _write_setting(value) for name, value in sorted(hparams.items()) if name not in PROTOCOL},
        "protocol": {
            "split": "random", "validation": share, "steps": steps,
            **{ours: hparams[name] for name, ours in PROTOCOL.items() if name in hparams},
        },
        "held_out": [names[i] for i in training.test_envs],
        "seed": int(args["trial_seed"]),
        IMPORTED: origin,
    }  # fmt: skip


def _write_setting(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, (dict, list)) else str(value)


def _read_evaluation(line: Line, training: Training) -> Evaluation:
    accuracy = {(int(m[1]), m[2]): float(v) for name, v in line.items() if (m := ENVIRONMENT.match(name))}
    envs = training.test_envs
    sources = sorted(i for i, part in accuracy if part == "out" and i not in envs)
    source = [accuracy[i, "out"] for i in sources] or _find_mean(line, "source", training)
    rest = [accuracy[i, "in"] for i in envs if (i, "in") in accuracy]
    fifth = [accuracy[i, "out"] for i in envs if (i, "out") in accuracy]
    if len(rest) < len(envs):
        rest, fifth = _find_mean(line, "rest", training), _find_mean(line, "fifth", training)
    parts = ({"accuracy": fifth}, {"accuracy": rest}) if len(fifth) == len(rest) else ({}, {})
    return Evaluation(int(line["step"]), {"accuracy": source}, {"accuracy": rest}, *parts)


def _find_mean(line: Line, part: str, training: Training) -> list[float]:
    for name in MEANS[part]:
        if name in line and len(training.test_envs) == 1:
            return [float(line[name])]
    raise UsageError(
        f"Step {line['step']} in {training.path} has no accuracy of environment {training.test_envs[0]} or of its "
        f"sources: names such as env0_in_acc, env0_out or {', '.join(MEANS[part])} are read."
    )


def _describe_absent(records: Iterable[Record], trainings: Sequence[Training]) -> list[str]:
    """Say what the trainings do not tell."""
    sentences = [
        "Accuracy alone is recorded; the other criteria, the weights and the data's fingerprint are absent, so "
        "`seqdg rerun` cannot repeat these trials."
    ]
    first = trainings[0]
    if not any(len(t.test_envs) == 2 for t in trainings):
        sentences.append("No training has two test environments, so the rule leave-one-out has nothing to choose by.")
    if first.is_fork:
        swad = sum(r.algorithm.endswith("+SWAD") for r in records)
        if swad:
            sentences.append(
                f"SWAD's averages ({swad}) are from log.txt, which gives them on source validation and on the held-out "
                "domain only: oracle-split needs more."
            )
        elif any(line["hparams"].get("swad") not in (None, False, "False") for t in trainings for line in t.lines[:1]):
            sentences.append("SWAD's averages are absent: results.jsonl is of the weights before averaging.")
    if first.dataset in UNPAIRED:
        sentences.append(
            f"{first.dataset} is drawn from a seed that contains the algorithm's name, so that pairs over trial_seed "
            "are not pairs: read no paired test of it."
        )
    return sentences

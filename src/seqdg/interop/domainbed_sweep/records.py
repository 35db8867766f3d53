"""Makes records of the trainings of a sweep.

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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seqdg.base import UsageError, count_things
from seqdg.interop.domainbed_sweep.reading import ENVIRONMENT, FILE, LOG, Line, Training
from seqdg.results import DONE, IMPORTED, UNPAIRED, VERSION, Evaluation, Record, make_key

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
MEANS = {"source": ("train_out", "tr_out"), "rest": ("test_in", "te_in"), "fifth": ("test_out", "te_out")}  # of forks


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

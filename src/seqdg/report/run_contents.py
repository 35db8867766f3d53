"""The contents of a run: what was asked for, what is there, what is missing, and how to reproduce it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqdg.base import count_things, list_numbers, list_some
from seqdg.results import CLASSES, DIVERGED, DONE, FAILED, Analysis, Record, RecordSource, summarize_trials

BATCH = "batch size"


@dataclass(frozen=True)
class RunContents:
    """Everything that a report reads from a run."""

    benchmark: str
    records: Sequence[Record]
    analyses: Sequence[Analysis] = ()
    commands: Sequence[Mapping[str, Any]] = ()  # that made the run, each with command, algorithms, held_out and seeds
    directory: Path | None = None  # of the run, where it can be added to: a packed one cannot
    classes: Sequence[str] = ()

    @property
    def single(self) -> list[Record]:
        """The trials with one domain held out, or those of a fixed split; those with two only serve selection."""
        return [r for r in self.records if r.is_tabled]


def read_contents(source: RecordSource, directory: Path | None = None) -> RunContents:
    """Read a run. Algorithms and domains come in the order in which the commands named them."""
    commands = source.read_commands()
    names = list(dict.fromkeys(name for c in commands for name in c["algorithms"]))
    domains = list(dict.fromkeys(domain for c in commands for domain in c["held_out"]))
    order = {name: i for i, name in enumerate(names)}
    domain_order = {domain: i for i, domain in enumerate(domains)}
    records = sorted(
        source.records(),
        key=lambda r: (order.get(r.algorithm, len(order)), domain_order.get(r.held_out[0], len(domain_order)), r.seed),
    )
    classes = json.loads(source.meta(CLASSES) or "[]")
    return RunContents(source.benchmark, records, source.analyses(), commands, directory, classes)


def list_wanted(run: RunContents) -> list[tuple[str, str, int]]:
    """Return algorithm, held-out domain and seed of every trial that was asked for.

    Where that is not known, return every combination of those that occur.
    """
    trials: dict[tuple[str, str, int], None] = {}
    for ask in run.commands or [summarize_trials([r.description for r in run.single])]:
        trials.update(
            dict.fromkeys((a, d, s) for a in ask["algorithms"] for d in ask["held_out"] for s in ask["seeds"])
        )
    return list(trials)


def describe_missing(run: RunContents) -> list[str]:
    """Say in sentences which trials have no result, by algorithm and held-out domain, and which failed."""
    known = {(r.algorithm, d, r.seed) for r in run.single if r.status in (DONE, DIVERGED) for d in r.held_out}
    wanted = list_wanted(run)
    sentences = []
    for name in dict.fromkeys(a for a, _, _ in wanted):
        trials = [(d, s) for a, d, s in wanted if a == name]
        lacking = [(d, s) for d, s in trials if (name, d, s) not in known]
        if len(lacking) == len(trials):
            sentences.append(f"{name}: no result yet ({count_things(len(trials), 'trial')}).")
        elif lacking:
            domains = dict.fromkeys(d for d, _ in lacking)
            parts = [f"{d} (seed {list_numbers(s for e, s in lacking if e == d)})" for d in domains]
            sentences.append(f"{name}: {len(lacking)} of {len(trials)} trials are missing: {'; '.join(parts)}.")
    failed = [r for r in run.records if r.status == FAILED]
    if failed:
        last = (failed[-1].error.strip().splitlines() or ["nothing"])[-1]
        sentences.append(f"{count_things(len(failed), 'trial')} failed; the last said: {last}")
    return sentences


def describe_diverged(run: RunContents) -> list[str]:
    """Say which trials diverged: `s-mldg: 3 of 5 trials with 15 held out`."""
    sentences = []
    for name in dict.fromkeys(r.algorithm for r in run.single):
        for held_out in dict.fromkeys(r.held_out for r in run.single):
            records = [r for r in run.single if (r.algorithm, r.held_out) == (name, held_out)]
            lost = sum(r.status == DIVERGED for r in records)
            if lost:
                sentences.append(f"{name}: {lost} of {len(records)} trials with {list_some(held_out)} held out")
    return sentences


def describe_budgets(run: RunContents) -> list[str]:
    """Say in sentences in what algorithms had unequal budgets: `Unequal budgets: 20 steps (agg); 40 steps (mldg).`

    Where an algorithm has several numbers of steps, a search drew them, and nothing is said.
    """
    tried = Counter((r.algorithm, r.held_out, r.seed) for r in run.single)
    most = {name: number for (name, _, _), number in sorted(tried.items(), key=lambda item: item[1])}  # the last counts
    protocols = [(r.algorithm, r.description["protocol"]) for r in run.single if r.losses]  # of neural networks
    budgets = {
        "step": [(name, protocol.get("steps", 0)) for name, protocol in protocols],
        BATCH: [(name, protocol.get("batch", 0)) for name, protocol in protocols],
        "candidate": [(r.algorithm, most[r.algorithm]) for r in run.single],
    }
    sentences = []
    for what, pairs in budgets.items():
        by_name = dict(pairs)
        if len(set(pairs)) == len(by_name) and len(set(by_name.values())) > 1:
            names = {n: [name for name, number in by_name.items() if number == n] for n in by_name.values()}
            texts = {n: f"{what} {n}" if what == BATCH else count_things(n, what) for n in names}
            parts = [f"{texts[number]} ({list_some(those)})" for number, those in names.items()]
            sentences.append(f"Unequal budgets: {'; '.join(parts)}.")
    return sentences


def list_commands(run: RunContents) -> list[str]:
    """Return the commands that made the run, or one that asks for the same trials with the benchmark's settings."""
    if run.commands:
        return list(dict.fromkeys(str(c["command"]) for c in run.commands))
    if not run.single:
        return []
    trials = summarize_trials([r.description for r in run.single])
    words = ["seqdg", "bench", run.benchmark, "--algorithms", ",".join(trials["algorithms"])]
    if not any(r.is_fixed for r in run.single):
        words += ["--held-out", ",".join(trials["held_out"])]
    words += ["--trials", str(len(trials["seeds"]))]
    return [shlex.join(words + (["--seed", str(trials["seeds"][0])] if trials["seeds"][0] else []))]


def list_draws(commands: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """List where the candidates of searches come from; nothing where no command says so, as those of older versions."""
    return tuple(dict.fromkeys(c["draws"] for c in commands if c.get("draws")))


def list_facts(run: RunContents) -> list[tuple[str, str]]:
    """Return what someone needs to reproduce the numbers, and to check that they are of the same data and code."""

    def join(read: Callable[[Record], str]) -> str:
        return ", ".join(dict.fromkeys(text for r in run.records if (text := read(r))))

    facts = [
        ("Benchmark", run.benchmark),
        ("Data fingerprint", join(lambda r: r.description.get("data", ""))),
        ("Weight file (sha256)", join(lambda r: r.description["net"].get("weights") or "")),
        (
            "Network",
            join(lambda r: _format_settings({k: v for k, v in r.description["net"].items() if k != "weights"})),
        ),
        ("Protocol", _format_settings(_find_common(run.records))),
        ("Versions", join(lambda r: ", ".join(f"{name} {number}" for name, number in r.versions.items()))),
        ("Commit", join(lambda r: r.commit)),
        ("Device", join(lambda r: r.device)),
        ("Notes on the data", join(lambda r: "; ".join(r.notes))),
    ]
    return [(name, text) for name, text in facts if text]


def list_settings(run: RunContents) -> list[tuple[str, list[str]]]:
    """Return the settings with which each algorithm ran, and the part of the protocol that not all trials share."""
    common = _find_common(run.records)
    settings: dict[str, dict[str, None]] = {}
    for r in run.single:
        special = {k: v for k, v in r.description["protocol"].items() if k not in common}
        text = _format_settings({**r.description.get("settings", {}), **special}) or "no settings"
        settings.setdefault(r.algorithm, {})[text] = None
    return [(name, list(texts)) for name, texts in settings.items()]


def _find_common(records: Sequence[Record]) -> dict[str, Any]:
    """Return the part of the protocol that all trials share."""
    protocols = [r.description["protocol"] for r in records]
    first = protocols[0] if protocols else {}
    return {k: v for k, v in first.items() if all(p.get(k) == v for p in protocols)}


def _format_settings(values: dict[str, Any]) -> str:
    """Format settings as in `lr 0.1, hidden 64-32`."""
    parts = []
    for name, value in values.items():
        text = "-".join(map(str, value)) if isinstance(value, list) else str(value).removesuffix(",")
        if text not in ("", "False", "None"):
            parts.append(f"{name.replace('_', ' ')} {text}" if value is not True else name.replace("_", " "))
    return ", ".join(parts)

"""A run as its store has it: what was asked for, what is there, what is missing, how to do it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqdg.results.record import DIVERGED, DONE, FAILED, Record
from seqdg.results.run import Analysis, RecordSource


@dataclass(frozen=True)
class Run:
    benchmark: str
    records: Sequence[Record]
    analyses: Sequence[Analysis] = ()
    commands: Sequence[Mapping[str, Any]] = ()  # that made it: command, algorithms, held_out, seeds of each

    @property
    def single(self) -> list[Record]:
        """Trials with one domain held out; those with two serve selection alone."""
        return [r for r in self.records if len(r.held_out) == 1]


def read_run(store: RecordSource) -> Run:
    """Algorithms and domains come in the order in which the commands named them."""
    made_by = json.loads(store.meta("commands") or "[]")
    names = list(dict.fromkeys(name for c in made_by for name in c["algorithms"]))
    domains = list(dict.fromkeys(domain for c in made_by for domain in c["held_out"]))
    place = {name: i for i, name in enumerate(names)}
    spot = {domain: i for i, domain in enumerate(domains)}
    records = sorted(
        store.records(),
        key=lambda r: (place.get(r.algorithm, len(place)), spot.get(r.held_out[0], len(spot)), r.seed),
    )
    return Run(store.benchmark, records, store.analyses(), made_by)


def wanted(run: Run) -> list[tuple[str, str, int]]:
    """Algorithm, held-out domain and seed of all that was asked for; where that is not known, of what would fill the
    gaps between what is there."""
    found: dict[tuple[str, str, int], None] = {}
    for ask in run.commands or [seen(run.single)]:
        found.update(dict.fromkeys((a, d, s) for a in ask["algorithms"] for d in ask["held_out"] for s in ask["seeds"]))
    return list(found)


def seen(records: Sequence[Record]) -> dict[str, list[Any]]:
    return {
        "algorithms": list(dict.fromkeys(r.algorithm for r in records)),
        "held_out": list(dict.fromkeys(r.held_out[0] for r in records)),
        "seeds": sorted({r.seed for r in records}),
    }


def missing(run: Run) -> list[str]:
    """Sentences: which trials have no result, by algorithm and held-out domain; which failed."""
    known = {(r.algorithm, r.held_out[0], r.seed) for r in run.single if r.status in (DONE, DIVERGED)}
    asked = wanted(run)
    sentences = []
    for name in dict.fromkeys(a for a, _, _ in asked):
        own = [(d, s) for a, d, s in asked if a == name]
        lacking = [(d, s) for d, s in own if (name, d, s) not in known]
        if len(lacking) == len(own):
            sentences.append(f"{name}: no result yet ({_trials(len(own))}).")
        elif lacking:
            domains = dict.fromkeys(d for d, _ in lacking)
            parts = [f"{d} (seed {', '.join(str(s) for e, s in lacking if e == d)})" for d in domains]
            sentences.append(f"{name}: {len(lacking)} of {len(own)} trials are missing: {'; '.join(parts)}.")
    failed = [r for r in run.records if r.status == FAILED]
    if failed:
        last = (failed[-1].error.strip().splitlines() or ["nothing"])[-1]
        sentences.append(f"{_trials(len(failed))} failed; the last said: {last}")
    return sentences


def _trials(count: int) -> str:
    return f"{count} trial{'s' if count != 1 else ''}"


def diverged(run: Run) -> list[str]:
    """`s-mldg: 3 of 5 trials with 15 held out`."""
    found = []
    for name in dict.fromkeys(r.algorithm for r in run.single):
        for domain in dict.fromkeys(r.held_out[0] for r in run.single):
            own = [r for r in run.single if (r.algorithm, r.held_out[0]) == (name, domain)]
            lost = sum(r.status == DIVERGED for r in own)
            if lost:
                found.append(f"{name}: {lost} of {len(own)} trials with {domain} held out")
    return found


def commands(run: Run) -> list[str]:
    """Those that made the run, or one that asks for the same trials with the benchmark's settings."""
    if run.commands:
        return list(dict.fromkeys(str(c["command"]) for c in run.commands))
    if not run.single:
        return []
    asked = seen(run.single)
    words = ["seqdg", "bench", run.benchmark, "--algorithms", ",".join(asked["algorithms"])]
    words += ["--held-out", ",".join(asked["held_out"]), "--trials", str(len(asked["seeds"]))]
    return [shlex.join(words + (["--seed", str(asked["seeds"][0])] if asked["seeds"][0] else []))]


def facts(run: Run) -> list[tuple[str, str]]:
    """What someone needs to see the same numbers again, and to know that they are of the same thing."""

    def of(read: Any) -> str:
        return ", ".join(dict.fromkeys(text for r in run.records if (text := read(r))))

    found = [
        ("Benchmark", run.benchmark),
        ("Data fingerprint", of(lambda r: r.description.get("data", ""))),
        ("Weight file (sha256)", of(lambda r: r.description["net"].get("weights") or "")),
        ("Net", of(lambda r: _plainly({k: v for k, v in r.description["net"].items() if k != "weights"}))),
        ("Protocol", _plainly(_common(run.records))),
        ("Versions", of(lambda r: ", ".join(f"{name} {number}" for name, number in r.versions.items()))),
        ("Commit", of(lambda r: r.commit)),
        ("Device", of(lambda r: r.device)),
        ("Notes on the data", of(lambda r: "; ".join(r.notes))),
    ]
    return [(name, text) for name, text in found if text]


def settings(run: Run) -> list[tuple[str, list[str]]]:
    """Every setting with which each algorithm ran, and what of the protocol is its own."""
    common = _common(run.records)
    found: dict[str, dict[str, None]] = {}
    for r in run.single:
        own = {k: v for k, v in r.description["protocol"].items() if k not in common}
        text = _plainly({**r.description.get("settings", {}), **own}) or "no settings"
        found.setdefault(r.algorithm, {})[text] = None
    return [(name, list(texts)) for name, texts in found.items()]


def _common(records: Sequence[Record]) -> dict[str, Any]:
    """What of the protocol all trials share."""
    protocols = [r.description["protocol"] for r in records]
    first = protocols[0] if protocols else {}
    return {k: v for k, v in first.items() if all(p.get(k) == v for p in protocols)}


def _plainly(values: dict[str, Any]) -> str:
    """`lr 0.1, hidden 64-32`"""
    shown = []
    for name, value in values.items():
        text = "-".join(map(str, value)) if isinstance(value, list) else str(value).removesuffix(",")
        if text not in ("", "False", "None"):
            shown.append(f"{name.replace('_', ' ')} {text}" if value is not True else name.replace("_", " "))
    return ", ".join(shown)

"""Settings that a search chose, used again: on other seeds of the same run, and from a file in other runs.

A search on one seed whose choice all others share costs a fraction of a search on each (SWAD, Cha et al., NeurIPS 2021,
and the second version of DomainBed's sweeps do so).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from seqdg.base import UsageError, replace_file, restore_fields
from seqdg.bench.learner import TRAINING
from seqdg.bench.trial import Trial
from seqdg.core import build, flatten_settings, restore_settings
from seqdg.results import (
    DONE,
    FAILED,
    InnerTrials,
    Record,
    find_usual_criterion_in,
    is_imported,
    make_directory,
    name_candidate,
    score_candidate,
    select_outcomes,
)
from seqdg.training import Protocol


def list_reused(
    searched: Sequence[Trial], records: Sequence[Record], rule: str, seeds: Sequence[int]
) -> tuple[Trial, ...]:
    """List the trials of other seeds, with the settings that the rule chooses for each algorithm and held-out domain.

    searched: the trials of the first seed, all of which have records. Where one failed nothing is chosen yet.
    """
    by_key = {trial.key: trial for trial in searched}
    tried = [r for r in records if r.key in by_key]
    if len(tried) < len(by_key) or any(r.status == FAILED for r in tried):
        return ()
    more = []
    for outcome in select_outcomes(tried, rule):
        best = by_key[outcome.record.key]
        inner = [
            t
            for t in searched
            if len(t.held_out) == 2
            and len(best.held_out) == 1
            and outcome.held_out in t.held_out
            and (t.algorithm, t.settings, t.protocol) == (best.algorithm, best.settings, best.protocol)
        ]
        more += [replace(trial, seed=seed) for trial in (best, *inner) for seed in seeds]
    return tuple({trial.key: trial for trial in more}.values())


def choose_settings(records: Sequence[Record], rule: str, criterion: str | None = None) -> dict[str, dict[str, Record]]:
    """Choose one candidate for each held-out domain and algorithm: the best by the rule, in the mean over its seeds.

    Return a record of it, by held-out domain and algorithm. Only candidates with the most seeds are compared; where
    seeds reuse what was chosen on the first, that is the chosen one.
    """
    criterion = criterion or find_usual_criterion_in(records)
    parts: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for r in records:
        if r.is_tabled and r.status != FAILED and not r.members:
            parts.setdefault(("+".join(r.held_out), r.algorithm), {}).setdefault(name_candidate(r), []).append(r)
    if not parts:
        raise UsageError("The run holds no finished trial yet, so no settings are chosen.")
    chosen: dict[str, dict[str, Record]] = {}
    inner = InnerTrials(records)
    for (domain, algorithm), candidates in parts.items():
        most = max(len(tried) for tried in candidates.values())
        scores = {
            name: fmean([score_candidate(r, inner, rule, criterion) for r in tried])
            for name, tried in candidates.items()
            if len(tried) == most and all(r.status == DONE for r in tried)
        }
        known = {name: value for name, value in scores.items() if math.isfinite(value)}
        if known:
            chosen.setdefault(domain, {})[algorithm] = candidates[max(known, key=lambda name: known[name])][0]
    return chosen


def write_settings(records: Sequence[Record], folder: Path, rule: str, criterion: str | None = None) -> list[Path]:
    """Write a file for each held-out domain, with the settings chosen for it as a benchmark's [algorithms] tables."""
    if any(is_imported(r) for r in records):
        raise UsageError("Some of these trials were imported, and their settings mean nothing to algorithms here.")
    make_directory(folder, "--settings-out")
    paths = []
    for domain, by_algorithm in choose_settings(records, rule, criterion).items():
        lines = [
            f"# Chosen by {rule} with {_quote(domain)} held out: seqdg bench --held-out ... --settings-from this file"
        ]
        for algorithm, record in by_algorithm.items():
            lines += ["", f"[algorithms.{_quote(algorithm)}]  # trial {record.key}"]
            lines += [f"{name} = {_write(value)}" for name, value in _list_values(record).items()]
        path = folder / f"{_name_file(domain)}.toml"
        with replace_file(path) as file:
            file.write(("\n".join(lines) + "\n").encode())
        paths.append(path)
    return paths


def _list_values(record: Record) -> dict[str, Any]:
    """Return the training fields and the settings of a record, as a benchmark's table has them."""
    about = record.description
    protocol = Protocol(**restore_fields(Protocol, about["protocol"]))
    training = {f.name: getattr(protocol, f.name) for f in fields(protocol) if f.name in TRAINING}
    try:
        settings = flatten_settings(restore_settings(build(about["algorithm"]), about["settings"]))
        settings = {name: value for name, value in settings.items() if name in about["settings"]}
    except UsageError:  # a learner, or an algorithm of the user's own file
        settings = {name: _read(text) for name, text in about["settings"].items()}
    return {**training, **settings}


def _read(text: str) -> Any:
    """Read a value from text: a truth value, a number or a word."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _write(value: Any) -> str:
    """Write a value as TOML; of numbers every digit."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_write, value))}]"
    return _quote(value) if isinstance(value, str) else repr(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _name_file(domain: str) -> str:
    """Return the domain's name as that of a file."""
    return "".join(ch if ch.isalnum() or ch in "+-_.% " else "_" for ch in domain).strip(". ") or "domain"

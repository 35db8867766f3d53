"""The version of a trial's description, and what has changed since older ones.

The version rises when a trial with the same description would give other numbers. It rises at most once per release.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from seqdg.base import list_some
from seqdg.results.record import Record

VERSION = 2


class Release(NamedTuple):
    """The release that wrote descriptions of a version, and what has given other numbers since."""

    name: str
    draws: bool  # whether a seed draws other episodes since, so that all trials give other numbers
    algorithms: tuple[str, ...]
    nets: tuple[str, ...]  # that have their dropout since


RELEASES = {1: Release("0.1", True, ("mmd-aae", "metareg", "crossgrad"), ("alexnet", "efficientnet-lite0"))}


def read_version(record: Record) -> int:
    """Return the version of a record's description."""
    return int(record.description.get("version", VERSION))


def find_versions(records: Iterable[Record]) -> list[int]:
    """Return the versions of these records, the oldest first."""
    return sorted({read_version(r) for r in records})


def name_release(version: int) -> str:
    """`seqdg 0.1`"""
    return f"seqdg {RELEASES[version].name}" if version in RELEASES else "another version of seqdg"


def name_commit(record: Record) -> str:
    """Say which code made a record: its commit, or where none was recorded the release."""
    if not record.commit:
        return (
            f"the release {RELEASES[read_version(record)].name}" if read_version(record) in RELEASES else "its release"
        )
    commit = record.commit.removesuffix("+")
    return f"commit {commit}" + (" with changes that were not committed" if record.commit.endswith("+") else "")


def describe_versions(records: Sequence[Record]) -> list[str]:
    """Say of records of an older version what made them, and which of the methods and nets in them have changed."""
    sentences = []
    for version in find_versions(records):
        if version == VERSION:
            continue
        old = [r.description for r in records if read_version(r) == version]
        what = f"{'These' if len(old) == len(records) else 'Some of these'} trials were made by {name_release(version)}"
        since = _describe_changes(version, old)
        sentences.append(f"{what} (description {version}; today's is {VERSION}): {since}.")
    if len(find_versions(records)) > 1:
        sentences.append("This run mixes trials of different versions of seqdg: do not compare them.")
    return sentences


def _describe_changes(version: int, descriptions: Sequence[dict[str, Any]]) -> str:
    """Say which algorithms and nets of these descriptions give other numbers since."""
    if version not in RELEASES:
        return "methods differ"
    release = RELEASES[version]
    algorithms = dict.fromkeys(str(d["algorithm"]) for d in descriptions)
    nets = dict.fromkeys(str(d["net"]["name"]) for d in descriptions)
    changed = [name for name in algorithms if name in release.algorithms]
    dropping = [name for name in nets if name in release.nets]
    parts = ["a seed draws other paths and minibatches, so that every method gives other numbers"] * release.draws
    parts += [f"{list_some(changed)} changed"] if changed else []
    parts += [f"{list_some(dropping)} is trained with its dropout"] if dropping else []
    return f"since then {', and '.join(parts)}" if parts else "no method in them is known to have changed"

"""The version of a trial's description. It rises when a trial with the same description would give other numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seqdg.results.record import Record

VERSION = 2


def read_version(record: Record) -> int:
    """Return the version of a record's description."""
    return int(record.description.get("version", VERSION))


def find_versions(records: Iterable[Record]) -> list[int]:
    """Return the versions of these records, the oldest first."""
    return sorted({read_version(r) for r in records})


def name_commit(record: Record) -> str:
    """Say which code made a record."""
    if not record.commit:
        return "a version of seqdg whose commit was not recorded"
    commit = record.commit.removesuffix("+")
    return f"commit {commit}" + (" with changes that were not committed" if record.commit.endswith("+") else "")


def describe_versions(records: Sequence[Record]) -> list[str]:
    """Say which records another version made, whose numbers today's trials would not repeat."""
    versions = find_versions(records)
    sentences = [
        f"{'These' if versions == [version] else 'Some of these'} trials were made by another version of seqdg "
        f"(description {version}; today's is {VERSION}), whose methods give other numbers."
        for version in versions
        if version != VERSION
    ]
    if len(versions) > 1:
        sentences.append("This run mixes trials of different versions of seqdg: do not compare them.")
    return sentences

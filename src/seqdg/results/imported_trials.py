"""Trials that another program trained: how they are recognized, and what tables say of them."""

from __future__ import annotations

from collections.abc import Sequence

from seqdg.base import list_some
from seqdg.results.record import Record

IMPORTED = "imported"  # the name in a description of where a record is from
UNPAIRED = ("ColoredMNIST", "RotatedMNIST")  # of DomainBed, whose rows differ from algorithm to algorithm


def is_imported(record: Record) -> bool:
    return IMPORTED in record.description


def describe_imports(records: Sequence[Record]) -> list[str]:
    """Say which algorithms were trained elsewhere, and what that means for their numbers and for pairs."""
    imported = [r for r in records if is_imported(r)]
    if not imported:
        return []
    origins = dict.fromkeys(str(r.description[IMPORTED]["from"]) for r in imported)
    shares = sorted({round(100 * r.description[IMPORTED]["share"]) for r in imported})
    names = dict.fromkeys(r.algorithm for r in imported)
    sentences = [
        f"Imported from {' and '.join(origins)}: {list_some(names)}, on {' or '.join(map(str, shares))} % of the "
        "held-out rows."
    ]
    if any(str(r.description["data"]).removeprefix("DomainBed ") in UNPAIRED for r in imported):
        sentences.append("Rows of these data were drawn anew for every algorithm: pairs over seeds are not pairs.")
    elif len(imported) < len(records):
        sentences.append(
            "Imported trials and the others of a seed share neither splits nor minibatches: between them, pairs over "
            "seeds are not pairs."
        )
    return sentences

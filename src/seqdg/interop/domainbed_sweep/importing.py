"""Imports a sweep into a run directory, and says what was imported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqdg.base import UsageError, count_things, list_some
from seqdg.interop.domainbed_sweep.reading import read_sweep
from seqdg.interop.domainbed_sweep.records import make_records, name_trial
from seqdg.results import Record, Store, add_command, lock_directory


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
    imported = []
    for name in datasets:
        directory = out if len(datasets) == 1 else out / name
        records, sentences = make_records([t for t in whole if t.dataset == name], domains)
        imported.append(Imported(name, directory, records, [*sentences, *([left_out] if cut else [])]))
    for one in imported:
        _store(one, command)
    return imported


def _store(imported: Imported, command: str) -> None:
    with lock_directory(imported.directory):
        store = Store.create(imported.directory, imported.dataset)
        try:
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
        finally:
            store.close()


def describe_import(imported: Imported) -> str:
    """`40 trials of VLCS (ERM; C, L, S, V held out; seeds 0, 1) are in runs/vlcs.`, and what is to be known of them."""
    single = [r for r in imported.records if len(r.held_out) == 1]
    algorithms = Counter(r.algorithm for r in imported.records)
    held_out = dict.fromkeys(name for r in single or imported.records for name in r.held_out)
    seeds = sorted({r.seed for r in imported.records})
    what = f"{list_some(algorithms)}; {list_some(held_out)} held out; seeds {list_some(seeds)}"
    head = f"{count_things(len(imported.records), 'trial')} of {imported.dataset} ({what}) are in {imported.directory}."
    return "\n".join([head, *imported.sentences])

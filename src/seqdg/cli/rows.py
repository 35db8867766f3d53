"""The rows that a command learns from: the options that say which and how, and the reading of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.data import LabeledRows


@dataclass(frozen=True)
class AskedRows:
    """A table or a folder of images, as the options of a command ask for it; what they list is still text."""

    data: options.DataFile
    label: options.Label = None
    domain: options.Domain = None
    ignore: options.Ignore = None
    identifier: options.Identifier = None
    types: options.Types = None
    na: options.Gaps = None
    drop_unlabeled: options.DropUnlabeled = False
    weight: options.Weight = None
    encoding: options.Encoding = ""
    task: options.Task = None

    def read(self) -> LabeledRows:
        """Read rows, labels, domains and weights."""
        from seqdg.bench import count_files
        from seqdg.data import parse_types, read_rows

        types = parse_types(options.split_words(self.types))
        with count_files("reading images") as progress, options.open_data(self.data) as place:
            return read_rows(
                place, self.label, self.domain, options.split_words(self.ignore), progress,
                ids=options.split_words(self.identifier), types=types, na=options.split_words(self.na),
                encoding=self.encoding, task=self.task, weight=self.weight, drop_unlabeled=self.drop_unlabeled,
            )  # fmt: skip


def takes_rows(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `AskedRows`, in front of its own and in place of its first parameter."""
    shared = get_type_hints(AskedRows, include_extras=True)
    first, *others = inspect.signature(command).parameters.values()
    own = inspect.get_annotations(command, eval_str=True)  # get_type_hints hides some from typer, in Python 3.10
    hints = {**shared, **{p.name: own[p.name] for p in others}}
    defaults = inspect.signature(AskedRows).parameters | {p.name: p for p in others}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        asked = AskedRows(**{field.name: values.pop(field.name) for field in fields(AskedRows)})
        command(**{first.name: asked}, **values)

    run.__annotations__ = hints
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what typer reads
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name].default, annotation=hint)
            for name, hint in hints.items()
        ]
    )
    return run

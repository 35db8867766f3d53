"""Read the table or the folder of images that a command is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.data import LabeledRows


def read_data(
    data: Path,
    label: str | None,
    domain: str | None,
    *,
    ignore: str | None = None,
    identifier: str | None = None,
    types: str | None = None,
    na: str | None = None,
    **how: Any,
) -> LabeledRows:
    """Read rows, labels, domains and weights as the options of these names say; what they list is still text.

    how: of `read_rows`, as it is.
    """
    from seqdg.bench.console import count_files
    from seqdg.data import read_rows
    from seqdg.data.column_types import parse_types

    asked = parse_types(options.split_words(types))
    with count_files("reading images") as progress, options.open_data(data) as place:
        return read_rows(
            place, label, domain, options.split_words(ignore), progress, ids=options.split_words(identifier),
            types=asked, na=options.split_words(na), **how,
        )  # fmt: skip

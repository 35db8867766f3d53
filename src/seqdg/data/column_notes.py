"""Notes on columns that are probably not meant as features: identifiers, counters, empty ones."""

from __future__ import annotations

from seqdg.data.cells import count_present
from seqdg.data.column_types import find_counters
from seqdg.data.frame import Frame

MANY_WORDS = 20  # above which a column may be an identifier, where most rows have a word of their own


def note_columns(frame: Frame) -> list[str]:
    """Return a note on every column from which a model learns nothing that holds for new rows."""
    columns = dict(zip(frame.names, frame.columns, strict=True))
    words = {name: len(set(values.tolist()) - {None}) for name, values in columns.items() if values.dtype == object}
    return [
        *(
            f"Column '{name}' has {count} different words in {len(frame)} rows: is it an identifier? Then leave it "
            f"out, on the command line by --id {name}, which writes it beside the predictions."
            for name, count in words.items()
            if count > max(MANY_WORDS, len(frame) // 2)
        ),
        *(
            f"Column '{name}' numbers the rows: is it an identifier? Then leave it out, on the command line by "
            f"--id {name}."
            for name in find_counters(columns)
        ),
        *(
            f"Column '{name}' is empty, in all {len(frame)} rows: the model learns nothing of it."
            for name, values in columns.items()
            if not count_present(values)
        ),
    ]

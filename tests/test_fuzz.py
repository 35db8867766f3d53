"""Files of every format, changed at random, are read as what they hold, or refused in a sentence; never a traceback."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fuzz import FORMATS, try_case

CASES = 500


@pytest.mark.slow
def test_five_hundred_changed_files_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQDG_CACHE", "")  # set by every case, and back at the end
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(CASES):
        outcome = try_case(number, tmp_path)
        assert outcome.kind != "wrong", f"case {number}: {outcome.text}"
        outcomes[list(FORMATS)[number % len(FORMATS)], outcome.kind] += 1
    refused, read = ([name for name in FORMATS if outcomes[name, kind]] for kind in ("refused", "read"))
    assert refused == list(FORMATS)
    assert len(read) >= len(FORMATS) - 5  # of 16 changes each, none may be harmless

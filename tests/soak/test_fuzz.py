"""The same as tests/test_fuzz.py for many more cases."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fuzz import try_case

CASES = 20_000


@pytest.mark.soak
def test_twenty_thousand_changed_files_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEQDG_SOAK names a folder, in which fuzz.jsonl has a line for every case that is done, to go on from."""
    monkeypatch.setenv("SEQDG_CACHE", "")  # set by every case, and back at the end
    out = Path(os.environ.get("SEQDG_SOAK") or tmp_path) / "fuzz.jsonl"
    with out.open("a+") as file:
        file.seek(0)
        outcomes = [json.loads(line) for line in file]
        for number in range(len(outcomes), CASES):
            outcomes.append([number, *try_case(number, tmp_path)])
            file.write(json.dumps(outcomes[-1]) + "\n")
            file.flush()
    wrong = [f"case {number}: {text}" for number, kind, text in outcomes if kind == "wrong"]
    assert not wrong, "\n".join(wrong)

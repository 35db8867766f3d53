"""Keeps the report of a run that goes on up to date.

No server is needed. The page that is open looks every two seconds for the small script beside it,
`report.html.version.js`, which says which version the page has now; where it is another one, the page loads itself
anew, and keeps what was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from seqdg.report.results import Results
from seqdg.results.directory import is_locked

PAUSE = 2.0  # seconds between two looks, of the page too


def watch_run(
    directories: Sequence[Path], write: Callable[[Results, str], Path], say: Callable[[str], None], pause: float = PAUSE
) -> Path:
    """Write the report whenever a trial has finished, until no run writes to the directories, or until Ctrl-C.

    write: writes the page as the version that it is given, and returns its path; the last has none.
    """
    results, version, path = Results.open(*directories), "", None
    try:
        while True:
            goes_on = any(map(is_locked, directories))
            now = results.describe_progress()
            if now != version:
                path, version = write(results, now), now
                _note_version(path, version)
                say(f"{path}  {now}")
            if not goes_on:
                break
            time.sleep(pause)
    except KeyboardInterrupt:
        pass
    finally:
        path = write(results, "")
        _note_version(path, "the last")
        time.sleep(1.2 * pause)  # pages that are open see it once more
        _find_note(path).unlink(missing_ok=True)
        results.close()
    return path


def _find_note(page: Path) -> Path:
    return page.with_name(f"{page.name}.version.js")


def _note_version(page: Path, version: str) -> None:
    _find_note(page).write_text(f'seqdgVersion("{version}");\n', encoding="utf-8")

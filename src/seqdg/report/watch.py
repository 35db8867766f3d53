"""Keeps the report of a run that goes on up to date.

No server is needed. The page that is open looks every two seconds for the small script beside it,
`report.html.version.js`, which says which version the page has now; where it is another one, the page loads itself
anew, and keeps what was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from seqdg.base import UsageError
from seqdg.report.results import Results
from seqdg.results import is_locked

PAUSE = 2.0  # seconds between two looks, of the page too


def watch_run(
    directories: Sequence[Path], write: Callable[[Results, str], Path], say: Callable[[str], None], pause: float = PAUSE
) -> Path:
    """Write the report whenever a trial has finished, until no run writes to the directories, or until Ctrl-C.

    A directory that is not there yet, or whose run has not begun to write, is waited for.

    write: writes the page as the version that it is given, and returns its path; the last has none.
    """
    results, version, path = _wait_for_run(directories, say, pause), "", None
    try:
        while any(map(is_locked, directories)):
            now = results.describe_progress()
            if now != version:
                results = _open_again(results, directories)
                path, version = write(results, now), now
                _note_version(path, version)
                say(f"{path}  {now}")
            time.sleep(pause)
    except KeyboardInterrupt:
        pass
    results = _open_again(results, directories)
    last = write(results, "")
    results.close()
    if path is not None:
        _note_version(last, "the last")
        time.sleep(1.2 * pause)  # pages that are open see it once more
        _find_note(last).unlink(missing_ok=True)
    return last


def _wait_for_run(directories: Sequence[Path], say: Callable[[str], None], pause: float) -> Results:
    """Open the runs when all of them have begun."""
    has_said = False
    while True:
        try:
            return Results.open(*directories)
        except UsageError:
            if not any(is_locked(d) or not d.exists() for d in directories):
                raise
        if not has_said:
            say(f"Waiting for a run to begin in {' and '.join(map(str, directories))}; Ctrl-C ends it.")
            has_said = True
        time.sleep(pause)


def _open_again(results: Results, directories: Sequence[Path]) -> Results:
    """Open runs side by side anew: they name what they share when they are opened, and more may be shared by now."""
    results.close()
    return Results.open(*directories)


def _find_note(page: Path) -> Path:
    return page.with_name(f"{page.name}.version.js")


def _note_version(page: Path, version: str) -> None:
    _find_note(page).write_text(f'seqdgVersion("{version}");\n', encoding="utf-8")

"""A real browser for tests of pages."""

from __future__ import annotations

import time


def wait_until(browser, condition: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not browser.execute_script(condition):
        assert time.monotonic() < end, f"{condition}: {browser.get_log('browser')}"
        time.sleep(0.02)

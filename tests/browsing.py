"""A real browser for tests of pages."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip


@contextmanager
def open_browser() -> Iterator[Any]:
    """A Chromium that keeps what its console says and what its pages request; without one, the test skips."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("There is no Chromium with its driver here (Debian: chromium and chromium-driver).")
    webdriver = pytest.importorskip("selenium.webdriver", reason="Driving a browser needs selenium.")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


def set_looks(browser: Any, width: int, height: int, scheme: str) -> None:
    """Give the window a size, a phone's below 500 pixels, and the system a color scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def list_requests(browser: Any) -> list[str]:
    """What the pages have requested since this was asked last."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def wait_until(browser: Any, condition: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not browser.execute_script(condition):
        assert time.monotonic() < end, f"{condition}: {browser.get_log('browser')}"
        time.sleep(0.02)

"""A real browser without a screen, for what is shown in one: Debian's Chromium, driven by its own driver."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A driver of Chromium with a new, empty `profile`; the test is skipped where there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("Chromium or its driver is absent; install Debian's packages chromium and chromium-driver.")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is absent; install dgl_tuplepack[test].")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in [*_FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # A path to the driver keeps selenium from looking for one on the network.
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield opened
    finally:
        opened.quit()


def show(driver: Any, page: Path, width: int, scheme: str = "light") -> None:
    """Open the file as on a screen of so many pixels."""
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for log in ("browser", "performance"):
        driver.get_log(log)
    driver.get(page.as_uri())


def requests_of(driver: Any) -> list[str]:
    """Addresses that were asked for since the page was opened, without what they contain."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [url.partition(",")[0] if url.startswith("data:") else url for url in urls]

"""A real browser, without a window; tests that need one are skipped where there is none."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
_SECONDS = 60.0
ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"


class Browser:
    """One page of a browser, at a server."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> None:
        """Show a page of the console anew."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{path}")

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def text(self, selector: str = "main") -> str:
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found)

    def wait(self, met: Callable[[], Any], what: str = "a condition") -> Any:
        """Wait until something is there, and return it."""
        ends = time.monotonic() + _SECONDS
        while not (found := met()):
            assert time.monotonic() < ends, f"{what} in: {self.text('body')}"
            time.sleep(0.05)
        return found

    def wait_for(self, text: str, selector: str = "main") -> None:
        self.wait(lambda: text in self.text(selector), text)

    def press(self, *keys: str, control: bool = False) -> None:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        actions = ActionChains(self.driver)
        if control:
            actions.key_down(Keys.CONTROL)
        actions.send_keys(*keys)
        if control:
            actions.key_up(Keys.CONTROL)
        actions.perform()

    def size(self, width: int, height: int) -> None:
        of = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", of)

    def complaints(self) -> list[str]:
        """Return what the browser has complained of since this was last asked."""
        return [each["message"] for each in self.driver.get_log("browser")]


@contextmanager
def browser(url: str) -> Iterator[Browser]:
    """Start a browser for the pages of a server."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(chromedriver))
    try:
        driver.set_script_timeout(_SECONDS)
        yield Browser(driver, url)
    finally:
        driver.quit()

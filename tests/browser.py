"""Debian's chromium, driven by playwright: any width, dark or light, scripts, pictures. `make browser` gets both."""

import base64
import importlib.util
import shutil
import time
from contextlib import ExitStack

MISSING = shutil.which("chromium") is None or importlib.util.find_spec("playwright") is None
REASON = "needs chromium and playwright: `make browser`"


class Browser:
    """One tab. `said` has what the page's console said, errors and refusals of the security policy included."""

    def __init__(self, profile, width=1200, height=900, dark=False):
        from playwright.sync_api import sync_playwright

        self.said = []
        with ExitStack() as opened:
            chromium = opened.enter_context(sync_playwright()).chromium
            arguments = ["--no-sandbox", "--disable-gpu"]
            context = opened.enter_context(
                chromium.launch_persistent_context(profile, executable_path=shutil.which("chromium"), args=arguments)
            )
            self._page = context.pages[0]
            self._session = context.new_cdp_session(self._page)
            for event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self._session.on(event, lambda found: self.said.append(found))
            for domain in ("Runtime", "Log"):
                self._call(f"{domain}.enable")
            self.resize(width, height)
            self.colours(dark)
            self._opened = opened.pop_all()

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def colours(self, dark):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        self._page.goto(url)

    def run(self, script):
        """The value of an expression on the page, by the debugger: that works under the page's security policy."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script, seconds=30.0):
        """The value of an expression, once it is true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, (script, self.run("document.body.innerText"), self.said)
            time.sleep(0.1)
        return found

    def press(self, key):
        self._page.keyboard.press(key)

    def used(self):
        """The bytes that the page's scripts keep."""
        self._call("HeapProfiler.collectGarbage")
        return self._call("Runtime.getHeapUsage")["usedSize"]

    def picture(self, path, whole=True, **more):
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def _call(self, method, **arguments):
        return self._session.send(method, arguments)

    def close(self):
        self._opened.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

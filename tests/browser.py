"""Drives Debian's chromium over its debugging pipe: any width, dark or light, scripts, pictures. Nothing is installed."""

import base64
import json
import os
import shlex
import subprocess
import time

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
]


class Browser:
    """One tab. `said` has what the page's console said, errors and refusals of the security policy included."""

    def __init__(self, profile, width=1200, height=900, dark=False):
        to_browser, from_browser = os.pipe(), os.pipe()
        command = shlex.join(["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"])
        # The browser reads file descriptor 3 and writes to 4.
        redirected = f"exec {command} 3<&{to_browser[0]} 4>&{from_browser[1]}"
        self._process = subprocess.Popen(
            ["bash", "-c", redirected],
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._in, self._out, self._rest, self._number = to_browser[1], from_browser[0], b"", 0
        self.said, self._session = [], None
        (tab,) = [one for one in self._call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, url):
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression on the page."""
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
        for kind in ("keyDown", "keyUp"):
            number = {"Tab": 9}.get(key, 0)  # only by its number does it move the focus
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=number)

    def picture(self, path, whole=True, **more):
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **more)["data"]
        path.write_bytes(base64.b64decode(data))

    def _call(self, method, **arguments):
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        message |= {} if self._session is None else {"sessionId": self._session}
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                chunk = os.read(self._out, 1 << 16)
                assert chunk, "the browser has ended"
                self._rest += chunk
            line, self._rest = self._rest.split(b"\0", 1)
            found = json.loads(line)
            if found.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(found["params"])
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    def close(self):
        os.close(self._in)
        os.close(self._out)
        self._process.terminate()
        self._process.wait(timeout=20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

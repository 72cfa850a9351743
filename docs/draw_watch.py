"""Draws `docs/watch.png`, the page of a running stream, with Debian's chromium.

    python docs/draw_watch.py

The stream waits for the page, so that each observation has its forecast.
"""

import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import numpy as np  # noqa: E402  after the path is set

import epf  # noqa: E402
from browser import Browser  # noqa: E402
from epf.run.watch import _feed  # noqa: E402

TRUTH = {"level_variance": 0.5, "noise_variance": 0.3}


def draw(path: Path, steps: int, width: int, dark: bool = False) -> None:
    """The page after so many observations, among them some that are missing and one that is odd."""
    model = epf.zoo.LocalLevel()
    _, y = epf.simulate(model, TRUTH, steps=steps, seed=4)
    y[steps // 3 : steps // 3 + steps // 20] = np.nan
    y[2 * steps // 3] += 9.0
    _feed._SHARE, _feed._SECONDS = 100.0, 0.02  # no rests
    stream = epf.Stream(model)
    with (
        tempfile.TemporaryDirectory() as profile,
        Browser(profile, width, 900, dark) as browser,
        stream.watch() as watch,
    ):
        browser.open(watch.url)
        for i, value in enumerate(y):
            stream.update(value)
            page = watch._source
            while i > 5 and page._latest.num_observations != page._looked:
                time.sleep(0.02)
        browser.until(f"document.title.endsWith('= {steps}')")
        browser.resize(width, browser.run("document.documentElement.scrollHeight"))
        time.sleep(1.0)
        stream.update(y[-1])  # so that it is alive when it is drawn
        browser.until(f"document.title.endsWith('= {steps + 1}')")
        time.sleep(0.5)
        browser.picture(path)


if __name__ == "__main__":
    draw(HERE / "watch.png", steps=240, width=1000)

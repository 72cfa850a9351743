"""Draws `docs/watch.png`, the page of a running stream, and `docs/watch-top.png`, its top, with Debian's chromium.

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
TOP = 1352  # pixels, to the end of the observations


def draw(steps: int, width: int) -> None:
    """The page after so many observations, among them some that are missing and one that is odd."""
    model = epf.zoo.LocalLevel()
    _, y = epf.simulate(model, TRUTH, steps=steps, seed=4)
    y[steps // 3 : steps // 3 + steps // 20] = np.nan
    y[2 * steps // 3] += 9.0
    _feed._SUMMARIES = _feed._POSTS = _feed._LOOKS = 100.0  # no rests
    _feed._SECONDS = 0.02
    stream = epf.Stream(model)
    with (
        tempfile.TemporaryDirectory() as profile,
        Browser(profile, width, 900) as browser,
        stream.watch() as watch,
    ):
        browser.open(watch.url)
        for i, value in enumerate(y):
            stream.update(value)
            page = watch._source
            while i > 5 and page._looked != stream.num_observations:
                time.sleep(0.02)
        browser.until(f"document.title.endsWith('= {steps}')")
        browser.resize(width, browser.run("document.documentElement.scrollHeight"))
        time.sleep(1.0)
        stream.update(y[-1])  # so that it is alive when it is drawn
        browser.until(f"document.title.endsWith('= {steps + 1}')")
        time.sleep(0.5)
        browser.picture(HERE / "watch.png")
        browser.picture(HERE / "watch-top.png", clip={"x": 0, "y": 0, "width": width, "height": TOP, "scale": 1})


if __name__ == "__main__":
    draw(steps=240, width=1000)

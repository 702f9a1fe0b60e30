"""The manual's pictures of a run's page, in Chromium: ``python scripts/make_pictures.py RUN IMAGE [SECONDS] [HEIGHT]``.

All are of the run of docs/tutorial.md. SECONDS is the time that the videos show; a .gif begins there: ``report.gif`` at
0.2 s with a HEIGHT of 1100, ``report.png`` at 3 s with 2400, ``tutorial_page.png`` at 3 s.
"""

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, SCALE = 1400, 0.75  # of the window, in which no column is out of sight; of the picture
FRAMES, STEP = 30, 0.15  # frames of a GIF; s of the episode between two frames
COLOURS = 256


def pictures(run: Path, count: int, seconds: float, height: int) -> list[Image.Image]:
    """Return pictures of the top of a run's page, while its videos show ``seconds`` and the times after it."""
    with sync_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=[*sandbox, "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light")
        page.goto((run / "report.html").resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        drawn = "() => [...document.querySelectorAll('#videos video')].every((v) => v.readyState >= 2 && !v.seeking)"
        page.wait_for_function(drawn)
        frames, size = [], (round(WIDTH * SCALE), round(height * SCALE))
        for k in range(count):
            scrub = "(x, t) => { x.value = t; x.dispatchEvent(new Event('input')); }"
            page.eval_on_selector("#scrub", scrub, seconds + STEP * k)
            page.wait_for_function(drawn)
            page.wait_for_timeout(500)  # until it is on the screen
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            frames.append(picture.resize(size, Image.Resampling.LANCZOS))
        browser.close()
    return frames


def main(run: Path, image: Path, seconds: float, height: int) -> None:
    if image.suffix != ".gif":
        pictures(run, 1, seconds, height)[0].quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(image, optimize=True)
        return
    frames = pictures(run, FRAMES, seconds, height)
    palette = frames[0].quantize(COLOURS, Image.Quantize.MAXCOVERAGE)  # keeps the colours of thin lines
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(image, save_all=True, append_images=rest, duration=round(1000 * STEP), loop=0, optimize=True)


if __name__ == "__main__":
    words = [*sys.argv[1:], *("", "", "3.0", "1220")[len(sys.argv) - 1 :]]  # missing words have defaults
    main(Path(words[0]), Path(words[1]), float(words[2]), int(words[3]))

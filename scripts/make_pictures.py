"""The manual's pictures of a run's page, in Chromium: ``python scripts/make_pictures.py RUN IMAGE [SECONDS] [HEIGHT]``.

``report.png`` and ``report.gif`` are of ``--task Ant --candidate_idx 0,1,2,3 --seeds 2 --num_envs_per_candidate 64
--learning_iterations 150 --video 3``, ``tutorial_page.png`` is of the run of docs/tutorial.md. SECONDS is the time that
the videos show; a .gif begins there.
"""

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1100
FRAMES, STEP = 30, 0.1  # frames of a GIF; s of the episode between two frames, shown for 1.5 times as long
GIF_SCALE, COLOURS = 0.7, 192


def pictures(run: Path, count: int, seconds: float, height: int) -> list[Image.Image]:
    """Return pictures of the top of a run's page, while its videos show ``seconds`` and the times after it."""
    with sync_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=[*sandbox, "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light")
        page.goto((run / "report.html").resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        frames = []
        for k in range(count):
            scrub = "(x, t) => { x.value = t; x.dispatchEvent(new Event('input')); }"
            page.eval_on_selector("#scrub", scrub, seconds + STEP * k)
            page.wait_for_timeout(400)  # until the videos show it
            frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        browser.close()
    return frames


def main(run: Path, image: Path, seconds: float, height: int) -> None:
    if image.suffix != ".gif":
        pictures(run, 1, seconds, height)[0].quantize(COLOURS, dither=Image.Dither.NONE).save(image, optimize=True)
        return
    size = round(WIDTH * GIF_SCALE), round(height * GIF_SCALE)
    frames = [picture.resize(size, Image.Resampling.LANCZOS) for picture in pictures(run, FRAMES, seconds, height)]
    palette = frames[0].quantize(COLOURS)
    first, *rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(image, save_all=True, append_images=rest, duration=round(1500 * STEP), loop=0, optimize=True)


if __name__ == "__main__":
    words = [*sys.argv[1:], *("", "", "3.0", "1220")[len(sys.argv) - 1 :]]  # missing words have defaults
    main(Path(words[0]), Path(words[1]), float(words[2]), int(words[3]))

"""The process that draws: reads a recording and a model, writes videos. A crash of OpenGL ends this process only.

``python -m envcoder_bench.video.draw JOB`` reads a JSON file, see ``render.py``. It prints the number of frames and
seconds. Exit code 3 means that OpenGL does not work; the reason is on stderr.
"""

import json
import sys
import time
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

NO_OPENGL = 3
INK, SHADE = (255, 255, 255), (20, 24, 31)  # colours of captions
QUALITY = 26  # x264's constant rate factor: 18 looks lossless, 28 shows artefacts


def main(job_file: str) -> int:
    """Draw the videos of a job; return the exit code."""
    job: dict[str, Any] = json.loads(Path(job_file).read_text(encoding="utf-8"))
    try:
        from envcoder_bench.sim.rendering import SceneRenderer, load_model

        model = load_model(Path(job["model"]))
        width, height = job["size"]
        renderer = SceneRenderer(model, width, height, job["fast"])
    except Exception as error:  # PyOpenGL raises anything
        print(f"{type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
        return NO_OPENGL
    _draw(job, model, renderer)
    renderer.close()
    return 0


def _draw(job: dict[str, Any], model: Any, renderer: Any) -> None:
    from envcoder_bench.core.words import format_fitness
    from envcoder_bench.video.recording import Recording
    from envcoder_bench.video.views import View, frame_steps, markers

    recording = Recording.load(Path(job["recording"]))
    view = View(model, recording)
    width, height = job["size"]
    # one file with a grid of episodes, or a file for each episode
    chosen = [recording.episodes[k] for k in job["episodes"]]
    columns = min(job["columns"], len(chosen))
    rows = -(-len(chosen) // columns)
    together = job["together"]
    size = (columns * width, rows * height) if together else (width, height)
    outputs = [Encoder(Path(path), *size, job["fps"]) for path in job["outputs"]]
    began, limit = time.monotonic(), job["limit"]
    steps = frame_steps(recording, job["fps"], job["seconds"])
    drawn, stills = 0, []
    for count, step in enumerate(steps):
        pictures = []
        for episode in chosen:
            # an episode that has ended keeps its last picture
            at = min(int(step), episode.steps)
            mocap = None
            if episode.mocap_pos is not None and episode.mocap_quat is not None:
                mocap = episode.mocap_pos[at], episode.mocap_quat[at]
            picture = renderer.render(
                episode.qpos[at], view.camera(episode, at), markers(recording, episode, at), mocap
            )
            facts = f"{step * recording.dt:4.1f} s   fitness {format_fitness(recording.fitness_at(episode, int(step)))}"
            note = f"ended: {episode.ended}" if episode.ended and at == episode.steps else ""
            name = f"{episode.name}, seed {episode.seed}" if job["seeds"] else episode.name
            pictures.append(add_caption(picture, name, facts, note))
        # unused cells of the grid are black
        if together:
            pictures += [np.zeros_like(pictures[0])] * (rows * columns - len(pictures))
            lines = [np.hstack(pictures[r * columns : (r + 1) * columns]) for r in range(rows)]
            pictures = [np.vstack(lines)]
        for output, picture in zip(outputs, pictures):
            output.add(picture)
        drawn = count + 1
        if count <= len(steps) // 3:  # of the way; the last one, if drawing ends earlier
            stills = pictures
        # drawing without a GPU can be slow: a shorter video is better than a late one
        if limit is not None and time.monotonic() - began > limit:
            break
    for output in outputs:
        output.finish()
    for path, still in zip(job["outputs"] if job["posters"] else [], stills):
        from PIL import Image

        Image.fromarray(still).save(Path(path).with_suffix(".jpg"), quality=80)
    print(json.dumps({"frames": drawn, "seconds": drawn / job["fps"]}))


@cache
def _font(size: int, bold: bool) -> Any:
    import matplotlib
    from PIL import ImageFont

    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(str(fonts / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), size)


def _shorten(text: str, width: float, font: Any) -> str:
    """Shorten a text to a width in pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def add_caption(picture: np.ndarray, name: str, facts: str, note: str = "") -> np.ndarray:
    """Return the picture with the name at the top left, ``facts`` at the bottom left, and ``note`` in its middle."""
    from PIL import Image, ImageDraw

    height, width = picture.shape[:2]
    size = max(10, round(height / 18))
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image, "RGBA")
    gap, line = size // 2, round(1.7 * size)
    bold, plain = _font(size, True), _font(size, False)
    # a dark bar keeps the text readable on any picture
    for text, font, top in ((name, bold, 0), (facts, plain, height - line)):
        label = _shorten(text, width - 2 * gap, font)
        draw.rectangle((0, top, font.getlength(label) + 2 * gap, top + line), fill=(*SHADE, 165))
        draw.text((gap, top + line / 2), label, fill=INK, font=font, anchor="lm")
    if note:
        label = _shorten(note, width - 2 * gap, plain)
        half = plain.getlength(label) / 2 + gap
        middle = width / 2, 0.3 * height
        box = (middle[0] - half, middle[1] - line / 2, middle[0] + half, middle[1] + line / 2)
        draw.rectangle(box, fill=(*SHADE, 165))
        draw.text(middle, label, fill=INK, font=plain, anchor="mm")
    return np.asarray(image)


class Encoder:
    """Encodes pictures ``(height, width, 3)`` uint8 of one even size as an mp4 file, which ``finish`` completes.

    It uses one thread, so that the same pictures give the same bytes.
    """

    def __init__(self, path: Path, width: int, height: int, fps: int) -> None:
        import av

        self._av: Any = av
        # with the index first, a browser can play the file while it loads
        self._file: Any = av.open(str(path), "w", format="mp4", options={"movflags": "faststart"})
        options = {"crf": str(QUALITY), "preset": "veryfast", "threads": "1"}
        self._stream: Any = self._file.add_stream("libx264", rate=Fraction(fps), options=options)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.gop_size = fps  # a key frame each second, for seeking

    def add(self, picture: np.ndarray) -> None:
        """Add a picture."""
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        self._file.mux(self._stream.encode(frame))

    def finish(self) -> None:
        """Complete the file."""
        self._file.mux(self._stream.encode())
        self._file.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""The process that draws: reads a recording and a model, writes videos. A crash of OpenGL ends this process only.

``python -m envcoder_bench.video.draw JOB`` with JOB a JSON file, see ``render.py``. It prints the seconds drawn. Exit
code 3: there is no OpenGL, with the reason on stderr.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

NO_OPENGL = 3


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
    from envcoder_bench.video.caption import captioned
    from envcoder_bench.video.encode import Encoder
    from envcoder_bench.video.recording import Recording
    from envcoder_bench.video.views import View, frame_steps, markers

    recording = Recording.load(Path(job["recording"]))
    view = View(model, recording)
    width, height = job["size"]
    chosen = [recording.episodes[k] for k in job["episodes"]]
    columns = min(job["columns"], len(chosen))
    rows = -(-len(chosen) // columns)
    together = job["together"]
    size = (columns * width, rows * height) if together else (width, height)
    outputs = [Encoder(Path(path), *size, job["fps"]) for path in job["outputs"]]
    began, limit = time.monotonic(), job["limit"]
    steps = frame_steps(recording, job["fps"], job["seconds"])
    drawn = 0
    for count, step in enumerate(steps):
        pictures = []
        for episode in chosen:
            at = min(int(step), episode.steps)
            mocap = None
            if episode.mocap_pos is not None and episode.mocap_quat is not None:
                mocap = episode.mocap_pos[at], episode.mocap_quat[at]
            picture = renderer.render(
                episode.qpos[at], view.camera(episode, at), markers(recording, episode, at), mocap
            )
            facts = f"{step * recording.dt:4.1f} s   fitness {recording.fitness_at(episode, int(step)):.3f}"
            note = f"ended: {episode.ended}" if episode.ended and at == episode.steps else ""
            pictures.append(captioned(picture, episode.name, facts, note))
        if together:
            pictures += [np.zeros_like(pictures[0])] * (rows * columns - len(pictures))
            lines = [np.hstack(pictures[r * columns : (r + 1) * columns]) for r in range(rows)]
            pictures = [np.vstack(lines)]
        for output, picture in zip(outputs, pictures):
            output.add(picture)
        drawn = count + 1
        if limit is not None and time.monotonic() - began > limit:
            break
    for output in outputs:
        output.finish()
    print(json.dumps({"frames": drawn, "seconds": drawn / job["fps"]}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

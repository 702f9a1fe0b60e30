"""Videos of a grid: the first episodes of each pair again, in a small simulation on the CPU."""

import logging
import tempfile
from pathlib import Path

import numpy as np

from envcoder_bench.grid.batch import Batch, Scene, Spec
from envcoder_bench.grid.inputs import Inputs
from envcoder_bench.grid.part import Part
from envcoder_bench.grid.protocol import ENDS
from envcoder_bench.report.words import number
from envcoder_bench.video.recording import Episode, Recording
from envcoder_bench.video.render import Look, NoVideo, missing, render

VIDEOS = "videos"
_HEIGHT_FIELD, _BOX = 1, 6  # MuJoCo's numbers of the types
_LIGHTER, _DARKER = (0.50, 0.52, 0.56, 1.0), (0.38, 0.41, 0.45, 1.0)
log = logging.getLogger(__name__)


def record_videos(inputs: Inputs, folder: Path, count: int) -> str:
    """Write ``videos/<episode>.mp4`` of the first ``count`` episodes of each pair.

    Returns:
        A note for the page, e.g. the reason why there are no videos.
    """
    if count < 1:
        return ""
    reason = missing()
    if reason:
        return f"There are no videos: {reason}."
    specs = [spec for spec in inputs.specs if spec.number < count]
    log.info("drawing videos of %s episodes: this may take minutes without a GPU", len(specs))
    seconds, fps = inputs.settings.video.seconds, inputs.settings.video.fps
    with tempfile.TemporaryDirectory(prefix="envcoder_bench_grid_") as name:
        part = Part(inputs, specs, Path(name), "mujoco_cpu", "cpu")
        recording, model = _replay(part.scene, specs, inputs, seconds)
        files = [folder / VIDEOS / f"{episode.name}.mp4" for episode in recording.episodes]
        try:
            length = render(recording, model, files, Look(width=320, height=240, fps=fps, seconds=seconds, fast=True))
        except NoVideo as error:
            return f"There are no videos: {error}."
    episodes = f"episode{'s' * (count > 1)}"
    return (
        f"The first {number(min(length, seconds), 2)} s of the first {episodes} of each pair, replayed in MuJoCo on the"
        " CPU; the number is the distance walked, m."
    )


def _replay(scene: Scene, specs: list[Spec], inputs: Inputs, seconds: float) -> tuple[Recording, bytes]:
    from envcoder_bench.sim.rendering import brightened, save_model

    batch = Batch(scene, specs)
    source = batch.sim.pose_source()  # pyright: ignore[reportAttributeAccessIssue]
    steps = min(batch.protocol.steps, round(seconds * inputs.settings.control_hz))
    poses = [source.qpos.copy()]
    for _ in range(steps):
        batch.advance(1)
        poses.append(source.qpos.copy())
    frames = np.stack(poses)
    lengths, ends = batch.episodes.state["steps"].tolist(), batch.episodes.end.tolist()
    recording = Recording(inputs.robot.name, batch.protocol.dt, batch.protocol.steps, summed=True, same_start=False)
    for k, spec in enumerate(specs):
        walked = np.diff(frames[: lengths[k] + 1, k, 0])
        name = inputs.named(spec)["episode_id"]
        recording.episodes.append(
            Episode(name, spec.number, frames[: lengths[k] + 1, k], walked, np.zeros_like(walked), ended=ENDS[ends[k]])
        )
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.mjb"
        model = brightened(source.model)
        boxes = np.flatnonzero(model.geom_type == _BOX)
        model.geom_rgba[boxes[::2]], model.geom_rgba[boxes[1::2]] = _LIGHTER, _DARKER  # so that steps can be seen
        model.geom_rgba[model.geom_type == _HEIGHT_FIELD] = _LIGHTER
        save_model(model, path)
        return recording, path.read_bytes()

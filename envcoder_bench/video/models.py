"""The models that videos draw."""

import tempfile
from pathlib import Path

import numpy as np

from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim.ground import Ground, crop
from envcoder_bench.sim.rendering import brightened, save_model, scenery
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.video.recording import Recording

AROUND = 6.0  # m of ground around the paths of the robots
MOST_NODES = 60_000  # of a height field: without a GPU more take seconds a frame


def model_bytes(spec: RunSpec, recording: Recording) -> bytes:
    """Return the model of a run's task in MuJoCo's binary format.

    Args:
        recording: what is drawn: only the ground around its robots is part of the model. Tasks that have no model file
            are drawn with its model.
    """
    task_class = spec.task.task_class
    if issubclass(task_class, SimTask):
        ground = task_class.ground(spec.config.task)
        model = scenery(spec.task.model_path, _ground_around(ground, recording))
    else:
        model = brightened(recording.model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mjb"
        save_model(model, path)
        return path.read_bytes()


def _ground_around(ground: Ground | None, recording: Recording) -> Ground | None:
    if ground is None or not recording.episodes:
        return None
    places = np.concatenate([episode.qpos[:, :2] for episode in recording.episodes])
    return crop(ground, places.min(axis=0) - AROUND, places.max(axis=0) + AROUND, MOST_NODES)

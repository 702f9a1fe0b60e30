"""Models with scenery have the poses of the plain ones; cameras follow and fit."""

import mujoco
import numpy as np
import pytest

from envcoder_bench.sim import rendering
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.video.recording import Episode, Recording
from envcoder_bench.video.views import View

TASKS = ["Cartpole", "Ant", "Humanoid", "Anymal", "FrankaCubeStack", "AllegroHand"]


@pytest.mark.parametrize("task", TASKS)
def test_scenery_changes_no_pose(task):
    path = get_spec(task).model_path
    plain, made = mujoco.MjModel.from_xml_path(str(path)), rendering.scenery(path)
    assert [plain.joint(k).name for k in range(plain.njnt)] == [made.joint(k).name for k in range(made.njnt)]
    np.testing.assert_array_equal(plain.qpos0, made.qpos0)
    np.testing.assert_array_equal(plain.geom_pos, made.geom_pos)
    assert rendering.is_floating(made) == (task in ("Ant", "Humanoid", "Anymal"))


def recording(model, task, shift):
    qpos = np.tile(model.qpos0.astype(np.float32), (51, 1))
    qpos[:, 0] += np.linspace(0, shift, 51)
    ones = np.ones(50, np.float32)
    return Recording(task, 0.2, 50, False, episodes=[Episode("a", 0, qpos, ones, ones)])


def test_the_camera_follows_a_robot_that_walks():
    model = rendering.scenery(get_spec("Ant").model_path)
    made = recording(model, "Ant", 30.0)
    view = View(model, made)
    first, middle = (view.camera(made.episodes[0], step) for step in (0, 25))
    assert middle.lookat[0] - first.lookat[0] == pytest.approx(15.0, abs=1.5) and first.distance == middle.distance


def test_the_camera_of_a_robot_that_stands_shows_all_of_the_episode():
    model = rendering.scenery(get_spec("Cartpole").model_path)
    far, near = (View(model, made).camera(made.episodes[0], 0) for made in
                 (recording(model, "Cartpole", shift) for shift in (2.0, 0.0)))  # fmt: skip
    assert far.distance > near.distance
    assert far.lookat[1] == pytest.approx(1.0, abs=0.2)


def test_markers_are_added_to_a_scene():
    model = rendering.scenery(get_spec("Cartpole").model_path)
    scene = mujoco.MjvScene(model, 10)
    rendering.draw_marker(scene, rendering.Arrow(np.zeros(3), np.array([0.0, 0, 1]), (1, 0, 0, 1)))
    rendering.draw_marker(scene, rendering.Arrow(np.zeros(3), np.zeros(3), (1, 0, 0, 1)))  # nothing to see
    rendering.draw_marker(scene, rendering.Cube(np.zeros(3), np.eye(3), 0.1, (1, 0, 0, 1)))
    assert scene.ngeom == 2 and int(scene.geoms[0].type) == int(mujoco.mjtGeom.mjGEOM_ARROW)

"""Models with scenery have the poses of the plain ones; cameras follow and fit."""

import mujoco
import numpy as np
import pytest
import torch

from envcoder_bench.run.config import compose_config
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim import Box, Ground, HeightField, rendering
from envcoder_bench.sim.ground import crop
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.terrain_locomotion import grid_of
from envcoder_bench.terrain.scan import HeightLookup
from envcoder_bench.video.record import MOST_NODES, model_bytes
from envcoder_bench.video.recording import Episode, Recording
from envcoder_bench.video.views import View

TASKS = ["Cartpole", "Humanoid", "Anymal", "FrankaCubeStack", "AllegroHand"]


@pytest.mark.parametrize("task", TASKS)
def test_scenery_does_not_change_poses(task):
    path = find_spec(task).model_path
    plain, made = mujoco.MjModel.from_xml_path(str(path)), rendering.scenery(path)
    assert [plain.joint(k).name for k in range(plain.njnt)] == [made.joint(k).name for k in range(made.njnt)]
    np.testing.assert_array_equal(plain.qpos0, made.qpos0)
    for body in range(plain.nbody):  # links can have rods besides
        own = range(plain.body_geomadr[body], plain.body_geomadr[body] + plain.body_geomnum[body])
        shown = made.body_geomadr[body] + np.arange(len(own))
        np.testing.assert_array_equal(plain.geom_pos[list(own)], made.geom_pos[shown])
    assert rendering.is_floating(made) == (task in ("Ant", "Humanoid", "Anymal"))


def test_links_whose_shapes_begin_away_from_their_joint_get_a_rod():
    path = find_spec("Anymal").model_path
    plain, made = mujoco.MjModel.from_xml_path(str(path)), rendering.scenery(path)
    more = [made.body(k).name for k in range(made.nbody) if made.body_geomnum[k] > plain.body_geomnum[k]]
    assert more == ["LF_SHANK", "LH_SHANK", "RF_SHANK", "RH_SHANK"]
    shank = made.body("LF_SHANK")
    (rod,) = [k for k in range(made.ngeom) if made.geom_bodyid[k] == shank.id and not made.geom(k).name]
    # from the knee to the upper end of the shank's capsule (anymal_c.xml)
    upper = np.array([0.08795, 0.01305, -0.045233])
    np.testing.assert_allclose(made.geom_pos[rod], upper / 2, atol=1e-6)
    assert made.geom_size[rod, :2] == pytest.approx([0.0175, np.linalg.norm(upper) / 2])


def recording(model, task, shift):
    qpos = np.tile(model.qpos0.astype(np.float32), (51, 1))
    qpos[:, 0] += np.linspace(0, shift, 51)
    ones = np.ones(50, np.float32)
    return Recording(task, 0.2, 50, False, episodes=[Episode("a", 0, qpos, ones, ones)])


def test_camera_follows_a_walking_robot():
    model = rendering.scenery(find_spec("Ant").model_path)
    made = recording(model, "Ant", 30.0)
    view = View(model, made)
    first, middle = (view.camera(made.episodes[0], step) for step in (0, 25))
    assert middle.lookat[0] - first.lookat[0] == pytest.approx(15.0, abs=1.5) and first.distance == middle.distance


RUNNER = """
<mujoco><asset><texture type="skybox" builtin="flat" rgb1="0 0 0" width="8" height="8"/></asset>
  <worldbody><geom name="floor" type="plane" size="20 20 1"/>
    <body name="torso" pos="0 0 1">CAMERA
      <joint name="rootx" type="slide" axis="1 0 0"/><joint name="rootz" type="slide" axis="0 0 1"/>
      <joint name="rooty" axis="0 1 0"/><geom type="capsule" size=".05 .2"/>
    </body></worldbody></mujoco>
"""


@pytest.mark.parametrize(
    ("camera", "azimuth"), [("", 90), ('<camera mode="trackcom" pos="-3 0 0" xyaxes="0 -1 0 0 0 1"/>', 0)]
)
def test_camera_follows_a_robot_on_slides_from_its_side_or_as_its_own_camera_looks(tmp_path, camera, azimuth):
    (tmp_path / "runner.xml").write_text(RUNNER.replace("CAMERA", camera))
    model = rendering.scenery(tmp_path / "runner.xml")
    made = recording(model, "Runner", 30.0)
    view = View(model, made)
    first, middle = (view.camera(made.episodes[0], step) for step in (0, 25))
    assert middle.lookat[0] - first.lookat[0] == pytest.approx(15.0, abs=1.5)
    assert first.distance == middle.distance < 2.0, "the robot fills the picture"
    assert first.azimuth == pytest.approx(azimuth) and first.elevation < 0
    for step in (0, 25, 50):  # in the middle of the picture from the beginning to the end
        assert view.camera(made.episodes[0], step).lookat[0] == pytest.approx(30.0 * step / 50, abs=0.05)
    # it can run off neither the drawn floor nor into a black sky
    assert not model.geom_size[model.geom("floor").id, :2].any()
    assert (model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).sum() == 1


def test_camera_of_a_fixed_robot_shows_the_whole_episode():
    model = rendering.scenery(find_spec("Cartpole").model_path)
    far, near = (View(model, made).camera(made.episodes[0], 0) for made in
                 (recording(model, "Cartpole", shift) for shift in (2.0, 0.0)))  # fmt: skip
    assert far.distance > near.distance
    assert far.lookat[1] == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("level", [0, 4])
def test_robots_are_rendered_on_their_terrain(tmp_path, level):
    """The clearance below the base equals that in the task, also on a cropped ground."""
    cfg = compose_config("AnymalTerrain", ["task.env.terrain.numLevels=5", "task.env.terrain.numTerrains=4"])
    task = find_spec("AnymalTerrain")
    grid = grid_of(cfg.task)
    qpos = np.tile(mujoco.MjModel.from_xml_path(str(find_spec("AnymalTerrain").model_path)).qpos0, (2, 1))
    start = grid.origins[level, 2]
    qpos[:, :3] = start + np.array((0.0, 0.0, 0.62))
    ones = np.ones(1, np.float32)
    made = Recording("AnymalTerrain", 0.02, 50, False, episodes=[Episode("a", 0, qpos.astype(np.float32), ones, ones)])
    path = tmp_path / "model.mjb"
    path.write_bytes(model_bytes(RunSpec.of(cfg), made))
    model = rendering.load_model(path)
    data = mujoco.MjData(model)
    data.qpos[:] = qpos[0]
    mujoco.mj_kinematics(model, data)
    own, down = np.zeros(1, np.int32), np.array([0.0, 0.0, -1.0])
    distance = mujoco.mj_ray(model, data, qpos[0, :3], down, None, 1, 1, own)
    while model.geom_bodyid[own[0]] != 0:  # the robot itself
        origin = qpos[0, :3] + (distance + 1e-3) * down
        distance += 1e-3 + mujoco.mj_ray(model, data, origin, down, None, 1, int(model.geom_bodyid[own[0]]), own)
    lookup = HeightLookup(task.ground(cfg.task), torch.device("cpu"))
    below = float(lookup.heights(torch.tensor(start[None, :2]))[0])
    assert distance == pytest.approx(qpos[0, 2] - below, abs=0.01)
    assert model.hfield_nrow[0] * model.hfield_ncol[0] <= MOST_NODES * 1.1


def test_cropped_ground_keeps_the_heights():
    heights = np.arange(200.0).reshape(20, 10)
    ground = Ground((HeightField(heights, 0.5, (-1.0, 2.0)),), (Box((0, 3, 0), (1, 1, 1)), Box((90, 0, 0), (1, 1, 1))))
    part = crop(ground, (0.2, 2.9), (3.1, 4.2), 1000)
    field = part.height_fields[0]
    assert field.corner == (0.0, 2.5) and field.heights.shape == (8, 5) and len(part.boxes) == 1
    np.testing.assert_array_equal(field.heights, heights[2:10, 1:6])
    thin = crop(ground, (-1.0, 2.0), (9.0, 7.0), 60).height_fields[0]
    assert thin.spacing == 1.0 and thin.heights[3, 2] == heights[6, 4]
    assert crop(ground, (50.0, 50.0), (51.0, 51.0), 100) is None


def test_markers_are_added_to_a_scene():
    model = rendering.scenery(find_spec("Cartpole").model_path)
    scene = mujoco.MjvScene(model, 10)
    rendering.draw_marker(scene, rendering.Arrow(np.zeros(3), np.array([0.0, 0, 1]), (1, 0, 0, 1)))
    rendering.draw_marker(scene, rendering.Arrow(np.zeros(3), np.zeros(3), (1, 0, 0, 1)))  # nothing to see
    rendering.draw_marker(scene, rendering.Cube(np.zeros(3), np.eye(3), 0.1, (1, 0, 0, 1)))
    assert scene.ngeom == 2 and int(scene.geoms[0].type) == int(mujoco.mjtGeom.mjGEOM_ARROW)

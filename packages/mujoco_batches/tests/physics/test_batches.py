"""Batches of MuJoCo against a loop of its own step."""

import mujoco
import numpy as np

from mujoco_batches.physics.batch import make_batch, step_batch

WALKER = """<mujoco><worldbody><geom type="plane" size="0 0 1"/><body pos="0 0 0.3"><freejoint/>
<geom type="box" size="0.2 0.1 0.05"/>
<body pos="0.2 0 0"><joint axis="0 1 0" range="-40 40"/><geom type="capsule" size="0.03" fromto="0 0 0 0 0 -.3"/></body>
<body pos="-.2 0 0"><joint axis="0 1 0" range="-40 40"/><geom type="capsule" size="0.03" fromto="0 0 0 0 0 -.3"/></body>
</body></worldbody></mujoco>"""


def test_one_tree_steps_as_with_islands():
    model = mujoco.MjModel.from_xml_string(WALKER)
    assert model.ntree == 1 and not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ISLAND
    batch, data, most = make_batch(model, 2, 1), mujoco.MjData(model), 0
    batch.bind("qvel")[:, 6:] = data.qvel[6:] = [3.0, -8.0]
    for _ in range(150):
        assert not len(step_batch(batch))
        mujoco.mj_step(model, data)
        most = max(most, data.nisland * data.nefc)
    assert most >= 8  # contacts and limits
    assert np.array_equal(batch.bind("qpos"), [data.qpos] * 2)


def test_a_step_takes_no_times_of_its_stages():
    model = mujoco.MjModel.from_xml_string(WALKER)
    make_batch(model, 1, 1)
    data, timer = mujoco.MjData(model), int(mujoco.mjtTimer.mjTIMER_STEP)
    mujoco.mj_step(model, data)
    assert data.timer[timer].duration == 0.0 and data.timer[timer].number == 1

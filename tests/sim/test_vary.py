"""Environments with models of their own, against plain MuJoCo with a changed model."""

import mujoco
import numpy as np
import pytest
import torch
from backends import ANYMAL, BACKENDS, STANCE, TASKS, Backend, everywhere, stand

from envcoder_bench.sim import make_simulator
from envcoder_bench.sim.base import Variation

CPU = Backend("mujoco_cpu", "cpu", True)
NEUTRAL = {"friction": np.nan, "mass": 1.0, "com": 0.0, "strength": 1.0, "gains": 1.0}
CHANGES = [{}, {"friction": 0.3}, {"mass": 1.3}, {"com": 0.05}, {"strength": 0.3}, {"gains": 0.5}]

NAMES = ("root_states", "dof_pos", "dof_vel", "dof_force")


def varied(changes, backend=CPU):
    rows = [{**NEUTRAL, **change} for change in changes]
    sim = backend.anymal(len(rows))
    sim.vary(Variation(**{name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in NEUTRAL}))
    return sim


def plain(change, steps):
    """Step a model that MuJoCo compiles with the change; return qpos."""
    spec = mujoco.MjSpec.from_file(str(ANYMAL))
    spec.option.timestep = 0.005
    value, (base, *_) = {**NEUTRAL, **change}, spec.bodies[1:]
    base.mass *= value["mass"]
    base.inertia = base.inertia * value["mass"]
    base.fullinertia = base.fullinertia * value["mass"]
    base.ipos[0] += value["com"]
    for geom in spec.geoms:
        geom.friction[0] = geom.friction[0] if np.isnan(value["friction"]) else value["friction"]
    model = spec.compile()
    model.actuator_gainprm[:, 0] *= value["gains"] * value["strength"]
    model.actuator_biasprm[:, 1:3] *= value["gains"] * value["strength"]
    model.actuator_forcerange *= value["strength"]
    model.jnt_actfrcrange *= value["strength"]
    data = mujoco.MjData(model)
    data.qpos[:] = [0, 0, np.float32(0.56), 1, 0, 0, 0, *np.float32(STANCE)]
    data.ctrl[:] = STANCE
    mujoco.mj_step(model, data, 4 * steps)
    return data.qpos.copy()


def test_each_environment_moves_as_its_own_model():
    sim = varied(CHANGES)
    stance = stand(sim)
    tracked = sim.track([sim.body_names.index("LF_SHANK")])
    for _ in range(25):
        sim.step(stance)
    assert not bool(sim.unstable.any())
    moved = [plain(change, 25) for change in CHANGES]
    for env, (change, qpos) in enumerate(zip(CHANGES, moved)):
        got = np.concatenate([sim.root_states[env, :3].numpy(), sim.dof_pos[env].numpy()])
        np.testing.assert_allclose(got, np.concatenate([qpos[:3], qpos[7:]]), atol=2e-5, err_msg=str(change))
        assert not change or np.abs(qpos - moved[0]).max() > 1e-4, change  # every change matters here
    assert float(tracked()[0, 0, 2]) < 0.1 < float(sim.root_states[0, 2])


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_warp_moves_each_environment_as_plain_mujoco_does(backend):
    """Here feet slip, legs push and efforts reach their limits, so that two control steps show every change."""
    changes = [*CHANGES, {"friction": 0.5, "mass": 0.8, "com": -0.03, "strength": 0.7, "gains": 1.2}]
    sims = [varied(changes), varied(changes, backend)]
    tracked = []
    for sim in sims:
        stance = stand(sim, 0.535)
        velocity = torch.zeros(sim.num_envs, 13, device=sim.device)
        velocity[:, 7:9], velocity[:, 2], velocity[:, 6] = 0.5, 0.535, 1.0
        sim.write(everywhere(sim), velocity)
        tracked.append(sim.track([sim.body_names.index("LF_SHANK"), 0]))
        for _ in range(2):
            sim.step(stance + 0.4)
    plain, warp = (
        [x.cpu() for x in (*(getattr(sim, name) for name in NAMES), track())] for sim, track in zip(sims, tracked)
    )
    for name, x, y, limit in zip((*NAMES, "tracked"), plain, warp, (1e-5, 1e-5, 1e-3, 1e-2, 1e-5)):
        torch.testing.assert_close(y, x, rtol=1e-4, atol=limit, msg=lambda text, name=name: f"{name}: {text}")
    moved = torch.cat([warp[0], warp[1]], dim=1)
    assert bool(((moved[1:] - moved[0]).abs().amax(dim=1) > 1e-4).all())  # every change matters here
    if backend.device != "cpu":
        pointer = sims[1].root_states.data_ptr()
        sims[1].step(stance)
        assert pointer == sims[1].root_states.data_ptr()


def test_a_body_whose_centre_of_mass_is_its_origin_can_be_shifted():
    """MuJoCo's compiler marks such a body, Spot's for one, and its kinematics skip a shift if constants are old."""
    sim = make_simulator("mujoco_cpu", TASKS / "spot_terrain" / "spot.xml", 2, 0.02, 4, "cpu")
    rows = {name: torch.full((2,), value, dtype=torch.float64) for name, value in NEUTRAL.items()}
    sim.vary(Variation(**{**rows, "com": torch.tensor([0.0, 0.1], dtype=torch.float64)}))
    for _ in range(30):
        sim.step(sim.dof_pos.clone())
    assert float((sim.root_states[0] - sim.root_states[1]).abs().max()) > 0.01


def test_a_neutral_variation_changes_no_bit():
    one, two = CPU.anymal(2), varied([{}, {}])
    for sim in (one, two):
        stance = stand(sim)
        for _ in range(10):
            sim.step(stance + 0.2)
    assert all(torch.equal(one.get_state()[name], x) for name, x in two.get_state().items())


def test_a_simulator_with_one_model_says_so():
    from fake_simulator import FakeSimulator

    with pytest.raises(ValueError, match="one model for all environments"):
        FakeSimulator(1, ["a"], ["b"]).vary(None)  # pyright: ignore[reportArgumentType]

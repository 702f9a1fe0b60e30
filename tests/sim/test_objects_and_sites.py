"""Free objects and sites on every backend, compared with plain MuJoCo."""

import mujoco
import numpy as np
import pytest
import torch
from backends import Backend, both, everywhere

from envcoder_bench.sim import make_simulator

ARM = """<mujoco>
  <option integrator="implicitfast"/>
  <custom><text name="jacobian" data="grip"/></custom>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="0"/>
    {base}
        <joint name="turn" axis="0 0 1" damping="0.3"/>
        <geom type="capsule" size="0.04" fromto="0 0 0 0.1 0 0.3" mass="2" contype="0" conaffinity="0"/>
        <body name="fore" pos="0.1 0 0.3" euler="20 30 10">
          <joint name="lift" axis="0 1 0" damping="0.3" armature="0.05"/>
          <geom type="capsule" size="0.03" fromto="0 0 0 0.3 0 0" mass="1" contype="0" conaffinity="0"/>
          <site name="elbow" pos="0.02 0.01 0"/>
          <body name="hand" pos="0.3 0 0">
            <joint name="slide" type="slide" axis="1 0 0" range="-0.1 0.1"/>
            <geom type="box" size="0.03 0.05 0.02" mass="0.4" contype="0" conaffinity="0"/>
            <site name="grip" pos="0.05 0 0.02" euler="0 90 0"/>
          </body>
          <body name="thumb" pos="0.25 0.1 0">
            <joint name="bend"/>
            <geom size="0.02" mass="0.1" contype="0" conaffinity="0"/>
          </body>
        </body>
      </body>
    {end}
    <body name="box" pos="0.6 0.1 0.5" euler="10 20 30">
      <freejoint/>
      <geom type="box" size="0.05 0.04 0.03" contype="0" conaffinity="1" density="400"/>
    </body>
    <body name="ball" pos="-0.5 0.2 0.4">
      <freejoint/>
      <geom size="0.06" contype="0" conaffinity="1" density="400"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="turn"/><motor joint="lift"/><motor joint="slide" forcerange="-5 5"/><motor joint="bend"/>
  </actuator>
</mujoco>"""
FIXED = ARM.format(base='<body name="arm" pos="0 0 0.2">', end="")
BASE = '<freejoint/><geom size="0.1" mass="3" contype="0" conaffinity="1"/>'
FLOATING = ARM.format(base=f'<body name="base" pos="0 0 0.5">{BASE}<body name="arm">', end="</body>")
DT, SUBSTEPS, STEPS = 0.02, 4, 6
models = pytest.mark.parametrize("xml", [FIXED, FLOATING], ids=["fixed", "floating"])


def simulator(backend: Backend, tmp_path, xml: str, num_envs: int = 3):
    path = tmp_path / "arm.xml"
    path.write_text(xml)
    sim = make_simulator(backend.name, path, num_envs, DT, SUBSTEPS, backend.device)
    sim.set_drive_mode(everywhere(sim))
    return sim


def start(sim, seed: int = 0) -> dict:
    """Write a state in which everything moves and turns, another in every environment; return it."""
    g = torch.Generator().manual_seed(seed)
    n, objects = sim.num_envs, len(sim.object_names)
    bodies = torch.randn(n, 1 + objects, 13, generator=g) * 0.3
    bodies[..., 2] = 0.11 + 0.3 * torch.rand(n, 1 + objects, generator=g)
    bodies[:, 1, 2] = 0.03  # the box digs into the floor
    bodies[..., 3:7] = torch.nn.functional.normalize(torch.randn(n, 1 + objects, 4, generator=g), dim=-1)
    state = {
        "root_states": bodies[:, 0],
        "dof_pos": 0.2 * torch.rand(n, sim.num_dofs, generator=g) - 0.1,
        "dof_vel": torch.randn(n, sim.num_dofs, generator=g),
        "object_states": bodies[:, 1:],
    }
    sim.write(everywhere(sim), **{key: x.to(sim.device) for key, x in state.items()})
    return state


def plain(xml: str, state: dict, env: int) -> tuple:
    """The same state in plain MuJoCo, written by its own functions."""
    model = mujoco.MjModel.from_xml_string(xml)
    model.opt.timestep = DT / SUBSTEPS
    data = mujoco.MjData(model)
    joints = [model.joint(name) for name in ("turn", "lift", "slide", "bend")]
    for k, joint in enumerate(joints):
        data.qpos[joint.qposadr[0]] = state["dof_pos"][env, k]
        data.qvel[joint.dofadr[0]] = state["dof_vel"][env, k]
    free = {"box": state["object_states"][env, 0], "ball": state["object_states"][env, 1]}
    if model.body("arm").parentid[0]:
        free["base"] = state["root_states"][env]
    for name, x in free.items():
        joint = model.body(name).jntadr[0]
        at, vel_at = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        x = x.double().numpy()
        data.qpos[at : at + 7] = x[[0, 1, 2, 6, 3, 4, 5]]
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, x[[6, 3, 4, 5]])
        data.qvel[vel_at : vel_at + 3] = x[7:10]
        data.qvel[vel_at + 3 : vel_at + 6] = turn.reshape(3, 3).T @ x[10:13]
    mujoco.mj_forward(model, data)
    return model, data


def object_state(model, data, kind, name: str) -> np.ndarray:
    """Pose and velocity of a body's or site's frame in the world, by MuJoCo's own functions."""
    site = kind == mujoco.mjtObj.mjOBJ_SITE
    own = data.site(name) if site else data.body(name)
    quat, velocity = np.zeros(4), np.zeros(6)
    mujoco.mju_mat2Quat(quat, own.xmat)
    # mjOBJ_XBODY is the body's frame; mjOBJ_BODY its center of mass
    identity = mujoco.mj_name2id(model, kind if site else mujoco.mjtObj.mjOBJ_BODY, name)
    mujoco.mj_objectVelocity(model, data, kind, identity, velocity, 0)
    return np.concatenate([own.xpos, quat[[1, 2, 3, 0]], velocity[3:], velocity[:3]])


def assert_as_plain(sim, env: int, model, data, tolerance: float) -> None:
    def close(got, want, what):
        got = got.cpu().double().numpy()
        if what not in ("jacobian", "mass matrix"):  # a quaternion and its negative are one rotation
            got[3:7] *= np.sign(got[3:7] @ want[3:7])
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=what)

    for k, name in enumerate(sim.object_names):
        close(sim.object_states[env, k], object_state(model, data, mujoco.mjtObj.mjOBJ_XBODY, name), name)
    for k, name in enumerate(sim.site_names):
        close(sim.site_states[env, k], object_state(model, data, mujoco.mjtObj.mjOBJ_SITE, name), name)
    linear, angular, inertia = np.zeros((3, model.nv)), np.zeros((3, model.nv)), np.zeros((model.nv, model.nv))
    mujoco.mj_jacSite(model, data, linear, angular, model.site("grip").id)
    mujoco.mj_fullM(model, data, inertia)
    dofs = [int(model.joint(name).dofadr[0]) for name in ("turn", "lift", "slide", "bend")]
    close(sim.jacobian[env], np.vstack([linear, angular])[:, dofs], "jacobian")
    close(sim.mass_matrix[env], inertia[np.ix_(dofs, dofs)], "mass matrix")


@both
@models
def test_objects_and_sites_match_plain_mujoco(backend: Backend, tmp_path, xml: str) -> None:
    """In falls, rotations and floor contacts; sites belong to the state after the step."""
    sim = simulator(backend, tmp_path, xml)
    state = start(sim)
    torque = 0.2 * torch.randn(STEPS, sim.num_envs, sim.num_dofs, generator=torch.Generator().manual_seed(1))
    for command in torque:
        sim.step(command.to(sim.device))
    touched = np.zeros(sim.num_envs)
    for env in range(sim.num_envs):
        model, data = plain(xml, state, env)
        for command in torque[:, env].numpy():
            data.ctrl[:] = command
            mujoco.mj_step(model, data, SUBSTEPS)
        force = np.zeros(6)
        for contact in range(data.ncon):  # of the last substep, as the simulator's
            mujoco.mj_contactForce(model, data, contact, force)
            touched[env] += force[0]
        mujoco.mj_forward(model, data)
        assert_as_plain(sim, env, model, data, 2e-3)
    upward = sim.contact_forces[:, :, 2].sum(dim=1).cpu().numpy()
    np.testing.assert_allclose(upward, touched, rtol=0.02, atol=0.05)
    assert touched.max() > 1.0


@both
@models
def test_only_masked_environments_are_written(backend: Backend, tmp_path, xml: str) -> None:
    sim = simulator(backend, tmp_path, xml)
    start(sim)
    names = ("object_states", "site_states", "jacobian", "mass_matrix", "dof_pos", "dof_vel", "root_states")
    sim.step(torch.zeros(3, sim.num_dofs, device=sim.device))
    before = {name: getattr(sim, name).clone() for name in names}
    mask = backend.tensor([False, True, False])
    moved = before["object_states"] + 1.0
    sim.write(mask, object_states=moved)
    assert torch.equal(sim.object_states[1], moved[1])
    for name in names:
        rows = ~mask if name == "object_states" else slice(None)
        assert torch.equal(getattr(sim, name)[rows], before[name][rows]), name  # the arm's sites do not know the box
    sim.write(mask, dof_pos=before["dof_pos"] + 0.1)
    for name in ("site_states", "jacobian", "mass_matrix"):
        assert torch.equal(getattr(sim, name)[~mask], before[name][~mask])
        assert not torch.equal(getattr(sim, name)[1], before[name][1]), name


@both
def test_restored_arm_and_objects_resume_identically(backend: Backend, tmp_path) -> None:
    sim, twin = (simulator(backend, tmp_path, FLOATING) for _ in range(2))
    start(sim)
    command = torch.zeros(3, sim.num_dofs, device=sim.device)
    sim.step(command)
    twin.set_state(sim.get_state())
    for _ in range(2):
        for name in ("object_states", "site_states", "jacobian", "mass_matrix"):
            backend.assert_same(getattr(sim, name), getattr(twin, name))
        sim.step(command)
        twin.step(command)


@both
def test_robot_without_sites_has_no_jacobian(backend: Backend) -> None:
    sim = backend.cartpole()
    assert sim.site_states.shape == (2, 0, 13) and sim.object_states.shape == (2, 0, 13)
    assert sim.jacobian.shape == (2, 0, 2) and sim.mass_matrix.shape == (2, 0, 2)

"""The contract of sim/base.py, checked on every backend against plain MuJoCo and hand-computed numbers."""

import mujoco
import numpy as np
import pytest
import torch
from backends import ANT, ANYMAL, KD, KP, STANCE, Backend, both, commands, everywhere, stand, tensors

from envcoder_bench.sim import make_simulator

G = 9.81


def plain_anymal(targets: np.ndarray) -> dict:
    """Step the file's own model with mj_step from the stance; what a Simulator should show, float64, per step."""
    model = mujoco.MjModel.from_xml_path(str(ANYMAL))
    model.opt.timestep = 0.005
    data = mujoco.MjData(model)
    data.qpos[:] = [0, 0, np.float32(0.56), 1, 0, 0, 0, *np.float32(STANCE)]
    steps = []
    for target in targets:
        data.ctrl[:] = target
        mujoco.mj_step(model, data, 4)
        spin = np.zeros(3)
        mujoco.mju_rotVecQuat(spin, data.qvel[3:6], data.qpos[3:7])
        steps.append(
            {
                "root_states": [*data.qpos[:3], *data.qpos[4:7], data.qpos[3], *data.qvel[:3], *spin],
                "dof_pos": data.qpos[7:].copy(),
                "dof_vel": data.qvel[6:].copy(),
                "dof_force": data.qfrc_actuator[6:].copy(),
                "contact_forces": net_contact_forces(model, data),
            }
        )
    return {name: np.array([step[name] for step in steps]) for name in steps[0]}


def net_contact_forces(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Add up MuJoCo's contacts body by body, without its contact sensors: world frame, ``(bodies, 3)``."""
    net = np.zeros((model.nbody, 3))
    for k, contact in enumerate(data.contact):
        in_contact_frame = np.zeros(6)
        mujoco.mj_contactForce(model, data, k, in_contact_frame)
        on_second = contact.frame.reshape(3, 3).T @ in_contact_frame[:3]  # the normal points from geom1 to geom2
        net[model.geom_bodyid[contact.geom2]] += on_second
        net[model.geom_bodyid[contact.geom1]] -= on_second
    return net[1:]


# float32 physics against float64; measured over 40 steps: 8e-6, 1e-6, 6e-5, 1e-4, 1e-2
WARP_TOLERANCE = {"root_states": 1e-3, "dof_pos": 1e-4, "dof_vel": 1e-2, "dof_force": 1e-2, "contact_forces": 0.5}


@pytest.mark.slow
@both
def test_simulator_matches_plain_mujoco(backend: Backend) -> None:
    sim = backend.anymal(num_envs=2)
    stand(sim)
    moves = commands(sim, steps=20)
    plain = [plain_anymal(moves[:, env].cpu().numpy().astype(np.float64)) for env in range(2)]
    touched = set()
    for step, command in enumerate(moves):
        sim.step(command)
        for env in range(2):
            touched |= set(np.flatnonzero(plain[env]["contact_forces"][step, :, 2]))
            for name, series in plain[env].items():
                got, want = getattr(sim, name)[env].cpu(), torch.from_numpy(series[step])
                if backend.name == "mujoco_warp":
                    torch.testing.assert_close(got.double(), want, rtol=0.0, atol=WARP_TOLERANCE[name])
                elif name in ("dof_pos", "dof_vel", "dof_force"):
                    assert torch.equal(got, want.float()), name
                else:  # MuJoCo's own sum or rotation, in another order
                    torch.testing.assert_close(got, want.float(), rtol=1e-6, atol=1e-6)
    assert len(touched) >= 4, "the test needs contacts"


@both
def test_tensors_are_live_float32_and_fixed_in_memory(backend: Backend) -> None:
    sim = backend.anymal(num_envs=3)
    assert sim.num_dofs == 12 and sim.dof_names[:4] == ["LF_HAA", "LF_HFE", "LF_KFE", "LH_HAA"]
    shapes = {name: tuple(x.shape) for name, x in tensors(sim).items()}
    assert shapes == {
        "root_states": (3, 13),
        "dof_pos": (3, 12),
        "dof_vel": (3, 12),
        "dof_force": (3, 12),
        "contact_forces": (3, 13, 3),
        "sensor_forces": (3, 0, 6),
        "unstable": (3,),
    }
    addresses = {name: getattr(sim, name).data_ptr() for name in shapes}
    assert all(getattr(sim, n).dtype == (torch.bool if n == "unstable" else torch.float32) for n in shapes)
    before = sim.dof_vel.clone()
    stand(sim)
    sim.step(sim.dof_pos + 0.1)
    sim.set_state(sim.get_state())
    assert {name: getattr(sim, name).data_ptr() for name in shapes} == addresses
    assert not torch.equal(sim.dof_vel, before)


@both
def test_simulator_starts_in_the_default_state_of_the_model(backend: Backend) -> None:
    sim = backend.anymal(num_envs=2)
    assert sim.root_states.tolist() == [pytest.approx([0, 0, 0.65, 0, 0, 0, 1, *[0] * 6])] * 2
    assert all(not x.any() for name, x in tensors(sim).items() if name != "root_states")


@both
def test_velocities_are_in_the_world_frame(backend: Backend) -> None:
    """The robot is rotated by 90 degrees about z; its angular velocity is about the world's x axis."""
    sim = backend.anymal(num_envs=2)
    stance = stand(sim)
    root = torch.zeros(2, 13, device=sim.device)
    half = 0.5**0.5
    root[:, 2] = 2.0
    root[:, 3:7] = backend.tensor([0.0, 0.0, half, half])  # xyzw
    root[:, 7:10] = backend.tensor([1.0, -2.0, 3.0])
    root[:, 10:13] = backend.tensor([2.0, 0.0, 0.0])
    sim.write(everywhere(sim), root, stance, torch.zeros_like(stance))
    assert torch.equal(sim.root_states, root)
    sim.step(stance)

    dt, position, quat = 0.02, sim.root_states[0, :3].cpu(), sim.root_states[0, 3:7].cpu()
    # x turn by 0.04 rad, after the z turn: (cx + i sx)(cz + k sz) = cx cz + i sx cz - j sx sz + k cx sz
    cx, sx = np.cos(0.02), np.sin(0.02)
    np.testing.assert_allclose(quat, [sx * half, -sx * half, cx * half, cx * half], atol=2e-3)
    np.testing.assert_allclose(sim.root_states[0, 10:13].cpu(), [2.0, 0.0, 0.0], atol=0.1)
    # the centre of mass flies a parabola; the base's origin is within 2 cm of it
    np.testing.assert_allclose(position, [dt, -2 * dt, 2.0 + 3 * dt - G * dt * dt / 2], atol=3e-3)
    np.testing.assert_allclose(sim.root_states[0, 7:10].cpu(), [1.0, -2.0, 3.0 - G * dt], atol=0.1)


@both
def test_write_changes_only_masked_environments(backend: Backend) -> None:
    sim, twin = backend.anymal(), backend.anymal()
    for s in (sim, twin):
        stand(s)
        for command in commands(s, steps=6):
            s.step(command)
    assert sim.contact_forces.any(), "the test needs forces that write can wipe"
    before = tensors(sim)

    mask = backend.tensor([False, True, False, True])
    pos = torch.rand_like(sim.dof_pos)
    sim.write(mask, dof_pos=pos)
    after = tensors(sim)
    for name in before:
        assert torch.equal(after[name][~mask], before[name][~mask]), name
    assert torch.equal(after["dof_pos"][mask], pos[mask])
    assert torch.equal(after["root_states"], before["root_states"]) and torch.equal(after["dof_vel"], before["dof_vel"])
    assert not after["dof_force"][mask].any() and not after["contact_forces"][mask].any()

    for command in commands(sim, steps=3, seed=50):  # and the others go on as if nothing had happened
        sim.step(command)
        twin.step(command)
        for name in before:
            backend.assert_same(getattr(sim, name)[~mask], getattr(twin, name)[~mask])
    assert not torch.equal(sim.dof_pos[mask], twin.dof_pos[mask])


@both
def test_written_state_evolves_like_a_fresh_one(backend: Backend) -> None:
    """Neither warm start nor forces of earlier steps remain: a rewritten robot moves like a new one."""
    used, fresh = backend.anymal(num_envs=2), backend.anymal(num_envs=2)
    stand(used)
    for command in commands(used, steps=4):
        used.step(command)
    stand(used, height=0.54)  # feet in the ground: the solver has work to do at once, from its warm start
    stand(fresh, height=0.54)
    for command in commands(fresh, steps=4):
        used.step(command)
        fresh.step(command)
        for name, value in tensors(fresh).items():
            backend.assert_same(getattr(used, name), value)


def plain_ant_sensors(root: np.ndarray, pos: np.ndarray, vel: np.ndarray, steps: int) -> np.ndarray:
    """Let an Ant of the file's own model go limp, add up what each foot's contacts do to it: ``(steps, 4, 6)``."""
    model = mujoco.MjModel.from_xml_path(str(ANT))
    model.opt.timestep = 0.0166 / 2
    model.actuator_gainprm[:], model.actuator_biasprm[:] = 0.0, 0.0
    data = mujoco.MjData(model)
    data.qpos[:] = [*root[:3], root[6], *root[3:6], *pos]
    data.qvel[6:] = vel
    feet, seen = [model.body(name).id for name in ANT_FEET], []
    for _ in range(steps):
        mujoco.mj_step(model, data, 2)
        wrench = np.zeros((4, 6))
        for k, contact in enumerate(data.contact):
            in_contact_frame = np.zeros(6)
            mujoco.mj_contactForce(model, data, k, in_contact_frame)
            body = int(model.geom_bodyid[contact.geom2])
            if body in feet:
                force = contact.frame.reshape(3, 3).T @ in_contact_frame[:3]
                to_body = data.xmat[body].reshape(3, 3).T
                wrench[feet.index(body), :3] += to_body @ force
                wrench[feet.index(body), 3:] += to_body @ np.cross(contact.pos - data.xpos[body], force)
        seen.append(wrench)
    return np.array(seen)


ANT_FEET = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")


@both
def test_sensors_measure_contact_forces_of_their_bodies(backend: Backend) -> None:
    """A tilted Ant falls on its feet and skids: forces, and torques about the ankles, in the frames of the feet."""
    sim = backend.ant(num_envs=3)
    assert sim.sensor_names == list(ANT_FEET)
    root, pos = sim.root_states.clone(), torch.zeros_like(sim.dof_pos)
    root[:, 2] = 0.4
    root[:, 3:7] = torch.nn.functional.normalize(backend.tensor([0.1, -0.2, 0.6, 0.8]), dim=0)
    pos[:, 1::2] = backend.tensor([0.9, -1.0, -0.8, 1.1])
    vel = 0.3 * torch.ones_like(pos)
    sim.write(everywhere(sim), root, pos, vel)
    sim.set_drive_mode(everywhere(sim))
    first = [x[0].double().cpu().numpy() for x in (root, pos, vel)]
    touched = 0
    for step, want in enumerate(plain_ant_sensors(*first, steps=6)):
        if step == 5:  # what is written forgets, and the others do not notice
            sim.write(backend.tensor([True, True, False]), root, pos, vel)
            assert not sim.sensor_forces[:2].any() and sim.sensor_forces[2].any()
        sim.step(torch.zeros_like(pos))
        # Warp's solver stops at a tolerance for float32, which shows with so light a robot
        rtol, atol = (1e-5, 1e-5) if backend.name == "mujoco_cpu" else (0.03, 0.3)
        got = sim.sensor_forces[2].cpu().double()
        torch.testing.assert_close(got, torch.from_numpy(want), rtol=rtol, atol=atol)
        touched += int((np.abs(want).sum(axis=1) > 0).sum())
    assert touched > 5, "the test needs contacts"


@both
def test_limits_match_the_model(backend: Backend) -> None:
    ant, cartpole = backend.ant(num_envs=1), backend.cartpole(num_envs=1)
    degrees = torch.tensor([[-40, 40], [30, 100], [-40, 40], [-100, -30], [-40, 40], [-100, -30], [-40, 40], [30, 100]])
    torch.testing.assert_close(torch.stack((ant.dof_limits_lower, ant.dof_limits_upper), 1), torch.deg2rad(degrees))
    assert ant.effort_limits.tolist() == [15.0] * 8
    assert cartpole.dof_limits_lower.tolist() == [-4.0, -torch.inf]
    assert cartpole.dof_limits_upper.tolist() == [4.0, torch.inf]
    assert cartpole.effort_limits.tolist() == [400.0, 0.0] and cartpole.sensor_names == []


@both
def test_drive_mode_is_separate_for_each_environment(backend: Backend) -> None:
    sim = backend.anymal(num_envs=3, dt=0.005, substeps=1)  # dof_force then belongs to the state before the step
    stance = stand(sim, height=1.0)
    command = stance + torch.linspace(-0.4, 0.4, 12, device=sim.device)
    sim.set_drive_mode(backend.tensor([False, True, False]))
    for _ in range(3):
        position, velocity = sim.dof_pos.clone(), sim.dof_vel.clone()
        sim.step(command)
        torch.testing.assert_close(
            sim.dof_force[0::2], (KP * (command - position) - KD * velocity)[0::2], rtol=1e-5, atol=1e-4
        )
        torch.testing.assert_close(sim.dof_force[1], command[1], rtol=1e-6, atol=0.0)
    sim.set_drive_mode(backend.tensor([True, False, False]))
    sim.step(command)
    torch.testing.assert_close(sim.dof_force[0], command[0], rtol=1e-6, atol=0.0)
    assert not torch.allclose(sim.dof_force[1], command[1])


@both
@pytest.mark.parametrize("cause", ["a state that is not a number", "a wild speed", "a command that is not a number"])
def test_unstable_environments_are_flagged_and_only_they_are_reset(backend: Backend, cause: str) -> None:
    sim, twin = backend.anymal(), backend.anymal()
    fresh = tensors(twin)
    for s in (sim, twin):
        stand(s)
    broken = backend.tensor([False, False, True, False])
    command = commands(sim, steps=2)
    twin.step(command[0])
    if cause == "a state that is not a number":
        sim.write(broken, root_states=torch.full((4, 13), torch.nan, device=sim.device))
        sim.step(command[0])
    elif cause == "a wild speed":
        sim.write(broken, dof_vel=torch.full((4, 12), 1e9, device=sim.device))
        sim.step(command[0])
    else:
        sim.step(torch.where(broken.unsqueeze(1), torch.inf, command[0]))

    assert sim.unstable.tolist() == [False, False, True, False]
    after = tensors(sim)
    for name, value in tensors(twin).items():
        assert torch.isfinite(after[name]).all(), name
        backend.assert_same(after[name][~broken], value[~broken])
        if name != "unstable":
            assert torch.equal(after[name][broken], fresh[name][broken]), name

    sim.step(command[1])  # the flag is about the last step only, and the environment lives on
    assert not sim.unstable.any()
    assert all(torch.isfinite(x).all() for x in tensors(sim).values())


@both
def test_restored_simulation_resumes_identically(backend: Backend) -> None:
    sim = backend.anymal()
    stand(sim)
    sim.set_drive_mode(backend.tensor([False, True, False, True]))
    moves = commands(sim, steps=8)
    for command in moves[:4]:
        sim.step(command)
    sim.write(backend.tensor([True, False, False, False]), dof_vel=torch.ones_like(sim.dof_vel))
    state, at_save = sim.get_state(), tensors(sim)
    assert all(x.device.type == "cpu" for x in state.values())

    def go_on(s) -> list:
        seen = []
        for command in moves[4:]:
            s.step(command)
            seen.append(tensors(s))
        return seen

    expected = go_on(sim)
    other = backend.anymal()
    for s in (sim, other):
        s.set_state(state)
        assert all(torch.equal(getattr(s, name), x) for name, x in at_save.items())
        for got, want in zip(go_on(s), expected):
            for name in want:
                backend.assert_same(got[name], want[name])


@both
def test_state_of_another_size_is_refused(backend: Backend) -> None:
    sim = backend.anymal(num_envs=2)
    before = tensors(sim)
    with pytest.raises(ValueError, match="saved from another simulation"):
        sim.set_state(backend.anymal(num_envs=3).get_state())
    with pytest.raises(ValueError, match="another kind of simulator"):
        sim.set_state({"qpos": torch.zeros(2, 19)})
    assert all(torch.equal(getattr(sim, name), x) for name, x in before.items())


@both
def test_result_is_independent_of_the_number_of_environments(backend: Backend) -> None:
    sims = [backend.anymal(num_envs=n) for n in (1, 8)]
    for sim in sims:
        stand(sim)
    moves = commands(sims[-1], steps=8)
    for command in moves:
        for sim in sims:
            sim.step(command[: sim.num_envs])
    for name, value in tensors(sims[-1]).items():
        for sim in sims[:-1]:
            backend.assert_same(getattr(sim, name), value[: sim.num_envs])


@both
def test_cartpole_acceleration_matches_the_equations_of_motion(backend: Backend) -> None:
    """Rail, cart and pole of 1 kg, centre 0.47 m up: solve the two equations by hand for a push and a tilt."""
    push, tilt, dt = 10.0, 0.3, 1e-3
    sim = backend.cartpole(dt=dt, substeps=1)
    assert sim.dof_names == ["slider_to_cart", "cart_to_pole"] and sim.body_names == ["slider", "cart", "pole"]
    assert sim.root_states[0].tolist() == [0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    start = backend.tensor([[0.0, tilt], [0.0, 0.0]])
    sim.write(everywhere(sim), dof_pos=start, dof_vel=torch.zeros_like(start))
    sim.set_drive_mode(backend.tensor([True, True]))
    sim.step(backend.tensor([[push, 99.0], [1e6, 99.0]]))  # the passive joint's column is ignored

    # turning by +a about x moves the pole's tip towards -y
    inertia, arm = (0.06**2 + 1.0**2) / 12, 0.47
    for env, (force, angle) in enumerate([(push, tilt), (400.0, 0.0)]):
        mass = np.array([[2.0, -arm * np.cos(angle)], [-arm * np.cos(angle), inertia + arm**2]])
        acceleration = np.linalg.solve(mass, [force, G * arm * np.sin(angle)])
        np.testing.assert_allclose(sim.dof_vel[env].cpu() / dt, acceleration, rtol=2e-3)
        assert sim.dof_force[env].tolist() == [force, 0.0]
    assert torch.equal(sim.root_states[:, 2].cpu(), torch.full((2,), 2.0)) and not sim.contact_forces.any()


@both
def test_motor_has_no_position_drive_without_gains(backend: Backend) -> None:
    sim = backend.cartpole(num_envs=1)
    sim.step(backend.tensor([[3.0, 0.0]]))
    assert not sim.dof_force.any() and not sim.dof_vel.any()


@both
def test_writing_the_root_of_a_fixed_robot_is_ignored(backend: Backend) -> None:
    sim = backend.cartpole(num_envs=1)
    sim.write(
        everywhere(sim),
        root_states=torch.full((1, 13), torch.nan, device=sim.device),
        dof_pos=backend.tensor([[1.0, 0.1]]),
    )
    assert sim.root_states[0].tolist() == [0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert sim.dof_pos[0].tolist() == pytest.approx([1.0, 0.1])


@both
def test_unconstrained_robot_moves(backend: Backend, tmp_path) -> None:
    """Without contacts and limits the solver has no constraints; a rod of 1 kg m2 must rotate."""
    path = tmp_path / "pendulum.xml"
    path.write_text(
        '<mujoco><option integrator="implicitfast" gravity="0 0 0"/><worldbody><body name="rod"><joint name="hinge"/>'
        '<inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/></body></worldbody>'
        '<actuator><motor joint="hinge"/></actuator></mujoco>'
    )
    sim = make_simulator(backend.name, path, 2, 0.1, 10, backend.device)
    sim.set_drive_mode(everywhere(sim))
    sim.step(backend.tensor([[3.0], [-1.0]]))
    torch.testing.assert_close(sim.dof_vel, backend.tensor([[0.3], [-0.1]]))

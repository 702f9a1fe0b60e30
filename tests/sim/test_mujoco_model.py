"""Valid MJCF files and their numbers, and the errors of others."""

import mujoco
import numpy as np
import pytest
import torch
from backends import ANYMAL, CARTPOLE

from envcoder_bench.sim import make_simulator
from envcoder_bench.sim.base import INTEGRATORS
from envcoder_bench.sim.mujoco_model import load_robot
from envcoder_bench.sim.portable_model import portable_model
from envcoder_bench.sources.registry import find_spec

ARM = '<joint name="a"/><geom name="g" size="0.1"/>'
HINGED = f'<body name="arm">{ARM}</body>'
FREE = '<body name="{}"><freejoint/><geom size="0.1"/></body>'
LATER = '<body name="last"><joint name="late"/><geom size="0.1"/></body>'
BALL = '<body name="arm"><joint name="a" type="ball"/><geom size="0.1"/></body>'
MOTOR = '<actuator><motor joint="a"/></actuator>'


def mjcf(tmp_path, body: str = HINGED, rest: str = MOTOR):
    path = tmp_path / "robot.xml"
    path.write_text(f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>")
    return path


@pytest.mark.parametrize(
    "body, rest, message",
    [
        (BALL, "", "joint a: the robot has hinges and slides"),
        (f"{HINGED}{FREE.format('x')}{LATER}", "", "joint late: .*objects, with one free joint each, come after it"),
        (f"<body>{ARM}</body>", MOTOR, "a body has no name; name every body"),
        ('<body name="arm"><joint/><geom size="0.1"/></body>', "", "a joint has no name; name every joint"),
        ("", "", "the model has no body"),
        ('<body name="arm"><geom size="0.1"/><site/></body>', "", "a site has no name; name every site"),
        (HINGED, '<custom><text name="jacobian" data="tip"/></custom>', "names the site 'tip'; there are none"),
        (HINGED, '<actuator><motor name="m" joint="a" gear="2"/></actuator>', "actuator m: use"),
        (HINGED, '<actuator><position name="m" joint="a" ctrlrange="-1 1"/></actuator>', "actuator m: use"),
        (HINGED, '<actuator><velocity name="m" joint="a"/></actuator>', "actuator m: use"),
        (HINGED, '<actuator><motor joint="a"/><motor joint="a"/></actuator>', "order of their joints, at most one"),
        (HINGED, '<option integrator="RK4"/>', "RK4 is not supported; choose one of Euler, implicit, implicitfast"),
        ('<body name="arm"><oops/></body>', "", "unrecognized element"),
    ],
)
def test_unsuitable_models_are_refused(tmp_path, body: str, rest: str, message: str) -> None:
    path = mjcf(tmp_path, body, rest)
    with pytest.raises(ValueError, match=message) as error:
        load_robot(path, 0.02, 4)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    "motor, joint, greatest",
    [
        ("", "", np.inf),
        ('forcerange="-2 2"', "", 2.0),
        ('forcerange="-3 0.5"', "", 3.0),
        ("", 'actuatorfrcrange="-4 1"', 4.0),
        ('forcerange="-3 0.5"', 'actuatorfrcrange="-1 1"', 1.0),
        ('forcerange="-0.2 0.5"', 'actuatorfrcrange="-1 1"', 0.5),
    ],
)
def test_effort_limit_is_the_greatest_effort_of_motor_and_joint(tmp_path, motor: str, joint: str, greatest) -> None:
    passive = f'<body name="first"><joint name="free" {joint}/><geom size="0.1"/></body>'
    body = f'<body name="arm"><joint name="a" {joint}/><geom size="0.1"/></body>'
    robot = load_robot(mjcf(tmp_path, passive + body, f'<actuator><motor joint="a" {motor}/></actuator>'), 0.02, 4)
    assert robot.effort_limits.tolist() == [0.0, pytest.approx(greatest)]


def test_missing_file_and_invalid_step_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no robot model at .*nothing\.xml"):
        load_robot(tmp_path / "nothing.xml", 0.02, 4)
    with pytest.raises(ValueError, match="dt > 0 and substeps >= 1"):
        load_robot(mjcf(tmp_path), 0.0, 4)


def test_gains_come_from_the_file_unless_given(tmp_path) -> None:
    drive = '<actuator><position joint="a" kp="30" kv="3"/></actuator>'
    file_gains = load_robot(mjcf(tmp_path, rest=drive), 0.02, 4)
    assert (file_gains.stiffness.tolist(), file_gains.damping.tolist()) == ([30.0], [3.0])
    given = load_robot(mjcf(tmp_path, rest=drive), 0.02, 4, stiffness=50.0)
    assert (given.stiffness.tolist(), given.damping.tolist()) == ([50.0], [3.0])
    motor = load_robot(mjcf(tmp_path), 0.02, 4)
    assert (motor.stiffness.tolist(), motor.damping.tolist()) == ([0.0], [0.0])


def test_contact_sensors_replace_those_of_the_file(tmp_path) -> None:
    robot = load_robot(mjcf(tmp_path, rest=MOTOR + '<sensor><jointpos joint="a"/></sensor>'), 0.02, 4)
    assert robot.mj_model.nsensordata == 3 and robot.sensor_names == []
    feeling = '<sensor><jointpos joint="a"/><contact body1="arm"/></sensor>'
    robot = load_robot(mjcf(tmp_path, rest=MOTOR + feeling), 0.02, 4)
    assert robot.mj_model.nsensordata == 9 and robot.sensor_names == ["arm"]


def test_capacities_count_possible_contacts(tmp_path) -> None:
    """Ground, a box (4 points on a plane), and a sphere on its child: parent and child do not touch."""
    body = (
        '<geom name="ground" type="plane" size="0 0 1"/><body name="arm"><freejoint/><geom type="box" size="1 1 1"/>'
        '<body name="hand"><joint name="a" range="-1 1"/><geom size="0.1"/></body></body>'
    )
    robot = load_robot(mjcf(tmp_path, body), 0.02, 4)
    assert (robot.max_pairs, robot.max_contacts) == (2, 5)
    assert robot.max_constraints == 4 * 5 + 1  # pyramidal friction cones, one joint limit
    declared = MOTOR + '<custom><numeric name="max_contacts" data="3"/></custom>'
    assert load_robot(mjcf(tmp_path, body, declared), 0.02, 4).max_constraints == 4 * 3 + 1
    assert load_robot(CARTPOLE, 0.0166, 2).max_contacts == 0


def test_convex_pairs_are_those_without_a_formula(tmp_path) -> None:
    """Of two boxes, two cylinders and a sphere on a plane, four pairs are of a box and a cylinder."""
    shapes = [("box", "1 1 1"), ("box", "1 1 1"), ("cylinder", "1 1"), ("cylinder", "1 1")]
    bodies = [f'<body name="b{i}"><freejoint/><geom type="{s}" size="{n}"/></body>' for i, (s, n) in enumerate(shapes)]
    ground = '<geom name="ground" type="plane" size="0 0 1"/><body name="arm"><joint name="a"/><geom size="1"/></body>'
    assert load_robot(mjcf(tmp_path, ground + "".join(bodies)), 0.02, 4).max_convex == 4
    assert load_robot(ANYMAL, 0.02, 4).max_convex == 0


def test_options_override_those_of_the_file(tmp_path) -> None:
    rest = MOTOR + '<option integrator="implicitfast" iterations="6" ls_iterations="20"/>'
    file = load_robot(mjcf(tmp_path, rest=rest), 0.02, 4).mj_model.opt
    assert (file.integrator, file.iterations) == (mujoco.mjtIntegrator.mjINT_IMPLICITFAST, 6)
    given = {"integrator": "discrete", "iterations": 3, "ls_iterations": 9}
    own = load_robot(mjcf(tmp_path, rest=rest), 0.02, 4, options=given).mj_model.opt
    assert (own.integrator, own.iterations, own.ls_iterations) == (mujoco.mjtIntegrator.mjINT_DISCRETE, 3, 9)
    for name in INTEGRATORS:
        load_robot(mjcf(tmp_path), 0.02, 4, options={"integrator": name})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"integrator": "discret"}, r"unknown integrator 'discret' \(did you mean discrete\?\); there are Euler, "),
        ({"iterations": 0}, "iterations must be a whole number of at least 1, got 0"),
        ({"ls_iterations": 2.5}, "ls_iterations must be a whole number of at least 1, got 2.5"),
        ({"solver": "CG"}, "unknown option 'solver'; there are integrator, iterations and ls_iterations"),
    ],
)
def test_unknown_options_are_refused(tmp_path, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        load_robot(mjcf(tmp_path), 0.02, 4, options=options)


@pytest.mark.parametrize("effort", [False, True])
@pytest.mark.parametrize("options", [None, {"integrator": "discrete"}])
@pytest.mark.parametrize("task, gains", [("Anymal", (85.0, 2.0)), ("Ant", (None, None)), ("Cartpole", (None, None))])
def test_portable_model_matches_the_simulator(task, gains, options, effort):
    path = find_spec(task).model_path
    sim = make_simulator("mujoco_cpu", path, 1, 0.02, 4, "cpu", *gains, options)
    sim.set_drive_mode(torch.tensor([effort]))
    model = mujoco.MjModel.from_xml_string(portable_model(path, 0.02, 4, effort, *gains, options).xml)
    data = mujoco.MjData(model)
    joints = model.nq - sim.num_dofs
    actuated = [k for k, limit in enumerate(sim.effort_limits.tolist()) if limit]
    command = torch.linspace(-0.5, 0.6, sim.num_dofs).unsqueeze(0)
    for _ in range(5):
        data.ctrl[:] = command[0, actuated]
        mujoco.mj_step(model, data, 4)
        sim.step(command)
    np.testing.assert_allclose(data.qpos[joints:], sim.dof_pos[0], rtol=0, atol=1e-5)
    assert effort or task != "Cartpole" or not np.any(data.qpos)  # a motor drives no position

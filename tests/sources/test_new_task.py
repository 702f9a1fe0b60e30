"""``new-task`` writes tasks that pass the check from models that do not fulfil the rules, or says why it cannot."""

import xml.etree.ElementTree as ET
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import yaml

from envcoder_bench.__main__ import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.sim.mujoco_model import load_robot
from envcoder_bench.sim.robot_file import lacks_ground
from envcoder_bench.sources import registry
from envcoder_bench.tasks import check_task
from envcoder_bench.tools.new_task import new_task
from envcoder_bench.tools.task_check import TaskFaults

# defaults of actuators, nameless parts, drives with gears and a ctrlrange, a tendon, a keyframe, RK4, an object
ARM = """
<mujoco model="arm">
  <option integrator="RK4" timestep="0.005"/>
  <default><geom contype="0" conaffinity="0"/><general gear="3" ctrlrange="-1 1" ctrllimited="true"/></default>
  <worldbody>
    <body pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" range="-60 60" limited="true"/>
      <geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/>
      <body pos=".3 0 0">
        <joint axis="0 1 0" damping="1"/>
        <geom type="capsule" size=".03" fromto="0 0 0 .3 0 0"/>
        <body name="finger" pos=".3 0 0"><joint name="slide" type="slide"/><geom size=".03"/><site/></body>
        <body name="thumb" pos=".3 0 0"><joint name="loose" axis="0 1 0"/><geom size=".03"/></body>
      </body>
    </body>
    <body name="ball" pos="1 0 1"><freejoint/><geom size=".05" contype="1" conaffinity="1"/></body>
    <geom type="plane" size="0 0 1" contype="1" conaffinity="1"/>
  </worldbody>
  <tendon><fixed name="grip"><joint joint="slide" coef="2"/></fixed></tendon>
  <actuator>
    <general tendon="grip" ctrlrange="0 3" ctrllimited="true" gear="5"/>
    <motor joint="body_2_joint" ctrlrange="-1 1" ctrllimited="true" gear="7"/>
    <position joint="shoulder" kp="10" kv="1" gear="2" ctrlrange="-.5 .5" ctrllimited="true"/>
  </actuator>
  <sensor><jointpos joint="shoulder"/></sensor>
  <keyframe><key name="home" qpos="0.2 0 0 0 1 0 1 1 0 0 0"/></keyframe>
</mujoco>
"""
HOPPER = """
<mujoco model="hopper">
  <worldbody>
    PLANE
    <body name="trunk" pos="0 0 .1">
      <freejoint/>
      <geom type="box" size=".1 .1 .05"/>
      <body name="leg" pos="0 0 -.05">
        <joint name="knee" axis="0 1 0"/>
        <geom type="capsule" size=".02" fromto="0 0 0 0 0 -.3"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="knee" forcerange="-9 9" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
# as gymnasium's Hopper: a base that slides in a plane on joints without an actuator, gears, RK4
PLANAR = """
<mujoco model="runner">
  <option integrator="RK4" timestep="0.004"/>
  <worldbody>
    <geom type="plane" size="20 20 1"/>
    <body name="torso" pos="0 0 1">
      <joint name="rootx" type="slide" axis="1 0 0"/>
      <joint name="rootz" type="slide" axis="0 0 1"/>
      <joint name="rooty" axis="0 1 0"/>
      <geom type="capsule" size=".05 .2"/>
      <body name="thigh" pos="0 0 -.2">
        <joint name="hip" axis="0 -1 0" range="-90 90" limited="true"/>
        <geom type="capsule" size=".04" fromto="0 0 0 0 0 -.4"/>
        <body name="shin" pos="0 0 -.4">
          <joint name="knee" axis="0 -1 0" range="-90 0" limited="true"/>
          <geom type="capsule" size=".04" fromto="0 0 0 0 0 -.3"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position joint="knee" kp="20" ctrlrange="-1 1" ctrllimited="true"/>
    <motor joint="hip" gear="200" ctrlrange="-.5 .5" ctrllimited="true"/>
  </actuator>
</mujoco>
"""
URDF = """
<robot name="swing">
  <link name="base"/>
  <link name="rod">
    <inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius=".1"/></geometry></collision>
  </link>
  <joint name="hinge" type="revolute">
    <parent link="base"/><child link="rod"/><axis xyz="0 1 0"/><origin xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="4" velocity="9"/><dynamics damping="0.5"/>
  </joint>
</robot>
"""
PLANE = '<geom type="plane" size="0 0 1"/>'


pytestmark = pytest.mark.usefixtures("forgotten")


def write(name, text):
    Path(name).write_text(text.strip(), encoding="utf-8")
    return Path(name)


@pytest.mark.slow
@pytest.mark.usefixtures("short_check")
@pytest.mark.parametrize(
    ("file", "text", "options"),
    [
        ("arm.xml", ARM, {}),
        ("hopper.xml", HOPPER, {"ground": True}),
        ("runner.xml", PLANAR, {}),
        ("swing.urdf", URDF, {}),
    ],
)
def test_new_task_passes_the_check(file, text, options):
    task = new_task(write(file, text.replace("PLANE", "")), **options)
    assert task.folder.name == file.split(".")[0]
    check_task(task.folder, "mujoco_cpu", "cpu")
    for part in ("task.py", "human.py", "unshaped.py", "task.yaml"):
        written = (task.folder / part).read_text(encoding="utf-8")
        assert max(map(len, written.splitlines())) <= 120 and ("EDIT" in written or part == "unshaped.py")


def test_goal_of_a_planar_robot_is_its_speed():
    task = new_task(write("runner.xml", PLANAR))
    text = (task.folder / "task.py").read_text(encoding="utf-8")
    assert 'fitness_meaning = "velocity of rootx, m/s' in text and "target_dof_pos" not in text
    human = (task.folder / "human.py").read_text(encoding="utf-8")
    assert "SEEN = [1, 2, 3, 4]" in human and "dof_pos[:, 1] < default_dof_pos[1] - 0.5" in human
    # in the plane of the ground nothing falls; a slide that is driven is no base
    swimmer = PLANAR.replace('axis="0 0 1"', 'axis="0 1 0"').replace("runner", "swimmer")
    human = (new_task(write("swimmer.xml", swimmer)).folder / "human.py").read_text(encoding="utf-8")
    assert "SEEN = [2, 3, 4]" in human and "compute_terminal" not in human
    cart = PLANAR.replace('<motor joint="hip"', '<motor joint="rootx"').replace("runner", "cart")
    assert "target_dof_pos" in (new_task(write("cart.xml", cart)).folder / "task.py").read_text(encoding="utf-8")


def test_conversion_of_drives_is_said():
    """Gears, ranges of controls, the order of the actions, and limits that no line of the file states."""
    task = new_task(write("runner.xml", PLANAR))
    assert task.step == "0.02 s, 5 physics steps"
    assert task.changes == [
        "actuator number 0: it states no greatest effort; 40 is invented, its gain times the width of its ctrlrange:"
        " set its forcerange",
        "hip: forcerange -100 to 100, from gear 200 and ctrlrange -0.5 to 0.5",
        "the actions are in the order of the joints, hip, knee; in the file: knee, hip",
        "the integrator RK4 is now implicitfast",
    ]


def test_drives_keep_the_efforts_and_gains_of_the_original():
    task = new_task(write("arm.xml", ARM))
    robot = load_robot(task.folder / "model.xml", 0.02, 4)
    assert robot.dof_names == ["shoulder", "body_2_joint", "slide", "loose"] and robot.object_names == ["ball"]
    assert robot.effort_limits.tolist() == [20.0, 7.0, 30.0, 0.0]  # 10 kp x 2 gear x 1 of range; 1 x 7; 3 x 5 x 2
    assert robot.stiffness.tolist() == [40.0, 0.0, 0.0] and robot.damping.tolist() == [4.0, 0.0, 0.0]
    assert robot.sites.names == ["finger_site"] and robot.mj_model.nkey == 0
    assert "[0.2, 0.0, 0.0, 0.0]" in (task.folder / "task.py").read_text(encoding="utf-8")
    changes = " ".join(task.changes)
    assert "RK4 is now implicitfast" in changes and "it drove a tendon" in changes


def test_joints_accelerate_as_in_the_original():
    """The same effort through the original's position drive and through the new one."""
    task = new_task(write("arm.xml", ARM))
    original, model = mujoco.MjModel.from_xml_string(named(ARM)), mujoco.MjModel.from_xml_path("arm/model.xml")
    first, second = mujoco.MjData(original), mujoco.MjData(model)
    first.ctrl[2], second.ctrl[0] = 0.4, 0.2  # target of the geared length, and of the joint
    mujoco.mj_forward(original, first)
    mujoco.mj_forward(model, second)
    assert np.allclose(first.qfrc_actuator, second.qfrc_actuator) and first.qfrc_actuator[0] > 1
    assert task.driven == ["shoulder", "body_2_joint", "slide"]


def named(text):
    return text.replace('<joint axis="0 1 0" damping="1"/>', '<joint name="body_2_joint" axis="0 1 0" damping="1"/>')


def test_floating_robot_starts_above_the_ground_and_needs_one(capsys):
    model = write("hopper.xml", HOPPER.replace("PLANE", ""))
    assert main(["new-task", "hopper.xml"]) == 2
    assert "the robot floats, and nothing in the model can carry it" in capsys.readouterr().err
    assert not Path("hopper").exists()
    assert main(["new-task", "hopper.xml", "--ground"]) == 0
    printed = capsys.readouterr().out
    assert "a plane to stand on is new" in printed and "envcoder-bench check-task hopper" in printed
    start = made("hopper").default_state["root_states"]
    assert start[0, 2].item() == pytest.approx(0.37, abs=0.005)
    with pytest.raises(UserError, match="hopper: it exists already; give another folder with --output"):
        new_task(model)


def made(folder):
    spec = registry.find_spec(str(folder))
    cfg = yaml.safe_load(spec.config.read_text(encoding="utf-8"))
    return spec.make(cfg, 2, "mujoco_cpu", "cpu")


def test_urdf_has_drives_of_its_efforts_and_floats_if_asked():
    task = new_task(write("swing.urdf", URDF))
    robot = load_robot(task.folder / "model.xml", 0.02, 10)
    assert robot.effort_limits.tolist() == [4.0] and not robot.floating
    assert np.ravel(robot.mj_model.dof_damping)[0] == 0.5
    limitless = new_task(write("free.urdf", URDF.replace('effort="4" ', "")))
    assert limitless.changes == ["joint hinge: it states no effort; its forcerange is now 10"]
    new_task(Path("swing.urdf"), "Flyer", floating=True, ground=True)
    assert load_robot("flyer/model.xml", 0.02, 10).floating


def test_ball_joint_becomes_three_hinges_with_the_same_motion():
    """A keyframe's quaternion places the arm as before, and it swings as before."""
    text = """<mujoco><option timestep="0.001" integrator="implicitfast"/><worldbody>
    <body name="rod"><joint name="j" axis="0 1 0"/><geom type="capsule" size=".02" fromto="0 0 0 0 0 -.3" contype="0"/>
    <body name="tip" pos="0 0 -.3"><joint name="b" type="ball" range="0 170" limited="true"/>
    <geom type="box" size=".02 .05 .1" pos="0 .02 -.1" contype="0"/></body></body></worldbody>
    <actuator><motor joint="j" forcerange="-1 1"/><motor joint="b" gear="1 0 0" forcerange="-1 1"/></actuator>
    <sensor><ballquat joint="b"/></sensor><keyframe><key qpos="0.3 0.8 0.2 0.4 -0.4"/></keyframe></mujoco>"""
    task = new_task(write("wrist.xml", text))
    assert "joint b: a ball, now hinges b_x, _y and _z" in task.changes[-1] and task.driven == ["j"]
    before, after = mujoco.MjModel.from_xml_string(text), mujoco.MjModel.from_xml_path("wrist/model.xml")
    first, second = mujoco.MjData(before), mujoco.MjData(after)
    mujoco.mj_resetDataKeyframe(before, first, 0)
    start = made(task.folder).default_state
    second.qpos[:] = start["dof_pos"][0]
    for steps in (0, 150, 150):
        for _ in range(steps):
            mujoco.mj_step(before, first)
            mujoco.mj_step(after, second)
        mujoco.mj_forward(before, first)
        mujoco.mj_forward(after, second)
        assert np.allclose(first.body("tip").xquat, second.body("tip").xquat, atol=2e-3), first.time
        assert np.allclose(first.body("tip").xpos, second.body("tip").xpos, atol=2e-3)
    assert np.abs(first.qvel).max() > 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ARM[: ARM.index("<actuator>")] + "</mujoco>", "has an actuator: add <actuator><motor joint="),
        (ARM.replace("<worldbody>", "<worldbdy>"), "XML"),
        (ARM.replace("<freejoint/>", "").replace('body pos="0 0 1"', 'body name="b"'), "qpos"),
    ],
)
def test_unsupported_model_is_refused_in_one_line(text, reason, capsys):
    write("arm.xml", text)
    assert main(["new-task", "arm.xml"]) == 2
    error = capsys.readouterr().err
    assert "arm.xml: " in error and reason in error and error.count("\n") == 1 and not Path("arm").exists()


def test_name_must_be_free():
    model = write("ant.xml", HOPPER.replace("PLANE", PLANE))
    assert new_task(model, output=Path("a")).name == "MyAnt"
    for name, reason in (("Ant", "there is a task of this name"), ("1a", "must be letters, digits and _")):
        with pytest.raises(UserError, match=f"--name {name}: .*{reason}"):
            new_task(model, name)


@pytest.mark.slow
def test_check_lists_all_faults_of_the_model_and_a_missing_ground():
    task = new_task(write("hopper.xml", HOPPER.replace("PLANE", PLANE)))
    model, code = task.folder / "model.xml", task.folder / "task.py"
    root = ET.parse(model).getroot()
    world = root.find("worldbody")
    world.remove(world.find("geom[@type='plane']"))
    model.write_text(ET.tostring(root, encoding="unicode"), encoding="utf-8")
    text = code.read_text(encoding="utf-8").replace("    fields =", '    dof_names = ("hip",)\n    fields =')
    code.write_text(text.replace("Field((1,)", "Field((3,)", 1), encoding="utf-8")
    with pytest.raises(TaskFaults) as error:
        check_task(task.folder, "mujoco_cpu", "cpu")
    names, shape, ground = error.value.findings
    assert "needs the dof_names ['hip'] in this order, not ['knee']" in names
    assert "'dof_pos' is declared as (2, 3), but its tensor is (2, 1)" in shape
    assert ground.startswith(
        'model.xml: the robot floats, and nothing in the model can carry it: add <geom type="plane"'
    )


def test_goal_needs_no_source():
    task = made(new_task(write("arm.xml", ARM)).folder)
    assert torch.equal(task.state["target_dof_pos"], torch.zeros(2, 4))
    assert task.dof_names == ("shoulder", "body_2_joint", "slide", "loose") and task.site_names == ("finger_site",)


def test_robot_that_cannot_touch_the_plane_lacks_a_ground():
    def model(plane, gravity="0 0 -9.81"):
        text = HOPPER.replace("PLANE", plane).replace("<worldbody>", f'<option gravity="{gravity}"/><worldbody>')
        return mujoco.MjModel.from_xml_string(text)

    assert not lacks_ground(model(PLANE)) and lacks_ground(model(""))
    assert lacks_ground(model(PLANE.replace("/>", ' contype="0" conaffinity="0"/>')))
    assert not lacks_ground(model("", gravity="0 0 0"))


@pytest.mark.slow
@pytest.mark.usefixtures("short_check")
@pytest.mark.parametrize("names", [("a-b", "a_b"), ("1&quot;x", "a\\b"), ("class", "a b")])
def test_objects_of_any_names_have_keys_of_their_own(names):
    bodies = "".join(
        f'<body name="{name}" pos="{k + 1} 0 1"><freejoint/><geom size=".05"/></body>' for k, name in enumerate(names)
    )
    text = ARM.replace('<geom type="plane"', f'{bodies}<geom type="plane"')
    text = text.replace('1 1 0 0 0"/></keyframe>', f'1 1 0 0 0{" 1 0 1 1 0 0 0" * 2}"/></keyframe>')
    task = new_task(write("arm.xml", text))
    assert main(["check-task", str(task.folder), "--sim", "mujoco_cpu", "--device", "cpu"]) == 0

"""Signs of joints, against a simulation."""

import mujoco
import pytest
import torch

from envcoder_bench.run.config import compose_config
from envcoder_bench.sim.joint_facts import drive_facts, joint_facts
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.contract import task_contract


def made(name):
    spec, cfg = find_spec(name), compose_config(name).task
    task = spec.make(cfg, 2, "mujoco_cpu", "cpu")
    task.set_drive_mode(torch.ones(2, dtype=torch.bool))
    return task, task_contract(spec, cfg)


@pytest.mark.parametrize("name", ["Cartpole", "CartpoleSwingup"])
def test_signs_of_the_pole_are_those_of_the_simulation(name):
    task, facts = made(name)
    assert facts.joint_facts["slider_to_cart"] == "slides along +y"
    told = "positive moves pole towards negative cart_pos, -y"
    assert told in facts.joint_facts["cart_to_pole"] and told in facts.fields["pole_angle"].meaning
    # a cart that is pushed leaves the pole behind: it then leans away from the push, to negative cart_pos
    everywhere = torch.ones(2, dtype=torch.bool)
    task.reset(everywhere, {key: x.clone() for key, x in task.default_state.items()}, {})
    task.step(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    change = task.state["dof_vel"][0] - task.state["dof_vel"][1]
    assert change[0] > 0 and change[1] > 0
    (push,) = facts.pushes
    numbers = push.split("adds [")[1].split("]")[0].split(", ")
    assert [float(x) for x in numbers] == pytest.approx(change.tolist(), rel=0.05)


def test_axes_of_legs_and_masses_of_what_moves():
    _, facts = made("Anymal")
    assert facts.joint_facts["LF_HFE"] == "turns about +y, positive moves LF_SHANK towards -x"
    assert facts.joint_facts["RH_HAA"].startswith("turns about +x, positive moves RH_SHANK towards (")
    assert facts.pushes == () and 20 < facts.masses[0] < 40
    _, cart = made("CartpoleSwingup")
    assert cart.masses == pytest.approx((0.0, 1.0, 0.1))  # the rail is fixed


def test_targets_of_joints_without_drives_are_refused():
    for name, refused in (("CartpoleSwingup", True), ("Ant", False), ("Anymal", False)):
        task, facts = made(name)
        assert ("compute_dof_target" in task.refusals) == ("compute_dof_target" in facts.refusals) == refused


def test_drives_are_those_of_the_model():
    """Of a model that is not the house's, with other joints in front: names, gains and limits."""
    leg = '<body pos="0 0 1"><joint name="r/{0}" axis="0 1 0" {1}/><geom size=".1" pos="0 0 -.5"/></body>'
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body>"
        + leg.format("hip", 'actuatorfrcrange="-7 7" actuatorfrclimited="true"') + leg.format("knee", "")
        + leg.format("bare", "") + "</worldbody><actuator><position joint='r/hip' kp='20' kv='2' forcerange='-9 9'/>"
        "<motor joint='r/knee'/></actuator></mujoco>"
    )  # fmt: skip
    joints = {name: model.joint(f"r/{name}").id for name in ("hip", "knee", "bare")}
    assert drive_facts(model, joints) == {"hip": "stiffness 20, damping 2, 7 N m at most"}
    facts = joint_facts(model, model.qpos0, joints, {})
    assert facts["hip"] == "turns about +y, positive moves  towards -x, 0.5 m/rad"

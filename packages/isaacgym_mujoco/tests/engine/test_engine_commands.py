"""What the engines have beside Isaac Gym's interface: forces on joints beside drives, and poses of written states."""

import pytest
import torch
from isaacgym_scene import SLIDER, Scene, load, on_all, pose

from isaacgym_mujoco.api import gymapi

WEAK = {"driveMode": gymapi.DOF_MODE_POS, "stiffness": 0.0, "damping": 0.0, "effort": 1.0}


@on_all
def test_joint_forces_add_to_drives_and_have_no_limit(tmp_path, engine):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose()), gravity=0.0, props=WEAK)
    scene.sim.engine.joint_forces = scene.tensor([[6.0], [-3.0]])
    scene.step(10)
    assert scene.dof[:, 1].tolist() == pytest.approx([0.3, -0.15], rel=1e-3)  # F t / m, of 2 kg in 0.1 s


@on_all
def test_bodies_follow_a_write_after_a_refresh(tmp_path, engine):
    scene = Scene((load(tmp_path, SLIDER, fix_base_link=True), pose(1.0)), gravity=0.0)
    simulation = scene.sim.engine
    simulation.write_dofs(None, scene.tensor([[0.5, 2.0], [-0.5, 0.0]]))
    before = simulation.tensor("bodies").view(2, 2, 13)[:, 1, 0].clone()
    simulation.refresh()
    after = simulation.tensor("bodies").view(2, 2, 13)[:, 1]
    assert torch.allclose(before.cpu(), torch.tensor([1.0, 1.0]))
    assert after[:, 0].tolist() == pytest.approx([1.5, 0.5]) and after[:, 7].tolist() == pytest.approx([2.0, 0.0])
